"""What there is once per process: the engine and the credentials thread.

Both are made when first needed. After a fork the child makes its own: neither threads nor locks of
the parent work there, and what hangs on them is left alone (the bindings see to that).
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from headrace import _engine
from headrace._base.errors import CancelledError, InvalidArgumentError
from headrace._base.options import EngineOptions, read_environment
from headrace._process import log, tracing
from headrace._process.child_exit import before_child_exits

if TYPE_CHECKING:
    from headrace._process.credentials_thread import CredentialsThread

__all__ = ["Metrics", "configure", "metrics", "shutdown"]


@dataclass(frozen=True, kw_only=True)
class Metrics:
    """Counters of this process's engine since it started; all zero before that."""

    requests_total: int = 0
    """Attempts that were sent."""
    retries_total: int = 0
    """Of these, not the first of their request."""
    throttled_total: int = 0
    """Answers that said "slow down"."""
    connections_opened_total: int = 0
    tls_resumed_total: int = 0
    """TLS handshakes that resumed a session."""
    bytes_read_total: int = 0
    """Object bytes that arrived."""
    objects_read_total: int = 0
    checksums_verified_total: int = 0
    """Objects whose checksum was compared and agreed."""
    hedges_total: int = 0
    """Requests that were sent a second or third time because an answer was late
    (`ParallelOptions.hedge`). They count in `requests_total`, too."""
    hedges_won_total: int = 0
    """Of these, those that were answered first."""
    hedges_cut_total: int = 0
    """Connections that were closed because their answer was not needed any more, and large."""
    hedge_bytes_dropped_total: int = 0
    """Bytes of answers that were not needed any more. `bytes_read_total` is without them."""
    bodies_replaced_total: int = 0
    """Connections that were closed because a body came over them far slower than others did; the
    rest was read over new ones."""
    queue_s_total: float = 0.0
    """How long reads have waited for memory and a slot, summed over reads that wait in parallel.
    This and the next two count the requests that were answered, not those of ``file://``."""
    first_byte_s_total: float = 0.0
    """How long requests that were sent have waited for the first byte of their answers, summed."""
    body_s_total: float = 0.0
    """How long the rest of these answers took, summed. Checksums are computed meanwhile."""
    connections_open: int = 0
    in_flight: int = 0
    """Requests under way."""
    in_flight_limit: int = 0
    """How many may be, at the busiest host."""
    memory_budget_bytes: int = 0
    memory_live_bytes: int = 0
    """Object bytes in memory: in flight, read ahead, or held by the user."""
    memory_in_flight_bytes: int = 0
    memory_cached_bytes: int = 0
    """Free memory that is kept warm for the next read."""
    memory_peak_live_bytes: int = 0

    def prometheus(self) -> str:
        """Return the counters in Prometheus's text format, for an exporter of your own.

        A counter ends in ``_total``; everything else is a gauge.

        Examples:
            >>> print(headrace.Metrics(retries_total=3).prometheus().splitlines()[3])
            headrace_retries_total 3
        """
        lines = []
        for field in fields(self):
            kind = "counter" if field.name.endswith("_total") else "gauge"
            name = f"headrace_{field.name}"
            lines += [f"# TYPE {name} {kind}", f"{name} {getattr(self, field.name)}"]
        return "".join(f"{line}\n" for line in lines)


class _Process:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.engine: _engine.Engine | None = None
        self.engines_ended = 0
        self.options: EngineOptions | None = None
        self.credentials: CredentialsThread | None = None
        self.ending_thread: int | None = None  # that ends the interpreter
        self.starts_nothing = False  # any more
        # Frames of threads that did not survive a fork are never left; they keep what they hold.
        self.lost_threads = False


_process = _Process()
_threads_at_fork = False
_importing = threading.RLock()
_MOST_IMPORT_S = 10.0
_forking = threading.local()  # whether this thread, which forks, holds `_importing`


def _before_fork() -> None:
    global _threads_at_fork
    _forking.holds = _importing.acquire(timeout=_MOST_IMPORT_S)
    if not _forking.holds:
        log.logger.warning(
            "a fork has waited %g s for packages that make credentials; a store of the child may "
            "wait for them in vain",
            _MOST_IMPORT_S,
        )
    _threads_at_fork = threading.active_count() > 1


def _after_fork_in_parent() -> None:
    if getattr(_forking, "holds", False):  # it has not, if a signal ended the wait
        _forking.holds = False
        _importing.release()


def _after_fork_in_child() -> None:
    # Also the locks are new: at the fork another thread may have held the old ones.
    global _importing, _process
    _importing = threading.RLock()
    options, lost_threads = _process.options, _process.lost_threads
    _process = _Process()
    _process.options = options
    _process.lost_threads = lost_threads or _threads_at_fork


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


def lock() -> AbstractContextManager[object]:
    """Return the lock of this process for making what is made once."""
    return _process.lock


def importing() -> AbstractContextManager[object]:
    """Return what a thread of this package holds while it imports others.

    A fork waits for that, some seconds at most: in the child, nobody would ever end these imports.
    """
    return _importing


def configure(
    *,
    memory_budget_bytes: int | None = None,
    io_threads: int | None = None,
    file_threads: int | None = None,
) -> None:
    """Set what all stores of this process share, and of the processes that it forks later.

    Call it before the first use of a store. What is not given is as the environment says; a second
    call takes the place of the first.

    Examples:
        >>> headrace.configure(memory_budget_bytes=4 * headrace.GiB)  # doctest: +SKIP

    Args:
        memory_budget_bytes: bytes in flight and read ahead, at most. Default: 1 GiB. What you hold
            is counted and slows read-ahead, but never blocks a read that somebody waits for.
        io_threads: threads that speak to the network. Default, and 0: one per core, at most four.
        file_threads: threads that read and write files. Default: four.

    Raises:
        InvalidArgumentError: the engine is running already, or a value cannot work.
    """
    given: dict[str, Any] = {
        "memory_budget_bytes": memory_budget_bytes,
        "io_threads": io_threads,
        "file_threads": file_threads,
    }
    given = {name: value for name, value in given.items() if value is not None}
    with _process.lock:
        if _process.engine is not None:
            raise InvalidArgumentError(
                "headrace.configure() must come before the first use of a store: "
                "the engine is running already"
            )
        _process.options = replace(read_environment().engine, **given)


def configure_unless_set(options: EngineOptions) -> None:
    """Set the engine's options if nobody has, and if the engine is not running yet."""
    with _process.lock:
        if _process.engine is None and _process.options is None:
            _process.options = options


def engine_options() -> EngineOptions:
    """Return the options of this process's engine, which may not run yet."""
    return _process.options or read_environment().engine


def current_engine() -> _engine.Engine:
    """Return the engine of this process; it is started if need be."""
    process = _process
    if process.engine is not None:
        return process.engine
    with process.lock:
        if process.engine is None:
            _refuse_if_exiting()
            tracing.engine_begins(read_environment().trace)
            process.engine = _engine.Engine(asdict(engine_options()))
        return process.engine


def begin_exit() -> None:
    """Say that the interpreter is going down, on this thread."""
    _process.ending_thread = threading.get_ident()


def end_if_overtaken() -> None:
    """End this thread, without a word, if the interpreter is going down on another one.

    Raises:
        SystemExit: it is.
    """
    if _process.ending_thread not in (None, threading.get_ident()):
        raise SystemExit


def _refuse_if_exiting() -> None:
    if _process.starts_nothing:
        end_if_overtaken()
        raise CancelledError("the interpreter is going down: headrace is not used any more")


def engine_number() -> tuple[int, int]:
    """Which engine `metrics` counts for: that of which process, and after how many others."""
    return os.getpid(), _process.engines_ended


def credentials_thread() -> CredentialsThread:
    """Return what makes tokens in this process; its thread starts with the first identity."""
    from headrace._process.credentials_thread import CredentialsThread

    with _process.lock:
        if _process.credentials is None:
            _refuse_if_exiting()
            _process.credentials = CredentialsThread()
        return _process.credentials


def metrics() -> Metrics:
    """Return the counters of this process's engine.

    Examples:
        >>> headrace.metrics().retries_total
        0
    """
    engine = _process.engine
    return Metrics() if engine is None else Metrics(**engine.metrics())


def shutdown() -> None:
    """End what is in progress in this process and stop all threads of headrace.

    Reads that somebody waits for end with `CancelledError`. The next use of a store starts the
    engine anew. Called by itself when the interpreter exits.

    Examples:
        >>> headrace.shutdown()
    """
    with _process.lock:
        engine, _process.engine = _process.engine, None
        _process.engines_ended += engine is not None
        credentials, _process.credentials = _process.credentials, None
    if credentials is not None:
        credentials.stop()
    if engine is not None:
        engine.stop()
        _engine.pass_on_log()
        for text in engine.take_warnings():
            warnings.warn(text, RuntimeWarning, stacklevel=2)


def stop_with_process() -> None:
    """See to it that a child of multiprocessing, too, ends what is in progress before it exits.

    Python runs no exit handlers there; what an ended process leaves in a bucket stays there.
    """
    before_child_exits(shutdown, 10)


def _at_exit() -> None:
    begin_exit()
    with _process.lock:
        _process.starts_nothing = True
        credentials = _process.credentials
    stuck = credentials is not None and not credentials.stop()
    others = threading.active_count() > 1 or _process.lost_threads
    _engine.begin_exit(threads_left=stuck or others)
    shutdown()
    tracing.finish()


atexit.register(_at_exit)
