"""Write one new object from pieces."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from headrace._files.leftovers import give_up, tell_left_behind
from headrace._store.store import Store, UploadWay

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["Passing", "upload"]

# Smaller pieces are copied, so that a part consists of few pieces.
_LENT_BYTES = 64 << 10


class Passing(NamedTuple):
    """A piece that is valid until the next one is asked for."""

    data: Buffer


def upload(
    store: Store,
    name: str,
    pieces: Iterable[Buffer | Passing],
    way: UploadWay | None,
    expected_size_bytes: int | None = None,
) -> None:
    """Write the object `name`, which must not exist yet, while `pieces` are made.

    If `pieces` raises, no object is written.

    Args:
        pieces: memory that does not change until this returns, unless it is `Passing`.
        way: how parts reach the store, as for `Store.open_writer`.
        expected_size_bytes: of the object, as for `Store.open_writer`.
    """
    writer = store.open_writer(
        name, if_generation="absent", expected_size_bytes=expected_size_bytes, upload=way
    )
    try:
        for piece in pieces:
            if isinstance(piece, Passing):
                writer.write(piece.data)
            elif memoryview(piece).nbytes < _LENT_BYTES:
                writer.write(piece)
            else:
                writer.write_lent(piece)
        writer.close()
    except BaseException as error:
        give_up(writer, error)
        raise
    tell_left_behind(writer, store.url_of(name), is_saved=True)
