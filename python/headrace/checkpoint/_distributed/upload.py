"""One new object from pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace._leftovers import tell_left_behind
from headrace._store import Store, UploadWay

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["upload"]

# What is smaller is copied, so that parts are made of few pieces.
_LENT_BYTES = 64 << 10


def upload(store: Store, name: str, pieces: Iterable[Buffer], way: UploadWay) -> None:
    """Write the object `name`, which must not exist yet, while `pieces` are made.

    If `pieces` raises, nothing is there.

    Args:
        pieces: memory that stays as it is until this returns.
        way: how parts come to the store, as for `Store.open_writer`.
    """
    writer = store.open_writer(name, if_generation="absent", upload=way)
    try:
        for piece in pieces:
            if memoryview(piece).nbytes < _LENT_BYTES:
                writer.write(piece)
            else:
                writer.write_lent(piece)
        writer.close()
    except BaseException:
        writer.abort()
        raise
    tell_left_behind(writer, store.url_of(name), is_saved=True)
