"""gcs-torch-dataflux as it is released: DataFluxMapStyleDataset in torch's DataLoader."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from bench.clients.measure import (
    Answer,
    batches_for,
    check_all,
    family_cpu_s,
    measured,
    objects_of,
)
from bench.clients.peers import google_client


class _Rounds:
    """A batch sampler that goes round and round until its time is over."""

    def __init__(self, object_count: int, batch_size: int) -> None:
        self._indices = range(object_count)
        self._batch_size = batch_size
        self.duration_s = 0.0

    def __iter__(self) -> Iterator[list[int]]:
        return batches_for(self._indices, self._batch_size, self.duration_s)


def _dataset(request: Answer) -> Any:
    # With a client it would ask for permissions, which fake-gcs-server does not know; without one
    # it makes its own, and finds the server as Google's clients find emulators.
    os.environ["STORAGE_EMULATOR_HOST"] = request["endpoint"]
    from dataflux_pytorch.dataflux_mapstyle_dataset import Config, DataFluxMapStyleDataset

    return DataFluxMapStyleDataset(
        project_name="bench",
        bucket_name=request["bucket"],
        config=Config(
            sort_listing_results=True,
            num_processes=1,
            threads_per_process=request["threads"],
            disable_compose=not request["compose"],
        ),
    )


def read_batches(request: Answer) -> Answer:
    """Batches of bytes, in the trainer's process and, with workers, through their pipes.

    CPU is that of the trainer and its workers, which live on from the warm-up.
    """
    import torch

    dataset = _dataset(request)
    names, sums = objects_of(request)
    assert [name for name, _ in dataset.objects] == names
    # One batch: behind 30 ms a thread takes two seconds for it.
    count = request["batch_size"]
    check_all(names[:count], dataset.__getitems__(list(range(count))), sums[:count])
    # One whose pool holds a connection for each thread. It has opened none when workers are forked.
    dataset.storage_client = google_client(request["endpoint"], max(10, request["threads"]))
    rounds = _Rounds(len(names), request["batch_size"])
    loader = torch.utils.data.DataLoader(
        dataset,
        batch_sampler=rounds,
        num_workers=request["num_workers"],
        persistent_workers=request["num_workers"] > 0,
        collate_fn=list,
    )

    def read(duration_s: float) -> tuple[int, int]:
        rounds.duration_s = duration_s
        object_count = size_bytes = 0
        for batch in loader:
            object_count += len(batch)
            size_bytes += sum(map(len, batch))
        return object_count, size_bytes

    read(request["warm_up_s"])
    return measured(read, request["duration_s"], cpu=family_cpu_s)
