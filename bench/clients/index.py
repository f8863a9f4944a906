"""What an index of a million objects costs; no server is asked."""

from __future__ import annotations

import random
import tempfile
import time
from array import array
from pathlib import Path

from bench.clients.measure import Answer, cpu_s
from headrace import ObjectIndex, Store, _engine

LOOKED_UP = 200_000
BATCH_BYTES = 64 << 20
MOST_OBJECT_BYTES = 1 << 20
BATCH_TOKENS = 1 << 16


def position(request: Answer) -> Answer:
    """headrace: from names to numbers, in random order; and before that the table."""
    count = request["object_count"]
    index = ObjectIndex.from_names(
        [f"train/shard-{i // 1000:06d}/sample-{i:07d}.jpg" for i in range(count)],
        root="gs://bucket",
    )
    wanted = random.Random(7).sample(range(count), min(LOOKED_UP, count))
    names = [index.name(i) for i in wanted]
    begin_s = time.perf_counter()
    index.position(names[0])
    table_s = time.perf_counter() - begin_s
    begin_cpu_s, begin_s = cpu_s(), time.perf_counter()
    found = [index.position(name) for name in names]
    wall_s, used_s = time.perf_counter() - begin_s, cpu_s() - begin_cpu_s
    assert found == wanted
    return {"objects": len(names), "wall_s": wall_s, "cpu_s": used_s, "table_s": table_s}


def from_urls(request: Answer) -> Answer:
    """headrace: a table of URLs with a label each becomes an index."""
    count = request["object_count"]
    urls = [f"gs://bucket/train/{i:07d}.jpg" for i in range(count)]
    labels = [f"class {i % 1000}" for i in range(count)]
    begin_cpu_s, begin_s = cpu_s(), time.perf_counter()
    index = ObjectIndex.from_urls(urls, columns={"label": labels})
    wall_s, used_s = time.perf_counter() - begin_s, cpu_s() - begin_cpu_s
    assert index.url(count - 1) == urls[-1]
    assert index.column("label", [count - 1]) == labels[-1:]
    image_bytes = len(_engine.index_image(index))
    return {"objects": count, "wall_s": wall_s, "cpu_s": used_s, "image_bytes": image_bytes}


def batches_of_bytes(request: Answer) -> Answer:
    """headrace: a shuffled epoch of objects of any size is cut into batches that are bounded."""
    from headrace.torch import Loader, MapDataset

    count = request["object_count"]
    draw = random.Random(7)
    sizes = [draw.randrange(MOST_OBJECT_BYTES) for _ in range(count)]
    index = ObjectIndex.from_names(
        [f"{i:07d}" for i in range(count)], root="gs://bucket", sizes_bytes=sizes
    )
    dataset = MapDataset("gs://bucket", index=index, credentials="anonymous")
    loader = Loader(dataset, max_batch_bytes=BATCH_BYTES, shuffle=True)
    begin_cpu_s, begin_s = cpu_s(), time.perf_counter()
    batches = len(loader)
    wall_s, used_s = time.perf_counter() - begin_s, cpu_s() - begin_cpu_s
    assert sum(sizes) / BATCH_BYTES <= batches <= sum(sizes) / (BATCH_BYTES - MOST_OBJECT_BYTES) + 1
    return {"objects": count, "batches": batches, "wall_s": wall_s, "cpu_s": used_s}


def batches_of_costs(request: Answer) -> Answer:
    """headrace: a shuffled epoch in batches by a column, in bands; with a function; resumed."""
    from headrace.torch import CostBatchSampler

    count = request["object_count"]
    draw = random.Random(7)
    lengths = [draw.randrange(1, 4096) for _ in range(count)]
    index = ObjectIndex.from_names(
        [f"{i:07d}" for i in range(count)], root="gs://bucket", columns={"tokens": lengths}
    )
    limits = {"cost": "tokens", "max_batch_cost": BATCH_TOKENS, "shuffle": True}
    found: Answer = {"objects": count}

    def measured(name: str, sampler: CostBatchSampler) -> None:
        begin_cpu_s, begin_s = cpu_s(), time.perf_counter()
        samples = 0
        for batch in sampler:
            samples += len(batch)
        assert samples == count
        found[f"{name}_s"] = time.perf_counter() - begin_s
        found[f"{name}_cpu_s"] = cpu_s() - begin_cpu_s

    begin_s = time.perf_counter()
    made = CostBatchSampler(index, **limits)
    found["make_s"] = time.perf_counter() - begin_s
    measured("plain", made)
    measured("bands", CostBatchSampler(index, cost_boundaries=[256, 512, 1024, 2048], **limits))
    lengths_of = CostBatchSampler(
        index, cost="tokens", shuffle=True, fits=lambda batch, i: batch.cost + lengths[i] <= 65536
    )
    measured("fits", lengths_of)
    begun = CostBatchSampler(index, cost_boundaries=[256, 512, 1024, 2048], **limits)
    samples = 0
    for batch in begun:
        samples += len(batch)
        if samples >= 0.9 * count:
            break
    state = begun.state_dict()
    resumed = CostBatchSampler(index, cost_boundaries=[256, 512, 1024, 2048], **limits)
    begin_s = time.perf_counter()
    resumed.load_state_dict(state)
    next(iter(resumed))
    found["resume_s"] = time.perf_counter() - begin_s
    return found


def weighted_draws(request: Answer) -> Answer:
    """headrace: an epoch drawn by weights."""
    from headrace.torch import WeightedSampler

    count = request["object_count"]
    draw = random.Random(7)
    weights = [draw.random() for _ in range(count)]
    begin_s = time.perf_counter()
    sampler = WeightedSampler(count, weights)
    make_s = time.perf_counter() - begin_s
    begin_cpu_s, begin_s = cpu_s(), time.perf_counter()
    samples = sum(1 for _ in sampler)
    wall_s, used_s = time.perf_counter() - begin_s, cpu_s() - begin_cpu_s
    assert samples == count
    return {"objects": count, "make_s": make_s, "wall_s": wall_s, "cpu_s": used_s}


def orders(request: Answer) -> Answer:
    """headrace: the orders of a billion samples, and a loader's start and resume among them."""
    from headrace.torch import Loader, MapDataset
    from headrace.torch._loader import requests_of

    count, looked_up = request["sample_count"], request["object_count"]
    found: Answer = {"objects": looked_up}
    schedule = _engine.MixtureSchedule(array("d", [3, 1]))
    for name, make in {
        "global": lambda: _engine.Order(count, 7, 1, True),
        "block": lambda: _engine.BlockOrder(count, 7, 1, 32, 16),
        "mixture": lambda: _engine.MixtureOrder(schedule, [count, count], count, 7, 1, True),
    }.items():
        begin_s = time.perf_counter()
        order = make()
        first = order[0]
        found[f"{name}_begin_s"] = time.perf_counter() - begin_s
        begin_s = time.perf_counter()
        indices = order.indices(0, looked_up)
        found[f"{name}_each_us"] = (time.perf_counter() - begin_s) / looked_up * 1e6
        assert indices[0] == first
    index = ObjectIndex.from_names(["tokens"], root="gs://bucket", sizes_bytes=[64 * count])
    dataset = MapDataset("gs://bucket", index=index.windows(64, 64), credentials="anonymous")
    assert len(dataset) == count
    for name, shuffle in (("global", True), ("block", "block")):
        begin_s = time.perf_counter()
        loader = Loader(dataset, batch_size=256, shuffle=shuffle, seed=7)
        state = loader.state_dict()
        loader.load_state_dict({**state, "position": count // 10 * 9})
        batch = next(requests_of(loader._place, loader._steps(loader._place)))
        found[f"{name}_start_s"] = time.perf_counter() - begin_s
        assert len(batch.indices) == 256
    return found


def resume(request: Answer) -> Answer:
    """headrace: Loader, at 90 % of an epoch, from the state to the first batch, of a file."""
    from headrace.torch import Loader, MapDataset

    count = request["object_count"]
    found: Answer = {"objects": count}
    with tempfile.TemporaryDirectory() as folder:
        with (Path(folder) / "all.bin").open("wb") as file:
            file.truncate(64 * count)
        dataset = MapDataset(folder, index=Store(folder).index().windows(64, 64))
        state = Loader(dataset, batch_size=256, shuffle=True).state_dict()
        begin_s = time.perf_counter()
        loader = Loader(dataset, batch_size=256, shuffle=True)
        loader.load_state_dict({**state, "position": count // 10 * 9})
        batch = next(iter(loader))
        found["wall_s"] = time.perf_counter() - begin_s
        assert len(batch) == 256
    return found
