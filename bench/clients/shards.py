"""headrace.torch.ShardDataset: samples of tar shards in random order."""

from __future__ import annotations

import tarfile
import time
from pathlib import Path
from typing import Any

from bench.clients.engine import store_of
from bench.clients.measure import Answer, connections, measured

# As many samples as are compared before the clock starts.
CHECKED_SAMPLES = 32


def _picture(fields: dict[str, Any]) -> Any:
    return fields["jpg"].tensor()


def _check(dataset: Any, folder: Path) -> None:
    """Compare some samples, spread over the shards, with what tarfile finds."""
    step = max(len(dataset) // CHECKED_SAMPLES, 1)
    for i in range(0, len(dataset), step):
        with tarfile.open(folder / dataset.url(i).rpartition("/")[2]) as archive:
            file = archive.extractfile(f"{dataset.key(i)}.jpg")
            assert file is not None
            if dataset[i].numpy().tobytes() != file.read():
                raise AssertionError(f"{dataset.url(i)}: {dataset.key(i)} has other bytes")


def loader(request: Answer) -> Answer:
    """Loader over a ShardDataset at its defaults, shuffled; what indexing cost is told, too."""
    import headrace
    from headrace.torch import Loader, ShardDataset

    store = store_of(request)
    shards = store.index()
    before = headrace.metrics()
    begin_s = time.perf_counter()
    members = headrace.index_members(shards, store=store)
    index_s = time.perf_counter() - begin_s
    after = headrace.metrics()
    samples = ShardDataset(store, index=members).objects
    _check(ShardDataset(store, _picture, index=samples), Path(request["folder"]))

    def read(sample_count: int) -> tuple[int, int]:
        rounds = samples.select([i % len(samples) for i in range(sample_count)])
        dataset = ShardDataset(store, _picture, index=rounds)
        read_samples = size_bytes = 0
        for batch in Loader(dataset, request["batch_size"], shuffle=True):
            read_samples += len(batch)
            size_bytes += batch.numel()
        return read_samples, size_bytes

    read(request["warm_up_objects"])
    answer = measured(lambda _: read(request["epoch_objects"]), 0)
    assert answer["objects"] == request["epoch_objects"]
    return {
        **answer,
        "connections": connections(request["endpoint"]),
        "members": len(members),
        "shard_bytes": shards.total_size_bytes,
        "index_s": index_s,
        "index_bytes": after.bytes_read_total - before.bytes_read_total,
        "index_requests": after.requests_total - before.requests_total,
    }
