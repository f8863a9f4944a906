"""Samples of tar shards: in random order, and streamed, also by webdataset."""

from __future__ import annotations

import itertools
import tarfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bench.clients.engine import store_of
from bench.clients.measure import Answer, connections, family_cpu_s, measured

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


def _check_first(bodies: Iterable[Any], folder: Path) -> None:
    """Compare the first samples of the first shard with what tarfile finds."""
    with tarfile.open(min(folder.iterdir())) as archive:
        for member, body in zip(itertools.islice(archive, CHECKED_SAMPLES), bodies, strict=True):
            file = archive.extractfile(member)
            assert file is not None
            if bytes(body) != file.read():
                raise AssertionError(f"{member.name} has other bytes")


def _count(bodies: Iterable[Any]) -> tuple[int, int]:
    samples = size_bytes = 0
    for body in bodies:
        samples += 1
        size_bytes += len(body)
    return samples, size_bytes


def stream(request: Answer) -> Answer:
    """ShardStream in this process: all shards in turn, round after round."""
    from headrace.torch import ShardStream

    store = store_of(request)

    def samples(count: int) -> Any:
        seeds = request["seed_generators"]
        return ShardStream(store, _picture, epoch_samples=count, seed_generators=seeds)

    first = samples(CHECKED_SAMPLES)
    _check_first((each.numpy().tobytes() for each in first), Path(request["folder"]))
    _count(samples(request["warm_up_objects"]))
    answer = measured(lambda _: _count(samples(request["epoch_objects"])), 0)
    assert answer["objects"] == request["epoch_objects"]
    return {**answer, "connections": connections(request["endpoint"])}


def webdataset(request: Answer) -> Answer:
    """The same by webdataset, which reads each URL through a curl of its own."""
    import webdataset as wds

    def samples(count: int) -> Iterable[bytes]:
        rounds = -(-count // request["round_samples"])
        urls = [f"{request['endpoint']}{path}" for path in request["paths"]] * rounds
        dataset = wds.WebDataset(urls, shardshuffle=False)
        return (sample["jpg"] for sample in itertools.islice(dataset, count))

    _check_first(samples(CHECKED_SAMPLES), Path(request["folder"]))
    _count(samples(request["warm_up_objects"]))
    answer = measured(lambda _: _count(samples(request["epoch_objects"])), 0, cpu=family_cpu_s)
    assert answer["objects"] == request["epoch_objects"]
    return answer
