"""Save tensors as one safetensors file, or as several and then their index."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from headrace import _engine
from headrace._base.errors import (
    CorruptDataError,
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionFailedError,
)
from headrace._base.options import require, require_bytes
from headrace._base.progress import Progress, ProgressOption, choose_progress
from headrace._engine import ObjectInfo
from headrace._files.leftovers import give_up, tell_left_behind
from headrace._store.store import Store, UploadWay
from headrace.checkpoint._device_copies import DeviceCopies, host_pieces, memory_of
from headrace.checkpoint._object import refused
from headrace.checkpoint._safetensors.dtypes import dtype_name, unpacked_shape
from headrace.checkpoint._safetensors.files import (
    HEADERS_KEY,
    MAX_INDEX_BYTES,
    parse_index,
)
from headrace.checkpoint._safetensors.header import (
    METADATA_NAME,
    PART_KEY,
    SUMS_KEY,
    Entry,
    build_header,
    sorted_entries,
    sum_of_header,
)
from headrace.checkpoint._safetensors.names import (
    SUFFIX,
    index_names_of,
    is_index_name,
    is_part_of,
    part_name,
)

__all__ = ["file_of", "save_tensors"]

_log = logging.getLogger("headrace")

# Errors after which nothing was written.
_REFUSALS = (
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionFailedError,
)

# Bytes summed in one call without the GIL.
_SUMMED_BYTES = 16 << 20
# Smaller pieces are copied, so that a part consists of few pieces.
_LENT_BYTES = 64 << 10


@dataclass(frozen=True)
class _File:
    """One file to write."""

    header: bytes
    tensors: list[torch.Tensor]
    """In the order of the file, each contiguous."""
    header_crc: int | None
    """Of the header, as an index records it."""

    def pieces(self) -> Iterator[tuple[memoryview | bytes, bool]]:
        """Yield the bytes, and whether they are a tensor's own memory.

        Any others must be copied or written before the next ones are asked for.
        """
        yield self.header, False
        for tensor in self.tensors:
            yield from _pieces(tensor)


def save_tensors(
    state: Any,
    store: Store,
    name: str,
    *,
    metadata: Mapping[str, str] | None,
    checksums: bool,
    max_shard_bytes: int | None,
    if_generation: str | None,
    part_bytes: int | None,
    upload: UploadWay | None,
    progress: ProgressOption,
) -> ObjectInfo:
    """Save a dict of tensors; see `headrace.checkpoint.save`."""
    require(
        not is_index_name(name),
        f"{store.url_of(name)} is the name of an index, which is written after its files: save "
        f"model{SUFFIX} with max_shard_bytes=...",
    )
    metadata = _checked_metadata(metadata)
    tensors = _tensors(state)
    total_bytes = sum(tensor.nbytes for tensor in tensors.values())
    if max_shard_bytes is None:
        file = _file(tensors, metadata, checksums)
        with choose_progress(progress, store.url_of(name), total_bytes) as shown:
            return _write(store, name, file, if_generation, part_bytes, upload, shown)
    max_shard_bytes = require_bytes("max_shard_bytes", max_shard_bytes, minimum=1)
    require(
        name.endswith(SUFFIX),
        f"{store.url_of(name)}: with max_shard_bytes, the name must end with {SUFFIX}, as "
        f"model{SUFFIX}: those of the files and of the index follow from it",
    )
    with choose_progress(progress, store.url_of(name), total_bytes) as shown:
        return _Shards(store, name, part_bytes, upload, shown).save(
            tensors, metadata, checksums, max_shard_bytes, if_generation
        )


def file_of(state: Any, metadata: Mapping[str, str] | None = None, *, checksums: bool) -> bytes:
    """Return the bytes of one file."""
    file = _file(_tensors(state), metadata, checksums)
    return b"".join(bytes(piece) for piece, _ in file.pieces())


class _Shards:
    """Several files, and the index that makes them a checkpoint."""

    def __init__(
        self,
        store: Store,
        name: str,
        part_bytes: int | None,
        upload: UploadWay | None,
        shown: Progress,
    ) -> None:
        self._store, self._shown = store, shown
        self._part_bytes, self._upload = part_bytes, upload
        self._folder = name[: name.rfind("/") + 1]
        self._name = name.removeprefix(self._folder)
        self._index = index_names_of(name)[0]

    def save(
        self,
        tensors: dict[str, torch.Tensor],
        metadata: Mapping[str, str] | None,
        checksums: bool,
        max_shard_bytes: int,
        if_generation: str | None,
    ) -> ObjectInfo:
        single, before = self._store.stat_many(
            [self._folder + self._name, self._index], missing_ok=True
        )
        if single is not None:
            raise refused(
                self._store.url_of(single.name),
                "there is a checkpoint of one file, which programs would read instead of those to "
                "be written: delete it, or choose another name",
            )
        if before is not None and if_generation not in (None, before.generation):
            raise PreconditionFailedError(
                f"{self._store.url_of(self._index)} has the generation {before.generation}, not "
                f"{if_generation}"
            )
        old_files = [] if before is None else self._files_of(before)
        # The files of an older checkpoint stay until its index is replaced.
        token = "" if before is None else f"-{uuid4().hex[:8]}"
        groups = _split(tensors, max_shard_bytes)
        count = len(groups)
        names = [part_name(self._name, token, i, count) for i in range(1, count + 1)]
        written: list[ObjectInfo] = []
        sums: dict[str, int] = {}
        weights: dict[str, str] = {}
        is_index_sent = False
        try:
            for i, (file_name, keys) in enumerate(zip(names, groups, strict=True), 1):
                part = {key: tensors[key] for key in keys}
                file = _file(part, metadata, checksums, part=f"{i} of {count}")
                written.append(
                    _write(
                        self._store,
                        self._folder + file_name,
                        file,
                        "absent" if token else None,
                        self._part_bytes,
                        self._upload,
                        self._shown,
                    )
                )
                weights |= dict.fromkeys(keys, file_name)
                if file.header_crc is not None:
                    sums[file_name] = file.header_crc
            is_index_sent = True
            info = self._write_index(tensors, weights, sums, if_generation)
        except BaseException as error:
            # After a lost response, the index may be there: then its files have to stay.
            if not is_index_sent or isinstance(error, _REFUSALS):
                self._remove(written)
            raise
        self._remove([each for each in old_files if each.name not in {w.name for w in written}])
        return info

    def _write_index(
        self,
        tensors: Mapping[str, torch.Tensor],
        weights: Mapping[str, str],
        sums: Mapping[str, int],
        if_generation: str | None,
    ) -> ObjectInfo:
        total_bytes = sum(tensor.nbytes for tensor in tensors.values())
        metadata: dict[str, Any] = {"total_size": total_bytes}
        if sums:
            metadata[HEADERS_KEY] = {name: f"{crc:08x}" for name, crc in sums.items()}
        index = {"metadata": metadata, "weight_map": weights}
        text = (json.dumps(index, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
        if len(text) > MAX_INDEX_BYTES:
            raise refused(
                self._store.url_of(self._index),
                f"the index would have {len(text):,} bytes, and `load` takes {MAX_INDEX_BYTES:,} "
                "at most: save fewer tensors, or ones with shorter names",
            )
        return self._store.write(
            self._index,
            text,
            if_generation=if_generation,
            content_type="application/json",
        )

    def _files_of(self, index: ObjectInfo) -> list[ObjectInfo]:
        """Return the files of the index that is to be replaced, but for any of other names."""
        try:
            names = set(parse_index(bytes(self._store.read(index.name))).files.values())
        except CorruptDataError:
            return []
        ours = [self._folder + each for each in sorted(names) if is_part_of(self._name, each)]
        infos = self._store.stat_many(ours, missing_ok=True)
        return [info for info in infos if info is not None]

    def _remove(self, infos: Iterable[ObjectInfo]) -> None:
        for info in infos:
            try:
                self._store.delete(info.name, if_generation=info.generation, missing_ok=True)
            except HeadraceError as error:
                _log.warning(
                    "%s belongs to no checkpoint any more, and could not be deleted: %s",
                    self._store.url_of(info.name),
                    error,
                )


def _write(
    store: Store,
    name: str,
    file: _File,
    if_generation: str | None,
    part_bytes: int | None,
    upload: UploadWay | None,
    shown: Progress,
) -> ObjectInfo:
    writer = store.open_writer(
        name,
        if_generation=if_generation,
        content_type="application/octet-stream",
        part_bytes=part_bytes,
        expected_size_bytes=len(file.header) + sum(tensor.nbytes for tensor in file.tensors),
        upload=upload,
    )
    try:
        is_content = False  # the header comes first
        for data, is_lent in file.pieces():
            if is_lent and len(data) >= _LENT_BYTES:
                writer.write_lent(data)
            else:
                writer.write(data)
            shown.add(len(data) if is_content else 0)
            is_content = True
        saved = writer.close()
    except BaseException as error:
        give_up(writer, error)
        raise
    tell_left_behind(writer, store.url_of(name), is_saved=True)
    return saved


def _file(
    tensors: Mapping[str, torch.Tensor],
    metadata: Mapping[str, str] | None,
    checksums: bool,
    part: str | None = None,
) -> _File:
    entries = sorted_entries(_entry(name, tensor) for name, tensor in tensors.items())
    in_order = [tensors[each.name] for each in entries]
    if not checksums:
        return _File(build_header(entries, metadata, None), in_order, None)
    # transformers refuses a file with metadata that does not say this.
    metadata = {"format": "pt", **(metadata or {})}
    if part is not None:
        metadata[PART_KEY] = part
    header = build_header(entries, metadata, [_sum(tensor) for tensor in in_order])
    return _File(header, in_order, sum_of_header(header))


def _split(tensors: Mapping[str, torch.Tensor], max_bytes: int) -> list[list[str]]:
    """Return the names in each file: in their order, as many as fit, and at least one."""
    groups: list[list[str]] = [[]]
    group_bytes = 0
    for name, tensor in tensors.items():
        if groups[-1] and group_bytes + tensor.nbytes > max_bytes:
            groups.append([])
            group_bytes = 0
        groups[-1].append(name)
        group_bytes += tensor.nbytes
    return groups


def _sum(tensor: torch.Tensor) -> int:
    crc = 0
    for piece, _ in _pieces(tensor):
        crc = _engine.crc32c(piece, crc)
    return crc


def _pieces(tensor: torch.Tensor) -> Iterator[tuple[memoryview, bool]]:
    if tensor.numel() == 0:
        return
    content = tensor.reshape(-1).view(torch.uint8)
    if content.device.type == "cpu":
        memory = memory_of(content)
        for begin in range(0, len(memory), _SUMMED_BYTES):
            yield memory[begin : begin + _SUMMED_BYTES], True
        return
    for staged in host_pieces(content, DeviceCopies(content.device)):
        yield memory_of(staged), False


def _entry(name: str, tensor: torch.Tensor) -> Entry:
    dtype = dtype_name(tensor.dtype)
    assert dtype is not None  # _tensors has seen to it
    shape = unpacked_shape(dtype, tuple(tensor.shape))
    if shape is None:
        raise InvalidArgumentError(
            f"the tensor {name!r} of {tensor.dtype} has no dimension: two elements of the format "
            "are one of torch"
        )
    return Entry(name, dtype, shape)


def _checked_metadata(metadata: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """Return the texts to keep: headrace's own that came along tell of another file."""
    if metadata is None:
        return None
    require(
        isinstance(metadata, Mapping)
        and all(isinstance(each, str) for pair in metadata.items() for each in pair),
        f"metadata is {metadata!r}; safetensors files keep texts by names: a dict of str and str",
    )
    for each in [*metadata, *metadata.values()]:
        _require_text("metadata", each)
    return {name: text for name, text in metadata.items() if name not in (SUMS_KEY, PART_KEY)}


def _require_text(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidArgumentError(f"{what}: {text!r} has a half of a character") from None


def _tensors(state: Any) -> dict[str, torch.Tensor]:
    """Return the tensors of a state, detached, or say why they cannot be saved so."""
    if not isinstance(state, Mapping):
        raise InvalidArgumentError(
            f"safetensors files hold a dict of tensors by name, not {type(state).__name__}: save "
            "module.state_dict(), or a name that does not end with .safetensors"
        )
    tensors = {name: _tensor(name, value) for name, value in state.items()}
    _require_apart(tensors)
    return tensors


def _tensor(name: Any, value: Any) -> torch.Tensor:
    if not isinstance(name, str) or not isinstance(value, torch.Tensor):
        raise InvalidArgumentError(
            f"{name!r} is {type(value).__name__}, and safetensors files hold tensors by their names"
            " only: save other values in a file of their own, whose name does not end with "
            ".safetensors"
        )
    _require_text("the name of a tensor", name)
    what = f"the tensor {name!r}"
    require(name != METADATA_NAME, f"{what} has the name that the format keeps for its metadata")
    is_wrapper: bool = is_traceable_wrapper_subclass(value)
    if is_wrapper:
        raise InvalidArgumentError(
            f"{what} is a {type(value).__name__}: save full_tensor() of a DTensor, or the whole by "
            "headrace.checkpoint.DistributedWriter"
        )
    require(
        value.layout is torch.strided,
        f"{what} is sparse, and safetensors files hold dense ones only: save its to_dense()",
    )
    require(value.device.type != "meta", f"{what} is on the device 'meta', and has no bytes")
    require(
        dtype_name(value.dtype) is not None,
        f"{what} is of {value.dtype}, for which the format has no name: convert it, or save a file "
        "whose name does not end with .safetensors",
    )
    require(
        value.is_contiguous(),
        f"{what} is not contiguous, and the format has no strides: save its contiguous()",
    )
    return value.detach().resolve_conj().resolve_neg()


def _require_apart(tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse tensors that share bytes: each would be saved and loaded on its own."""
    places = sorted(
        (str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name)
        for name, tensor in tensors.items()
        if tensor.nbytes
    )
    last: tuple[str, int, int, str] = ("", 0, 0, "")
    for place in places:
        device, begin, end, name = place
        if device == last[0] and begin < last[2]:
            raise InvalidArgumentError(
                f"the tensors {last[3]!r} and {name!r} share memory, which safetensors files do not"
                " express: leave one of them out, as tied weights are tied again by their module, "
                "or save a clone()"
            )
        if device != last[0] or end > last[2]:
            last = place
