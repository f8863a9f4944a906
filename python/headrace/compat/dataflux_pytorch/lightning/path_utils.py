"""``dataflux_pytorch.lightning.path_utils``: the bucket and the name in a path."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

__all__ = ["is_local", "parse_gcs_path", "process_input_path", "to_url"]


def process_input_path(path: str | Path) -> str:
    """Return `path` as a str, with the slash that pathlib removes from URLs.

    Raises:
        TypeError: it is neither a str nor a Path.
        ValueError: it is a Path that was not made of a URL.
    """
    if isinstance(path, str):
        return path
    if not isinstance(path, Path):
        raise TypeError(f"the path is {type(path).__name__}; it must be a str or a pathlib.Path")
    found = re.fullmatch(r"([a-z]+):/(.*)", str(path), re.DOTALL)
    if found is None:
        raise ValueError(f"{str(path)!r} is no URL: it must begin with gs:// or gcs://")
    return f"{found[1]}://{found[2]}"


def parse_gcs_path(path: str | Path) -> tuple[str, str]:
    """Return the bucket and the name of ``gs://bucket/name`` or ``gcs://bucket/name``.

    Raises:
        TypeError: it is neither a str nor a Path.
        ValueError: it is empty, of another scheme, or has no bucket.
    """
    if isinstance(path, str) and not path:
        raise ValueError("the path is empty")
    url = process_input_path(path)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in ("gs", "gcs"):
        raise ValueError(f"{url!r} must begin with gs:// or gcs://")
    bucket, _, name = rest.partition("/")
    if not bucket:
        raise ValueError(f"{url!r} names no bucket")
    return bucket, name


def is_local(path: Any) -> bool:
    """Return whether `path`, a str or a path of pathlib's, names a file of this machine."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    return bool(text) and (text.startswith("file://") or not re.match(r"[a-z0-9]+:/", text))


def to_url(path: Any) -> str:
    """Return `path` as the rest of headrace takes it: a URL of a bucket, or a local path.

    Raises:
        TypeError: it is neither a str nor a Path.
        ValueError: it is empty, of another scheme, or has no bucket.
    """
    if is_local(path):
        return str(os.fspath(path))
    bucket, name = parse_gcs_path(path)
    return f"gs://{bucket}/{name}"
