"""Saves of ``torch.distributed.checkpoint`` to a store."""

from __future__ import annotations

import io
import logging
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Unpack
from uuid import uuid4

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    Metadata,
    MetadataIndex,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner, WriteItem
from torch.distributed.checkpoint.storage import StorageWriter, WriteResult
from torch.futures import Future

from headrace._base.errors import (
    CancelledError,
    HeadraceError,
    InternalError,
    InvalidArgumentError,
    PermissionDeniedError,
    PreconditionFailedError,
    add_note,
)
from headrace._base.options import MiB, require_count
from headrace._base.progress import Progress, ProgressOption, choose_progress
from headrace._checkpoints.names import (
    METADATA_NAME,
    attachment_name,
    data_name,
    is_data,
    metadata_name,
    metadata_rank,
)
from headrace._store.settings import StoreOptions
from headrace._store.store import Store, UploadWay
from headrace.checkpoint._distributed import ordering
from headrace.checkpoint._distributed.folder import Folder
from headrace.checkpoint._distributed.items import encode
from headrace.checkpoint._distributed.metadata_file import storage_meta, to_bytes
from headrace.checkpoint._distributed.ranks import as_ranks_tell
from headrace.checkpoint._distributed.staged import Settled, Staged, take_settled
from headrace.checkpoint._distributed.upload import Passing, upload
from headrace.checkpoint._staging import copy_to_host

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DistributedWriter"]

_log = logging.getLogger("headrace")

# torch's version, which readers check.
_FORMAT_VERSION = "1.0.0"

# From this size on, a file is worth a thread of its own. Small checkpoints stay in one file, which
# loads with the fewest requests.
_BYTES_PER_FILE = 256 * MiB
_MAX_FILES = 4


@dataclass
class _Save:
    """One save, from its set-up to its end on this rank."""

    folder: Folder
    is_coordinator: bool
    rank: int
    use_collectives: bool
    turn: ordering.Turn
    attachments: Mapping[str, bytes]
    id: str = field(default_factory=lambda: uuid4().hex)
    seen_generation: str = "absent"
    """The generation found of the object that will make the new checkpoint complete."""
    seen_at: ordering.Turn = (0, 0)
    look: ordering.Look | None = None
    """None on a rank that does not commit."""
    stale: frozenset[str] = frozenset()
    """Earlier objects in the folder that the new checkpoint makes useless."""

    @property
    def commit_name(self) -> str:
        return metadata_name(None if self.use_collectives else self.rank)

    def end(self) -> None:
        """Say that nothing more is written."""
        if self.look is not None:
            ordering.end(self.look)


class DistributedWriter(StorageWriter):
    """Saves a checkpoint of ``torch.distributed.checkpoint`` to a folder in any store.

    Examples:
        >>> writer = headrace.checkpoint.DistributedWriter("gs://bucket/run1/step200")
        >>> metadata = torch.distributed.checkpoint.save({"model": model}, storage_writer=writer)

    Each rank writes its own files, under names that no save has used before. The object
    ``.metadata`` makes them a checkpoint. The coordinator writes it last, when everything else is
    durable, on condition that nobody else has written one since this save began. Until then, the
    previous checkpoint in the folder loads as before; afterwards its files are deleted. If anything
    fails on any rank, the save raises the first error, and the folder keeps its checkpoint.

    torch's ``FileSystemReader`` reads a copy of the folder. `DistributedReader` also verifies every
    byte by the CRC-32C in the metadata.

    The writer pickles and serves ``save`` and ``async_save`` (in a thread and in a process). It
    serves any number of checkpoints, one after the other or, from several threads, at once. For
    ``async_save`` it copies the state to host memory itself (pinned with CUDA) and remembers the
    order in which saves were started: an earlier one never replaces a later one.

    Args:
        url: the folder, such as ``gs://bucket/run1/step100`` or ``/data/run1/step100``; torch's
            ``checkpoint_id`` takes precedence.
        thread_count: the number of files that each rank writes at a time. Default: one for every
            256 MiB, up to four.
        single_file_per_rank: False writes one file for each tensor.
        overwrite: False raises `PreconditionFailedError` if the folder holds a checkpoint.
        upload: how the parts of large files reach ``gs://``, as for `Store.open_writer`:
            ``"resumable"`` for buckets with a retention policy.
        progress: True shows a bar for this rank's part (needs tqdm); a function is called with
            ``(done_bytes, total_bytes)`` by the threads that write.
        store: the store of the folder; `url` is then its name there.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        InvalidArgumentError: the URL or an option cannot work.
    """

    # This attribute makes torch's async_save leave the staging to us: see stage().
    _synchronize_after_execute = False

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        thread_count: int | None = None,
        single_file_per_rank: bool = True,
        overwrite: bool = True,
        upload: UploadWay | None = None,
        progress: ProgressOption = False,
        store: Store | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        if thread_count is not None:
            thread_count = require_count("thread_count", thread_count, minimum=1)
        self._store, self._options = store, options
        self._folder = Folder.at(url, options, store)
        self._thread_count = thread_count
        self._single_file_per_rank = single_file_per_rank
        self._overwrite = overwrite
        self._upload_way: UploadWay | None = upload
        self._progress = progress
        self._attachments: Mapping[str, bytes] = {}
        self._id = uuid4().hex
        self._of_thread = threading.local()

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_of_thread"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._of_thread = threading.local()

    # ---- what torch asks for, in this order; the calls of one save come from one thread

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin a new save, to the folder `checkpoint_id` if it is given.

        Raises:
            InvalidArgumentError: `checkpoint_id` is not the URL of a store.
        """
        if checkpoint_id:
            self._folder = Folder.at(checkpoint_id, self._options, self._store)
            # Another thread may begin another save before this one is set up.
            self._of_thread.folder = self._folder
        self._of_thread.save = None

    def set_up_storage_writer(self, is_coordinator: bool, *_: Any, **kwargs: Any) -> None:
        """Look at the folder's contents.

        Raises:
            PreconditionFailedError: the folder holds a checkpoint, and `overwrite` is False.
            InvalidArgumentError: the save is without collectives, but the folder holds a checkpoint
                with collectives, which would be loaded instead.
        """
        settled: Settled = vars(self._of_thread).pop("settled", None) or self._begin()
        save = _Save(
            settled.folder,
            is_coordinator,
            rank=kwargs.get("rank") or 0,
            use_collectives=kwargs.get("use_collectives", True),
            turn=settled.turn,
            attachments=settled.attachments,
        )
        if is_coordinator or not save.use_collectives:
            self._look(save)
        self._of_thread.save = save

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Return the plans as they are; files are named when they are written."""
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's part.

        Returns:
            A completed future.

        Raises:
            Exception: the first error; this rank's files are then deleted. The error is not stored
                in the future, which would keep it and the whole state alive forever: the error's
                frames hold the future, and the garbage collector cannot see through that.
        """
        save = self._current_save()
        try:
            with as_ranks_tell():
                results = self._write(save, plan, planner)
        except BaseException:
            save.end()
            raise
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Make the checkpoint complete in one step, and delete the files that it replaces.

        Raises:
            PreconditionFailedError: another save to this folder was completed since this one began;
                its checkpoint stands, and the files of this one are deleted.
            Exception: any other error. The files of this save, of all ranks, are deleted, unless it
                is unknown whether the checkpoint became complete.
        """
        save = self._current_save()
        storage_data = {each.index: each.storage_data for part in results for each in part}
        attached = {name: attachment_name(i) for i, name in enumerate(save.attachments)}
        names = frozenset(info.relative_path for info in storage_data.values()) | frozenset(
            attached.values()
        )
        sent_on: str | None = None  # the generation that the commit should replace
        try:
            _require_complete(metadata, storage_data)
            metadata.version = _FORMAT_VERSION
            metadata.storage_data = storage_data
            metadata.storage_meta = storage_meta(checkpoint_id=save.folder.url, save_id=save.id)
            if attached:
                _write_attachments(save, attached)
                # Stock torch ignores this attribute; see attach().
                metadata.headrace_attachments = attached  # type: ignore[attr-defined]
            data = to_bytes(metadata)

            def write(if_generation: str) -> str:
                nonlocal sent_on
                sent_on = if_generation
                name = save.commit_name
                return save.folder.store.write(name, data, if_generation=if_generation).generation

            url = save.folder.url_of(save.commit_name)
            replaced = ordering.commit(
                url, save.turn, save.seen_generation, save.seen_at, names, write
            )
        except BaseException as error:
            if sent_on is None or _is_refused(save, sent_on, error):
                save.folder.delete(sorted(names))
            if isinstance(error, PreconditionFailedError):
                add_note(
                    error,
                    f"Another save to {save.folder.url} was completed since this one began. Its "
                    "checkpoint stands; the files of this one were deleted.",
                )
            raise
        finally:
            save.end()
        _write_plain_attachments(save)
        _delete_stale(save.folder, (save.stale | replaced) - names)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether `checkpoint_id` is the URL of a folder that can be written to."""
        return Folder.can_be_at(checkpoint_id)

    def storage_meta(self) -> Any:
        """Return the folder of the save that begins, as a ``StorageMeta`` if this torch has it."""
        # torch asks for it when it has the items of the state, before the planner may fail.
        self._of_thread.settled = self._begin()
        return storage_meta(checkpoint_id=self._of_thread.settled.folder.url, save_id=None)

    @property
    def checkpoint_id(self) -> str:
        """The URL of the folder to save to."""
        return self._current_folder().url

    # ---- staging: torch's AsyncStager

    @property
    def should_synchronize_after_execute(self) -> bool:
        """False: a stage is complete when `stage` returns."""
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return a copy in host memory, to which its save's turn in the order belongs.

        The folder and the attachments of the save are those of now, too. All of it is for a plain
        dict, which torch hands over; of another one, only the copy is made.

        Raises:
            Exception: a value cannot be pickled; the error names its key.
            RuntimeError: the host has too little memory for the copy, or the device has failed.
        """
        if type(state_dict) is not dict:  # torch itself hands over a plain one
            staged: dict[str, Any] = copy_to_host(state_dict)
            return staged
        settled = self._settled()  # now: another save may be started while this one is copied
        return copy_to_host(state_dict, into=Staged.of(settled))  # type: ignore[no-any-return]

    def synchronize_staging(self) -> None:
        """Return at once: a stage is complete when `stage` returns."""

    def close(self) -> None:
        """Release nothing: staged memory belongs to its save."""

    # ---- our own

    def attach(self, attachments: Mapping[str, bytes]) -> None:
        """Save small objects with the checkpoint, under names of their own in its folder.

        `DistributedReader.attachment` sees them as soon as the checkpoint is complete. Right after
        that, copies under the plain names are written, for other programs. Only the coordinator's
        attachments count.

        Examples:
            >>> writer = headrace.checkpoint.DistributedWriter("gs://bucket/run1/step200")
            >>> writer.attach({"config.json": b"{}"})
            >>> from torch.distributed.checkpoint import save
            >>> metadata = save({"model": model}, storage_writer=writer)
        """
        self._attachments = dict(attachments)

    def _begin(self) -> Settled:
        """Return what is settled about the save that begins in this thread."""
        self._of_thread.save = None
        settled = self._settled()
        staged = take_settled()
        if staged is not None and staged.writer == self._id:
            settled = staged
        elif staged is not None:  # another writer's; its turn is that of the state
            settled = replace(settled, turn=staged.turn)
        folder = vars(self._of_thread).pop("folder", None)
        return settled if folder is None else replace(settled, folder=folder)

    def _settled(self) -> Settled:
        """Return what is settled about a save that is started now."""
        return Settled(ordering.take_turn(), self._id, self._folder, self._attachments)

    def _current_folder(self) -> Folder:
        save: _Save | None = getattr(self._of_thread, "save", None)
        return self._folder if save is None else save.folder

    def _current_save(self) -> _Save:
        save: _Save | None = getattr(self._of_thread, "save", None)
        if save is None:
            raise InvalidArgumentError(
                "set_up_storage_writer comes first, in the same thread as the rest of the save"
            )
        return save

    def _look(self, save: _Save) -> None:
        save.seen_at = ordering.take_turn()
        names = save.folder.names()
        complete = METADATA_NAME in names
        if complete and not save.use_collectives:
            raise InvalidArgumentError(
                f"{save.folder.url} holds a checkpoint that was saved with collectives, and it "
                "would be the one that loads: save without collectives to another folder"
            )
        save.seen_generation = names.get(save.commit_name, "absent")
        if save.seen_generation != "absent" and not self._overwrite:
            error = PreconditionFailedError(
                f"{save.folder.url} holds a checkpoint, and overwrite is False: save to another "
                "folder, or delete it first"
            )
            error.url = save.folder.url
            raise error
        save.look = ordering.begin(
            save.folder.url,
            frozenset(names),
            save.folder.url_of(save.commit_name),
            save.seen_generation,
        )
        own = f"__{save.rank}_"
        save.stale = frozenset(
            name
            for name in save.look.strangers
            if (is_data(name) and (save.use_collectives or name.startswith(own)))
            or (save.use_collectives and metadata_rank(name) is not None)
        )

    def _write(self, save: _Save, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        total = sum(map(_item_bytes, plan.items))
        with choose_progress(self._progress, save.folder.url, total) as shown:
            return self._write_files(save, self._files(plan.items), planner, shown)

    def _write_files(
        self, save: _Save, files: list[list[WriteItem]], planner: SavePlanner, shown: Progress
    ) -> list[WriteResult]:
        written: list[str] = []
        errors: list[BaseException] = []
        lock = threading.Lock()

        def count(size_bytes: int) -> None:
            with lock:
                shown.add(size_bytes)

        def write_file(number: int, items: list[WriteItem]) -> list[WriteResult]:
            name = data_name(save.rank, number)
            results: list[WriteResult] = []
            try:
                pieces = _pieces(planner, items, name, results, count, lambda: bool(errors))
                expected = sum(map(_item_bytes, items))
                upload(save.folder.store, name, pieces, self._upload_way, expected)
            except BaseException as error:
                with lock:
                    errors.append(error)
                raise
            with lock:
                written.append(name)
            return results

        pool = ThreadPoolExecutor(
            max_workers=self._thread_count or _MAX_FILES, thread_name_prefix="headrace-save"
        )
        futures = []
        try:
            futures = [pool.submit(write_file, *each) for each in enumerate(files)]
            wait(futures, return_when=FIRST_EXCEPTION)
        except BaseException as error:  # Ctrl-C
            with lock:
                errors.append(error)
            raise
        finally:
            # Files not begun are cancelled; the others see `errors` before their next item.
            pool.shutdown(wait=True, cancel_futures=bool(errors))
            if errors:
                save.folder.delete(written)
        if errors:
            try:
                raise errors[0]
            finally:
                # They refer to this frame; the cycle would keep the whole state alive for a while.
                errors.clear()
                futures.clear()
        return [result for each in futures for result in each.result()]

    def _files(self, items: list[WriteItem]) -> list[list[WriteItem]]:
        """Distribute the items over files of about equal size; neighbours stay together."""
        if not self._single_file_per_rank:
            return [[item] for item in items]
        sizes = [_item_bytes(item) for item in items]
        total = sum(sizes)
        count = self._thread_count or min(_MAX_FILES, total // _BYTES_PER_FILE + 1)
        # Empty tensors count, too.
        weights = [size + 1 for size in sizes]
        share = max(sum(weights) / count, 1)
        files: list[list[WriteItem]] = [[] for _ in range(count)]
        before = 0
        for item, weight in zip(items, weights, strict=True):
            # The file in which the middle of the item lies.
            files[min(int((before + weight / 2) / share), count - 1)].append(item)
            before += weight
        return [file for file in files if file]


def _write_attachments(save: _Save, names: Mapping[str, str]) -> None:
    for name, content in save.attachments.items():
        save.folder.store.write(names[name], content, if_generation="absent")


def _write_plain_attachments(save: _Save) -> None:
    for name, content in save.attachments.items():
        try:
            save.folder.store.write(name, content)
        except HeadraceError as error:
            # The checkpoint is complete and has its own copy.
            _log.warning("%s is saved, but not its copy of %s: %s", save.folder.url, name, error)


def _pieces(
    planner: SavePlanner,
    items: list[WriteItem],
    name: str,
    results: list[WriteResult],
    count: Callable[[int], None],
    stop: Callable[[], bool],
) -> Iterator[Buffer | Passing]:
    """Yield the bytes of a file item by item, and add the result of each to `results`."""
    offset = 0
    for item in items:
        if stop():
            raise CancelledError("another file of this rank could not be written")
        try:
            data: torch.Tensor | io.BytesIO = planner.resolve_data(item)
            encoded = encode(data)
        except Exception as error:
            add_note(error, f"while saving {item.index.fqn!r}")
            raise
        del data
        yield from encoded.pieces
        info = _StorageInfo(name, offset, encoded.length_bytes)
        encoded.layout.attach(info)
        results.append(WriteResult(item.index, encoded.length_bytes, info))
        offset += encoded.length_bytes
        count(encoded.layout.data_bytes)


def _item_bytes(item: WriteItem) -> int:
    if item.tensor_data is None:
        data = getattr(item, "bytes_io_data", None)  # missing in older versions of torch
        return 0 if data is None else int(data.nbytes)
    tensor = item.tensor_data
    return math.prod(tensor.chunk.sizes) * tensor.properties.dtype.itemsize


def _require_complete(metadata: Metadata, storage_data: dict[MetadataIndex, Any]) -> None:
    """Raise unless some rank wrote every chunk that the metadata names."""
    for name, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            wanted = [MetadataIndex(name, chunk.offsets) for chunk in entry.chunks]
        else:
            wanted = [MetadataIndex(name)]
        for index in wanted:
            if index not in storage_data:
                where = f" at {tuple(index.offset)}" if index.offset else ""
                raise InternalError(
                    f"no rank has written {name!r}{where}: the plan and what was written do not "
                    "agree; nothing was saved"
                )


def _is_refused(save: _Save, replaced_generation: str, error: BaseException) -> bool:
    """Return whether a failed commit certainly has not happened and never will."""
    if isinstance(error, PreconditionFailedError):
        return True
    # Of several attempts, one whose response was lost may still be carried out.
    if not isinstance(error, PermissionDeniedError | InvalidArgumentError) or error.attempts > 1:
        return False
    try:
        found = save.folder.store.stat(save.commit_name, missing_ok=True)
    except HeadraceError:
        return False
    return ("absent" if found is None else found.generation) == replaced_generation


def _delete_stale(folder: Folder, names: frozenset[str]) -> None:
    failures = folder.delete(sorted(names))
    if failures:
        _log.warning(
            "%s is saved, but %d of the %d files of the checkpoint that it replaced could not be "
            "deleted: %s",
            folder.url,
            len(failures),
            len(names),
            failures[0],
        )
