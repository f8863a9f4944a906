"""Turn numbers of objects into batches: read ahead, transformed in threads, in order."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol

import torch

from headrace._base.errors import CancelledError, HeadraceError
from headrace._process import tracing
from headrace._process.process import begin_exit, end_if_overtaken, metrics
from headrace._process.verdict import has_free_places
from headrace._store.read_ahead import ReadAhead
from headrace.torch._collate import collate_in, unequal_sizes
from headrace.torch._epochs import made_before_fork
from headrace.torch._error_notes import about_batch, about_sample
from headrace.torch._grid import Spot
from headrace.torch._pinning import Pageable, Pinning
from headrace.torch._seeding import GlobalGenerators
from headrace.torch._skipping import (
    NOTHING,
    Skipped,
    Skipping,
    errors_among,
    places_left,
    require_skippable,
    skipped_of,
)
from headrace.torch._source import Reads, Source

__all__ = ["Batches", "Made", "MadeStep", "Others", "Pipeline", "Recipe", "Request", "WorkTimes"]

# After at most this time a wait notices that another thread has closed the iterator.
_WAIT_SLICE_S = 0.05
# How long closing waits for the threads. A transform that takes longer ends on its own time, and
# its thread with it; at the interpreter's exit the wait is longer.
_CLOSE_S = 0.1
_EXIT_S = 5.0
# How many samples are tried to find one that takes the place of a batch of which nothing is left.
_MOST_TRIED = 1000
# Of units such as row groups, what is read ahead unless the user says so.
_UNITS_AHEAD_BYTES = 256 << 20


class Request(NamedTuple):
    """The next batch of this rank."""

    indices: Sequence[int]
    """The numbers of its objects."""
    epoch: int
    positions: Sequence[int]
    """The positions of its objects in the order."""
    after: Spot
    """Where in the order the step of all ranks ends."""


_NO_REQUEST = Request((), 0, (), Spot())


class Made(NamedTuple):
    """A batch that is ready."""

    request: Request
    size_bytes: int
    """Of its objects, without those that were skipped."""
    value: Any
    """`NOTHING`, if all its samples were skipped."""
    skipped: Sequence[Skipped] = ()


class WorkTimes:
    """What the threads of a loader have done, in nanoseconds over all of them. Thread: any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.spent_ns = {"transform": 0, "collate": 0}
        self.cpu_ns = 0
        self.bytes_wait_ns = self.held_wait_ns = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return WorkTimes, ()  # a copy of a loader has done nothing yet

    def waited(self, for_ns: int, *, is_held: bool) -> None:
        """A batch was waited for whose bytes had still to arrive, and no more could be read."""
        with self._lock:
            self.bytes_wait_ns += for_ns
            self.held_wait_ns += for_ns if is_held else 0

    def worked(self, what: str, begin_ns: int, cpu_begin_ns: int, samples: int) -> None:
        """This thread did something for so many samples, from `begin_ns` until now."""
        end_ns, cpu_end_ns = time.perf_counter_ns(), time.thread_time_ns()
        with self._lock:
            self.spent_ns[what] += end_ns - begin_ns
            self.cpu_ns += cpu_end_ns - cpu_begin_ns
        cpu_s = (cpu_end_ns - cpu_begin_ns) / 1e9
        tracing.note(what, begin_ns, end_ns, samples=samples, cpu_s=cpu_s)


@dataclass(frozen=True)
class Recipe:
    """How the objects of a batch become that batch."""

    source: Source
    seed: int
    """Of the samples' own seeds."""
    collate_fn: Callable[[list[Any]], Any] | None
    """None: `collate`."""
    pinning: Pinning
    seed_generators: bool
    """Whether to seed the global generators for each sample, if one thread alone makes samples."""
    work: WorkTimes
    """What transforming and collating took so far."""
    skipping: Skipping
    fills: bool
    """Whether a good sample takes the place of one that is skipped."""

    @property
    def is_direct(self) -> bool:
        """Whether the engine reads straight into the batch tensor."""
        return self.collate_fn is None and self.source.reads_straight

    @property
    def is_columnar(self) -> bool:
        """Whether a batch is made of whole columns."""
        return self.collate_fn is None and self.source.has_columns

    @property
    def uses_seeds(self) -> bool:
        """Whether something is made of each sample that may draw random numbers."""
        return not self.is_columnar and (self.source.makes or self.collate_fn is not None)

    def made_steps(
        self, requests: Sequence[Request], sizes_bytes: Sequence[int], parts: int, times: int = 1
    ) -> list[MadeStep]:
        """Begin batches that threads make; see `MadeStep`."""
        kind, reads = MadeStep, list[Any]()
        if self.is_columnar:
            kind, parts = TableStep, 1
            reads = self.source.start_tables([each.indices for each in requests])
        made = zip_longest(requests, sizes_bytes, reads)
        return [kind(each, size, self, parts, read, times) for each, size, read in made]


class Batches(Protocol):
    """The batches of one iteration."""

    def next(self) -> Made | None:
        """Wait for the next batch; None at the end."""
        ...

    def is_ready(self) -> bool:
        """Return whether `next` has something at once, without waiting and without work."""
        ...

    def check(self) -> None:
        """Raise CancelledError if `next` would."""
        ...

    def drain(self) -> None:
        """Begin no more reads; batches already begun are still to come."""
        ...

    def close(self) -> None:
        """Cancel reads in flight and end the threads. A second call does nothing."""
        ...


class Step:
    """One batch in progress."""

    def __init__(self, request: Request, size_bytes: int = 0, batch: Reads | None = None) -> None:
        self.request, self.size_bytes, self.batch = request, size_bytes, batch
        self.arrived_ns = 0
        """When its bytes came, if somebody had to wait for them; else 0."""
        self._lost: dict[int, Exception] = {}

    def is_ready(self) -> bool:
        """Return whether `wait` returns at once."""
        return True

    def wait(self, is_closing: Callable[[], bool]) -> Any:
        """Wait for the batch and return it, or raise its error. Call this once."""
        raise NotImplementedError

    def take_lost(self) -> dict[int, Exception]:
        """Return the errors of the samples that were skipped, by their places in the request."""
        lost, self._lost = self._lost, {}  # their tracebacks refer to frames that refer to this
        return lost


class FailedStep(Step):
    """A batch whose reads could not begin; its error is raised when its turn comes."""

    def __init__(self, request: Request, error: Exception) -> None:
        super().__init__(request)
        self._error: Exception | None = error

    def wait(self, is_closing: Callable[[], bool]) -> Any:  # noqa: ARG002
        error, self._error = self._error, None
        assert error is not None
        raise error


class DirectStep(Step):
    """A batch that the engine reads straight into one tensor, ``[count, size_bytes]``."""

    def __init__(self, request: Request, size_bytes: int, recipe: Recipe) -> None:
        count = len(request.indices)
        self._recipe = recipe
        self._tensor, self._hand_over = recipe.pinning.room(
            recipe.source.opened()[0], count, size_bytes // count
        )
        # NumPy's arrays are buffers, which torch's tensors are not.
        into: Any = self._tensor.numpy()
        self._reads = recipe.source.start_straight(request.indices, into)
        super().__init__(request, size_bytes, self._reads)

    def is_ready(self) -> bool:
        return self._reads.poll(0)

    def wait(self, is_closing: Callable[[], bool]) -> Any:  # noqa: ARG002
        rule, handled = self._recipe.skipping, sys.exception()
        try:
            self._reads.wait()
        except HeadraceError:
            if not rule.skips:
                raise
            self._lost = errors_among(self._reads.take(return_errors=True))
            require_skippable(self._lost, len(self.request.indices), rule, handled)
        self.arrived_ns = time.perf_counter_ns()
        self._hand_over()
        if not self._lost:
            try:
                return self._made(None)
            except Exception as error:
                if not rule.may_skip(error, handled):
                    raise
        self._look_at_each(handled)
        left = places_left(len(self.request.indices), self._lost, fills=self._recipe.fills)
        return self._made(left) if left else NOTHING

    def _made(self, places: list[int] | None) -> torch.Tensor:
        """Return the batch of the samples at these places; None: of all."""
        recipe, tensor, indices = self._recipe, self._tensor, self.request.indices
        if places is not None:
            room, hand_over = recipe.pinning.room(
                recipe.source.opened()[0], len(places), tensor.shape[1]
            )
            tensor = torch.index_select(tensor, 0, torch.tensor(places, device="cpu"), out=room)
            hand_over()
            indices = [int(indices[at]) for at in places]
        return recipe.source.batch(tensor, indices, recipe.pinning)

    def _look_at_each(self, handled: BaseException | None) -> None:
        """Find out of which samples that were read no batch can be made."""
        recipe = self._recipe
        for at, index in enumerate(self.request.indices):
            if at in self._lost:
                continue
            try:
                recipe.source.batch(self._tensor[at : at + 1], [int(index)], Pageable())
            except Exception as error:
                if not recipe.skipping.may_skip(error, handled):
                    raise
                self._lost[at] = error


class MadeStep(Step):
    """A batch of samples that several threads transform in parts and the last one collates.

    The error raised does not depend on which thread is quicker: it is that of the first sample that
    failed.

    Args:
        request: the samples.
        size_bytes: of their objects.
        recipe: how they become a batch.
        parts: how many threads share the work.
        reads: the reads of the samples; None: begin them.
        times: how often each sample is in the batch.
    """

    _makes = "collate_fn"  # what makes the batch, in messages

    def __init__(
        self,
        request: Request,
        size_bytes: int,
        recipe: Recipe,
        parts: int,
        reads: Reads | None = None,
        times: int = 1,
    ) -> None:
        self._reads = reads or recipe.source.start(request.indices)
        super().__init__(request, size_bytes, self._reads)
        self._engine = recipe.source.opened()[0]
        self._recipe = recipe
        count = len(request.indices)
        # One thread takes the engine's batch; the others wait for it.
        self._lock, self._done = threading.Lock(), threading.Lock()
        self._done.acquire()
        self._samples: list[Any] | None = None
        self._outputs: list[Any] = [None] * count
        self._value: Any = None
        self._error: BaseException | None = None
        self._failed_at = count
        self._times = times
        self._parts_left = min(parts, count)
        self.parts = [
            (count * i // self._parts_left, count * (i + 1) // self._parts_left)
            for i in range(self._parts_left)
        ]

    def work(
        self,
        begin: int,
        end: int,
        is_closing: Callable[[], bool],
        generators: GlobalGenerators | None = None,
    ) -> None:
        """Make the part ``[begin, end)``; the thread that makes the last part makes the batch.

        The `generators` are seeded for each sample; a collate_fn continues with the last one's.
        """
        try:
            self._make(begin, end, is_closing, generators)
        except BaseException as error:  # not of a transform
            self._fail(begin, error)
        with self._lock:
            self._parts_left -= 1
            is_last = self._parts_left == 0
        if is_last:
            try:
                self._collate()
            except BaseException as error:
                self._fail(begin, error)
            finally:
                self._done.release()  # whatever has happened: somebody waits

    def _make(
        self,
        begin: int,
        end: int,
        is_closing: Callable[[], bool],
        generators: GlobalGenerators | None,
    ) -> None:
        samples = self._take()
        if samples is None:
            return
        makers, outputs, lost, rule = self._makers, self._outputs, self._lost, self._recipe.skipping
        sample: Any = None
        handled = sys.exception()
        begin_ns, cpu_ns, at = time.perf_counter_ns(), time.thread_time_ns(), begin
        try:
            for at in range(begin, end):
                if is_closing():
                    self._fail(at, CancelledError("the iterator was closed"))
                    return
                if at in lost:
                    continue
                sample = samples[at]
                samples[at] = None  # its memory is free when the transform is done with it
                if generators is not None:
                    generators.seed(sample.seed)
                try:
                    outputs[at] = makers[at](sample)
                except Exception as error:
                    if not rule.may_skip(error, handled):
                        raise
                    lost[at] = about_sample(error, sample.url)
        except BaseException as error:
            try:
                if isinstance(error, Exception):
                    error = about_sample(error, sample.url)
            finally:
                self._fail(at, error)
        del sample
        if self._recipe.source.makes:
            self._recipe.work.worked("transform", begin_ns, cpu_ns, end - begin)

    def is_ready(self) -> bool:
        return not self._done.locked()

    def wait(self, is_closing: Callable[[], bool]) -> Any:
        while not self._done.acquire(timeout=_WAIT_SLICE_S):
            if is_closing():
                raise CancelledError("the iterator was closed")
        if self._error is not None:
            try:
                raise self._error
            finally:
                # Their tracebacks refer to frames that refer to this.
                self._error, self._lost = None, {}
        value, self._value = self._value, None
        return value

    def _take(self) -> list[Any] | None:
        with self._lock:
            if self._samples is None and self._error is None:
                try:
                    was_there = self._reads.poll(0)
                    rule = self._recipe.skipping
                    samples = self._reads.take(return_errors=rule.skips)
                    if not was_there:
                        self.arrived_ns = time.perf_counter_ns()
                    if rule.skips:
                        self._lost.update(errors_among(samples))
                        require_skippable(self._lost, len(samples), rule)
                    if self._recipe.uses_seeds:
                        self._seed_and_label(samples)
                    self._makers = self._recipe.source.makers(self.request.indices)
                    self._samples = samples
                except BaseException as error:
                    self._failed_at, self._error = -1, error
            return self._samples

    def _seed_and_label(self, samples: list[Any]) -> None:
        recipe, request = self._recipe, self.request
        positions, indices = request.positions, request.indices
        if self._lost:
            there = [at for at in range(len(samples)) if at not in self._lost]
            samples = [samples[at] for at in there]
            positions, indices = [positions[at] for at in there], [indices[at] for at in there]
        if samples:
            recipe.source.seed_and_label(samples, indices, recipe.seed, request.epoch, positions)

    def _fail(self, at: int, error: BaseException) -> None:
        with self._lock:
            if self._error is None or at < self._failed_at:
                self._failed_at, self._error = at, error

    def _collate(self) -> None:
        recipe, count = self._recipe, len(self.request.indices)
        places: Sequence[int] = range(count)
        if self._lost:
            places = places_left(count, self._lost, fills=recipe.fills)
        if self._error is not None or not places:
            self._outputs, self._samples, self._value = [], None, NOTHING
            return
        begin_ns, cpu_ns = time.perf_counter_ns(), time.thread_time_ns()
        try:
            self._value = recipe.pinning.pin(self._collated(places))
        except BaseException as error:
            self._error = error
            if isinstance(error, Exception):
                indices = self.request.indices
                self._error = about_batch(error, recipe.source.url, indices, self._makes)
        recipe.work.worked("collate", begin_ns, cpu_ns, len(places) * self._times)

    def _collated(self, places: Sequence[int]) -> Any:
        """Return the batch of what was made for these places."""
        outputs = [self._outputs[at] for at in places] * self._times
        self._outputs, self._samples = [], None
        if self._recipe.collate_fn is None:
            return collate_in(self._engine, outputs)
        return self._recipe.collate_fn(outputs)


class TableStep(MadeStep):
    """A batch of rows that stay in a table until they are columns."""

    _makes = "columns"

    def _make(
        self,
        begin: int,  # noqa: ARG002
        end: int,  # noqa: ARG002
        is_closing: Callable[[], bool],  # noqa: ARG002
        generators: GlobalGenerators | None,  # noqa: ARG002
    ) -> None:
        reads: Any = self._reads
        was_there = reads.poll(0)
        self._lost = reads.take_lost()
        if not was_there:
            self.arrived_ns = time.perf_counter_ns()
        rule = self._recipe.skipping
        if self._lost and not rule.skips:
            raise next(iter(self._lost.values()))
        require_skippable(self._lost, len(self.request.indices), rule)

    def _collated(self, places: Sequence[int]) -> Any:
        reads: Any = self._reads
        return reads.columns(places, self._times)


Tasks = SimpleQueue[tuple[MadeStep, int, int] | None]


class TransformThreads:
    """Threads that work on parts of steps, first come, first served, until `is_closing`.

    They hold no reference to their owner, which may go out of scope while they work.
    """

    def __init__(self, count: int, is_closing: Callable[[], bool]) -> None:
        self._tasks: Tasks = SimpleQueue()
        # Daemons, because the interpreter joins other threads before it calls the atexit functions
        # that stop these.
        self._threads = [
            threading.Thread(
                target=_work,
                args=(self._tasks, is_closing),
                name=f"headrace-transform-{i}",
                daemon=True,
            )
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()
            _running_threads.add(thread)

    def __len__(self) -> int:
        return len(self._threads)

    def submit(self, step: MadeStep) -> None:
        for begin, end in step.parts:
            self._tasks.put((step, begin, end))

    def wake(self) -> None:
        """Let idle threads look at `is_closing`."""
        for _ in self._threads:
            self._tasks.put(None)

    def join(self, timeout_s: float) -> None:
        _join(self._threads, timeout_s)


def _join(threads: Sequence[threading.Thread], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    for thread in threads:
        # The thread that runs the garbage collector may be one of them.
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


def _work(tasks: Tasks, is_closing: Callable[[], bool]) -> None:
    while True:
        task = tasks.get()
        if task is None or is_closing():
            return
        step, begin, end = task
        step.work(begin, end, is_closing)
        del task, step  # a waiting thread keeps nothing alive


Others = Callable[[Request], Iterable[tuple[int, int]]]
"""Returns the numbers and positions of samples near a batch, in the order in which they are tried
in its place."""


class Pipeline:
    """The batches of one iteration.

    At any time, the bytes and objects that are being read or read already are bounded, and so are
    the transformed batches. One thread at a time uses a pipeline; any thread may call `close`.

    Args:
        recipe: how objects become batches.
        requests: the batches to come.
        transform_threads: the number of threads; 0: `next` does the work itself.
        prefetch_bytes: how much may be read ahead; None: the engine decides.
        others: what takes the place of a batch of which nothing is left.
    """

    def __init__(
        self,
        recipe: Recipe,
        requests: Iterator[Request],
        transform_threads: int,
        prefetch_bytes: int | None,
        others: Others,
    ) -> None:
        self._others = others
        self._pid = os.getpid()
        self._recipe = recipe
        self._requests = requests
        self._more = True
        self._closing = threading.Event()
        self._is_closing = self._closing.is_set
        self._threads: TransformThreads | None = None
        if transform_threads > 0 and not recipe.is_direct:
            self._threads = TransformThreads(transform_threads, self._is_closing)
        # Entries are batches being read, and those that the threads are to transform.
        opened = recipe.source.opened()
        if prefetch_bytes is None and recipe.source.units is not None:
            # What keeps connections busy is counted in samples, of which a unit has many.
            prefetch_bytes = min(_UNITS_AHEAD_BYTES, opened[0].budget_bytes // 4)
        self._ahead: ReadAhead[Step] = ReadAhead(
            opened, prefetch_bytes, least_entries=2 if self._threads is None else 4
        )
        # Small batches of columns are read, and joined, together.
        self._samples_at_once = recipe.source.samples_at_once if recipe.is_columnar else 1
        # Samples that nobody has counted are read before their numbers are known.
        self._requests_wait = not recipe.source.is_counted
        self._generators = GlobalGenerators()
        self._submitted = 0  # how many of the steps ahead the threads have received
        _open_pipelines.add(self)

    def next(self) -> Made | None:
        """Wait for the next batch; None at the end.

        Raises:
            CancelledError: the pipeline was closed, or was made before a fork.
        """
        self._check_process()
        try:
            found = self._next()
        except Exception as error:
            if not self._is_closing():
                raise
            raise self._closed() from error
        if self._is_closing():
            raise self._closed()
        return found

    def is_ready(self) -> bool:
        """Return whether `next` has something at once, without waiting and without work."""
        step = self._ahead[0] if self._ahead else None
        return not self._more if step is None else step.is_ready()

    def check(self) -> None:
        """Raise CancelledError if `next` would."""
        self._check_process()
        if self._is_closing():
            raise self._closed()

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise made_before_fork()

    def _closed(self) -> CancelledError:
        # Another thread, or a signal handler in this one, may close it at any moment.
        self._ahead.cancel()  # reads begun since
        end_if_overtaken()
        return CancelledError("the iterator was closed while somebody waited for a batch")

    def _next(self) -> Made | None:
        begin_ns = time.perf_counter_ns()
        self._fill()
        if not self._ahead:
            return None
        step = self._ahead[0]
        is_held = self._ahead.is_full and not step.is_ready() and has_free_places(metrics())
        if self._threads is None and isinstance(step, MadeStep):
            self._work(step)
        value = step.wait(self._is_closing)
        if step.arrived_ns > begin_ns:
            self._recipe.work.waited(step.arrived_ns - begin_ns, is_held=is_held)
        self._ahead.popleft()
        if self._submitted > 0:
            self._submitted -= 1
        self._fill(1)  # so that reads are in flight while the trainer works
        return self._made(step, value)

    def _made(self, step: Step, value: Any) -> Made:
        """Return a batch with what is known of it."""
        recipe, request = self._recipe, step.request
        if not recipe.skipping.skips:
            return Made(request, step.size_bytes, value)
        lost = step.take_lost()
        if not lost:
            return Made(request, step.size_bytes, value)
        skipped = skipped_of(lost, recipe.source, request.indices)
        numbers = [each.index for each in skipped if each.index is not None]
        size_bytes = max(0, step.size_bytes - recipe.source.sum_bytes(numbers))
        if value is NOTHING and recipe.fills:
            value = self._in_its_place(request)
        return Made(request, size_bytes, value, skipped)

    def _in_its_place(self, request: Request) -> Any:
        """Return a batch of one sample, as often as the batch has samples of which none is left.

        Which one does not depend on what was yielded here: it is the same after a resume.
        """
        for index, position in islice(self._others(request), _MOST_TRIED):
            one = Request([index], request.epoch, [position], request.after)
            [step] = self._recipe.made_steps([one], [0], 1, times=len(request.indices))
            if self._threads is None:
                self._work(step)
            else:
                step.work(0, 1, self._is_closing)
            value = step.wait(self._is_closing)
            if value is not NOTHING:
                return value
        return NOTHING

    def _work(self, step: MadeStep) -> None:
        recipe = self._recipe
        ((begin, end),) = step.parts
        if recipe.seed_generators and recipe.uses_seeds:
            with self._generators as generators:
                step.work(begin, end, self._is_closing, generators)
        else:
            step.work(begin, end, self._is_closing)

    def drain(self) -> None:
        """Begin no more reads; batches already begun are still to come."""
        self._more = False

    def close(self) -> None:
        """Cancel reads in flight and end the threads. A second call does nothing."""
        if self._closing.is_set() or self._pid != os.getpid():
            return  # after a fork there are no threads here, and no reads
        self._closing.set()
        self._more = False
        if self._threads is not None:
            self._threads.wake()
        self._ahead.cancel()
        self._recipe.source.let_go()
        if self._threads is not None:
            self._threads.join(_CLOSE_S)

    def _fill(self, least: int = 0) -> None:
        """Begin to read batches while there is room.

        If requests wait for samples, only as many as the threads have work with, until the next
        batch is ready; but `least` of them.
        """
        while True:
            if self._threads is not None:
                self._submit(self._threads)
            if not self._more or not self._ahead.has_room():
                return
            if self._requests_wait and len(self._ahead) > 0:
                if self._threads is None or self._submitted < len(self._ahead):
                    return
                if least <= 0 and self._ahead[0].is_ready():
                    return
            least -= 1
            self._begin_reads()

    def _begin_reads(self) -> None:
        """Begin to read the next batch, or some small ones."""
        requests, samples = list[Request](), 0
        failed: list[Step] = []
        try:
            while samples < self._samples_at_once:
                request = next(self._requests, None)
                if request is None:
                    self._more = False
                    break
                requests.append(request)
                samples += len(request.indices)
        except Exception as error:  # of the user's sampler; told when its turn comes
            self._more = False
            failed.append(FailedStep(_NO_REQUEST, error))
        for step in (self._started(requests) if requests else []) + failed:
            self._ahead.append(step, step.batch, step.size_bytes, len(step.request.indices))

    def _submit(self, threads: TransformThreads) -> None:
        # Enough that no thread is idle while the trainer takes the next one, and no more: a
        # transformed sample may be far larger than its object.
        while self._submitted < len(self._ahead):
            step = self._ahead[self._submitted]
            if isinstance(step, MadeStep):
                if self._submitted >= 2 + 2 * len(threads) // len(step.parts):
                    break
                threads.submit(step)
            self._submitted += 1

    def _started(self, requests: list[Request]) -> list[Step]:
        recipe = self._recipe
        source = recipe.source
        try:
            sizes_bytes = [source.sum_bytes(each.indices) for each in requests]
            if not recipe.is_direct:
                parts = len(self._threads or ()) if source.makes else 1
                return [*recipe.made_steps(requests, sizes_bytes, max(1, parts))]
            for each in requests if source.parts[0].objects.common_size_bytes is None else ():
                _require_equal_sizes(source, each.indices)
            return [DirectStep(*each, recipe) for each in zip(requests, sizes_bytes, strict=True)]
        except Exception as error:
            self._more = False
            return [FailedStep(requests[0], error)]


def _require_equal_sizes(source: Source, indices: Sequence[int]) -> None:
    sizes = source.sizes(indices)
    if any(size != sizes[0] for size in sizes):
        error = unequal_sizes("", [[size] for size in sizes])
        raise about_batch(error, source.url, indices)


_open_pipelines: weakref.WeakSet[Pipeline] = weakref.WeakSet()
_running_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def _at_exit() -> None:
    # Torch's operators take the GIL again, and Python before 3.14 ends a thread that does so too
    # late by unwinding it, which torch's code is not made for: the process would abort.
    begin_exit()
    for pipeline in list(_open_pipelines):
        pipeline.close()
    _join(list(_running_threads), _EXIT_S)


atexit.register(_at_exit)
