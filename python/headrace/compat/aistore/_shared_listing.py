"""One listing for all workers of a DataLoader."""

from __future__ import annotations

import fcntl
import os
import pickle
import sys
import tempfile
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from headrace._base.contexts import context
from headrace.compat.aistore._sources import Found

__all__ = ["SharedListing"]

_HEAD_BYTES = 16


class SharedListing:
    """A file without a name, in which the first worker of a pass leaves its listing for the others.

    The processes that share it are those that the maker forks, and those that multiprocessing
    starts with the dataset. A pickle that goes elsewhere carries no file. There is none before the
    first of these processes is started.
    """

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = descriptor
        if descriptor is not None:
            weakref.finalize(self, os.close, descriptor)
        _listings.add(self)

    def descriptor(self) -> int:
        """Return the file's descriptor; make the file if there is none."""
        if self._descriptor is None:
            self._descriptor = _new_descriptor()
            weakref.finalize(self, os.close, self._descriptor)
        return self._descriptor

    def get(self, key: tuple[int, ...], make: Callable[[], list[Found]]) -> list[Found]:
        """Return the listing that some process has made for `key`; if none has, make it."""
        with self._locked() as descriptor:
            found = _read(descriptor)
            if found is not None and found[0] == key:
                listing: list[Found] = found[1]
                return listing
            listing = make()
            _write(descriptor, (key, listing))
            return listing

    @context
    def _locked(self) -> Iterator[int]:
        # A lock of the process, not of the descriptor: forked workers have the same one.
        descriptor = self.descriptor()
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        try:
            yield descriptor
        finally:
            fcntl.lockf(descriptor, fcntl.LOCK_UN)

    def __reduce__(self) -> tuple[Any, ...]:
        context = sys.modules.get("multiprocessing.context")
        child = None if context is None else context.get_spawning_popen()
        if child is None:
            return SharedListing, ()
        from multiprocessing.reduction import DupFd

        return _from_descriptor, (DupFd(self.descriptor()),)


_listings: weakref.WeakSet[SharedListing] = weakref.WeakSet()


def _before_fork() -> None:
    # The child may be a worker.
    for listing in list(_listings):
        listing.descriptor()


os.register_at_fork(before=_before_fork)


def _from_descriptor(duplicate: Any) -> SharedListing:
    return SharedListing(duplicate.detach())


def _new_descriptor() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("headrace-listing")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _read(descriptor: int) -> Any:
    head = os.pread(descriptor, _HEAD_BYTES, 0)
    if not head:
        return None
    size_bytes = int.from_bytes(head, "little")
    content = bytearray()
    while len(content) < size_bytes:
        content += os.pread(descriptor, 1 << 24, _HEAD_BYTES + len(content))
    return pickle.loads(content)


def _write(descriptor: int, value: Any) -> None:
    content = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    os.ftruncate(descriptor, 0)  # without a head there is nothing
    view, at = memoryview(content), _HEAD_BYTES
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
    os.pwrite(descriptor, len(content).to_bytes(_HEAD_BYTES, "little"), 0)
