"""DLIO's own run of a workload, and its checkpoints: with headrace, and as DLIO has them itself."""

from __future__ import annotations

import io
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import torch
from dlio_benchmark.checkpointing.pytorch_checkpointing import PyTorchCheckpointing
from dlio_benchmark.main import DLIOBenchmark
from dlio_benchmark.reader.npz_reader import NPZReader
from dlio_benchmark.utils.config import ConfigArguments, LoadConfig
from dlio_benchmark.utils.utility import DLIOMPI
from omegaconf import OmegaConf

from bench.clients.measure import Answer, family_cpu_s
from bench.clients.s3_peers import use_keys

# Of this process' one run, for the classes below, which DLIO makes; workers inherit it by fork.
_request: Answer = {}


class S3Reader(NPZReader):  # type: ignore[misc]
    """DLIO's reader of npz from S3, in versions after 2.0.0: whole objects by s3torchconnector.

    The files are listed in a folder, and read from the bucket that has its name.
    """

    def open(self, filename: str) -> Any:
        client = _s3_client(_request["region"], _request["endpoint"])
        key = Path(filename).relative_to(_request["folder"])
        body = client.get_object(_request["bucket"], str(key)).read()
        return numpy.load(io.BytesIO(body), allow_pickle=True)["x"]


class FileCheckpointing(PyTorchCheckpointing):  # type: ignore[misc]
    """DLIO's checkpoints in files, and the load that versions after 2.0.0 have."""

    @staticmethod
    def get_instance() -> Any:
        return FileCheckpointing()

    def load_state(self, suffix: str, _: Any) -> Any:
        return torch.load(self.get_name(suffix), weights_only=True)


class S3Checkpointing(PyTorchCheckpointing):  # type: ignore[misc]
    """DLIO's checkpoints in S3, in versions after 2.0.0: by s3torchconnector."""

    @staticmethod
    def get_instance() -> Any:
        return S3Checkpointing()

    def __init__(self) -> None:
        from s3torchconnector import S3Checkpoint

        super().__init__()
        self._objects = S3Checkpoint(
            _request["region"], endpoint=_request["endpoint"], s3client_config=_s3_config()
        )

    def get_name(self, suffix: str) -> str:
        return f"s3://{_request['bucket']}/other/{suffix}.pt"

    def save_state(self, suffix: str, state: Any) -> None:
        with self._objects.writer(self.get_name(suffix)) as file:
            torch.save(state, file)

    def load_state(self, suffix: str, _: Any) -> Any:
        with self._objects.reader(self.get_name(suffix)) as file:
            return torch.load(file, weights_only=True)


def _s3_config() -> Any:
    from s3torchconnector import S3ClientConfig

    return S3ClientConfig(force_path_style=True)


_s3_clients: dict[int, Any] = {}


def _s3_client(region: str, endpoint: str) -> Any:
    """Return the client of this process."""
    from s3torchconnector._s3client import S3Client

    mine = os.getpid()
    if mine not in _s3_clients:
        _s3_clients[mine] = S3Client(region=region, endpoint=endpoint, s3client_config=_s3_config())
    return _s3_clients[mine]


def _begin(request: Answer) -> None:
    _request.update(request)
    if "endpoint" in request:
        use_keys(request)
    if request["by"] == "headrace":
        import headrace.dlio

        headrace.dlio.install()
    DLIOMPI.get_instance().initialize()


def train(request: Answer) -> Answer:
    """All epochs of a workload: `DLIOBenchmark.run`, with the CPU of its worker processes."""
    _begin(request)
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        workload = {**request["workload"], "output": {"folder": folder}}
        benchmark = DLIOBenchmark(OmegaConf.create(workload))
        benchmark.initialize()
        begin_s, begin_cpu_s = time.perf_counter(), family_cpu_s()
        benchmark.run()
        wall_s, used_s = time.perf_counter() - begin_s, family_cpu_s() - begin_cpu_s
        benchmark.finalize()
        metric = json.loads(Path(folder, "summary.json").read_text())["metric"]
    samples = benchmark.epochs * benchmark.steps_per_epoch * benchmark.batch_size
    return {
        "objects": samples,
        "wall_s": wall_s,
        "cpu_s": used_s,
        "au_percent": metric["train_au_percentage"],
        "samples_per_s": metric["train_throughput_samples_per_second"],
    }


def checkpoint(request: Answer) -> Answer:
    """One checkpoint by `checkpoint`, as DLIO calls it, and each of its files loaded again."""
    _begin(request)
    args = ConfigArguments.get_instance()
    workload = {**request["workload"], "output": {"folder": request["folder"]}}
    LoadConfig(args, OmegaConf.create(workload))
    args.my_rank, args.comm_size = DLIOMPI.get_instance().rank(), DLIOMPI.get_instance().size()
    if request["by"] == "headrace":
        import headrace.dlio

        mechanism = headrace.dlio.Checkpointing.get_instance()
    else:
        mechanism = {"files": FileCheckpointing, "s3": S3Checkpointing}[request["by"]]()

    saved: list[tuple[str, Any]] = []
    save = mechanism.save_state

    def save_and_tell(suffix: str, state: Any) -> None:
        save(suffix, state)
        saved.append((suffix, state))

    mechanism.save_state = save_and_tell
    answer = {f"save_{name}": value for name, value in _timed(mechanism.checkpoint, 1, 1).items()}

    def load_all() -> None:
        for suffix, state in saved:
            loaded = mechanism.load_state(suffix, state)
            if _size_bytes(loaded) != _size_bytes(state):
                raise AssertionError(f"{suffix} was loaded with another size")

    answer |= {f"load_{name}": value for name, value in _timed(load_all).items()}
    size_bytes = sum(_size_bytes(state) for _, state in saved)
    return {
        **answer,
        "objects": len(saved),
        "bytes": size_bytes,
        "wall_s": answer["save_s"] + answer["load_s"],
        "cpu_s": answer["save_cpu_s"] + answer["load_cpu_s"],
    }


def _timed(run: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    begin_s, begin_cpu_s = time.perf_counter(), family_cpu_s()
    run(*arguments)
    return {"s": time.perf_counter() - begin_s, "cpu_s": family_cpu_s() - begin_cpu_s}


def _size_bytes(state: Any) -> int:
    """Of all tensors of a state."""
    if isinstance(state, dict):
        return sum(_size_bytes(each) for each in state.values())
    return int(state.nbytes)
