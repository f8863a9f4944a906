"""What the commands print beside their results: errors, sizes, exit codes."""

from __future__ import annotations

import enum
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import headrace
from headrace import (
    HeadraceError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    ResourceError,
    UnavailableError,
)
from headrace._base.errors import notes_of, text_of
from headrace._store.location import scheme_of

__all__ = [
    "ExitCode",
    "Report",
    "Stopped",
    "binary_size",
    "counted",
    "exit_code_of",
    "shown",
    "with_notes",
]


class ExitCode(enum.IntEnum):
    """What a script gets to know. `docs/guide/command_line.md` lists them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    PERMISSION_DENIED = 4
    INTERRUPTED = 128 + signal.SIGINT
    BROKEN_PIPE = 128 + signal.SIGPIPE


_BUDGET = "HEADRACE_MEMORY_BUDGET_BYTES sets the memory budget"
# What to do about an error, on gs:// and on s3://.
_HINTS: tuple[tuple[type[HeadraceError], str, str], ...] = (
    (
        PermissionDeniedError,
        "log in (gcloud auth application-default login), or --anonymous for public buckets",
        "set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or --anonymous for public "
        "buckets",
    ),
    (
        UnavailableError,
        "is the endpoint right? --endpoint, STORAGE_EMULATOR_HOST, http_proxy",
        "is the endpoint right? --endpoint, AWS_ENDPOINT_URL, http_proxy",
    ),
    (ResourceError, _BUDGET, _BUDGET),
)


def _hint_of(error: BaseException) -> str:
    for kind, on_gs, on_s3 in _HINTS:
        if isinstance(error, kind):
            return on_s3 if scheme_of(error.url or "") == "s3" else on_gs
    return ""


class Stopped(Exception):  # noqa: N818 - nothing is wrong
    """The command is being ended, by Ctrl-C or SIGTERM."""


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of a command that ended with `error`."""
    if isinstance(error, NotFoundError):
        return ExitCode.NOT_FOUND
    if isinstance(error, PermissionDeniedError):
        return ExitCode.PERMISSION_DENIED
    if isinstance(error, InvalidArgumentError):
        return ExitCode.USAGE
    return ExitCode.FAILED


def shown(text: str) -> str:
    """Return `text` with everything escaped that a terminal could obey.

    Names are anything that is UTF-8: also control characters, and marks that turn the direction of
    writing. What is not printable is written as in Python: ``\\n``, ``\\x1b``, ``\\u202e``.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def binary_size(size_bytes: float) -> str:
    """Return a size as text with three digits: ``1.50 MiB``."""
    if size_bytes < 1024:
        return f"{size_bytes:.0f} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size_bytes /= 1024
        if size_bytes < 1000 or unit == "TiB":
            break
    digits = 2 if size_bytes < 10 else 1 if size_bytes < 100 else 0
    return f"{size_bytes:.{digits}f} {unit}"


def with_notes(error: Exception) -> str:
    """Return the text of an error, and what it was given to say where it happened."""
    return text_of(error) + "".join(f" ({note})" for note in notes_of(error))


def counted(count: int, one: str, many: str = "") -> str:
    """Return ``1 object``, ``2 objects``."""
    return f"{count} {one if count == 1 else many or one + 's'}"


class Report:
    """Tells errors on stderr, one line each, and remembers what the exit code is.

    Thread: any.
    """

    def __init__(self, *, as_json: bool, verbose: bool) -> None:
        self.as_json = as_json
        self.verbose = verbose
        self.write: Callable[[str], object] | None = None
        """Where lines go while something else is on the terminal; else stderr."""
        self.stopping = False
        self.stop_s = 1.0
        """How long what cannot be interrupted may take to end by itself."""
        self._is_done = False
        self._end = threading.Lock()  # free once the work is done
        self._end.acquire()
        self._ended: object = ExitCode.FAILED
        self._codes: set[ExitCode] = set()
        self._lock = threading.Lock()

    @property
    def exit_code(self) -> ExitCode:
        """That of all failures, if it is the same; else 1."""
        if not self._codes:
            return ExitCode.OK
        return next(iter(self._codes)) if len(self._codes) == 1 else ExitCode.FAILED

    def error(self, error: Exception, *, code: ExitCode | None = None) -> None:
        """Tell one failure; the command goes on.

        Raises:
            Stopped: it does not, and what failed is what was interrupted.
        """
        self.check()
        code = exit_code_of(error) if code is None else code
        with self._lock:
            self._codes.add(code)
        self.say(self._line(error, code))

    def fail(self, code: ExitCode) -> None:
        """Let the command end with this exit code, after what it has told itself."""
        with self._lock:
            self._codes.add(code)

    def note(self, text: str) -> None:
        """Say something that a script does not need."""
        if not self.as_json:
            self.say(f"headrace: {text}")

    def warn(self, text: str) -> None:
        """Tell what does not end the command."""
        self.say(json.dumps({"warning": text}) if self.as_json else f"headrace: {shown(text)}")

    def say(self, line: str) -> None:
        """Print a line on stderr."""
        if self.write is not None:
            self.write(line)
            return
        with self._lock:
            print(line, file=sys.stderr, flush=True)

    def _line(self, error: Exception, code: ExitCode) -> str:
        name, text = type(error).__name__, with_notes(error)
        hint = _hint_of(error)
        if self.as_json:
            facts: dict[str, Any] = {"error": name, "message": text, "exit_code": code}
            if isinstance(error, HeadraceError):
                facts |= {
                    "code": error.code,
                    "url": error.url,
                    "http_status": error.http_status,
                    "request_id": error.request_id,
                    "attempts": error.attempts,
                }
            if hint:
                facts["hint"] = hint
            return json.dumps(facts)
        return f"headrace: {name}: {shown(text)}" + (f" [{hint}]" if hint else "")

    # ---- running a command

    def check(self) -> None:
        """Raise `Stopped` if the command is being ended from outside."""
        if self.stopping:
            raise Stopped

    def run(self, work: Callable[[], None]) -> NoReturn:
        """Do the work of a command, and end with its exit code, whatever happens inside.

        The work has a thread of its own. Signals interrupt this one, which does nothing but wait:
        an exception that came at any place of the work could leave locks taken.
        """
        # What the library has to tell while it goes on, such as that a server does not answer.
        log = logging.getLogger("headrace")
        log.addHandler(_Warnings(self))
        log.propagate = False
        thread = threading.Thread(target=self._do, args=(work,), daemon=True)
        try:
            thread.start()
            # Thread.join() takes a thread for ended once it was interrupted. And without a timeout
            # CPython loses one signal in ten that come while another thread starts a process.
            while not self._end.acquire(timeout=0.1):
                pass
        except KeyboardInterrupt:
            self._stop(ExitCode.INTERRUPTED)
        except SystemExit as ended:
            self._stop(ended.code)
        raise SystemExit(self._ended)

    def _stop(self, code: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # there is no quicker end than this one
        self.stopping = True
        deadline_s = time.monotonic() + self.stop_s
        while not self._is_done and time.monotonic() < deadline_s:
            # Each time: a request may have begun on an engine that was started anew for it.
            headrace.shutdown()
            self._end.acquire(timeout=0.05)
        facts = {"error": "Interrupted", "message": "interrupted", "exit_code": code}
        self.say(json.dumps(facts) if self.as_json else "headrace: interrupted")
        if not self._is_done:
            # It reads stdin, or writes to a pipe that nobody reads. The engine is at rest.
            headrace.shutdown()
            os._exit(int(str(code)))
        self._ended = code

    def _do(self, work: Callable[[], None]) -> None:
        try:
            self._do_now(work)
        finally:
            self._is_done = True
            self._end.release()

    def _do_now(self, work: Callable[[], None]) -> None:
        try:
            work()
            sys.stdout.flush()
            if self.verbose:
                self._say_metrics()
            self._ended = self.exit_code
        except Stopped:
            pass
        except BrokenPipeError:
            # Whoever read our output has had enough.
            _give_up_stdout()
            self._ended = ExitCode.BROKEN_PIPE
        except (HeadraceError, OSError) as error:
            if self.stopping:
                return
            if self.verbose:
                for line in traceback.format_exc().splitlines():
                    self.say(shown(line))
            self.error(error)
            try:
                sys.stdout.flush()
            except OSError:
                _give_up_stdout()
            self._ended = self.exit_code

    def _say_metrics(self) -> None:
        found = headrace.metrics()
        self.note(
            f"requests: {found.requests_total}, retries: {found.retries_total}, "
            f"connections: {found.connections_opened_total}, "
            f"objects read: {found.objects_read_total}, "
            f"checksums verified: {found.checksums_verified_total}, "
            f"received: {binary_size(found.bytes_read_total)}, "
            f"object memory at most: {binary_size(found.memory_peak_live_bytes)}"
        )


class _Warnings(logging.Handler):
    """Shows what is logged as lines of the command."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        if not self._report.stopping:
            self._report.warn(record.getMessage())


def _give_up_stdout() -> None:
    """What is still to be written goes nowhere: the interpreter must not try again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
