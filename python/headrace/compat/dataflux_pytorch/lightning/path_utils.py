"""``dataflux_pytorch.lightning.path_utils``: the bucket and the name in a path."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["parse_gcs_path", "process_input_path"]


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
