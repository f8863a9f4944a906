"""What makes a checkpoint complete, for each format. Nothing of a pickle is executed."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator, Mapping

from headrace._base.errors import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    PreconditionFailedError,
)
from headrace._checkpoints.checked_metadata import without_sum
from headrace._checkpoints.manifest import MANIFEST_NAME, require_uploaded
from headrace._checkpoints.names import METADATA_NAME
from headrace._checkpoints.newest import Candidate, NoCheckpointError, Objects, read
from headrace._engine import ObjectInfo
from headrace._store.store import Store
from headrace.checkpoint._archive import Archive, is_legacy, is_safetensors, read_ends
from headrace.checkpoint._legacy import require_whole_legacy
from headrace.checkpoint._object import corrupt
from headrace.checkpoint._outline import Made, outline_of
from headrace.checkpoint._safetensors import (
    find,
    is_index_name,
    is_part_of,
    is_safetensors_name,
    just,
    read_index,
    single_name_of,
    without_part_number,
)
from headrace.checkpoint._safetensors.header import Header

__all__ = ["Completeness"]


class Completeness:
    """Tells which of the objects of one listing are complete checkpoints."""

    def __init__(self, objects: Objects) -> None:
        self._store, self._objects = objects.root, objects
        self._indexes: dict[str, list[ObjectInfo]] = defaultdict(list)  # by folder
        self._numbered: dict[str, list[ObjectInfo]] = defaultdict(list)  # by name without number
        self._named: dict[str, set[str] | None] = {}  # by index; None: it cannot be read
        for info in objects.by_name.values():
            if is_index_name(info.name):
                self._indexes[_folder_of(info.name)].append(info)
            elif (name := without_part_number(info.name)) is not None:
                self._numbered[name].append(info)

    def require(self, candidate: Candidate) -> None:
        """Raise unless a candidate is a complete checkpoint.

        Raises:
            NoCheckpointError: it is something else, or a part.
            CorruptDataError: it is damaged, or not all of it is there.
            PreconditionFailedError: it has been replaced.
        """
        info = candidate.info
        last = info.name.removeprefix(_folder_of(info.name))
        if last == MANIFEST_NAME:
            require_uploaded(self._store, info, self._objects.beside(info))
        elif last == METADATA_NAME:
            _require_saved(self._store, info, self._objects.beside(info))
        elif is_index_name(last):
            files = find(self._store, info.name)
            files.headers(files.infos, verify=True)
        elif is_safetensors_name(last):
            self._require_no_part(info)
        else:
            _require_file(self._store, info)

    def _require_no_part(self, info: ObjectInfo) -> None:
        """Raise unless a safetensors file is whole, and a checkpoint by itself."""
        url = self._store.url_of(info.name)
        for index in self._indexes[_folder_of(info.name)]:
            if self._names(index, info.name):
                raise NoCheckpointError(f"{url}: it is a part of {index.name}")
        header = _header_of(self._store, info)
        if header.is_part:
            raise NoCheckpointError(f"{url}: it is a part, and no index names it")
        # Steps have the same tensors, and parts of one model have different ones.
        for other in self._numbered.get(without_part_number(info.name) or "", []):
            if other.name == info.name or (keys := self._keys_of(other)) is None:
                continue
            if keys and header.entries and keys.isdisjoint(header.entries):
                raise NoCheckpointError(
                    f"{url}: it is a part without an index: {other.name} has other tensors"
                )
            return

    def _keys_of(self, info: ObjectInfo) -> set[str] | None:
        """Return the tensors of a file; None: it cannot be read."""
        try:
            return set(_header_of(self._store, info).entries)
        except (CorruptDataError, NotFoundError, PreconditionFailedError):
            return None
        except InvalidArgumentError as error:
            if error.http_status is not None:
                raise  # the store refuses it
            return None

    def _names(self, index: ObjectInfo, name: str) -> bool:
        """Return whether an index names a file beside it."""
        if index.name not in self._named:
            try:
                self._named[index.name] = set(read_index(self._store, index).files.values())
            except (CorruptDataError, NotFoundError, PreconditionFailedError):
                self._named[index.name] = None
        files = self._named[index.name]
        if files is None:
            return is_part_of(single_name_of(index.name), name)
        return name.removeprefix(_folder_of(name)) in files


def _folder_of(name: str) -> str:
    return name[: name.rfind("/") + 1]


def _header_of(store: Store, info: ObjectInfo) -> Header:
    return just(store, info).headers([""], verify=True)[""].header


def _require_file(store: Store, info: ObjectInfo) -> None:
    """Raise unless a file, whose name says nothing, is a whole checkpoint."""
    if without_part_number(info.name) is not None:
        raise NoCheckpointError(f"{store.url_of(info.name)}: it is a part of several, by its name")
    try:
        ends = read_ends(store, info)
        head = ends[0][1]
        if is_safetensors(head):
            _header_of(store, info)
        elif is_legacy(head):
            require_whole_legacy(store, info)
        else:
            archive = Archive(store, info, ends, verify=True)
            for storage in archive.outline.storages.values():
                archive.require_storage(storage)
    except InvalidArgumentError as error:
        if error.http_status is not None:
            raise  # the store refuses it
        raise NoCheckpointError(str(error)) from None


def _require_saved(store: Store, info: ObjectInfo, objects: Mapping[str, ObjectInfo]) -> None:
    """Raise unless the files that a ``.metadata`` names are all there, and long enough."""
    url = store.url_of(info.name)
    if info.size_bytes == 0:
        raise corrupt(url, "it is empty, and would be the metadata of a checkpoint")
    folder = _folder_of(info.name)
    for name, size_bytes in _files_in(read(store, info), url):
        found = objects.get(folder + name)
        if found is None:
            raise corrupt(store.url_of(folder + name), "it is missing, and the checkpoint needs it")
        if found.size_bytes < size_bytes:
            raise corrupt(
                store.url_of(found.name),
                f"it is truncated: it has {found.size_bytes:,} bytes, and the checkpoint needs "
                f"{size_bytes:,}",
            )


def _files_in(metadata: bytes, url: str) -> Iterator[tuple[str, int]]:
    """Yield the files that the metadata names, each with how many bytes it needs."""
    pickled, _ = without_sum(metadata, url)
    try:
        outline = outline_of(pickled)
    except pickle.UnpicklingError as error:
        raise corrupt(url, f"no metadata of a checkpoint: {error}") from None
    # Behind a pickle there may be what is left of a damaged checksum.
    if not pickled.endswith(b".") or not _is_made(outline.root, "Metadata"):
        raise corrupt(url, "no metadata of a checkpoint, or it is damaged")
    fields = outline.root.fields
    saved, attached = fields.get("state_dict_metadata"), fields.get("headrace_attachments")
    found_any = False
    for _, made in outline.walk():
        if not _is_made(made, "_StorageInfo"):
            continue
        name, offset, length = (
            made.attributes.get(each) for each in ("relative_path", "offset", "length")
        )
        if isinstance(name, str) and isinstance(offset, int) and isinstance(length, int):
            found_any = True
            yield name, offset + length
    if isinstance(saved, Made) and saved.contents and not found_any:
        raise corrupt(url, "metadata of a checkpoint that does not say where its values are")
    if isinstance(attached, Made):
        yield from ((name, 0) for _, name in attached.contents if isinstance(name, str))


def _is_made(thing: object, class_name: str) -> bool:
    return isinstance(thing, Made) and thing.function.rpartition(".")[2] == class_name
