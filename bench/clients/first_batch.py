"""From the first call of a new process to the tensors of its first batch."""

from __future__ import annotations

import time

from bench.clients.engine import store_of
from bench.clients.measure import Answer, cpu_s


def first_batch(request: Answer) -> Answer:
    """A listing and 64 objects; torch is imported before the clock starts."""
    from headrace.torch import Loader, MapDataset

    begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
    store = store_of(request)
    if request["expected"]:
        store.expect_reads(request["expected"])
    batch = next(iter(Loader(MapDataset(store), batch_size=64)))
    return {
        "objects": len(batch),
        "bytes": sum(tensor.nbytes for tensor in batch),
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": cpu_s() - begin_cpu_s,
    }
