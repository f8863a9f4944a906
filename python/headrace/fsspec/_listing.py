"""What there is: entries, folders, listings."""

from __future__ import annotations

import contextlib
import errno
import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

from headrace._base.errors import NotFoundError
from headrace._engine import ObjectInfo
from headrace._store.location import before_wildcards
from headrace._store.store import Prefix, Store
from headrace.fsspec._arguments import depth_of
from headrace.fsspec._paths import Paths

__all__ = ["Entry", "Listing"]

Entry = dict[str, Any]


class Listing(Paths):
    """What lies where. Folders are what names have in common."""

    def _entry(self, path: str, info: ObjectInfo) -> Entry:
        entry: Entry = {"name": path, "size": info.size_bytes, "type": "file"}
        if info.generation:
            entry["generation"] = info.generation
        if info.updated is not None:
            entry["mtime"] = info.updated.timestamp()
            entry["updated"] = info.updated
        return entry

    @staticmethod
    def _folder(path: str) -> Entry:
        return {"name": path, "size": 0, "type": "directory"}

    def _is_folder(self, path: str) -> bool:
        """Return whether something lies below `path`, or a placeholder for a folder is there."""
        store, name = self._at(path)
        # Of a bucket, the question is whether it exists: the page raises if it does not.
        found = store.list_page(f"{name}/" if name else "", max_results=1)
        return not name or bool(found.objects)

    def info(self, path: str, **_: Any) -> Entry:
        """Return ``name``, ``size`` in bytes, ``type``, and of objects more.

        That is ``generation``, and where the store tells it ``mtime`` (seconds since 1970) and
        ``updated`` (the same as a ``datetime``). ``type`` is ``"file"`` or ``"directory"``.

        Raises:
            FileNotFoundError: there is neither such an object nor anything below it.
            PermissionError: the credentials may not ask.
        """
        path = self._strip_protocol(path)
        if not path:
            return self._folder(path)
        store, name = self._at(path)
        found = store.stat(name, missing_ok=True) if name else None
        if found is not None:
            return self._entry(path, found)
        if self._is_folder(path):
            return self._folder(path)
        raise FileNotFoundError(errno.ENOENT, "no such object or folder", store.url_of(name))

    def exists(self, path: str, **_: Any) -> bool:
        """Return whether there is an object, or something below `path`.

        Raises:
            PermissionError: the credentials may not ask.
        """
        try:
            self.info(path)
        except FileNotFoundError:
            return False
        return True

    def isfile(self, path: str) -> bool:
        """Return whether there is such an object, by one request.

        Raises:
            PermissionError: the credentials may not ask.
        """
        if not self._strip_protocol(path):
            return False
        store, name = self._at(path)
        return bool(name) and store.exists(name)

    def isdir(self, path: str) -> bool:
        """Return whether something lies below `path`, and there is no object of this name.

        Raises:
            PermissionError: the credentials may not ask.
        """
        try:
            return bool(self.info(path)["type"] == "directory")
        except FileNotFoundError:
            return False

    def size(self, path: str) -> int | None:
        """Return the size of an object in bytes.

        Raises:
            FileNotFoundError: there is no such object or folder.
        """
        size_bytes: int | None = self.info(path)["size"]
        return size_bytes

    def sizes(self, paths: Sequence[str]) -> list[int]:
        """Return the sizes of many objects, asked for at a time.

        Raises:
            FileNotFoundError: an object is missing.
        """
        sizes = [0] * len(paths)
        for store, places in self._by_store(paths).items():
            names = [name for _, name in places]
            for (at, _), info in zip(places, store.stat_many(names), strict=True):
                sizes[at] = info.size_bytes
        return sizes

    def modified(self, path: str) -> Any:
        """Return when an object was written, as a ``datetime`` in UTC.

        Raises:
            FileNotFoundError: there is no such object.
            NotImplementedError: the store tells no times, as AIStore.
        """
        store, name = self._object_at(path)
        updated = store.stat(name).updated
        if updated is None:
            raise NotImplementedError(f"{store.url_of(name)}: this store tells no times")
        return updated

    def ukey(self, path: str) -> str:
        """Return a text that is another one when the object has changed.

        Raises:
            FileNotFoundError: there is no such object.
        """
        store, name = self._object_at(path)
        info = store.stat(name)
        facts = (store.url_of(name), info.generation, info.size_bytes)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        """Return what lies directly below `path`, sorted by name; of an object, itself.

        Args:
            detail: as in `info`; otherwise the paths alone.

        Raises:
            FileNotFoundError: there is nothing.
        """
        path = self._strip_protocol(path)
        entries = self._listed(path)
        if entries is None:
            entries = [self.info(path)]
        return entries if detail else [each["name"] for each in entries]

    def _listed(self, path: str, prefix: str = "") -> list[Entry] | None:
        """Return what lies directly below `path`; None if there is no such folder."""
        store, name = self._at(path)
        below = f"{name}/" if name else ""
        entries, is_there = [], not name
        left = [(below, prefix)]
        for start, begin in left:
            for each in store.list(start + begin, delimiter="/"):
                is_there = True
                if each.name == f"{start}/":
                    # Paths do not end with a slash, so that what lies below two of them lies here.
                    left.append((each.name, ""))
                elif isinstance(each, Prefix):
                    entries.append(self._folder(self._path(store, each.name)))
                elif each.name != start:  # the placeholder of the folder itself
                    entries.append(self._entry(self._path(store, each.name), each))
        if len(left) > 1:
            entries.sort(key=lambda entry: str(entry["name"]))
        return entries if is_there else None

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **_: Any,
    ) -> Any:
        """Return everything below `path`, sorted; of an object, itself.

        Without `maxdepth` it is one listing, whose pages are fetched several at a time.

        Args:
            maxdepth: how deep; each level is listed by itself.
            withdirs: folders, too, `path` itself included.
            detail: a dict of what `info` says of each, instead of a list of paths.
            prefix: what names directly below `path` begin with.

        Raises:
            ValueError: `maxdepth` is below 1.
            PermissionError: the credentials may not list.
        """
        path, maxdepth = self._strip_protocol(path), depth_of(maxdepth)
        if maxdepth is not None:
            entries = self._levels(path, maxdepth, withdirs, prefix)
        else:
            entries = self._all(path, withdirs, prefix)
        if not entries and not prefix and self.isfile(path):
            entries[path] = self.info(path)
        found = dict(sorted(entries.items()))
        return found if detail else list(found)

    def _levels(self, path: str, maxdepth: int, withdirs: bool, prefix: str) -> dict[str, Entry]:
        """Return what lies at most so deep below `path`, by a listing of each folder."""
        entries: dict[str, Entry] = {}
        level = [path]
        for depth in range(maxdepth):
            folders = []
            for folder in level:
                begin = "" if depth else prefix
                found: list[Entry] | None = None
                with contextlib.suppress(NotFoundError):  # no such bucket or directory
                    found = self._listed(folder, begin)
                if found is not None and withdirs and not begin:
                    entries.setdefault(folder, self._folder(folder))
                for entry in found or ():
                    is_folder = entry["type"] == "directory"
                    if withdirs or not is_folder:
                        entries.setdefault(entry["name"], entry)
                    if is_folder and entry["name"] != folder:
                        folders.append(entry["name"])
            level = folders
        return entries

    def _all(self, path: str, withdirs: bool, prefix: str) -> dict[str, Entry]:
        """Return everything that lies below `path`, by one listing."""
        store, name = self._at(path)
        below = f"{name}/" if name else ""
        entries: dict[str, Entry] = {}
        folders: set[str] = set()
        with contextlib.suppress(NotFoundError):  # no such bucket or directory
            for each in store.list(below + prefix):
                if each.name.endswith("/"):
                    folders.add(each.name)
                else:
                    full = self._path(store, each.name)
                    entries[full] = self._entry(full, each)
                if withdirs:
                    _add_folders(folders, each.name, below)
        if withdirs:
            folders |= self._empty_folders(store, below, prefix)
            if not prefix and (folders or entries or self.isdir(path)):
                entries.setdefault(path, self._folder(path))
            for folder in folders:
                full = self._path(store, folder)
                entries.setdefault(full, self._folder(full))
        return entries

    def glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """Return what matches a pattern of fsspec, of which the service lists what may match.

        Args:
            maxdepth: how many levels ``**`` stands for, at most.
            kwargs: ``detail`` and ``withdirs``, as of `find`; folders are found by default.

        Raises:
            ValueError: `maxdepth` is below 1.
            PermissionError: the credentials may not list.
        """
        prefix = before_wildcards(self._strip_protocol(path)).rpartition("/")[2]
        return super().glob(path, maxdepth=depth_of(maxdepth), **{"prefix": prefix, **kwargs})

    def walk(
        self,
        path: str,
        maxdepth: int | None = None,
        topdown: bool = True,
        on_error: Any = "omit",
        **kwargs: Any,
    ) -> Iterator[tuple[str, Any, Any]]:
        """Yield each folder at and below `path` with the names of its folders and its files.

        A name is what stands behind the folder's path and a slash. The caller may remove folders
        from the list if it is ``topdown``: nothing below them is listed then.

        Args:
            maxdepth: so many levels, at most.
            topdown: a folder comes before those in it.
            on_error: of a folder that cannot be listed: ``"omit"``, ``"raise"``, or a function of
                the error.
            kwargs: ``detail``: dicts of what `info` says, instead of lists.

        Raises:
            ValueError: `maxdepth` is below 1.
            FileNotFoundError: with ``on_error="raise"``, there is no such folder.
        """
        maxdepth, detail = depth_of(maxdepth), kwargs.get("detail", False)
        path = self._strip_protocol(path)
        try:
            listed = self.ls(path)
        except OSError as error:
            if on_error == "raise":
                raise
            if callable(on_error):
                on_error(error)
            return
        begin = len(path) + 1 if path.rstrip("/") else len(path)
        folders: dict[str, Entry] = {}
        files: dict[str, Entry] = {}
        for entry in listed:
            kind = folders if entry["type"] == "directory" else files
            kind[entry["name"][begin:]] = entry
        given: tuple[str, Any, Any]
        given = path, folders if detail else list(folders), files if detail else list(files)
        if topdown:
            yield given
        if maxdepth is None or maxdepth > 1:
            below = None if maxdepth is None else maxdepth - 1
            for name in list(given[1]):
                full = folders[name]["name"]
                yield from self.walk(full, below, topdown, on_error, detail=detail)
        if not topdown:
            yield given

    def _empty_folders(self, store: Store, below: str, prefix: str) -> set[str]:  # noqa: ARG002
        """Return the folders that no listing tells."""
        return set()

    def du(
        self,
        path: str,
        total: bool = True,
        maxdepth: int | None = None,
        withdirs: bool = False,
        **_: Any,
    ) -> Any:
        """Return the bytes of all objects below `path`, or with ``total=False`` of each.

        Raises:
            PermissionError: the credentials may not list.
        """
        found = self.find(path, maxdepth=maxdepth, withdirs=withdirs, detail=True)
        sizes = {name: entry["size"] for name, entry in found.items()}
        return sum(sizes.values()) if total else sizes

    def mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:  # noqa: ARG002
        """Do nothing: a folder exists as soon as something lies in it.

        Raises:
            InvalidArgumentError: no bucket is named.
        """
        self._at(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:  # noqa: ARG002
        """Do nothing: a folder exists as soon as something lies in it.

        Raises:
            InvalidArgumentError: no bucket is named.
        """
        self._at(path)

    def rmdir(self, path: str) -> None:
        """Do nothing, if nothing lies in the folder.

        Raises:
            OSError: something does.
        """
        store, name = self._at(path)
        if store.list_page(f"{name}/" if name else "", max_results=1).objects:
            raise OSError(errno.ENOTEMPTY, "the folder is not empty", store.url_of(name))


def _add_folders(folders: set[str], name: str, below: str) -> None:
    """Add the folders that `name` lies in, as far as they lie below `below`."""
    end = name.rfind("/", len(below), len(name) - 1)
    while end > 0 and name[: end + 1] not in folders:
        folders.add(name[: end + 1])
        end = name.rfind("/", len(below), end)
