"""Bytes in memory as a file, for libraries that read files."""

from __future__ import annotations

import io
from typing import Any

__all__ = ["ViewIO"]


class ViewIO(io.RawIOBase):
    """A file that is bytes in memory, without a copy of them."""

    def __init__(self, view: memoryview) -> None:
        self._bytes, self._at = view, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = max(0, offset + (0, self._at, len(self._bytes))[whence])
        return self._at

    def readinto(self, buffer: Any) -> int:
        found = self._bytes[self._at : self._at + len(buffer)]
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
