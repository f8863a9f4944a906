"""One listing for all ranks."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import torch.distributed

from headrace import _engine
from headrace._base.errors import InvalidArgumentError, add_note, portable
from headrace._engine import ObjectIndex
from headrace._store.store import Store
from headrace.torch._arguments import as_store

__all__ = ["shared_index"]

# Bytes of one broadcast; torch copies each a few times.
_PIECE_BYTES = 16 << 20


def shared_index(
    source: str | os.PathLike[str] | Store | Callable[[], ObjectIndex],
    *,
    prefix: str | None = None,
    group: torch.distributed.ProcessGroup | None = None,
) -> ObjectIndex:
    """Let one rank list the objects, and return the same index on all of them.

    The first rank of the group lists and broadcasts the index, some 25 bytes an object; the others
    send the store no request. Like any collective operation, all ranks of the group must call it.
    Without an initialised torch.distributed there is one rank. Pass the result as ``index=`` to
    `MapDataset`.

    Args:
        source: a URL, a path or a `headrace.Store` to list; or a function without arguments that
            returns an index, which only the first rank calls:
            ``lambda: ObjectIndex.load("gs://bucket/train.index")``.
        prefix: the beginning of the names to list. Default: everything below the URL. Not with a
            function.
        group: the ranks that take part. Default: all.

    Raises:
        HeadraceError: the first rank failed; every rank raises its error.
        InvalidArgumentError: `source` cannot be listed, or this process is not in `group`.

    Examples:
        >>> index = shared_index("gs://bucket/train")
        >>> dataset = MapDataset("gs://bucket/train", decode, index=index)
    """
    make = _maker(source, prefix)
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        if group is not None:
            raise InvalidArgumentError("group is given, but torch.distributed is not initialised")
        return make()
    rank = distributed.get_rank(group)
    if rank < 0:
        raise InvalidArgumentError("this process is not in the group that shares the index")
    root = 0 if group is None else distributed.get_global_rank(group, 0)

    def broadcast(value: Any = None) -> Any:
        values = [value]
        distributed.broadcast_object_list(values, src=root, group=group)
        return values[0]

    if rank == 0:
        return _send(make, broadcast)
    return _receive(broadcast)


def _maker(source: Any, prefix: str | None) -> Callable[[], ObjectIndex]:
    if callable(source):
        if prefix is not None:
            raise InvalidArgumentError("prefix is given, but what the function returns has its own")

        def call() -> ObjectIndex:
            index = source()
            if not isinstance(index, ObjectIndex):
                raise InvalidArgumentError(
                    f"the function returned a {type(index).__name__}; it must return a "
                    "headrace.ObjectIndex"
                )
            return index

        return call
    store = as_store(source)
    return lambda: store.index(prefix or "")


# The first broadcast is the size of the index, or the error raised instead.
def _send(make: Callable[[], ObjectIndex], broadcast: Callable[[Any], Any]) -> ObjectIndex:
    try:
        index = make()
        image = memoryview(_engine.index_image(index))
    except BaseException as error:
        broadcast(pickle.dumps(portable(error)))  # or the others would wait forever
        raise
    broadcast(len(image))
    for begin in range(0, len(image), _PIECE_BYTES):
        broadcast(bytes(image[begin : begin + _PIECE_BYTES]))
    return index


def _receive(broadcast: Callable[[], Any]) -> ObjectIndex:
    size_bytes = broadcast()
    if not isinstance(size_bytes, int):
        error: Exception = pickle.loads(size_bytes)
        add_note(error, "the first rank, which lists for all, raised this error")
        raise error
    image = bytearray()
    while len(image) < size_bytes:
        image += broadcast()
    return _engine.index_from_image(image)
