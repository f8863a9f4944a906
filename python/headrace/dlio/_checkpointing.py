"""DLIO's checkpoints, by `headrace.checkpoint`."""

from __future__ import annotations

from typing import Any

import torch
from dlio_benchmark.checkpointing.pytorch_checkpointing import PyTorchCheckpointing

from headrace import CorruptDataError, InvalidArgumentError, checkpoint
from headrace.dlio._storage import install

__all__ = ["Checkpointing"]

_DTYPES = {
    "int8": torch.int8,
    "uint8": torch.uint8,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}


class Checkpointing(PyTorchCheckpointing):  # type: ignore[misc]
    """Saves and loads DLIO's checkpoints, in a folder or at a URL.

    A checkpoint counts as saved when all of it is durable and its size and checksum have been
    verified. A load compares every checksum. The files are those of `torch.save`.

    Examples:
        In the YAML of a workload::

            checkpoint:
              checkpoint_folder: gs://bucket/checkpoints
              checkpoint_mechanism_classname: headrace.dlio.Checkpointing
    """

    __instance: Checkpointing | None = None

    def __init__(self) -> None:
        install()  # DLIO's own storage would make a folder called "gs:"
        super().__init__()

    @staticmethod
    def get_instance() -> Checkpointing:
        """Return the one of this process."""
        if Checkpointing.__instance is None:
            Checkpointing.__instance = Checkpointing()
        return Checkpointing.__instance

    def get_tensor_core(self, length: int, datatype: str = "int8", randomize: bool = True) -> Any:
        """Return a tensor of random bytes, or of ones: versions of DLIO that call this may have
        placeholders without bytes in its stead.

        Raises:
            InvalidArgumentError: DLIO has no such type.
        """
        dtype = _DTYPES.get(datatype)
        if dtype is None:
            raise InvalidArgumentError(
                f"datatype is {datatype!r}; it must be one of {', '.join(_DTYPES)}"
            )
        if not randomize:
            return torch.ones(length, dtype=dtype)
        size_bytes = length * dtype.itemsize
        return torch.randint(256, (size_bytes,), dtype=torch.uint8).view(dtype)

    def save_state(self, suffix: str, state: Any, fsync: bool = False) -> None:
        """Save one file of a checkpoint.

        Args:
            suffix: its name, without the extension.
            state: what `torch.save` takes.
            fsync: has no effect: files are always made durable.

        Raises:
            HeadraceError: it could not be saved, and what was there before is still in place.
        """
        checkpoint.save(state, self.get_name(suffix))

    def load_state(self, suffix: str, state: Any) -> Any:
        """Load one file of a checkpoint, and return it.

        Args:
            suffix: its name, without the extension.
            state: what was saved; its keys are compared.

        Raises:
            NotFoundError: it was not saved.
            CorruptDataError: its bytes, or its keys, are not those that were saved.
        """
        url = self.get_name(suffix)
        loaded = checkpoint.load(url)
        if loaded.keys() != state.keys():
            raise CorruptDataError(f"{url}: this checkpoint is another: it has {sorted(loaded)}")
        return loaded
