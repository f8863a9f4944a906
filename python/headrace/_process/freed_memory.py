"""Memory that the process keeps for the next batch."""

from __future__ import annotations

import ctypes
import functools
import os

__all__ = ["keep_freed_memory"]

# glibc's constants for mallopt().
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_KEPT_BYTES = 256 << 20


@functools.cache
def keep_freed_memory() -> None:
    """Let glibc keep up to 256 MiB of freed memory in this process for the next batch.

    Where reads give ``bytes``, as in fsspec and in the packages that headrace stands in for, each
    takes new memory. If glibc returned the memory of a dropped batch to the system, the system
    would have to clear the pages of the next one, which costs more than receiving the data.
    Environment variables of glibc take precedence.
    """
    decided = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
    if any(name in os.environ for name in decided):
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):  # another C library
        return
    mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # the most that glibc accepts
