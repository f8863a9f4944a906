"""Lets DLIO list files at URLs: its factory of storages is closed."""

from __future__ import annotations

import fnmatch
from typing import Any

from dlio_benchmark.common.enumerations import MetadataType, NamespaceType
from dlio_benchmark.storage.storage_factory import StorageFactory
from dlio_benchmark.storage.storage_handler import DataStorage, Namespace

from headrace import InvalidArgumentError, NotFoundError, Store
from headrace._store.location import is_url, object_at

__all__ = ["Storage", "install"]


class Storage(DataStorage):  # type: ignore[misc]
    """What DLIO asks of its storage, for a URL as ``storage.storage_root``.

    DLIO lists the files of a workload and makes folders for checkpoints. Buckets need no folders,
    so the latter does nothing.

    Args:
        namespace: the URL.
        framework: as DLIO's other storages have it; not used.
    """

    def __init__(self, namespace: str, framework: Any = None) -> None:
        super().__init__(None)
        self.namespace = Namespace(namespace.rstrip("/"), NamespaceType.FLAT)

    def get_uri(self, id: str) -> str:
        """Return the URL of a path below the root; a URL stays as it is."""
        return id if is_url(id) else f"{self.namespace.name}/{id.strip('/')}".rstrip("/")

    def create_namespace(self, exist_ok: bool = False) -> bool:
        """Do nothing: the bucket has to exist."""
        return True

    def get_namespace(self) -> str:
        """Return the root's URL."""
        return str(self.namespace.name)

    def create_node(self, id: str, exist_ok: bool = False) -> bool:
        """Do nothing: buckets need no folders.

        Raises:
            InvalidArgumentError: DLIO is about to generate data, which it writes to files.
        """
        if self._args.generate_data:
            raise InvalidArgumentError(
                f"DLIO writes the data that it generates to files, and {self.get_uri(id)} is a "
                "URL: generate into a folder, and copy it by `headrace cp -r FOLDER URL`"
            )
        return True

    def get_node(self, id: str = "") -> Any:
        """Return whether a path is a file or a folder; None: neither."""
        store, name = object_at(self.get_uri(id))
        if store.stat(name, missing_ok=True) is not None:
            return MetadataType.FILE
        page = store.list_page(prefix=name + "/", max_results=1)
        return MetadataType.DIRECTORY if page.objects else None

    def walk_node(self, id: str, use_pattern: bool = False) -> list[str]:
        """Return the names directly below a folder; with `use_pattern`, the URLs of what matches.

        Raises:
            HeadraceError: they could not be listed.
        """
        if not use_pattern:
            try:
                below = [*Store(self.get_uri(id)).list(delimiter="/")]
            except NotFoundError:  # a workload without evaluation has no such folder
                below = []
            return [each.name.strip("/") for each in below]
        root, pattern = self.get_uri(id).split("*", 1)
        pattern = f"*{pattern}"
        index = Store(root.rstrip("/")).index()
        return [
            index.url(i)
            for i in range(len(index))
            if index.name(i).count("/") == pattern.count("/")
            and fnmatch.fnmatchcase(index.name(i).lower(), pattern.lower())
        ]

    def delete_node(self, id: str) -> bool:
        """Delete all that is below a folder."""
        store = Store(self.get_uri(id))
        for info in store.index():
            store.delete(info.name, missing_ok=True)
        return True

    def put_data(self, id: str, data: Any, offset: Any = None, length: Any = None) -> None:
        """Write an object."""
        store, name = object_at(self.get_uri(id))
        store.write(name, data.encode() if isinstance(data, str) else data)

    def get_data(self, id: str, data: Any, offset: int | None = None, length: Any = None) -> Any:
        """Read an object, or a range of it."""
        store, name = object_at(self.get_uri(id))
        begin = offset or 0
        return store.read(name, begin=begin, end=None if length is None else begin + length)

    def get_basename(self, id: str) -> str:
        """Return the last part of a path."""
        return id.rpartition("/")[2]


def install() -> None:
    """Let DLIO list and check URLs; ``python -m headrace.dlio`` and `Checkpointing` call it.

    ``storage.storage_root``, or ``checkpoint.checkpoint_folder``, may then be a URL of headrace,
    with any ``storage.storage_type``. Paths are left to DLIO. A second call has no effect.

    Examples:
        >>> headrace.dlio.install()  # doctest: +SKIP
    """
    before = StorageFactory.get_storage
    if before is _storage_of:
        return
    _factories.append(before)
    StorageFactory.get_storage = staticmethod(_storage_of)


_factories: list[Any] = []


def _storage_of(storage_type: Any, namespace: str, framework: Any = None) -> Any:
    """Take the place of `StorageFactory.get_storage`."""
    if is_url(str(namespace)):
        return Storage(namespace, framework)
    return _factories[-1](storage_type, namespace, framework)
