"""Shards that processes of this machine pack, each with an interpreter of its own.

They are spawned: a fork of a process with threads is none that can be relied on. They get the index
as memory that they map, and the rest of the job as a pickle.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import cached_property
from typing import Any

from headrace._base.contexts import context
from headrace._base.errors import CancelledError, HeadraceError, InvalidArgumentError, portable
from headrace._base.options import EngineOptions, require
from headrace._engine import ObjectIndex
from headrace._pack.place import Record
from headrace._pack.shard import Events, Job, pack_shard
from headrace._process import process

__all__ = ["pack_shards", "require_usable"]

_TICK_S = 0.1
# Of a function that does not return: after so long its process ends without it, as tasks of Ray do.
_STOP_S = 5.0


def require_usable(job: Job) -> None:
    """Make sure, before anything is written, that other processes can do it.

    Raises:
        InvalidArgumentError: the job cannot be sent to them; or this is one of them, and the script
            without a guard has come here again.
    """
    require(
        not getattr(multiprocessing.current_process(), "_inheriting", False),
        "executor='processes' imports the script again in each process: put what packs below "
        "if __name__ == '__main__':",
    )
    _pickled(job)


def pack_shards(job: Job, numbers: Sequence[int], workers: int | None, events: Events) -> None:
    """Pack these shards, so many at a time.

    Raises:
        InvalidArgumentError: another process does not find the job's function.
        HeadraceError: a process was killed.
        Exception: what the first one that failed raised; the others were ended.
    """
    workers = workers or os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    # Read and set without locks, which a process that is killed would keep.
    ended, done_bytes = context.RawValue("b", 0), context.Value("Q", 0)
    told_bytes = 0
    options = process.engine_options()
    options = replace(options, io_threads=options.io_threads or 1)
    left = iter(numbers)
    under_way: dict[Future[Record | Exception], int] = {}
    given = (job.index, _pickled(job), ended, done_bytes, options)
    with ProcessPoolExecutor(workers, context, _begin, given) as pool:
        try:
            while True:
                # One more for each, so that none of them waits.
                while len(under_way) < 2 * workers and (number := next(left, None)) is not None:
                    with _without_sigint():  # it may start a process
                        under_way[pool.submit(_pack, number)] = number
                if not under_way:
                    break
                done, _ = wait(under_way, _TICK_S, FIRST_COMPLETED)
                arrived_bytes = done_bytes.get_obj().value - told_bytes
                told_bytes += arrived_bytes
                events.arrived(arrived_bytes)
                for future in done:
                    outcome = future.result()
                    if isinstance(outcome, Exception):
                        raise outcome
                    events.packed(under_way.pop(future), outcome)
                events.tick()
        except BrokenProcessPool as error:
            raise HeadraceError(
                "a process that packed shards has ended: it was killed, perhaps because memory "
                "was short, or could not start. Shards that are whole stay; the same call goes on"
            ) from error
        finally:
            ended.value = 1  # also after Ctrl-C
            pool.shutdown(wait=True, cancel_futures=True)


@context
def _without_sigint() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: it is for whoever has started them.

    They inherit the mask. What they did themselves would be too late for one that is starting.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _pickled(job: Job) -> bytes:
    """Return all of the job but its index."""
    try:
        return pickle.dumps({k: v for k, v in job.__getstate__().items() if k != "index"})
    except Exception as error:
        raise InvalidArgumentError(
            f"executor='processes' cannot send the job to other processes ({error}): transform and "
            "encode must be functions of a module"
        ) from error


# ---- in the other processes


class _Worker:
    """What a process has been given."""

    def __init__(self, index: ObjectIndex, pickled: bytes, ended: Any, done_bytes: Any) -> None:
        self._index, self._pickled = index, pickled
        self._ended, self._done_bytes = ended, done_bytes

    @cached_property
    def _job(self) -> Job:
        try:
            return Job(index=self._index, **pickle.loads(self._pickled))
        except Exception as error:
            raise InvalidArgumentError(
                f"executor='processes': another process does not find the function ({error}): it "
                "must be one of a module that can be imported there"
            ) from error

    def pack(self, number: int) -> Record | Exception:
        try:
            return pack_shard(self._job, number, self._check, self._arrived)
        except BaseException as error:
            return portable(error)

    def _check(self) -> None:
        if self._ended.value:
            raise CancelledError("packing was stopped")

    def _arrived(self, size_bytes: int) -> None:
        with self._done_bytes:
            self._done_bytes.value += size_bytes


_worker: _Worker


def _begin(
    index: ObjectIndex, pickled: bytes, ended: Any, done_bytes: Any, options: EngineOptions
) -> None:
    global _worker
    threading.Thread(target=_end_with_parent, args=(ended,), daemon=True).start()
    process.configure_unless_set(options)
    _worker = _Worker(index, pickled, ended, done_bytes)


def _pack(number: int) -> Record | Exception:
    return _worker.pack(number)


def _end_with_parent(ended: Any) -> None:
    """End if the process that started us was killed: the pool would wait for more work forever.

    End after a while, too, if it has stopped the packing, and the user's function does not return.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    while parent.is_alive() and not ended.value:
        parent.join(_TICK_S)
    parent.join(_STOP_S)
    process.shutdown()  # what is being written is given up, and leaves nothing behind
    os._exit(1)
