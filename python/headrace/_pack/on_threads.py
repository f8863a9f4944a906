"""Shards that threads of this process pack."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

from headrace._base.errors import CancelledError
from headrace._pack.shard import Events, Job, pack_shard

__all__ = ["pack_shards", "require_usable"]

_MOST_THREADS = 4


def require_usable(job: Job) -> None:
    """Threads always are."""


def pack_shards(job: Job, numbers: Sequence[int], workers: int | None, events: Events) -> None:
    """Pack these shards, so many at a time.

    Raises:
        Exception: what the first one that failed raised; the others were ended.
    """
    ended = threading.Event()

    def check() -> None:
        if ended.is_set():
            raise CancelledError("packing was stopped")

    def pack_one(number: int) -> None:
        check()
        events.packed(number, pack_shard(job, number, check, events.arrived))

    workers = workers or min(os.cpu_count() or 1, _MOST_THREADS)
    with ThreadPoolExecutor(workers, "headrace-pack") as threads:
        futures = [threads.submit(pack_one, number) for number in numbers]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            ended.set()  # also after Ctrl-C
            threads.shutdown(wait=True, cancel_futures=True)
    errors = [each.exception() for each in futures if not each.cancelled()]
    failed = [error for error in errors if error is not None]
    if failed:
        # One that was stopped with the rest says less than the reason why.
        raise min(failed, key=lambda error: isinstance(error, CancelledError))
