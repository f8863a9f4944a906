"""Steps of a training whose device is a sleep, fed in turn by DataLoader and ahead by Loader."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.clients.measure import Answer, cpu_s

BATCH_SIZE = 8
LOADING_S, COMPUTING_S = 0.008, 0.016


def decode(sample: Any) -> Any:
    """Take a sample's share of the time for a batch, without the GIL, as image decoders do."""
    time.sleep(LOADING_S / BATCH_SIZE)
    return sample.tensor()


def _steps_s(batches: Iterable[Any], computing_s: float) -> Iterator[float]:
    """Yield the time of each step: the wait for its batch, and the device."""
    iterator = iter(batches)
    began_s = time.perf_counter()
    for _ in iterator:
        if computing_s:
            time.sleep(computing_s)
        ended_s = time.perf_counter()
        yield ended_s - began_s
        began_s = ended_s


def overlap(request: Answer) -> Answer:
    """Measure `steps` steps by ``loader`` (Loader with so many transform `threads`), ``in turn``
    (DataLoader without workers) or ``workers`` (DataLoader with as many).

    The first tenth of the steps is not counted. `wall_s` is the rest; `loading_s` and
    `computing_s` are a step without the one and without the other, measured in the same process.
    """
    import torch

    from headrace.torch import Loader, MapDataset

    steps, folder = request["steps"], Path(request["folder"])
    threads = request.get("threads", 1)
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(BATCH_SIZE * steps):
        folder.joinpath(f"{i:06d}").write_bytes(bytes(1024))
    dataset = MapDataset(str(folder), decode)

    def batches() -> Iterable[Any]:
        if request["way"] == "loader":
            return Loader(dataset, BATCH_SIZE, shuffle=True, transform_threads=threads)
        workers = threads if request["way"] == "workers" else 0
        return torch.utils.data.DataLoader(dataset, BATCH_SIZE, shuffle=True, num_workers=workers)

    def step_s(batches: Iterable[Any], computing_s: float) -> float:
        counted = list(_steps_s(batches, computing_s))[steps // 10 :]
        return sum(counted) / len(counted)

    loading_s, computing_s = step_s(batches(), 0), step_s(range(steps), COMPUTING_S)
    began_cpu_s = cpu_s()
    both_s = step_s(batches(), COMPUTING_S)
    return {
        "objects": steps * BATCH_SIZE,
        "bytes": steps * BATCH_SIZE * 1024,
        "wall_s": both_s * steps,
        "cpu_s": cpu_s() - began_cpu_s,
        "step_s": both_s,
        "loading_s": loading_s,
        "computing_s": computing_s,
    }
