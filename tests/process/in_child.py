"""What the child interpreters of these tests share. The first argument is the server's URL."""

from __future__ import annotations

import faulthandler
import json
import os
import select
import signal
import sys
import time
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace

ENDPOINT = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("TEST_ENDPOINT", "")
# For interpreters that multiprocessing starts: they have other arguments.
os.environ["TEST_ENDPOINT"] = ENDPOINT

NAMES = [f"{i:03d}" for i in range(100)]
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def open_store(**options: Any) -> headrace.Store:
    return headrace.Store("gs://bucket", endpoint=ENDPOINT, **options)


def use(store: headrace.Store, names: list[str] = NAMES[:20]) -> None:
    """Read, and look at every byte."""
    samples = store.read_many(names)
    assert [sample.bytes() for sample in samples] == [name.encode() * 1000 for name in names]


def control(path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with _opener.open(f"{ENDPOINT}/_control/{path}", data, timeout=120) as answer:
        return json.load(answer)


def wait_for(condition: Callable[[], bool], timeout_s: float = 80.0) -> None:
    """Until it is true; what is asked for is an event elsewhere, which nothing here can await."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.002)


def wait_for_stall(count: int = 1) -> None:
    wait_for(lambda: control("stats")["in_flight"] >= count)


def fork(work: Callable[[], object]) -> int:
    """Run `work` in a forked child, which tells by its status whether it raised."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def in_time(times_s: list[float]) -> bool:
    """Whether the newest four answers to Ctrl-C came within 0.2 s each.

    Asked after each of at most twenty: the bound is the product's, a bad moment of the machine is
    not.
    """
    return len(times_s) >= 4 and max(times_s[-4:]) <= 0.2


def reap(pid: int, timeout_s: float = 80.0, others: tuple[int, ...] = ()) -> int:
    """Return the status of a forked child, which must be 0 or one of the others.

    One that hangs says where it does.
    """
    descriptor = os.pidfd_open(pid)
    try:
        ended = bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)
    if not ended:
        os.kill(pid, signal.SIGABRT)  # faulthandler prints all threads
    _, status = os.waitpid(pid, 0)
    assert ended, f"the forked child {pid} did not end"
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, *others), code
    return code


def thread_names() -> list[str]:
    names = []
    for task in Path("/proc/self/task").iterdir():
        try:
            names.append((task / "comm").read_text().strip())
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
    return sorted(names)


def headrace_threads() -> list[str]:
    return [name for name in thread_names() if name.startswith("headrace")]


def open_sockets() -> int:
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        try:
            count += os.readlink(link).startswith("socket:")
        except FileNotFoundError:
            continue
    return count


faulthandler.enable()
