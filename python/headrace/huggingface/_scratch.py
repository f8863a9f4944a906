"""Local folders for work in progress, which somebody else removes if the process is killed."""

from __future__ import annotations

import contextlib
import fcntl
import shutil
import tempfile
from pathlib import Path

__all__ = ["Scratch", "clear"]

_LOCK_NAME = "lock"


class Scratch:
    """A new folder. While it is in use, `clear` leaves it alone, in whatever process.

    Args:
        prefix: its name begins so.
        parent: the folder that it is made in.
    """

    def __init__(self, prefix: str, parent: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._lock = (self.folder / _LOCK_NAME).open("w")
        with contextlib.suppress(OSError):  # a file system without locks: then nobody clears
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self.files = self.folder / "files"
        """The folder for the files."""
        self.files.mkdir()

    def close(self) -> None:
        """Remove the folder. A second call does nothing."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def clear(prefix: str, parent: Path) -> None:
    """Remove the folders that killed processes have left in `parent`."""
    for folder in parent.glob(f"{prefix}*"):
        with contextlib.suppress(OSError), (folder / _LOCK_NAME).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
