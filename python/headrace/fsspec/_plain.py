"""The same file systems for URLs without ``headrace+``; `register` tells fsspec of them."""

from __future__ import annotations

from headrace.fsspec import _schemes

__all__ = ["AisFileSystem", "GcsFileSystem", "S3FileSystem"]


class AisFileSystem(_schemes.AisFileSystem):
    """``ais://``."""

    protocol: str | tuple[str, ...] = "ais"


class GcsFileSystem(_schemes.GcsFileSystem):
    """``gs://`` and ``gcs://``."""

    protocol: str | tuple[str, ...] = ("gs", "gcs")


class S3FileSystem(_schemes.S3FileSystem):
    """``s3://`` and ``s3a://``."""

    protocol: str | tuple[str, ...] = ("s3", "s3a")
