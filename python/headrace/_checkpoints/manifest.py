"""The manifest of a folder: which files make the checkpoint, and their checksums.

`headrace.huggingface` uploads such folders, and `headrace.checkpoint.latest` finds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace._base.errors import CorruptDataError, InvalidArgumentError, with_url
from headrace._checkpoints.newest import read
from headrace._engine import ObjectInfo
from headrace._store.store import Store

__all__ = [
    "MANIFEST_NAME",
    "FileSum",
    "manifest_of",
    "parse_manifest",
    "read_manifest",
    "require_uploaded",
    "step_of",
]

MANIFEST_NAME = "headrace-checkpoint.json"

_MAX_BYTES = 64 << 20

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
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        raise CorruptDataError(f"it is damaged, or no manifest: {error!r}") from None
    for name in files:
        if any(part in ("", ".", "..") for part in name.split("/")) or "\\" in name or "\0" in name:
            raise CorruptDataError(f"it is damaged: {ascii(name)[:200]} names no file below it")
    return files


def read_manifest(store: Store, info: ObjectInfo) -> dict[str, FileSum]:
    """Return the files of the manifest that is this object.

    Raises:
        CorruptDataError: it is damaged.
        InvalidArgumentError: a newer version of headrace wrote it.
        PreconditionFailedError: it has been replaced.
    """
    url = store.url_of(info.name)
    try:
        if info.size_bytes > _MAX_BYTES:
            raise CorruptDataError(f"it has {info.size_bytes:,} bytes")
        return parse_manifest(read(store, info) if info.size_bytes else b"")
    except (CorruptDataError, InvalidArgumentError) as error:
        if error.http_status is not None:
            raise
        raise with_url(type(error)(f"{url}: {error}"), url) from None


def require_uploaded(store: Store, info: ObjectInfo, objects: Mapping[str, ObjectInfo]) -> None:
    """Raise unless all files of the manifest that is this object are among `objects`.

    Raises:
        CorruptDataError: one is not, or the manifest is damaged.
        InvalidArgumentError: a newer version of headrace wrote the manifest.
        PreconditionFailedError: it has been replaced.
    """
    folder = info.name.removesuffix(MANIFEST_NAME)
    for name, expected in read_manifest(store, info).items():
        found = objects.get(folder + name)
        if found is None or found.size_bytes != expected.size_bytes:
            now = "missing" if found is None else f"{found.size_bytes:,} bytes long"
            url = store.url_of(folder + name)
            text = f"it is {now}, and was uploaded with {expected.size_bytes:,} bytes"
            raise with_url(CorruptDataError(f"{url}: {text}"), url)
