"""What fsspec must know of ``gs://``, ``s3://`` and ``ais://`` for Lightning's callbacks to take
such a ``dirpath``.
"""

from __future__ import annotations

import importlib.util
import io
from typing import Any

import fsspec  # type: ignore[import-untyped]
from fsspec.registry import known_implementations, registry  # type: ignore[import-untyped]

from headrace._errors import NotFoundError
from headrace._location import bucket_and_name
from headrace._store import Store

__all__ = ["AisFileSystem", "GcsFileSystem", "S3FileSystem", "register"]


class _StoreFileSystem(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Buckets as Lightning's callbacks use them: ask, list, and small files.

    Files are read and written whole. Checkpoints do not go this way; `CheckpointIO` and the
    strategies bring them.
    """

    root_marker = ""

    def _store(self, path: str) -> tuple[Store, str]:
        root, name = bucket_and_name(f"{self.protocol[0]}://{self._strip_protocol(path)}")
        return Store(root, **self.storage_options), name

    def _path(self, store: Store, name: str) -> str:
        """Return a name as fsspec writes it: ``bucket/name``."""
        return str(self._strip_protocol(store.url_of(name)))

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Return what is known of an object, or of a prefix that has some."""
        store, name = self._store(path)
        full = self._strip_protocol(path)
        found = store.stat(name, missing_ok=True) if name else None
        if found is not None:
            return {
                "name": full,
                "size": found.size_bytes,
                "type": "file",
                "updated": found.updated,
            }
        below = f"{name.rstrip('/')}/" if name else ""
        if not name or store.list_page(below, max_results=1).objects:
            return {"name": full, "size": 0, "type": "directory"}
        raise FileNotFoundError(path)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return what lies directly below a prefix."""
        store, name = self._store(path)
        below = f"{name.rstrip('/')}/" if name else ""
        entries: list[dict[str, Any]] = []
        token = ""
        while True:
            page = store.list_page(below, delimiter="/", page_token=token)
            entries += [
                {"name": self._path(store, each.name), "size": each.size_bytes, "type": "file"}
                for each in page.objects
            ]
            entries += [
                {"name": self._path(store, each), "size": 0, "type": "directory"}
                for each in page.prefixes
            ]
            token = page.next_page_token
            if not token:
                break
        if not entries:
            entries = [self.info(path)]  # the object itself, or an error
        return entries if detail else [each["name"] for each in entries]

    def modified(self, path: str) -> Any:
        """Return when an object was written."""
        return self.info(path)["updated"]

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Do nothing: prefixes need not be made."""

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Do nothing: prefixes need not be made."""

    def rm_file(self, path: str) -> None:
        """Delete an object."""
        store, name = self._store(path)
        store.delete(name)

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        """Delete objects, and with `recursive` what lies below."""
        for each in self.expand_path(path, recursive=recursive, maxdepth=maxdepth):
            if self.isfile(each):
                self.rm_file(each)

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        """Copy an object within its bucket."""
        store, name = self._store(path1)
        target = self._store(path2)[1]
        store.copy(name, target)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> io.IOBase:
        store, name = self._store(path)
        if mode == "rb":
            return io.BytesIO(store.read(name))
        if mode in ("wb", "ab"):
            try:
                before = store.read(name).bytes() if mode == "ab" else b""
            except NotFoundError:
                before = b""
            return _Written(store, name, before)
        raise ValueError(f"mode {mode!r}: it must be 'rb', 'wb' or 'ab'")


class GcsFileSystem(_StoreFileSystem):
    """Google Cloud Storage."""

    protocol = ("gs", "gcs")


class S3FileSystem(_StoreFileSystem):
    """S3, or what `AWS_ENDPOINT_URL` says."""

    protocol = ("s3",)


class AisFileSystem(_StoreFileSystem):
    """The AIStore that `AIS_ENDPOINT` names."""

    protocol = ("ais",)


class _Written(io.BytesIO):
    """Becomes an object when it is closed, unless by an exception."""

    def __init__(self, store: Store, name: str, before: bytes) -> None:
        super().__init__(before)
        self.seek(len(before))
        self._store, self._name = store, name

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is not None:
            super().close()
        else:
            self.close()

    def close(self) -> None:
        if not self.closed:
            self._store.write(self._name, self.getvalue())
        super().close()

    def __del__(self) -> None:
        super().close()  # dropped without close(): somebody has failed


def register() -> None:
    """Let fsspec find these file systems for their URLs, unless somebody serves such URLs.

    That is whoever has registered a file system for them, or gcsfs or s3fs if it is installed.
    """
    for ours in (GcsFileSystem, S3FileSystem, AisFileSystem):
        for protocol in ours.protocol:
            if not _is_served(protocol):
                fsspec.register_implementation(protocol, ours, clobber=True)


def _is_served(protocol: str) -> bool:
    if protocol in registry:
        return True
    # Not imported: that takes its time, and runs may have no use for it.
    known = known_implementations.get(protocol, {}).get("class", "")
    package = known.partition(".")[0]
    return bool(package) and importlib.util.find_spec(package) is not None
