"""Buckets and folders for everything that reads and writes through fsspec.

``headrace+gs://``, ``headrace+s3://``, ``headrace+ais://`` and ``headrace+file://`` are known to
fsspec as soon as headrace is installed; `register` takes over ``gs://``, ``s3://`` and ``ais://``.
"""

from headrace._base.face import belong_to
from headrace.fsspec import _package  # noqa: F401  # first: it says what to install
from headrace.fsspec._filesystem import StoreFileSystem
from headrace.fsspec._register import register
from headrace.fsspec._schemes import (
    AisFileSystem,
    FolderFileSystem,
    GcsFileSystem,
    S3FileSystem,
)

__all__ = [
    "AisFileSystem",
    "FolderFileSystem",
    "GcsFileSystem",
    "S3FileSystem",
    "StoreFileSystem",
    "register",
]

belong_to(__name__, __all__, globals())
