"""Runs whose bottleneck is known, and what `loader.stats.verdict` says of them."""

from __future__ import annotations

import hashlib
import time
from typing import Any

from bench.clients.measure import Answer, cpu_s


def _hashed(sample: Any) -> int:
    """Take CPU time without the GIL, as image decoders do."""
    data = sample.bytes() * 10
    return sum(hashlib.sha256(data).digest()[0] for _ in range(60))


def _counted(sample: Any) -> int:
    """Take CPU time with the GIL."""
    return sum(range(30_000)) + len(sample)


_TRANSFORMS = {"length": len, "hashed": _hashed, "counted": _counted}


def verdict(request: Answer) -> Answer:
    """Go through batches for `seconds`, and say which limit the loader names."""
    import headrace
    from headrace.torch import Loader, MapDataset

    headrace.configure(memory_budget_bytes=request["budget_bytes"])
    store = headrace.Store("gs://bucket", endpoint=request["endpoint"])
    dataset = MapDataset(store, _TRANSFORMS[request["transform"]])
    loader = Loader(dataset, request["batch_size"], shuffle=True, collate_fn=list)
    began_s, began_cpu_s = time.perf_counter(), cpu_s()
    while time.perf_counter() - began_s < request["seconds"]:
        for _ in loader:
            time.sleep(request["step_s"])
            if time.perf_counter() - began_s >= request["seconds"]:
                break
    stats = loader.stats
    return {
        "objects": stats.samples,
        "bytes": stats.size_bytes,
        "wall_s": time.perf_counter() - began_s,
        "cpu_s": cpu_s() - began_cpu_s,
        "limit": stats.verdict.limit,
        "waited": stats.verdict.waited,
    }
