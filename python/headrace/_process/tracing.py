"""When requests and batches did what, as a file for Perfetto and Chrome's trace viewer.

The engine notes the attempts of requests (`src/headrace/store/timeline/`), and Python's threads
note spans, which are few: one or more a batch. Nothing is written before the end. A file is there
whole or not at all, whatever ends the process.
"""

from __future__ import annotations

import heapq
import json
import os
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from headrace import _engine
from headrace._base.errors import InvalidArgumentError, NotFoundError
from headrace._base.options import require_count
from headrace._process.child_exit import before_child_exits

if TYPE_CHECKING:
    from headrace._process.verdict import Verdict

__all__ = ["Trace", "trace"]

_ATTEMPTS_PER_THREAD = 1 << 16
# A child that inherits a recording keeps fewer: torch ends a worker that takes 5 s to write.
_ATTEMPTS_PER_THREAD_OF_CHILD = 1 << 13
_MOST_SPANS = 1 << 16
_EVENTS_PER_WRITE = 4096
_SUMMED = ("bytes_wait_s", "held_wait_s", "cpu_s")
# The tracks of I/O threads: numbers that no thread of Linux has.
_FIRST_TRACK = 1 << 30
_TRACKS_PER_THREAD = 1 << 16

_lock = threading.RLock()
_current: Trace | None = None
# What a forked child records, too, once it uses the engine: where its parent does.
_inherited: tuple[str, int] | None = None


class Trace:
    """A recording in progress; `trace` begins it.

    Examples:
        >>> recording = headrace.trace("/tmp/epoch.json")
        >>> recording.stop()
        >>> recording.attempts, recording.dropped
        (0, 0)
    """

    def __init__(self, path: str, attempts_per_thread: int) -> None:
        from headrace._process.verdict import (
            Watch,  # it asks the engine, which tells what is traced
        )

        self._path = self._asked = path  # what forked children name theirs after
        self._pid = os.getpid()
        self._attempts_per_thread = attempts_per_thread
        self._spans: deque[tuple[int, str, str, int, int, Mapping[str, object]]] = deque(
            maxlen=_MOST_SPANS
        )
        self._spans_noted = 0
        # Of all spans, also of those that are dropped: lengths by name, and what they say.
        self._sums: defaultdict[str, float] = defaultdict(float)
        self._watch = Watch()
        self._verdict: Verdict | None = None
        self._attempts = self._dropped = 0
        _engine.begin_timeline(attempts_per_thread)

    @property
    def path(self) -> str:
        """Where the file is, once the recording has ended."""
        return self._path

    @property
    def attempts(self) -> int:
        """The number of attempts in the file; 0 before `stop`."""
        return self._attempts

    @property
    def dropped(self) -> int:
        """The number of attempts and spans for which there was no room; 0 before `stop`."""
        return self._dropped

    @property
    def verdict(self) -> Verdict | None:
        """What limited the loaders that ran meanwhile; None before `stop`.

        Its limit is ``"unknown"`` if no `headrace.torch.Loader` did.
        """
        return self._verdict

    def stop(self) -> None:
        """End the recording and write the file. A second call does nothing.

        A request that is in flight is not recorded.

        Examples:
            >>> recording = headrace.trace("/tmp/epoch.json")
            >>> recording.stop()

        Raises:
            OSError: the file could not be written.
        """
        global _current
        with _lock:
            if _current is not self or self._pid != os.getpid():
                return
            _current = None
            attempts, dropped = _engine.end_timeline()
        spans = list(self._spans)
        self._attempts = len(attempts)
        self._dropped = dropped + self._spans_noted - len(spans)
        from headrace._process.verdict import verdict_of

        sums = self._sums
        self._verdict = verdict_of(
            self._watch.evidence(
                duration_s=sums["wait for a batch"] + sums["trainer"],
                wait_s=sums["wait for a batch"],
                bytes_wait_s=sums["bytes_wait_s"],
                held_wait_s=sums["held_wait_s"],
                transform_cpu_s=sums["cpu_s"],
            )
        )
        events = chain(_span_events(spans), _attempt_events(attempts))
        _write(self._path, events, self._dropped, str(self._verdict))

    def __enter__(self) -> Trace:
        """Return the recording itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the recording, also after an exception."""
        self.stop()

    def _note(self, name: str, begin_ns: int, end_ns: int, arguments: Mapping[str, Any]) -> None:
        thread = threading.current_thread()
        ident = thread.native_id or thread.ident or 0
        with _lock:
            self._spans_noted += 1
            self._sums[name] += (end_ns - begin_ns) / 1e9
            for key in _SUMMED:
                self._sums[key] += arguments.get(key, 0.0)
            self._spans.append((ident, thread.name, name, begin_ns, end_ns, arguments))


def trace(
    path: str | os.PathLike[str], *, attempts_per_thread: int = _ATTEMPTS_PER_THREAD
) -> Trace:
    """Record what requests and loaders do, and write it as a trace for https://ui.perfetto.dev.

    The recording begins at once. It ends with the ``with`` block, with `Trace.stop`, or with the
    interpreter; the file is written then. There is one recording at a time per process.

    Each I/O thread has a track for every request that it has in flight at the same time. A request
    is a span, and so is each of its phases: to connect, to send, to wait for the first byte, to
    receive the body, and to check it. Another span shows how long a read was queued. The
    threads of loaders have spans for the waits of the trainer, transforms and collating.

    Processes forked during the recording record, too, if they use headrace and end as
    multiprocessing's do (the workers of torch's DataLoader, for example). Each writes a file of its
    own, ``epoch.<pid>.json`` beside ``epoch.json``. For all processes of a job, set
    ``HEADRACE_TRACE=epoch.json`` instead; then the first process writes such a file, too.

    Reads and writes of a ``file://`` folder are not recorded: they count as requests but have no
    phases.

    Args:
        path: the file to write. It is replaced.
        attempts_per_thread: how many attempts of requests to keep for each I/O thread; each takes
            192 bytes of memory. Older ones are dropped, and counted. Processes forked during the
            recording keep 8,192 at most.

    Raises:
        InvalidArgumentError: a recording is in progress in this process.
        NotFoundError: the folder of `path` does not exist.

    Examples:
        >>> with headrace.trace("/tmp/epoch.json"):
        ...     data = store.read("train/a.txt")
    """
    attempts_per_thread = require_count("attempts_per_thread", attempts_per_thread, minimum=1)
    return _begin(os.fspath(path), attempts_per_thread)


def _begin(path: str, attempts_per_thread: int) -> Trace:
    global _current
    whole = os.path.abspath(path)
    if not os.path.isdir(os.path.dirname(whole)):
        raise NotFoundError(f"{path}: the folder for this trace does not exist; make it first")
    with _lock:
        if _current is not None:
            raise InvalidArgumentError(
                f"a trace is being recorded into {_current.path} already; stop() that one first"
            )
        begun = _current = Trace(whole, attempts_per_thread)
        before_child_exits(finish, 5)  # after the engine has ended
    return begun


def is_on() -> bool:
    """Return whether `note` has an effect."""
    return _current is not None


def note(name: str, begin_ns: int, end_ns: int, /, **arguments: object) -> None:
    """Record a span of this thread; times are those of `time.perf_counter_ns`."""
    current = _current
    if current is not None:
        current._note(name, begin_ns, end_ns, arguments)


def engine_begins(path: str) -> None:
    """Begin what the environment, or the parent of this process, asks for; "" asks for nothing."""
    global _inherited
    with _lock:
        asked, _inherited = _inherited or (path, _ATTEMPTS_PER_THREAD), None
        if _current is not None or not asked[0]:
            return
        path = os.path.abspath(asked[0])  # of this folder, also where a later child is elsewhere
        _begin(_of_this_process(path), asked[1])._asked = path


def finish() -> None:
    """Write what is being recorded: the process ends."""
    current = _current
    if current is not None:
        try:
            current.stop()
        except OSError as error:
            sys.stderr.write(f"headrace: the trace {current.path} could not be written: {error}\n")


def _of_this_process(path: str) -> str:
    whole = Path(path)
    return str(whole.with_name(f"{whole.stem}.{os.getpid()}{whole.suffix or '.json'}"))


def _after_fork_in_child() -> None:
    global _lock, _current, _inherited
    _lock = threading.RLock()
    if _current is not None:
        most = min(_current._attempts_per_thread, _ATTEMPTS_PER_THREAD_OF_CHILD)
        _inherited = _current._asked, most
    _current = None


os.register_at_fork(after_in_child=_after_fork_in_child)


# ---- events


def _microseconds(time_ns: int) -> float:
    return time_ns / 1000


def _named(track: int, name: str, order: int) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "thread_name", "tid": track, "args": {"name": name}}
    yield {"ph": "M", "name": "thread_sort_index", "tid": track, "args": {"sort_index": order}}


def _span(
    track: int, name: str, category: str, begin_ns: int, end_ns: int, arguments: object = None
) -> dict[str, Any]:
    event = {
        "ph": "X",
        "name": name,
        "cat": category,
        "tid": track,
        "ts": _microseconds(begin_ns),
        "dur": _microseconds(end_ns - begin_ns),
    }
    if arguments:
        event["args"] = arguments
    return event


def _span_events(
    spans: Iterable[tuple[int, str, str, int, int, Mapping[str, object]]],
) -> Iterator[dict[str, Any]]:
    named = set()
    for track, thread, name, begin_ns, end_ns, arguments in spans:
        if track not in named:
            named.add(track)
            yield from _named(track, thread, len(named))
        yield _span(track, name, "loader", begin_ns, end_ns, arguments)


def _attempt_events(attempts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    named = set()
    for number, (track, attempt) in enumerate(_on_tracks(attempts)):
        if track not in named:
            named.add(track)
            at = track - _FIRST_TRACK
            name = f"headrace-io-{at // _TRACKS_PER_THREAD} #{at % _TRACKS_PER_THREAD}"
            yield from _named(track, name, track)
        begun_ns, ended_ns = attempt["begun_ns"], attempt["ended_ns"]
        facts = {name: value for name, value in attempt.items() if not name.endswith("_ns")}
        what = attempt["method"] + (" (hedge)" if attempt["is_hedge"] else "")
        yield _span(track, what, "request", begun_ns, ended_ns, facts)
        for phase, begin_ns, end_ns in _phases(attempt):
            yield _span(track, phase, "phase", begin_ns, end_ns)
        queued_ns = attempt["queued_ns"]
        if 0 < queued_ns <= begun_ns:
            same = {"name": "queued", "cat": "queue", "id2": {"local": hex(number)}, "tid": track}
            yield {**same, "ph": "b", "ts": _microseconds(queued_ns)}
            yield {**same, "ph": "e", "ts": _microseconds(begun_ns)}


def _phases(attempt: Mapping[str, Any]) -> Iterator[tuple[str, int, int]]:
    """Yield name, begin and end of the phases that the attempt came to, which follow each other."""
    at_ns: int = attempt["begun_ns"]
    for name, key in (
        ("connect", "connected_ns"),
        ("send", "sent_ns"),
        ("first byte", "first_byte_ns"),
        ("body", "last_byte_ns"),
        ("check", "ended_ns"),
    ):
        end_ns: int = attempt[key]
        if end_ns == 0:
            continue
        # What ended before the first byte has waited for it to the end.
        if name == "body" and attempt["first_byte_ns"] == 0:
            name = "first byte"
        if end_ns > at_ns:
            yield name, at_ns, end_ns
            at_ns = end_ns


def _on_tracks(attempts: list[dict[str, Any]]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Give each attempt a track of its thread on which nothing else happens meanwhile."""
    free: dict[int, list[int]] = {}
    busy: dict[int, list[tuple[int, int]]] = {}
    counts: dict[int, int] = {}
    for attempt in sorted(attempts, key=lambda each: (each["begun_ns"], each["ended_ns"])):
        thread = attempt["io_thread"]
        taken, ready = busy.setdefault(thread, []), free.setdefault(thread, [])
        while taken and taken[0][0] <= attempt["begun_ns"]:
            heapq.heappush(ready, heapq.heappop(taken)[1])
        if ready:
            lane = heapq.heappop(ready)
        else:
            lane = counts.get(thread, 0)
            counts[thread] = lane + 1
        heapq.heappush(taken, (attempt["ended_ns"], lane))
        yield _FIRST_TRACK + thread * _TRACKS_PER_THREAD + lane, attempt


def _write(path: str, events: Iterable[dict[str, Any]], dropped: int, verdict: str) -> None:
    pid = os.getpid()
    program = Path(sys.argv[0]).name if sys.argv and sys.argv[0] else "python"
    name = {"ph": "M", "name": "process_name", "args": {"name": f"{program} ({pid})"}}
    partial = f"{path}.{pid}.part"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write('{"displayTimeUnit": "ms",\n')
            facts = {
                "dropped": dropped,
                "verdict": verdict,
                "written": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            file.write(f'"otherData": {json.dumps(facts)},\n"traceEvents": [\n')
            encode = json.JSONEncoder(separators=(",", ":")).encode
            file.write(encode({**name, "pid": pid}))
            rest = iter(events)
            while some := list(islice(rest, _EVENTS_PER_WRITE)):
                for event in some:
                    event["pid"] = pid
                file.write(",\n" + encode(some)[1:-1])
            file.write("\n]}\n")
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
