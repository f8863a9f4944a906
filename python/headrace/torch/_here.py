"""How one process reads the objects of an index."""

from __future__ import annotations

import os
from collections.abc import Sequence

from headrace import _engine
from headrace._engine import ObjectIndex
from headrace._store.store import Store
from headrace.torch._worker_store import store_in_this_process

__all__ = ["Here"]


class Here:
    """The reader of this process; made anew if the engine was stopped in the meantime.

    A forked worker inherits the trainer's, which is not valid there.
    """

    def __init__(self, stores: Sequence[Store], objects: ObjectIndex) -> None:
        self._pid = os.getpid()
        self._objects = objects
        self._stores = [store_in_this_process(store, objects) for store in stores]
        self._opened: list[tuple[_engine.Engine, _engine.StoreHandle]] = []
        self._reader: _engine.IndexReader | None = None

    @property
    def is_valid(self) -> bool:
        """Whether this process made it."""
        return self._pid == os.getpid()

    def opened(self) -> tuple[_engine.Engine, _engine.IndexReader]:
        # Once and again for every batch.
        opened = [store._open() for store in self._stores]
        if self._reader is None or opened != self._opened:
            self._reader = _engine.IndexReader(self._objects, [handle for _, handle in opened])
            self._opened = opened
        return opened[0][0], self._reader
