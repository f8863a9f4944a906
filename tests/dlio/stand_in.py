"""Stands in for dlio_benchmark: the classes that `headrace.dlio` derives from, and who calls them.

DLIO itself needs MPI; `test_benchmark.py` runs it where tools/peers.sh has installed it. Versions
of DLIO differ in what their checkpoints call; both ways are here.
"""

from __future__ import annotations

import enum
import os
from types import ModuleType, SimpleNamespace
from typing import Any


class Shuffle(enum.Enum):
    OFF = "off"
    SEED = "seed"


class DatasetType(enum.Enum):
    TRAIN = "train"
    VALID = "valid"


class DataLoaderType(enum.Enum):
    PYTORCH = "pytorch"


class MetadataType(enum.Enum):
    FILE = "file"
    DIRECTORY = "directory"


class NamespaceType(enum.Enum):
    FLAT = "flat"


ARGUMENTS = SimpleNamespace()
"""Of the one workload, as `ConfigArguments` has them."""


def configure(files: list[str], **other: Any) -> None:
    """Make a workload of these files."""
    ARGUMENTS.__dict__.clear()
    ARGUMENTS.__dict__.update(
        file_list_train=files, file_list_eval=[], num_samples_per_file=1, batch_size=2,
        batch_size_eval=1, format="npz", read_threads=2, sample_shuffle=Shuffle.OFF,
        file_shuffle=Shuffle.OFF, seed=7, seed_change_epoch=True, preprocess_time=0.0,
        preprocess_time_stdev=0.0, my_rank=0, comm_size=1, generate_data=False,
        resized_image=b"resized", checkpoint_folder="", storage_type="local_fs", framework=None,
    )  # fmt: skip
    ARGUMENTS.__dict__.update(other)


class BaseDataLoader:
    def __init__(self, format_type: Any, dataset_type: Any, epoch_number: int, kind: Any) -> None:
        self._args = ARGUMENTS
        self.format_type = format_type
        self.dataset_type = dataset_type
        self.epoch_number = epoch_number
        is_train = dataset_type is DatasetType.TRAIN
        files = ARGUMENTS.file_list_train if is_train else ARGUMENTS.file_list_eval
        self.num_samples = len(files) * ARGUMENTS.num_samples_per_file
        self.batch_size = ARGUMENTS.batch_size if is_train else ARGUMENTS.batch_size_eval


class FormatReader:
    """Its maps name a file by `os.path.abspath`, also if it is a URL."""

    def __init__(self, dataset_type: Any, thread_index: int) -> None:
        self._args = ARGUMENTS
        self.open_file_map: dict[str, Any] = {}
        self._file_list = ARGUMENTS.file_list_train
        self.global_index_map = {
            i: (os.path.abspath(name), 0) for i, name in enumerate(self._file_list)
        }

    def open(self, filename: str) -> Any: ...

    def close(self, filename: str) -> None: ...

    def get_sample(self, filename: str, sample_index: int) -> None: ...

    def next(self) -> Any:
        for i in self.global_index_map:
            yield [self.read_index(i, 1)]

    def read_index(self, global_sample_idx: int, step: int) -> Any:
        filename, sample_index = self.global_index_map[global_sample_idx]
        self.open_file_map[filename] = self.open(filename)
        self.get_sample(filename, sample_index)
        return ARGUMENTS.resized_image


class PyTorchCheckpointing:
    def __init__(self) -> None:
        self.args = ARGUMENTS
        self.ext = "pt"

    @staticmethod
    def get_instance() -> Any:
        raise AssertionError("DLIO's own checkpoints were taken")

    def get_name(self, suffix: str) -> str:
        return os.path.join(self.args.checkpoint_folder, f"{suffix}.{self.ext}")

    def get_tensor_core(self, length: int, datatype: str = "int8", randomize: bool = True) -> Any:
        raise AssertionError("a placeholder without bytes was taken")

    def checkpoint_of_2_0(self, suffix: str, state: Any) -> None:
        self.save_state(suffix=suffix, state=state)

    def checkpoint_of_3_0(self, suffix: str, state: Any) -> None:
        self.save_state(suffix, state, fsync=True)
        self.load_state(suffix, state)

    def save_state(self, suffix: str, state: Any, fsync: bool = False) -> None:
        raise AssertionError("DLIO's own way of saving was taken")

    def load_state(self, suffix: str, state: Any) -> Any:
        raise AssertionError("DLIO's own way of loading was taken")


class Namespace:
    def __init__(self, name: str, type: Any) -> None:
        self.name = name
        self.type = type


class DataStorage:
    def __init__(self, framework: Any = None) -> None:
        self._args = ARGUMENTS


class StorageFactory:
    @staticmethod
    def get_storage(storage_type: Any, namespace: str, framework: Any = None) -> Any:
        return ("DLIO's own", storage_type, namespace)


def modules() -> dict[str, ModuleType]:
    """Return the modules of dlio_benchmark that headrace imports, with these classes in them."""
    where = {
        "common.enumerations": (Shuffle, DatasetType, DataLoaderType, MetadataType, NamespaceType),
        "data_loader.base_data_loader": (BaseDataLoader,),
        "reader.reader_handler": (FormatReader,),
        "checkpointing.pytorch_checkpointing": (PyTorchCheckpointing,),
        "storage.storage_factory": (StorageFactory,),
        "storage.storage_handler": (DataStorage, Namespace),
    }
    found = {"dlio_benchmark": ModuleType("dlio_benchmark")}
    for name, classes in where.items():
        package, _, _ = name.partition(".")
        found.setdefault(f"dlio_benchmark.{package}", ModuleType(package))
        module = ModuleType(f"dlio_benchmark.{name}")
        for each in classes:
            setattr(module, each.__name__, each)
        found[module.__name__] = module
    return found
