"""Settings of stores and engines in worker processes of torch's DataLoader."""

from __future__ import annotations

from dataclasses import replace

from torch.utils.data import get_worker_info

from headrace import _engine
from headrace._base.options import EngineOptions, read_environment
from headrace._engine import ObjectIndex
from headrace._process import process
from headrace._store.store import Store

__all__ = ["store_in_this_process"]


def store_in_this_process(store: Store, objects: ObjectIndex) -> Store:
    """Return the store that reads `objects` here: in a worker, one that leaves room for the others.

    All workers of a rank share one machine. Unless the user has set other values, the engine of a
    worker therefore has one I/O thread and starts with a share of the requests in flight and of the
    memory.
    """
    info = get_worker_info()
    if info is None:
        return store
    process.configure_unless_set(worker_options(info.num_workers, objects))
    default = _engine.default_options()["initial_in_flight"]
    parallel = store._settings.parallel
    if parallel.initial_in_flight != default:
        return store
    return store._derived(
        parallel=replace(parallel, initial_in_flight=max(1, default // info.num_workers))
    )


def worker_options(num_workers: int, objects: ObjectIndex) -> EngineOptions:
    """Return the options of a worker's engine, where the environment does not set them."""
    options = read_environment().engine
    if options.io_threads == 0:
        options = replace(options, io_threads=1)
    whole = EngineOptions().memory_budget_bytes
    if options.memory_budget_bytes == whole:
        share = max(64 << 20, whole // num_workers)
        # An object that is larger than the budget cannot be read at all.
        total = objects.total_size_bytes
        # If any size is unknown, so is the largest.
        largest = 0 if total is None or total <= share // 2 else _largest_size_bytes(objects)
        options = replace(options, memory_budget_bytes=min(whole, max(share, 2 * largest)))
    return options


def _largest_size_bytes(objects: ObjectIndex) -> int:
    if objects.common_size_bytes is not None:
        return objects.common_size_bytes
    count, at_once = len(objects), 1 << 16
    return max(
        max(objects.sizes(range(begin, min(begin + at_once, count))))
        for begin in range(0, count, at_once)
    )
