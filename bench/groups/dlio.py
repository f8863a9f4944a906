"""DLIO, the benchmark of MLPerf Storage: its workloads and its checkpoints, scaled to two cores."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.groups import checkpoints
from bench.harness import LATENCY_S, REPOSITORY, S3, Answer, Bench, Client, rate, ratios
from bench.objects import GIB, Bucket
from testing.servers.minio import ACCESS_KEY, REGION, SECRET_KEY, MinioServer

# DLIO imports TensorFlow for a profiler that no run here uses.
_ENVIRONMENT = {"PYTHONPATH": f"{REPOSITORY}/tests/dlio/without_tensorflow:{REPOSITORY}"}


@dataclass(frozen=True, kw_only=True)
class Arrays(Bucket):
    """`.npz` files as DLIO generates them: a square of random bytes, and labels."""

    record_bytes: int
    stdev_bytes: int = 0

    def object_name(self, index: int) -> str:
        return f"train/img_{index:06d}_of_{self.object_count:06d}.npz"

    def pieces(self, index: int) -> Iterator[bytes]:
        """One file."""
        import numpy

        random = numpy.random.Generator(numpy.random.PCG64(index))
        drawn = random.normal(self.record_bytes, self.stdev_bytes)
        side = max(1, math.isqrt(int(max(drawn, self.record_bytes / 10))))
        records = random.integers(0, 255, (side, side, 1), numpy.uint8)
        out = io.BytesIO()
        numpy.savez(out, x=records, y=[0])
        yield out.getvalue()


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model of MLPerf Storage, and how it is scaled."""

    files: Arrays
    scale: str
    batch_size: int
    computation_s: float
    threads: int
    resized_bytes: int = 0
    epochs: int = 3

    def yaml(self, root: str) -> dict[str, Any]:
        """DLIO's configuration, but for its loader."""
        return {
            "model": self.files.name,
            "framework": "pytorch",
            "workflow": {"generate_data": False, "train": True},
            "storage": {"storage_root": root},
            "dataset": {
                "data_folder": "",
                "format": "npz",
                "num_files_train": self.files.object_count,
                "num_samples_per_file": 1,
                "record_length": self.files.record_bytes,
                "record_length_stdev": self.files.stdev_bytes,
                "record_length_resize": self.resized_bytes,
                "keep_files": True,
            },
            "reader": {
                "data_loader": "pytorch",
                "batch_size": self.batch_size,
                "read_threads": self.threads,
                "file_shuffle": "seed",
                "sample_shuffle": "seed",
            },
            "train": {"epochs": self.epochs, "computation_time": self.computation_s},
        }


WORKLOADS = {
    "unet3d": Workload(
        files=Arrays(
            name="bench-dlio-unet3d",
            object_count=84,
            sizes_bytes=(),
            record_bytes=146_600_628 // 9,
            stdev_bytes=68_341_808 // 9,
        ),
        scale="files of a ninth",
        batch_size=7,
        computation_s=0.323,
        threads=4,
        resized_bytes=2_097_152 // 9,
    ),
    "resnet50": Workload(
        files=Arrays(
            name="bench-dlio-resnet50", object_count=2_000, sizes_bytes=(), record_bytes=114_660
        ),
        scale="batches of a quarter",
        batch_size=100,
        computation_s=0.224,
        threads=8,
        resized_bytes=150_528,
    ),
    "cosmoflow": Workload(
        files=Arrays(
            name="bench-dlio-cosmoflow",
            object_count=256,
            sizes_bytes=(),
            record_bytes=2_828_486,
            stdev_bytes=71_311,
        ),
        scale="four times the step",
        batch_size=1,
        computation_s=4 * 0.0035,
        threads=4,
    ),
}
_OURS = {"data_loader_classname": "headrace.dlio.DataLoader", "data_loader_sampler": "none"}
_THEIRS_ON_S3 = {"reader_classname": "bench.clients.dlio.S3Reader"}


def workloads(bench: Bench) -> None:
    """DLIO's loop with our loader, and with its own loader and readers, on the same bytes."""
    for name, workload in WORKLOADS.items():
        _workload(bench, f"dlio: {name}, {workload.scale}", workload)


def _workload(bench: Bench, group: str, workload: Workload) -> None:
    bucket, log = workload.files.name, bench.folder / "dlio-access.log"
    folder = str((bench.root / bucket).resolve())
    late = f"s3://, {LATENCY_S * 1e3:.0f} ms"
    with bench.nginx(workload.files, s3=True, latency_s=LATENCY_S, access_log=log) as server:
        # DLIO lists it.
        (bench.root / bucket / "valid").mkdir(exist_ok=True)

        def client(by: str, root: str, reader: dict[str, str], **request: Any) -> Client:
            yaml = workload.yaml(root)
            yaml["reader"] |= reader

            def run() -> Answer:
                before = _requests(log)
                answer = bench.client(
                    "dlio-train", by=by, workload=yaml, env=_ENVIRONMENT, timeout_s=300, **request
                )
                return {**answer, "requests": _requests(log) - before}

            return run

        place = {"bucket": bucket, "endpoint": server.url, "folder": folder, **S3}
        clients = {
            "headrace, files": client("headrace", folder, _OURS),
            "DLIO, files": client("DLIO", folder, {}),
            f"headrace, {late}": client("headrace", f"s3://{bucket}", _OURS, **place),
            f"DLIO, {late}": client("DLIO", folder, _THEIRS_ON_S3, **place),
        }
        answers = bench.alternate(group, clients, bench.effort.peer_repetitions)
    for where in ("files", late):
        ours, theirs = answers[f"headrace, {where}"], answers[f"DLIO, {where}"]
        _workload_rows(bench, group, where, ours, theirs, is_late=where == late)


def _workload_rows(
    bench: Bench,
    group: str,
    where: str,
    ours: Sequence[Answer],
    theirs: Sequence[Answer],
    *,
    is_late: bool,
) -> None:
    if ours and theirs:
        spread = max(max(au) - min(au) for au in (_mean_au(ours), _mean_au(theirs)))
        more = [a - b for a, b in zip(_mean_au(ours), _mean_au(theirs), strict=True)]
        bench.row(group, f"{where}: AU above DLIO's own", "points", more, at_least=-spread)
        per_cpu_s = ratios(_per_cpu_s(ours), _per_cpu_s(theirs))
        target = {"at_least": 2.0} if is_late else {}
        bench.row(
            group, f"{where}: samples per CPU-second, over DLIO's own", "x", per_cpu_s, **target
        )
    for name, found in (("headrace", ours), ("DLIO", theirs)):
        for what, epoch in (("first epoch", 0), ("last epoch", -1)):
            au = [answer["au_percent"][epoch] for answer in found]
            bench.row(group, f"{where}, {name}: AU, {what}", "%", au)
        bench.row(group, f"{where}, {name}: samples/s", "", [rate(each) for each in found])
        cpu = [each["cpu_s"] / each["objects"] * 1e3 for each in found]
        bench.row(group, f"{where}, {name}: CPU per sample", "ms", cpu)
        if is_late:
            requests = [each["requests"] / each["objects"] for each in found]
            bench.row(group, f"{where}, {name}: requests per sample", "", requests)


def _mean_au(answers: Sequence[Answer]) -> list[float]:
    return [sum(each["au_percent"]) / len(each["au_percent"]) for each in answers]


def _per_cpu_s(answers: Sequence[Answer]) -> list[float]:
    return [each["objects"] / each["cpu_s"] for each in answers]


def _requests(log: Path) -> int:
    return log.read_bytes().count(b"\n")


# A layer of Llama 3's 8B in bfloat16, as bytes: attention, MLP, two norms.
_LAYER = [33_554_432, 8_388_608, 8_388_608, 33_554_432, *3 * (117_440_512,), 8_192, 8_192]
_LAYERS = 2
# What one of eight ranks keeps of Adam's state under ZeRO 3, in float32: twice, and the weights.
_SHARD = 2 * sum(_LAYER) * _LAYERS // 8


def _checkpoint_yaml(folder: str) -> dict[str, Any]:
    return {
        "model": "llama",
        "framework": "pytorch",
        "workflow": {"generate_data": False, "train": True, "checkpoint": True},
        "checkpoint": {
            "checkpoint_folder": folder,
            "optimization_groups": [_SHARD],
            "num_layers": _LAYERS,
            "layer_parameters": _LAYER,
        },
    }


def checkpoint(bench: Bench) -> None:
    """Two layers of Llama 3's 8B and a rank's optimizer: saved by DLIO's call, and loaded."""
    with (
        tempfile.TemporaryDirectory(prefix="headrace-bench-", dir="/dev/shm") as folder,
        MinioServer(buckets=(checkpoints.BUCKET,), parent="/dev/shm") as server,
    ):
        bucket = {
            "bucket": checkpoints.BUCKET,
            "endpoint": server.url,
            "region": REGION,
            "access_key": ACCESS_KEY,
            "secret_key": SECRET_KEY,
        }

        def client(by: str, where: str, **request: Any) -> Client:
            return lambda: bench.client(
                "dlio-checkpoint",
                by=by,
                workload=_checkpoint_yaml(where),
                folder=folder,
                env=_ENVIRONMENT,
                timeout_s=300,
                **request,
            )

        places = {
            "files in memory": (client("headrace", f"{folder}/ours"), client("files", folder)),
            "MinIO": (
                client("headrace", f"s3://{checkpoints.BUCKET}/ours", **bucket),
                client("s3", folder, **bucket),
            ),
        }
        for where, (ours, theirs) in places.items():
            group = f"dlio: checkpoints of Llama's shape, {where}"
            answers = bench.alternate(
                group, {"headrace": ours, "DLIO": theirs}, bench.effort.peer_repetitions
            )
            for what in ("save", "load"):
                rates = {
                    name: [each["bytes"] / each[f"{what}_s"] / 1e9 for each in found]
                    for name, found in answers.items()
                }
                faster = ratios(rates["headrace"], rates["DLIO"])
                bench.row(group, f"{what}: headrace over DLIO's own", "x", faster)
                for name, found in answers.items():
                    bench.row(group, f"{what}: {name}", "GB/s", rates[name])
                    cpu = [each[f"{what}_cpu_s"] / (each["bytes"] / GIB) for each in found]
                    bench.row(group, f"{what}: {name}, CPU per GiB", "s", cpu)


GROUPS: dict[str, Callable[[Bench], None]] = {
    "dlio": workloads,
    "dlio-checkpoints": checkpoint,
}
