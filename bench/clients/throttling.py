"""headrace against a server that says "slow down"."""

from __future__ import annotations

import headrace
from bench.clients.engine import store_of
from bench.clients.measure import Answer, batches_for, measured


def read_batches(request: Answer) -> Answer:
    """Store.read_batches at its defaults; a read that fails is counted, not raised."""
    store = store_of(request)
    infos = list(store.list())
    failed = 0

    def read(duration_s: float) -> tuple[int, int]:
        nonlocal failed
        object_count = size_bytes = 0
        batches = batches_for(infos, request["batch_size"], duration_s)
        for samples in store.read_batches(batches, on_error="return"):
            for sample in samples:
                if isinstance(sample, Exception):
                    failed += 1
                else:
                    object_count += 1
                    size_bytes += len(sample)
        return object_count, size_bytes

    answer = measured(read, request["duration_s"])
    return {**answer, "failed": failed, "hedges": headrace.metrics().hedges_total}
