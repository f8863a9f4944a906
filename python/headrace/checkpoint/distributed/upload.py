"""One new object from pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.store import Store

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["upload"]


def upload(store: Store, name: str, pieces: Iterable[Buffer]) -> None:
    """Write the object `name`, which must not exist yet.

    If `pieces` raises, nothing is written.
    """
    whole = bytearray()
    for piece in pieces:
        whole += memoryview(piece)
    store.write(name, whole, if_generation="absent")
