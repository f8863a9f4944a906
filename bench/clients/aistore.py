"""AIStore's own SDK with its PyTorch plugin, and headrace.compat by the same calls.

The scripts are the same for both: what differs is which of the two `aistore.pytorch` is.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

from bench.clients.measure import (
    CHECKED_OBJECTS,
    Answer,
    check_all,
    connections,
    family_cpu_s,
    objects_of,
)


def _bucket(request: Answer) -> Any:
    if request["client"].startswith("compat"):
        import headrace.compat

        headrace.compat.install()
    from aistore.sdk import Client

    return Client(request["endpoint"]).bucket(request["bucket"])


def _loader(request: Answer, dataset: Any) -> Any:
    import torch

    batches: dict[str, Any] = {"batch_size": request["batch_size"]}
    if "max_batch_bytes" in request:
        from aistore.pytorch import DynamicBatchSampler

        batches = {"batch_sampler": DynamicBatchSampler(dataset, request["max_batch_bytes"])}
    return torch.utils.data.DataLoader(
        dataset, num_workers=request["num_workers"], collate_fn=list, **batches
    )


def _is_of(package: str, dataset: Any) -> None:
    """A comparison of one with itself would show nothing."""
    assert type(dataset).__module__.startswith(package), type(dataset).__module__


def _measured(request: Answer, batches: Iterable[Any], first: list[Any]) -> Answer:
    """A pass, or as much of one as fits into the time; `first` gets the first samples.

    Without workers the clock starts with the pass, and its listing if it makes one. With workers it
    starts with the first batch: how long it takes to fork them is not the datasets' business. CPU
    is that of the trainer and its workers.
    """
    object_count = size_bytes = 0
    begin_cpu_s, begin_s = family_cpu_s(), time.perf_counter()
    end_s = begin_s
    waits = request["num_workers"] > 0
    for batch in batches:
        end_s = time.perf_counter()
        if len(first) < CHECKED_OBJECTS:
            first += batch
        if waits:
            waits = False
            begin_cpu_s, begin_s = family_cpu_s(), end_s
            continue
        object_count += len(batch)
        for _, content in batch:
            size_bytes += len(content)
        if end_s - begin_s >= request["duration_s"]:
            break
    return {
        "objects": object_count,
        "bytes": size_bytes,
        "wall_s": end_s - begin_s,
        "cpu_s": family_cpu_s() - begin_cpu_s,
        "connections": connections(request.get("target", request["endpoint"])),
    }


def epoch(request: Answer) -> Answer:
    """Objects as (name, bytes), by batches."""
    bucket = _bucket(request)
    from aistore.pytorch import AISIterDataset, AISMapDataset

    dataset = {"map": AISMapDataset, "iter": AISIterDataset}[request["kind"]]([bucket])
    _is_of("headrace." if request["client"].startswith("compat") else "aistore.", dataset)
    names, sums = objects_of(request)
    known = dict(zip(names, sums, strict=True))
    # All connections are open, and modules are loaded; then a pass from its beginning.
    for _, batch in zip(range(4), _loader(request, dataset), strict=False):
        del batch
    first: list[Any] = []
    answer = _measured(request, _loader(request, dataset), first)
    check_all(
        [name for name, _ in first],
        (content for _, content in first),
        [known[name] for name, _ in first],
    )
    if request["num_workers"] == 0:  # of workers, the first batches are their own shares
        assert [name for name, _ in first] == names[: len(first)]
    return answer


def shards(request: Answer) -> Answer:
    """The samples of tar shards as (key, fields)."""
    bucket = _bucket(request)
    from aistore.pytorch import AISShardReader

    dataset = AISShardReader([bucket])
    _is_of("headrace." if request["client"].startswith("compat") else "aistore.", dataset)
    for _, batch in zip(range(4), _loader(request, dataset), strict=False):
        del batch
    first: list[Any] = []
    answer = _measured(request, _loader(request, dataset), first)
    for key, fields in first:
        expected = request["field_bytes"]
        assert {name: len(content) for name, content in fields.items()} == expected, (key, fields)
    return answer


def requests_loop(request: Answer) -> Answer:
    """A loop of plain GETs through the proxy, as scripts without the SDK have it."""
    import requests

    names, sums = objects_of(request)
    session = requests.Session()
    root = f"{request['endpoint']}/v1/objects/{request['bucket']}"
    contents = []
    size_bytes = object_count = 0
    begin_cpu_s, begin_s = family_cpu_s(), time.perf_counter()
    for name in names:
        content = session.get(f"{root}/{name}", params={"provider": "ais"}).content
        object_count += 1
        size_bytes += len(content)
        if len(contents) < CHECKED_OBJECTS:
            contents.append(content)
        if time.perf_counter() - begin_s >= request["duration_s"]:
            break
    wall_s, cpu_s = time.perf_counter() - begin_s, family_cpu_s() - begin_cpu_s
    checked = len(contents)
    check_all(names[:checked], contents, sums[:checked])
    return {"objects": object_count, "bytes": size_bytes, "wall_s": wall_s, "cpu_s": cpu_s}


class _Sizes:
    """A dataset of which nothing is known but the sizes of its objects."""

    def __init__(self, object_count: int, size_of: Callable[[int], int]) -> None:
        self._objects = [
            SimpleNamespace(name=f"object-{i:07d}", props_cached=SimpleNamespace(size=size_of(i)))
            for i in range(object_count)
        ]

    def get_obj_list(self) -> list[Any]:
        return self._objects


def sampler(request: Answer) -> Answer:
    """The batches of DynamicBatchSampler, from its construction to the last one."""
    if request["client"].startswith("compat"):
        import headrace.compat

        headrace.compat.install()
    import torch
    from aistore.pytorch import DynamicBatchSampler

    source = _Sizes(request["object_count"], lambda i: 1000 + i * 7919 % 100_003)
    torch.manual_seed(7)
    begin_cpu_s, begin_s = family_cpu_s(), time.perf_counter()
    batches = list(
        DynamicBatchSampler(source, max_batch_size=4_000_000, shuffle=request["shuffle"])
    )
    wall_s, cpu_s = time.perf_counter() - begin_s, family_cpu_s() - begin_cpu_s
    return {
        "objects": sum(map(len, batches)),
        "batches": len(batches),
        "digest": hashlib.sha256(json.dumps(batches).encode()).hexdigest(),
        "wall_s": wall_s,
        "cpu_s": cpu_s,
    }


def sampler_again(request: Answer) -> Answer:
    """The batches of DynamicBatchSampler, several times over a dataset that has listed.

    `kind`: ``map``: AISMapDataset of the bucket; ``own``: a dataset that has a list of objects.
    """
    bucket = _bucket(request)
    from aistore.pytorch import AISMapDataset, DynamicBatchSampler

    if request["kind"] == "own":
        source: Any = _Sizes(request["object_count"], lambda _: request["size_bytes"])
    else:
        source = AISMapDataset([bucket])
        _is_of("headrace." if request["client"].startswith("compat") else "aistore.", source)
    each_s = []
    for _ in range(request["repetitions"]):
        begin_s = time.perf_counter()
        batches = list(DynamicBatchSampler(source, max_batch_size=request["max_batch_bytes"]))
        each_s.append(time.perf_counter() - begin_s)
    assert sum(map(len, batches)) == request["object_count"]
    return {
        "objects": request["object_count"],
        "batches": len(batches),
        "digest": hashlib.sha256(json.dumps(batches).encode()).hexdigest(),
        "each_s": each_s,
    }


def listing(request: Answer) -> Answer:
    """The SDK: the names of a bucket, page after page."""
    from aistore.sdk import Client

    bucket = Client(request["endpoint"]).bucket(request["bucket"])
    begin_cpu_s, begin_s = family_cpu_s(), time.perf_counter()
    names = [each.name for each in bucket.list_all_objects_iter(props="name,size")]
    answer = {
        "objects": len(names),
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": family_cpu_s() - begin_cpu_s,
    }
    assert len(set(names)) == request["object_count"]
    return answer
