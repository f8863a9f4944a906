"""``dataflux_pytorch.lightning.gcs_filesystem``: torch.distributed.checkpoint on a bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystemBase

from headrace import InvalidArgumentError
from headrace._base.contexts import context
from headrace.checkpoint import DistributedReader, DistributedWriter
from headrace.compat._clients import store_options_of
from headrace.compat.dataflux_pytorch.dataflux_checkpoint import (
    CheckpointBucket,
    DatafluxCheckpointBuffer,
    open_checkpoint_bucket,
)
from headrace.compat.dataflux_pytorch.lightning.path_utils import parse_gcs_path

__all__ = [
    "DatafluxCheckpointBuffer",
    "GCSDistributedReader",
    "GCSDistributedWriter",
    "GCSFileSystem",
]

# Options of torch's FileSystemWriter that have no meaning here.
_WITHOUT_EFFECT = (
    "sync_files",
    "per_thread_copy_ahead",
    "cache_staged_state_dict",
)


class GCSFileSystem(FileSystemBase):
    """Objects as the files that torch's own readers and writers ask for.

    Args:
        project_name: the project.
        debug: accepted.
        storage_client: None, Google's client, or another one with its methods.
    """

    def __init__(self, project_name: str, debug: bool, storage_client: Any = None) -> None:
        self.project_name = project_name
        self.debug = debug
        self.storage_client = storage_client

    @context
    def create_stream(  # type: ignore[override]  # torch's has contextlib's type
        self, path: str | os.PathLike[str], mode: str
    ) -> Iterator[Any]:
        """Open an object in mode ``"rb"`` or ``"wb"``; a written one appears if the block succeeds.

        Raises:
            ValueError: the mode is another one, or `path` is not a URL in a bucket.
        """
        bucket, name = self._locate(path)
        if mode not in ("rb", "wb"):
            # Programs compare this text.
            raise ValueError(
                "Invalid mode argument, create_stream only supports rb (read mode) & wb "
                "(write mode)"
            )
        with bucket.reader(name) if mode == "rb" else bucket.writer(name) as stream:
            yield stream

    def concat_path(self, path: str | os.PathLike[str], suffix: str) -> Path:
        """Return `path` followed by `suffix`."""
        return Path(path) / suffix

    def init_path(self, path: str | os.PathLike[str]) -> Path:
        """Return `path` as a Path; a Path as it is."""
        return path if isinstance(path, Path) else Path(path)

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Give an object another name in its bucket.

        Raises:
            InvalidArgumentError: the buckets differ.
        """
        bucket, name = self._locate(path)
        if parse_gcs_path(_path(new_path))[0] != parse_gcs_path(_path(path))[0]:
            raise InvalidArgumentError(f"{path} and {new_path} are in different buckets")
        bucket.rename(name, parse_gcs_path(_path(new_path))[1])

    def mkdir(self, path: str | os.PathLike[str]) -> None:
        """Do nothing: a bucket has no directories."""

    def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return whether `path` or any object below it exists."""
        bucket, name = self._locate(path)
        return bucket.exists(name)

    def rm_file(self, path: str | os.PathLike[str]) -> None:
        """Delete an object; a missing one is no error."""
        bucket, name = self._locate(path)
        bucket.remove(name)

    def ls(self, path: str | os.PathLike[str]) -> list[str]:
        """Return the URLs of the objects below `path`."""
        bucket_name, name = parse_gcs_path(_path(path))
        below = f"{name.rstrip('/')}/" if name else ""
        bucket, _ = self._locate(path)
        return [f"gs://{bucket_name}/{each}" for each in bucket.names(below)]

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return True for a Path and for a URL of a bucket.

        Raises:
            ValueError: it is any other str.
        """
        if isinstance(checkpoint_id, Path):
            return True
        parse_gcs_path(_path(checkpoint_id))
        return True

    def _locate(self, path: str | os.PathLike[str]) -> tuple[CheckpointBucket, str]:
        bucket, name = parse_gcs_path(_path(path))
        return open_checkpoint_bucket(self.storage_client, bucket), name


class GCSDistributedWriter(DistributedWriter):
    """`headrace.checkpoint.DistributedWriter` by its name in dataflux.

    Args:
        path: the folder, as a URL or as a Path made of one.
        project_name: the project.
        storage_client: None or Google's client.
        debug: accepted.
        kwargs: arguments of `DistributedWriter`; others of ``FileSystemWriter`` have no effect.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        project_name: str,
        storage_client: Any = None,
        debug: bool = False,
        **kwargs: Any,
    ) -> None:
        for name in _WITHOUT_EFFECT:
            kwargs.pop(name, None)
        super().__init__(_url(path), **_options(storage_client), **kwargs)
        self.fs = GCSFileSystem(project_name, debug)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin a new save, to the folder `checkpoint_id` if it is given."""
        super().reset(_url(checkpoint_id) if checkpoint_id else None)


class GCSDistributedReader(DistributedReader):
    """`headrace.checkpoint.DistributedReader` by its name in dataflux.

    Args:
        path: the folder, as a URL or as a Path made of one.
        project_name: the project.
        storage_client: None or Google's client.
        debug: accepted.
        kwargs: arguments of `DistributedReader`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        project_name: str,
        storage_client: Any = None,
        debug: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(_url(path), **_options(storage_client), **kwargs)
        self.fs = GCSFileSystem(project_name, debug)

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin a new load, from the folder `checkpoint_id` if it is given."""
        super().reset(_url(checkpoint_id) if checkpoint_id else None)


def _path(path: str | os.PathLike[str]) -> Any:
    return path if isinstance(path, str | Path) else os.fspath(path)


def _url(path: str | os.PathLike[str]) -> str:
    bucket, name = parse_gcs_path(_path(path))
    return f"gs://{bucket}/{name}"


def _options(client: Any) -> dict[str, Any]:
    options = store_options_of(client)
    if options is None:
        raise InvalidArgumentError(
            f"storage_client is {type(client).__name__}: distributed checkpoints need None or a "
            "google.cloud.storage.Client"
        )
    return options
