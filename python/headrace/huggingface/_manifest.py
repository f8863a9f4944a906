"""The manifest of a folder: which files make the checkpoint, and their checksums. No I/O."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from headrace._errors import CorruptDataError, InvalidArgumentError

__all__ = ["MANIFEST_NAME", "FileSum", "manifest_of", "order_of", "parse_manifest", "step_of"]

MANIFEST_NAME = "headrace-checkpoint.json"
MAX_MANIFEST_BYTES = 64 << 20

_VERSION = 1
_STEP = re.compile(r"(?:.*[^0-9])?([0-9]+)")


@dataclass(frozen=True)
class FileSum:
    """What a file of a checkpoint must be."""

    size_bytes: int
    crc32c: int


def step_of(name: str) -> int | None:
    """Return the number at the end of a checkpoint's name, ``checkpoint-100``; None without one."""
    match = _STEP.fullmatch(name)
    return None if match is None else int(match[1])


def order_of(name: str) -> tuple[int, str]:
    """Return what checkpoints of these names are sorted by, the newest last."""
    return step_of(name) or 0, name


def manifest_of(files: dict[str, FileSum]) -> bytes:
    """Return the manifest of files by their names, relative to the folder."""
    described = {
        name: {"size_bytes": each.size_bytes, "crc32c": f"{each.crc32c:08x}"}
        for name, each in sorted(files.items())
    }
    return (json.dumps({"version": _VERSION, "files": described}, indent=1) + "\n").encode()


def parse_manifest(data: bytes) -> dict[str, FileSum]:
    """Return the files of a manifest.

    Raises:
        CorruptDataError: it is damaged, or names a file outside of its folder.
        InvalidArgumentError: a newer version of headrace wrote it.
    """
    try:
        found = json.loads(data.decode())
        if found["version"] != _VERSION:
            raise InvalidArgumentError(
                f"it is a manifest of version {found['version']!r}: a newer headrace reads it"
            )
        files = {
            name: FileSum(int(each["size_bytes"]), int(each["crc32c"], 16))
            for name, each in found["files"].items()
        }
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise CorruptDataError(f"it is damaged, or no manifest: {error!r}") from None
    for name in files:
        if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name or "\0" in name:
            raise CorruptDataError(f"it is damaged: {ascii(name)[:200]} names no file below it")
    return files
