"""`load`: read every storage by parallel ranges straight into the memory of its tensor."""

from __future__ import annotations

import inspect
import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Unpack

import torch

from headrace._base.contexts import context
from headrace._base.errors import HeadraceError, add_note, text_of
from headrace._base.options import is_weights_only, read_environment, require, require_bool
from headrace._base.progress import Progress, ProgressOption, choose_progress, require_progress
from headrace._engine import ObjectInfo
from headrace._files.reader_io import ObjectReaderIO
from headrace._store.location import Url, object_at
from headrace._store.settings import LoadOptions
from headrace._store.store import Store
from headrace.checkpoint._archive import Archive, is_legacy, is_safetensors, read_ends
from headrace.checkpoint._device_copies import (
    destination,
    flat,
    goes_to_cuda,
    new_storage,
    passing_storage,
    release_page_locked,
)
from headrace.checkpoint._object import corrupt, refused, stat
from headrace.checkpoint._parallel_reads import (
    GROUP_BYTES,
    GROUPS_AHEAD,
    ahead,
    expect_parts,
    grouped,
)
from headrace.checkpoint._safetensors import find, is_safetensors_name, just, load_tensors
from headrace.checkpoint._storages import StorageReads

__all__ = ["LoadKeywords", "MapLocation", "load"]

MapLocation = Callable[[Any, str], Any] | torch.device | str | dict[str, str] | None

# What torch's restricted unpickler raises for a malformed pickle, besides its own error.
_MALFORMED = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
    struct.error,
)


class LoadKeywords(LoadOptions, total=False):
    """The keywords of `load`, but for ``store``."""

    map_location: MapLocation
    weights_only: bool | None
    verify: bool
    progress: ProgressOption


def load(
    url: Url,
    map_location: MapLocation = None,
    weights_only: bool | None = None,
    verify: bool = True,
    *,
    store: Store | None = None,
    progress: ProgressOption = False,
    **options: Unpack[LoadOptions],
) -> Any:
    """Load a checkpoint that `save` or `torch.save` wrote, or a safetensors file.

    headrace first reads both ends of the file, which hold its directory and its pickle, then all
    storages by parallel requests, into the memory that the tensors will use. Reads are pinned to
    the generation found at the beginning.

    Of a safetensors file the header comes first, then all tensors in the same way. Of several files
    with an index (``model.safetensors.index.json``), or of ``model.safetensors`` where only its
    index exists, all tensors of all files are returned.

    Examples:
        >>> state = headrace.checkpoint.load("gs://bucket/run1/step100.pt")

    Args:
        url: the URL of the object; with `store`, its name there or its whole URL.
        map_location: the destination of storages, as in `torch.load`: a device, a dict of devices,
            or a function, which receives the filled storages. Storages that do not stay on the CPU
            pass through the host in groups of 64 MiB (or one storage), two of them read ahead.
        weights_only: None and True accept only what torch's restricted unpickler allows. A pickle
            can execute anything: pass False only for files whose writer you trust. As in torch,
            TORCH_FORCE_WEIGHTS_ONLY_LOAD=1 in the environment makes it True.
        verify: compare the checksums in the file. ``docs/guide/checkpoints.md`` says which checksum
            covers what.
        store: the store of the object. Default: a store of the URL's bucket.
        progress: True shows a bar (needs tqdm); a function is called with
            ``(done_bytes, total_bytes)``.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: the file is truncated, or its bytes are not those that were saved; the
            message names the tensor.
        InvalidArgumentError: it is not a checkpoint of one file, `weights_only` refuses it, or
            an argument is invalid; the message says what to do.
        PreconditionFailedError: it was replaced while it was being read.
    """
    _require_map_location(map_location)
    require_bool("verify", verify)
    require_progress(progress)
    weights_only = is_weights_only(weights_only) or read_environment().force_weights_only
    where, name = object_at(url, store, **options)
    if is_safetensors_name(name):
        return load_tensors(find(where, name), map_location, verify, progress)
    # The look and the first reads go to threads of their own, each with a connection.
    where.expect_reads(2)
    info = stat(where, name)
    if map_location is None:  # all storages are read at once
        expect_parts(where, info.size_bytes)
    ends = read_ends(where, info)
    if is_safetensors(ends[0][1]):
        return load_tensors(just(where, info), map_location, verify, progress)
    if is_legacy(ends[0][1]):
        return _load_legacy(where, info, map_location, weights_only)
    archive = Archive(where, info, ends, verify)
    if weights_only:
        _refuse_early(archive)
    with choose_progress(progress, archive.url, _total_bytes(archive)) as shown:
        records = _Records(archive, map_location, shown)
        archive.forget_outline()  # as large as what follows
        with closing(records):
            found = _unpickle(records, map_location, weights_only)
    archive.require_whole()
    return found


def _require_map_location(map_location: MapLocation) -> None:
    if isinstance(map_location, dict):
        is_right = all(isinstance(each, str) for pair in map_location.items() for each in pair)
    else:
        is_right = (
            map_location is None
            or callable(map_location)
            or isinstance(map_location, str | torch.device)
        )
    require(
        is_right,
        f"map_location is {map_location!r}; it must be a device, the name of one, a dict of "
        "names, a function or None",
    )


def _load_legacy(
    store: Store, info: ObjectInfo, map_location: MapLocation, weights_only: bool
) -> Any:
    """Load, as a stream, a file that has neither a directory nor checksums."""
    with ObjectReaderIO(store, info) as file:
        stream: Any = file
        try:
            return torch.load(stream, map_location=map_location, weights_only=weights_only)
        except pickle.UnpicklingError as error:
            raise _pickle_error(store.url_of(info.name), error, weights_only) from None


def _total_bytes(archive: Archive) -> int:
    return sum(archive.require(f"data/{key}").size_bytes for key in archive.outline.storages)


def _unpickle(records: _Records, map_location: MapLocation, weights_only: bool) -> Any:
    # torch's own function below torch.load takes the records of a zip from any reader. So torch
    # alone decides what the pickle means and where storages go.
    unpickle: Any = torch.serialization._load
    options: dict[str, Any] = {"encoding": "utf-8"}
    if "weights_only" in inspect.signature(unpickle).parameters:
        options["weights_only"] = weights_only
    module = torch._weights_only_unpickler if weights_only else pickle
    url = records.archive.url
    try:
        return unpickle(records, records.watched(map_location), module, **options)
    except HeadraceError:
        raise
    except pickle.UnpicklingError as error:
        raise _pickle_error(url, error, weights_only) from None
    except Exception as error:
        is_others = id(error) == records.others_error_id
        # What torch raised before 2.5.
        is_refusal = isinstance(error, RuntimeError) and text_of(error).startswith("Unsupported ")
        if weights_only and is_refusal and not is_others:
            raise _weights_only_error(url, str(error)) from None
        # With weights_only=False, the error may come from the classes in the pickle, not its form.
        if weights_only and isinstance(error, _MALFORMED) and not is_others:
            text = f"its pickle cannot be read: {type(error).__name__}: {text_of(error)}"
            raise corrupt(url, text) from error
        add_note(error, f"This was raised while {url} was loaded.")
        raise


def _pickle_error(url: str, error: Exception, weights_only: bool) -> Exception:
    if weights_only:
        return _weights_only_error(url, str(error))
    return corrupt(url, f"its pickle cannot be read: {error}")


def _refuse_early(archive: Archive) -> None:
    """Refuse a pickle by the names in it, before reading its storages."""
    unpickler: Any = torch._weights_only_unpickler
    if not hasattr(unpickler, "_get_user_allowed_globals"):
        return  # an old torch, which refuses when it reaches the name
    allowed = {*unpickler._get_allowed_globals(), *unpickler._get_user_allowed_globals()}
    names = sorted(name for name in archive.outline.functions if name not in allowed)
    if names:
        raise _weights_only_error(archive.url, f"it names {', '.join(names)}")


def _weights_only_error(url: str, reason: str) -> Exception:
    unsafe = "pass weights_only=False"
    if read_environment().force_weights_only:
        unsafe += " and unset TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    return refused(
        url,
        f"weights_only=True refuses its pickle, which can execute anything: {reason}. If you trust "
        f"who wrote it, {unsafe}, or allow the class by "
        "torch.serialization.add_safe_globals([...]); else save a state_dict of plain tensors",
    )


class _Records:
    """The records of a checkpoint, for `torch.serialization._load`."""

    def __init__(self, archive: Archive, map_location: MapLocation, shown: Progress) -> None:
        self.archive = archive
        # The id of an error raised by reading or by the user's function, not by the pickle. Keeping
        # the error itself would keep these records and their memory alive.
        self.others_error_id: int | None = None
        self._shown = shown
        self._filled: dict[str, torch.UntypedStorage] = {}
        self._frames = archive.frames
        references = archive.outline.storages
        self._stays = all(
            destination(map_location, each.location) == "cpu" for each in references.values()
        )
        self._page_locked = {
            f"data/{key}": archive.require(f"data/{key}").size_bytes
            for key, each in references.items()
            if goes_to_cuda(map_location, each.location)
        }
        # Those that stay on the host are read at once.
        groups = grouped(
            (f"data/{key}" for key in references if archive.require(f"data/{key}").size_bytes),
            lambda name: archive.entries[name].size_bytes,
            None if self._stays else GROUP_BYTES,
        )
        self._reads = ahead(map(self._begin, groups), GROUPS_AHEAD)

    def close(self) -> None:
        """End reads that are ahead, and give back what only they needed."""
        self._reads.close()
        release_page_locked(self._page_locked.values())

    def has_record(self, name: str) -> bool:
        # Without this record, torch asks for offsets by name instead of computing them.
        return name in self.archive.entries and name != ".format_version"

    def get_record(self, name: str) -> bytes:
        return self.archive.small[name]

    def get_record_offset(self, name: str) -> int:
        self.archive.require(name)
        return self.archive.ranges([name])[0][0]

    def serialization_id(self) -> str:
        return self.archive.small.get(".data/serialization_id", b"").decode(errors="replace")

    def get_storage_from_record(self, name: str, size_bytes: int, _: Any) -> torch.Tensor:
        """Return the record's bytes as a tensor. Storages come in the order of the outline."""
        self.archive.require_sized(name, size_bytes)
        if size_bytes == 0:
            return torch.empty(0, dtype=torch.uint8, device="cpu")
        while name not in self._filled:
            with self._watch():
                # Old versions of torch ask again for storages that they put on the device "meta".
                reads = next(self._reads, None) or self._begin([name])
                self._filled |= reads.finish()
        return flat(self._filled.pop(name))

    def _begin(self, group: list[str]) -> StorageReads:
        frames, self._frames = self._frames, []
        return StorageReads(
            self.archive,
            group,
            frames=frames,
            on_bytes=self._shown.add,
            make=self._new_storage,
        )

    def _new_storage(self, name: str, size_bytes: int) -> torch.UntypedStorage:
        if self._stays:
            return new_storage(size_bytes)
        return passing_storage(size_bytes, name in self._page_locked)

    def watched(self, map_location: MapLocation) -> MapLocation:
        """Return `map_location`, wrapped so that errors of a function are known to be its own."""
        if not callable(map_location):
            return map_location

        def restored(storage: Any, location: str) -> Any:
            with self._watch():
                return map_location(storage, location)

        return restored

    @context
    def _watch(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.others_error_id = id(error)
            raise
