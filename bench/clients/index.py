"""What an index of a million objects costs; no server is asked."""

from __future__ import annotations

import random
import time

from bench.clients.measure import Answer, cpu_s
from headrace import ObjectIndex, _engine

LOOKED_UP = 200_000
BATCH_BYTES = 64 << 20
MOST_OBJECT_BYTES = 1 << 20


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
