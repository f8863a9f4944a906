"""Read some tensors of a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from headrace._base.options import require_bytes
from headrace.checkpoint._archive import Archive
from headrace.checkpoint._object import corrupt, refused
from headrace.checkpoint._outline import (
    REBUILD_PARAMETER,
    Made,
    PlaceError,
    StorageReference,
    place_at,
)
from headrace.checkpoint._slices import MAX_GAP_BYTES, Index, about_index, require_index
from headrace.checkpoint._storages import read_storages

__all__ = ["CheckpointReader", "TensorInfo"]

_STRIDED = ("torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_tensor_v3")
_logger = logging.getLogger("headrace")
_PLAIN = ("", "torch.Tensor", "torch._tensor.Tensor")


@dataclass(frozen=True, kw_only=True)
class TensorInfo:
    """What a checkpoint records about one tensor."""

    dtype: torch.dtype
    shape: torch.Size
    size_bytes: int
    """The size of the tensor's storage, which `CheckpointReader.tensor` reads whole.

    If several tensors share a storage, each has its size, though the file has it once.
    """


@dataclass(frozen=True)
class _Tensor:
    storage: StorageReference
    dtype: torch.dtype
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_parameter: bool
    requires_grad: bool
    metadata: dict[str, bool]
    """Whether the tensor is the conjugate or the negative of the stored values."""
    attributes: dict[str, Any]
    """Those with plain values, which were set on it."""


class CheckpointReader:
    """The tensors of one checkpoint, each read on request. Made by `open`.

    The tensors of a file of `torch.save` are found by the form of its pickle, of which headrace
    executes nothing; those of a safetensors file by its header.

    Examples:
        >>> with torch.device("meta"):
        ...     model = torch.nn.Linear(3, 2)
        >>> reader = headrace.checkpoint.open("gs://bucket/run1/step100.pt")
        >>> reader.info("weight").shape == model.weight.shape
        True
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        # The tensor, or the reason why it cannot be read by itself.
        self._tensors: dict[str, _Tensor | str] = {}
        understood: dict[int, _Tensor | str] = {}
        at: dict[str, Made] = {}
        too_long: dict[int, PlaceError] = {}
        tensors, are_all = self._archive.outline.tensors()
        for way, made in tensors:
            try:
                place = place_at(way)
            except PlaceError as error:
                too_long[id(made)] = error
                continue
            if id(made) not in understood:
                understood[id(made)] = self._understand(made)
            if at.setdefault(place, made) is not made:
                self._tensors[place] = "is one of several at this place"
            elif place not in self._tensors:
                self._tensors[place] = understood[id(made)]
        for tensor, why in too_long.items():
            if tensor not in understood:
                raise refused(
                    self.url,
                    f"the place of a tensor in it cannot be written: {why}; read the whole by "
                    "headrace.checkpoint.load",
                )
        if too_long or not are_all:
            _logger.warning(
                "%s: too many or too long keys lead to its tensors: "
                "some of these keys are not listed, but every tensor has one that is",
                self.url,
            )

    def __repr__(self) -> str:
        return f"<headrace.checkpoint.CheckpointReader of {self.url!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(
            "a CheckpointReader cannot be pickled: pickle its URL, and call "
            "headrace.checkpoint.open where the tensors are needed"
        )

    @property
    def url(self) -> str:
        """The object's URL."""
        return self._archive.url

    @property
    def metadata(self) -> dict[str, str]:
        """The texts that a safetensors file has beside its tensors; empty for other files.

        Of several files with an index: those of all files. headrace's checksums are not among them.
        """
        return {}

    def keys(self) -> list[str]:
        """Return the keys of all tensors, such as ``"model.layers.0.weight"``, in file order.

        A key joins, with dots, the dictionary keys, the names of attributes and the positions on
        the way to the tensor. A tensor that was saved under several keys, as tied weights are, is
        listed under each. If several tensors have the same key, as with the dictionary keys ``5``
        and ``"5"``, it is listed once, and asking for it raises an error. The elements of a
        named tuple have the names of its fields, if this process has imported its class, and else
        positions.

        Examples:
            >>> headrace.checkpoint.open("gs://bucket/run1/step100.pt").keys()
            ['weight', 'bias']
        """
        return list(self._tensors)

    def __contains__(self, key: object) -> bool:
        return key in self._tensors

    def __len__(self) -> int:
        return len(self._tensors)

    def info(self, key: str) -> TensorInfo:
        """Return what the checkpoint records about a tensor, without reading it.

        Raises:
            KeyError: there is no such tensor.
            InvalidArgumentError: it is sparse, quantized, of a class of its own, or one of several
                with this key.
            CorruptDataError: its record has another size than the tensor.

        Examples:
            >>> headrace.checkpoint.open("gs://bucket/run1/step100.pt").info("weight").shape
            torch.Size([2, 3])
        """
        tensor = self._strided(key)
        entry = self._archive.require_storage(tensor.storage)
        return TensorInfo(
            dtype=tensor.dtype, shape=torch.Size(tensor.shape), size_bytes=entry.size_bytes
        )

    def tensor(self, key: str) -> torch.Tensor:
        """Read one tensor, to the CPU. The same as ``tensors([key])[key]``.

        Raises:
            KeyError: there is no such tensor.
            HeadraceError: as for `tensors`.

        Examples:
            >>> headrace.checkpoint.open("gs://bucket/run1/step100.pt").tensor("bias").shape
            torch.Size([2])
        """
        return self.tensors([key])[key]

    def tensors(self, keys: Iterable[str]) -> dict[str, torch.Tensor]:
        """Read several tensors at once, to the CPU. Tensors that shared a storage share one again.

        A shared storage is read once, and a tensor with several keys is one tensor again.

        Of the attributes of a tensor, those come along that are numbers, texts, bytes or None.

        Raises:
            KeyError: there is no such tensor.
            InvalidArgumentError: one is sparse, quantized, of a class of its own, or one of several
                with its key: `load` the whole checkpoint.
            CorruptDataError: the bytes are not those that were saved.

        Examples:
            >>> reader = headrace.checkpoint.open("gs://bucket/run1/step100.pt")
            >>> sorted(reader.tensors(["weight", "bias"]))
            ['bias', 'weight']
        """
        wanted = {key: self._strided(key) for key in keys}
        for each in wanted.values():
            self._archive.require_storage(each.storage)
        names = list(dict.fromkeys(f"data/{each.storage.key}" for each in wanted.values()))
        storages = read_storages(self._archive, names)
        built: dict[int, torch.Tensor] = {}
        for key, each in wanted.items():
            if id(each) not in built:
                built[id(each)] = self._build(key, each, storages[f"data/{each.storage.key}"])
        return {key: built[id(each)] for key, each in wanted.items()}

    def slice(self, key: str, index: Index) -> torch.Tensor:
        """Read a part of one tensor, to the CPU. The same as ``slices({key: index})[key]``.

        Raises:
            KeyError: there is no such tensor.
            HeadraceError: as for `slices`.

        Examples:
            >>> reader = headrace.checkpoint.open("gs://bucket/run1/step100.pt")
            >>> reader.slice("weight", (slice(0, 1), ...)).shape  # as numpy.s_[0:1, ...]
            torch.Size([1, 3])
        """
        return self.slices({key: index})[key]

    def slices(
        self, indices: Mapping[str, Index], *, max_gap_bytes: int = MAX_GAP_BYTES
    ) -> dict[str, torch.Tensor]:
        """Read parts of several tensors at once, to the CPU: of each, ``tensor[index]``.

        Of a safetensors file only these parts are read. They have no checksums of their own, unlike
        whole tensors. Of other files the whole tensors are read.

        Args:
            indices: of each tensor, by its key, what would stand between the brackets: integers,
                slices with steps above 0, ``...``, or a tuple of these.
            max_gap_bytes: a shorter gap between two wanted elements is read, too, and dropped: it
                costs less than a request. Columns of a wide tensor are read row by row; those of a
                tensor with rows of up to 64 KiB, by default, with what stands between them.

        Raises:
            KeyError: there is no such tensor.
            InvalidArgumentError: an index does not fit its tensor, or a tensor is one that
                `tensors` refuses.
            CorruptDataError: the file is damaged.

        Examples:
            >>> reader = headrace.checkpoint.open("gs://bucket/run1/step100.pt")
            >>> reader.slices({"weight": slice(0, 1), "bias": 0})["bias"].shape
            torch.Size([])
        """
        max_gap_bytes = require_bytes("max_gap_bytes", max_gap_bytes, minimum=0)
        for key, index in indices.items():
            with about_index(self.url, key, index):
                require_index(self.info(key).shape, index)
        return {key: each[indices[key]].clone() for key, each in self.tensors(indices).items()}

    def _strided(self, key: str) -> _Tensor:
        tensor = self._tensors[key]
        if isinstance(tensor, str):
            raise refused(
                self.url,
                f"the tensor {key!r} {tensor}: read the whole by headrace.checkpoint.load",
            )
        return tensor

    def _understand(self, made: Made) -> _Tensor | str:
        """Return a strided tensor, or the reason why it is not one."""
        made_otherwise = "is made by {}; only strided tensors are read one by one"
        is_parameter = made.function == REBUILD_PARAMETER and len(made.args) > 1
        inner = made.args[0] if is_parameter else made
        if not isinstance(inner, Made):
            return made_otherwise.format(made.function)
        for each in (made, inner):
            if each.class_name not in _PLAIN:
                return f"is of the class {each.class_name}, which alone can make it"
        if inner.function not in _STRIDED:
            return made_otherwise.format(inner.function)
        try:
            storage, offset, shape, strides, requires_grad = inner.args[:5]
            if not isinstance(storage, StorageReference):
                return made_otherwise.format(inner.function)
            rest = list(inner.args[6:])
            if inner.function == _STRIDED[1]:
                dtype = getattr(torch, rest.pop(0).name.rpartition(".")[2])
            else:
                dtype = torch.storage._get_dtype_from_pickle_storage_type(storage.type_name)
            return _Tensor(
                storage,
                dtype,
                int(offset),
                _numbers(shape),
                _numbers(strides),
                is_parameter,
                bool(made.args[1] if is_parameter else requires_grad),
                {name: value for each in rest for name, value in each.contents},
                {**inner.attributes, **made.attributes},
            )
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            return made_otherwise.format(inner.function)

    def _build(self, key: str, tensor: _Tensor, storage: torch.UntypedStorage) -> torch.Tensor:
        built = torch.empty(0, dtype=tensor.dtype, device="cpu")
        try:
            built.set_(storage, tensor.offset, tensor.shape, tensor.strides)
        except RuntimeError as error:
            raise corrupt(
                self.url, f"the tensor {key!r} does not fit into its storage: {error}"
            ) from None
        torch._utils.set_tensor_metadata(built, tensor.metadata)  # type: ignore[no-untyped-call]
        if tensor.is_parameter:
            built = torch.nn.Parameter(built, requires_grad=tensor.requires_grad)
        else:
            built.requires_grad_(tensor.requires_grad)
        # Not setattr, which would execute something for some names.
        vars(built).update(tensor.attributes)
        return built


def _numbers(value: Any) -> tuple[int, ...]:
    # In a pickle, a torch.Size is a class called with a tuple.
    if isinstance(value, Made):
        value = value.args[0]
    return tuple(int(each) for each in value)
