"""Loads of ``torch.distributed.checkpoint`` from a store."""

from __future__ import annotations

import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future as ThreadFuture
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Unpack
from uuid import uuid4

import torch
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from headrace import _engine
from headrace._base.errors import CorruptDataError, InvalidArgumentError, NotFoundError, add_note
from headrace._base.options import MiB, require_bool
from headrace._base.progress import Progress, ProgressOption, choose_progress, require_progress
from headrace._checkpoints.names import metadata_name, metadata_rank
from headrace._store.settings import LoadOptions
from headrace._store.store import NameOrInfo, Store
from headrace.checkpoint._distributed.folder import Folder
from headrace.checkpoint._distributed.items import ItemLayout, flat_bytes
from headrace.checkpoint._distributed.metadata_file import from_bytes, storage_meta
from headrace.checkpoint._distributed.ranks import as_ranks_tell
from headrace.checkpoint._parallel_reads import Part, read_parts

__all__ = ["DistributedReader"]

# Bytes of one window, and how many of them may need memory besides the state's own; the next one
# is in flight while this one is verified and handed over.
_WINDOW_BYTES = 512 * MiB
_WINDOW_HELD_BYTES = 128 * MiB


class DistributedReader(StorageReader):
    """Loads a checkpoint of ``torch.distributed.checkpoint`` from a folder in any store.

    Examples:
        >>> reader = headrace.checkpoint.DistributedReader("gs://bucket/run1/step200")
        >>> torch.distributed.checkpoint.load({"model": model}, storage_reader=reader)

    It loads checkpoints of `DistributedWriter` and of torch's ``FileSystemWriter``, on any number
    of ranks. It reads only the bytes that the plan asks for, and neighbours by one request; a
    contiguous tensor on the CPU is read into its own memory. Data that `DistributedWriter` wrote is
    verified by its CRC-32C, even if only a slice of a tensor is read.

    Args:
        url: the folder; torch's ``checkpoint_id`` takes precedence.
        verify: compare the checksums.
        progress: True shows a bar for this rank's part (needs tqdm); a function is called with
            ``(done_bytes, total_bytes)``.
        store: the store of the folder; `url` is then its name there.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        InvalidArgumentError: the URL or an option cannot work.
    """

    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        verify: bool = True,
        progress: ProgressOption = False,
        store: Store | None = None,
        **options: Unpack[LoadOptions],
    ) -> None:
        require_bool("verify", verify)
        require_progress(progress)
        self._store, self._options = store, options
        self._folder = Folder.at(url, options, store)
        self._verify = verify
        self._progress = progress
        self._storage_data: dict[Any, Any] = {}
        self._load_id = uuid4().hex

    # ---- what torch asks for, in this order

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Begin a new load, from the folder `checkpoint_id` if it is given.

        Raises:
            InvalidArgumentError: `checkpoint_id` is not the URL of a store.
        """
        if checkpoint_id:
            self._folder = Folder.at(checkpoint_id, self._options, self._store)
        self._storage_data = {}
        self._load_id = uuid4().hex

    def read_metadata(self, *_: Any, **kwargs: Any) -> Metadata:
        """Return the checkpoint's metadata, of all ranks or of `rank`.

        Raises:
            NotFoundError: the folder holds no complete checkpoint.
            CorruptDataError: the metadata is damaged.
        """
        rank: int | None = kwargs.get("rank")
        name = metadata_name(rank)
        try:
            data = self._folder.store.read(name).bytes()
        except NotFoundError as error:
            # In the text itself, because torch shows no notes.
            told = NotFoundError(f"{error}. {self._what_is_missing()}")
            told.url, told.http_status, told.attempts = error.url, error.http_status, error.attempts
            raise told from error
        metadata = from_bytes(data, self._folder.url_of(name))
        # As torch's own reader does, where torch has it.
        if getattr(metadata, "storage_meta", None) is None:
            metadata.storage_meta = storage_meta()
        if metadata.storage_meta is not None:
            metadata.storage_meta.load_id = self._load_id
        return metadata

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,  # noqa: ARG002 - torch's
        *_: Any,
        **kwargs: Any,  # noqa: ARG002 - by this name torch knows that it may pass more
    ) -> None:
        """Take the metadata that `read_metadata` returned.

        Raises:
            InvalidArgumentError: it has no places of data.
        """
        if metadata.storage_data is None:
            raise InvalidArgumentError(
                f"{self._folder.url}: the metadata does not say where the data is"
            )
        self._storage_data = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        """Return the plan as it is."""
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """Return the plans as they are."""
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read the items of the plan.

        Returns:
            A completed future.

        Raises:
            HeadraceError: the first error. Items loaded until then are in the state.
        """
        with as_ranks_tell():
            self._read(plan, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Return whether `checkpoint_id` is the URL of a folder that can be read."""
        return Folder.can_be_at(checkpoint_id)

    @property
    def checkpoint_id(self) -> str:
        """The URL of the folder to load from."""
        return self._folder.url

    # ---- our own

    def attachment(self, name: str) -> bytes:
        """Return an attachment that `DistributedWriter.attach` saved with the checkpoint.

        For a checkpoint of another writer, this is the object of that name in the folder.

        Raises:
            NotFoundError: there is no such attachment.

        Examples:
            >>> reader = headrace.checkpoint.DistributedReader("gs://bucket/run1/step200")
            >>> reader.attachment("config.json")
            b'{}'
        """
        attached = getattr(self.read_metadata(), "headrace_attachments", {})
        return self._folder.store.read(attached.get(name, name)).bytes()

    def _what_is_missing(self) -> str:
        names = self._folder.names()
        ranks = sorted(each for name in names if (each := metadata_rank(name)) is not None)
        if ranks:
            return (
                f"{self._folder.url} was saved without collectives by {len(ranks)} ranks: load it "
                "with as many"
            )
        if not names:
            return f"There is nothing below {self._folder.url}."
        return (
            f"{self._folder.url} has no .metadata, so no save to it was completed. "
            "headrace.checkpoint.latest() finds the newest complete checkpoint below a prefix."
        )

    def _read(self, plan: LoadPlan, planner: LoadPlanner) -> None:
        items = sorted(
            ((self._storage_info(item), item) for item in plan.items),
            key=lambda pair: (pair[0].relative_path, pair[0].offset),
        )
        total = sum(info.length for info, _ in items)
        with choose_progress(self._progress, self._folder.url, total) as shown:
            self._read_windows(self._windows(items, planner), shown)

    def _windows(
        self, items: list[tuple[Any, ReadItem]], planner: LoadPlanner
    ) -> Iterator[list[_Load]]:
        objects: dict[str, NameOrInfo] = {}
        window: list[_Load] = []
        read_bytes = held_bytes = 0
        for info, item in items:
            load = self._load(info, item, planner, objects)
            read_bytes += load.read_bytes
            held_bytes += load.held_bytes
            if window and (read_bytes > _WINDOW_BYTES or held_bytes > _WINDOW_HELD_BYTES):
                yield window
                window, read_bytes, held_bytes = [], load.read_bytes, load.held_bytes
            window.append(load)
        if window:
            yield window

    def _read_windows(self, windows: Iterator[list[_Load]], shown: Progress) -> None:
        pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="headrace-load")
        under_way: deque[tuple[list[_Load], ThreadFuture[None]]] = deque()

        def finish_oldest() -> None:
            loads, future = under_way.popleft()
            future.result()
            for load in loads:
                load.finish()
                shown.add(load.length_bytes)

        before_bytes = 0
        try:
            for loads in windows:
                parts = [part for load in loads for part in load.parts]
                read_bytes = sum(load.read_bytes for load in loads)
                # Two are read at a time: this one, and the one before or, if it is full, the next.
                other_bytes = max(
                    before_bytes, read_bytes if read_bytes > _WINDOW_BYTES // 2 else 0
                )
                under_way.append(
                    (loads, pool.submit(self._read_parts, parts, read_bytes + other_bytes)),
                )
                before_bytes = read_bytes
                if len(under_way) > 1:
                    finish_oldest()
            while under_way:
                finish_oldest()
        finally:
            # When this returns, nothing more may be written to the state's memory.
            pool.shutdown(wait=True, cancel_futures=True)

    def _read_parts(self, parts: Sequence[Part], in_flight_bytes: int) -> None:
        sum_kind = "crc32c" if self._verify else ""
        try:
            read_parts(
                self._folder.store, parts, sum_kind=sum_kind, in_flight_bytes=in_flight_bytes
            )
        except NotFoundError as error:
            add_note(
                error,
                f"The metadata of {self._folder.url} names this file. If a new checkpoint was "
                "saved there meanwhile, load again; otherwise the checkpoint is incomplete.",
            )
            raise
        except InvalidArgumentError as error:
            self._require_whole(parts, error)
            raise

    def _require_whole(self, parts: Sequence[Part], cause: InvalidArgumentError) -> None:
        ends: dict[str, int] = {}
        for part in parts:
            name = part.object if isinstance(part.object, str) else part.object.name
            ends[name] = max(part.end, ends.get(name, 0))
        for name, end in ends.items():
            size_bytes = self._folder.store.stat(name).size_bytes
            if size_bytes < end:
                raise CorruptDataError(
                    f"{self._folder.store.url_of(name)}: it is truncated: it has {size_bytes} "
                    f"bytes, and the metadata names bytes up to {end}; load another checkpoint"
                ) from cause

    def _storage_info(self, item: ReadItem) -> Any:
        try:
            return self._storage_data[item.storage_index]
        except KeyError:
            raise NotFoundError(
                f"{self._folder.url}: the metadata does not say where {item.storage_index.fqn!r} is"
            ) from None

    def _load(
        self,
        info: Any,
        item: ReadItem,
        planner: LoadPlanner,
        objects: dict[str, NameOrInfo],
    ) -> _Load:
        layout = ItemLayout.of(info)
        name = info.relative_path
        source: NameOrInfo = name
        if layout is None:
            # Other writers reuse names: read one version.
            if name not in objects:
                objects[name] = self._folder.store.stat(name)
            source = objects[name]
        where = f"{item.storage_index.fqn!r} in {self._folder.url_of(info.relative_path)}"
        transforms = tuple(getattr(info, "transform_descriptors", None) or ())
        if item.type == LoadItemType.BYTE_IO:
            return _bytes_load(source, info, layout, item, planner, where, transforms, self._verify)
        target = planner.resolve_tensor(item).detach()
        if layout is None or layout.dtype is None or transforms:
            return _file_load(
                source, info, layout, item, planner, target, where, transforms, self._verify
            )
        return _memory_load(source, info, layout, item, planner, target, where, self._verify)


@dataclass(frozen=True, eq=False)
class _Load:
    """One item in progress: the parts to read, and a function to call when they have arrived."""

    parts: list[Part]
    length_bytes: int
    """Of the saved item, of which a slice may be read."""
    held_bytes: int
    """Of memory that is not the state's."""
    finish: Callable[[], None]

    @property
    def read_bytes(self) -> int:
        return sum(part.end - part.begin for part in self.parts)


def _whole(
    source: NameOrInfo, info: Any, layout: ItemLayout | None, where: str, verify: bool
) -> tuple[list[Part], Callable[[], memoryview]]:
    """Return the parts that make up an item, and a function that verifies and returns them."""
    whole = memoryview(bytearray(info.length))
    parts = [Part(source, info.offset, info.offset + info.length, whole)]

    def take() -> memoryview:
        if layout is not None and verify:
            end = layout.head_bytes + layout.data_bytes
            _check(whole[: layout.head_bytes], layout.head_sum, where)
            _check_blocks(whole[layout.head_bytes : end], layout, 0, where)
            _check(whole[end:], layout.tail_sum, where)
        return whole

    return parts, take


def _bytes_load(
    source: NameOrInfo,
    info: Any,
    layout: ItemLayout | None,
    item: ReadItem,
    planner: LoadPlanner,
    where: str,
    transforms: Sequence[str],
    verify: bool,
) -> _Load:
    parts, take = _whole(source, info, layout, where, verify)

    def finish() -> None:
        planner.load_bytes(item, _untransformed(take(), transforms, where))

    return _Load(parts, info.length, info.length, finish)


def _file_load(
    source: NameOrInfo,
    info: Any,
    layout: ItemLayout | None,
    item: ReadItem,
    planner: LoadPlanner,
    target: torch.Tensor,
    where: str,
    transforms: Sequence[str],
    verify: bool,
) -> _Load:
    """Load a tensor from a file of ``torch.save`` without a layout of headrace."""
    parts, take = _whole(source, info, layout, where, verify)

    def finish() -> None:
        stream = _untransformed(take(), transforms, where)
        try:
            tensor = torch.load(stream, map_location="cpu", weights_only=True)
        except Exception as error:
            raise CorruptDataError(f"{where}: torch.load cannot read it: {error}") from error
        if not isinstance(tensor, torch.Tensor):
            raise CorruptDataError(f"{where}: it holds {type(tensor).__name__}, not a tensor")
        for dim, (offset, length) in enumerate(
            zip(item.storage_offsets, item.lengths, strict=True)
        ):
            tensor = tensor.narrow(dim, offset, length)
        _copy(target, tensor, where)
        planner.commit_tensor(item, target)

    return _Load(parts, info.length, info.length, finish)


def _memory_load(
    source: NameOrInfo,
    info: Any,
    layout: ItemLayout,
    item: ReadItem,
    planner: LoadPlanner,
    target: torch.Tensor,
    where: str,
    verify: bool,
) -> _Load:
    """Load a tensor, or a slice of it, whose memory has a known place."""
    dtype = layout.dtype
    assert dtype is not None
    offsets, lengths = tuple(item.storage_offsets), tuple(item.lengths)
    if len(lengths) != len(layout.shape) or any(
        offset + length > size
        for offset, length, size in zip(offsets, lengths, layout.shape, strict=True)
    ):
        raise CorruptDataError(
            f"{where}: its shape is {layout.shape}, and {lengths} at {offsets} is asked for"
        )
    if target.shape != torch.Size(lengths):
        raise InvalidArgumentError(
            f"{where}: the tensor to load into has shape {tuple(target.shape)}, and {lengths} is "
            "what the plan asks for"
        )
    strides = _contiguous_strides(layout.shape)
    item_bytes = dtype.itemsize
    if target.numel() == 0:
        wanted = (0, 0)
    else:
        first = sum(o * s for o, s in zip(offsets, strides, strict=True))
        last = first + sum((n - 1) * s for n, s in zip(lengths, strides, strict=True))
        wanted = (first * item_bytes, (last + 1) * item_bytes)
    # Extend to whole blocks, which have checksums.
    begin = wanted[0] // layout.block_bytes * layout.block_bytes
    end = min(-(-wanted[1] // layout.block_bytes) * layout.block_bytes, layout.data_bytes)
    data_offset = info.offset + layout.head_bytes
    is_direct = (
        (begin, end) == wanted
        and wanted[1] - wanted[0] == target.numel() * item_bytes
        and target.dtype == dtype
        and target.device.type == "cpu"
        and target.is_contiguous()
        and not target.is_conj()
        and not target.is_neg()
    )
    data = flat_bytes(target) if is_direct else memoryview(bytearray(end - begin))
    parts = [Part(source, data_offset + begin, data_offset + end, data)]
    is_whole = (begin, end) == (0, layout.data_bytes)
    tail_bytes = info.length - layout.head_bytes - layout.data_bytes
    head, tail = memoryview(bytearray(layout.head_bytes)), memoryview(bytearray(tail_bytes))
    if is_whole and verify:
        # Loading does not need them, but damage anywhere in a checkpoint should be reported.
        parts.append(Part(source, info.offset, data_offset, head))
        parts.append(Part(source, data_offset + layout.data_bytes, info.offset + info.length, tail))

    def finish() -> None:
        if verify:
            first_block = begin // layout.block_bytes
            if parts[0].crc != layout.sum_of_blocks(first_block, end - begin):
                _check_blocks(data, layout, first_block, where)
            if is_whole:
                _check(head, layout.head_sum, where)
                _check(tail, layout.tail_sum, where)
        if not is_direct and target.numel():
            flat = torch.frombuffer(data[wanted[0] - begin : wanted[1] - begin], dtype=dtype)
            _copy(target, flat.as_strided(lengths, strides), where)
        planner.commit_tensor(item, target)

    return _Load(parts, info.length, 0 if is_direct else end - begin, finish)


def _contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _copy(target: torch.Tensor, source: torch.Tensor, where: str) -> None:
    if target.shape != source.shape:
        raise InvalidArgumentError(
            f"{where}: the tensor to load into has shape {tuple(target.shape)}, and the saved one "
            f"{tuple(source.shape)}"
        )
    target.copy_(source)


def _untransformed(data: memoryview, descriptors: Sequence[str], where: str) -> io.BytesIO:
    stream: Any = io.BytesIO(data)
    if not descriptors:
        return stream  # type: ignore[no-any-return]
    try:
        # Not every supported version of torch has these.
        from torch.distributed.checkpoint._extension import (
            ExtensionRegistry,
            StreamTransformExtension,
        )

        for extension in ExtensionRegistry().from_descriptor_list(descriptors):
            if isinstance(extension, StreamTransformExtension):
                stream = extension.transform_from(stream)
        return io.BytesIO(stream.read(-1))
    except (ValueError, ImportError) as error:
        raise InvalidArgumentError(
            f"{where}: it was transformed by {', '.join(descriptors)} when it was saved, which "
            f"cannot be undone here: {error}"
        ) from error


def _check_blocks(data: memoryview, layout: ItemLayout, first_block: int, where: str) -> None:
    for number, begin in enumerate(range(0, len(data), layout.block_bytes), first_block):
        _check(data[begin : begin + layout.block_bytes], layout.block_sums[number], where)


def _check(data: memoryview, expected: int, where: str) -> None:
    if _engine.crc32c(data) != expected:
        raise CorruptDataError(
            f"{where}: its bytes do not match the CRC-32C that was saved with them: load another "
            "checkpoint"
        )
