"""Batches to a CUDA device while it computes, and checkpoints from it and to it.

All ways are measured in one process, in turns: to start CUDA takes longer than most of them.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.clients.measure import Answer, cpu_s, family_cpu_s

# What starts with an epoch, such as workers, is no part of a step.
_NOT_COUNTED = 8
BATCH_SIZE = 64
OBJECT_BYTES = 1 << 20
WORKERS = 4


def _in_turn(ways: dict[str, Callable[[], Any]], repetitions: int) -> dict[str, list[Any]]:
    """Run all of them so often, every second time backwards, after one run that is not counted."""
    for way in ways.values():
        way()
    found: dict[str, list[Any]] = {name: [] for name in ways}
    for repetition in range(repetitions):
        order = list(ways)
        for name in order if repetition % 2 == 0 else reversed(order):
            found[name].append(ways[name]())
    return found


def _fill(folder: Path, count: int) -> None:
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    for i in range(count):
        data = torch.randint(0, 256, (OBJECT_BYTES,), dtype=torch.uint8)
        folder.joinpath(f"{i:06d}").write_bytes(data.numpy().tobytes())


def steps(request: Answer) -> Answer:
    """Return seconds a step, by how its batch comes to the device, and without batches.

    A step multiplies matrices for some `computing_ms`, and reads its batch once. `folder` gets
    `steps` batches of 64 objects of 1 MiB. The first eight are not counted. CPU is that of all
    threads and of all children.
    """
    import numpy
    import torch

    from headrace.torch import Loader, MapDataset

    folder, count = Path(request["folder"]), int(request["steps"])
    _fill(folder, BATCH_SIZE * count)
    cuda = torch.device("cuda")
    matrix = torch.randn(4096, 4096, dtype=torch.bfloat16, device=cuda)
    one = torch.randint(0, 256, (BATCH_SIZE, OBJECT_BYTES), dtype=torch.uint8, device=cuda)

    def compute(batch: torch.Tensor, products: int) -> torch.Tensor:
        for _ in range(products):
            torch.mm(matrix, matrix)
        return batch.view(torch.int64).sum()

    def timed(batches: Iterable[Any], products: int) -> tuple[float, float, list[int]]:
        # The device is at most two steps behind, as where a loss is looked at now and then. Who
        # waits for it sleeps.
        sums, ends = [], []
        began_s = began_cpu_s = 0.0
        for batch in batches:
            if len(sums) == _NOT_COUNTED:
                ends[-1].synchronize()
                began_s, began_cpu_s = time.perf_counter(), family_cpu_s()
            sums.append(compute(batch, products))
            ends.append(torch.cuda.Event(blocking=True))  # type: ignore[no-untyped-call]
            ends[-1].record()
            if len(ends) > 2:
                ends[-3].synchronize()
        ends[-1].synchronize()
        counted = len(sums) - _NOT_COUNTED
        step_s = (time.perf_counter() - began_s) / counted
        step_cpu_s = (family_cpu_s() - began_cpu_s) / counted
        return step_s, step_cpu_s, [int(each) for each in sums]

    for _ in range(2):
        alone_s, *_ = timed([one] * (2 * _NOT_COUNTED), 100)
    products = max(1, round(request["computing_ms"] / (alone_s * 1e3 / 100)))
    expected: list[int] = []

    def run(batches: Iterable[Any]) -> dict[str, float]:
        step_s, step_cpu_s, sums = timed(batches, products)
        if not expected:
            expected.extend(sums)
        elif batches is not alone and sums != expected:
            raise AssertionError("a batch on the device had other bytes than those of the others")
        return {"step_s": step_s, "cpu_s": step_cpu_s}

    dataset = MapDataset(str(folder))

    def moved(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch.to(cuda, non_blocking=True)

    class Files(torch.utils.data.Dataset[Any]):
        def __len__(self) -> int:
            return BATCH_SIZE * count

        def __getitem__(self, i: int) -> Any:
            return torch.from_numpy(numpy.fromfile(folder / f"{i:06d}", dtype=numpy.uint8))

    def workers() -> Any:
        return torch.utils.data.DataLoader(
            Files(), BATCH_SIZE, num_workers=WORKERS, pin_memory=True, prefetch_factor=2
        )

    alone = [one] * count
    try:
        found = _in_turn(
            {
                "Loader(device='cuda')": lambda: run(Loader(dataset, BATCH_SIZE, device="cuda")),
                "Loader(pin_memory=True), to(non_blocking=True)": lambda: run(
                    moved(Loader(dataset, BATCH_SIZE, pin_memory=True))
                ),
                "Loader, to()": lambda: run(moved(Loader(dataset, BATCH_SIZE))),
                f"DataLoader, {WORKERS} workers, page-locked": lambda: run(moved(workers())),
                "computing alone": lambda: run(alone),
            },
            request["repetitions"],
        )
    finally:
        shutil.rmtree(folder)
    return {"found": found, "device": torch.cuda.get_device_name(), "torch": torch.__version__}


def checkpoints(request: Answer) -> Answer:
    """Return seconds, of the clock and of CPU, to save `size_bytes` of tensors and to load them."""
    import safetensors.torch
    import torch

    import headrace

    folder, size_bytes = Path(request["folder"]), int(request["size_bytes"])
    folder.mkdir(parents=True)
    cuda = torch.device("cuda")
    state = {}
    for each_bytes in (32 << 20, 256 << 20):  # half of the bytes in each kind
        for i in range(size_bytes // 2 // each_bytes):
            name = f"layer{i}.{each_bytes}"
            state[name] = torch.randint(-(2**62), 2**62, (each_bytes // 8,), device=cuda)
    torch_file, ours, tensors = (str(folder / name) for name in ("t.pt", "a.pt", "a.safetensors"))

    def run(work: Callable[[], Any]) -> dict[str, float]:
        torch.cuda.synchronize()
        began_s, began_cpu_s = time.perf_counter(), cpu_s()
        made = work()
        torch.cuda.synchronize()
        answer = {"wall_s": time.perf_counter() - began_s, "cpu_s": cpu_s() - began_cpu_s}
        if isinstance(made, dict) and not all(
            each.is_cuda and torch.equal(each, state[name]) for name, each in made.items()
        ):
            raise AssertionError("what was loaded differs from what was saved")
        return answer

    load = headrace.checkpoint.load
    try:
        torch.save(state, torch_file)
        found = _in_turn(
            {
                "save": lambda: run(lambda: headrace.checkpoint.save(state, ours)),
                "torch.save": lambda: run(lambda: torch.save(state, torch_file)),
                "save, safetensors": lambda: run(lambda: headrace.checkpoint.save(state, tensors)),
                "load": lambda: run(lambda: load(ours, map_location="cuda")),
                "torch.load": lambda: run(lambda: torch.load(torch_file, map_location="cuda")),
                "torch.load(mmap=True)": lambda: run(
                    lambda: torch.load(torch_file, map_location="cuda", mmap=True)
                ),
                "load, safetensors": lambda: run(lambda: load(tensors, map_location="cuda")),
                "safetensors.torch.load_file": lambda: run(
                    lambda: safetensors.torch.load_file(tensors, device="cuda")
                ),
            },
            request["repetitions"],
        )
    finally:
        shutil.rmtree(folder)
    return {"found": found, "device": torch.cuda.get_device_name(), "torch": torch.__version__}
