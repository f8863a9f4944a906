"""Fork, spawn, exit and Ctrl-C, each in an interpreter of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer

Child = Callable[..., object]


@pytest.fixture
def target(server: FaultServer) -> tuple[str, ...]:
    """Endpoint and bucket with objects `a` and `stalls`."""
    server.put("bucket", "a", b"hello")
    server.put("bucket", "stalls", bytes(1000))
    server.faults([{"match": {"path_contains": "stalls"}, "action": {"stall_head": True}}])
    return ("gs://bucket", server.url)


HEAD = """
import os, signal, sys, threading, time
import headrace
store = headrace.Store(sys.argv[1], endpoint=sys.argv[2])
"""


@pytest.mark.parametrize("call", ["read('stalls')", "read_many(['a', 'stalls'])"])
def test_ctrl_c_ends_a_wait(run_child: Child, target: tuple[str, ...], call: str) -> None:
    run_child(
        HEAD
        + f"""
def interrupt():
    while not headrace.metrics().in_flight:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
thread = threading.Thread(target=interrupt)
thread.start()
try:
    store.{call}  # the answer never comes, and the deadline is five minutes away
except KeyboardInterrupt:
    pass
else:
    raise AssertionError
thread.join()
assert store.read("a").bytes() == b"hello"
""",
        *target,
    )


def test_ctrl_c_lets_the_buffer_go(run_child: Child, target: tuple[str, ...]) -> None:
    run_child(
        HEAD
        + """
def stop(*_):
    raise InterruptedError("the alarm")
signal.signal(signal.SIGALRM, stop)
def ring():
    while not headrace.metrics().in_flight:
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGALRM)
thread = threading.Thread(target=ring)
thread.start()
buffer = bytearray(1000)
try:
    store.read("stalls", into=buffer)
except InterruptedError as error:
    assert "the alarm" in str(error)
else:
    raise AssertionError
buffer.clear()
thread.join()
""",
        *target,
    )


def test_exit_with_reads_in_flight(run_child: Child, target: tuple[str, ...]) -> None:
    run_child(
        HEAD
        + """
reader = store.read_batches([["a"], ["stalls"], ["stalls"]])
next(reader)
for call in (lambda: store.read("stalls"), lambda: store.read_many(["stalls"] * 9)):
    threading.Thread(target=call, daemon=True).start()
other = store.read_batches([["stalls"]])
threading.Thread(target=lambda: next(other), daemon=True).start()
while headrace.metrics().in_flight < 3:
    time.sleep(0.01)
""",
        *target,
    )


@pytest.mark.parametrize("used_before", [False, True])
def test_fork(run_child: Child, target: tuple[str, ...], used_before: bool) -> None:
    run_child(
        HEAD
        + f"used_before = {used_before}"
        + """
kept = store.read("a") if used_before else None
reader = store.read_batches([["a"], ["a"]])
if used_before:
    next(reader)
child = os.fork()
if child == 0:
    code = 1
    try:
        assert headrace.metrics() == headrace.Metrics()
        assert store.read("a").bytes() == b"hello"
        if used_before:
            assert kept.bytes() == b"hello"
            del kept
            try:
                next(reader)
            except headrace.CancelledError as error:
                assert "before a fork" in str(error)
            else:
                raise AssertionError
        del reader
        code = 0
    finally:
        if code == 0:
            sys.exit(0)  # the whole way out, as a worker goes
        os._exit(1)
assert store.read("a").bytes() == b"hello"
if used_before:
    assert next(reader)[0].bytes() == b"hello"
_, status = os.waitpid(child, 0)
assert status == 0, status
""",
        *target,
    )


def test_fork_while_other_threads_read(run_child: Child, tmp_path: Path) -> None:
    run_child(
        """
import os, sys, threading
import headrace
store = headrace.Store(sys.argv[1])
names = [f"{i}" for i in range(32)]
for name in names:
    store.write(name, bytes(5000))
held = store.read_many(names)
stop = threading.Event()
def read():
    while not stop.is_set():
        store.read_many(names)
threads = [threading.Thread(target=read) for _ in range(3)]
for thread in threads:
    thread.start()
children = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        held.clear()  # their memory's lock may be taken by a thread that is not here
        os._exit(0 if len(store.read("7")) == 5000 else 1)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
stop.set()
for thread in threads:
    thread.join()
assert codes == [0] * 20, codes
""",
        str(tmp_path),
    )


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(run_child: Child, tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        """
import multiprocessing, sys
import headrace

def read(store):
    return store.read("a")

if __name__ == "__main__":
    store = headrace.Store(sys.argv[1])
    store.write("a", b"hello")
    with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
        samples = pool.map(read, [store] * 4)
        pool.close()
        pool.join()
    assert [s.bytes() for s in samples] == [b"hello"] * 4
    assert samples[0].url == store.url_of("a")
"""
    )
    run_child(
        "import subprocess, sys; subprocess.run([sys.executable, *sys.argv[1:]], check=True)",
        str(script),
        str(tmp_path / "data"),
        method,
    )


def test_an_idle_engine_uses_no_cpu(run_child: Child, target: tuple[str, ...]) -> None:
    run_child(
        HEAD
        + """
store.read("a")
def switches():
    total = 0
    for task in os.listdir("/proc/self/task"):
        if int(task) != os.getpid():
            for line in open(f"/proc/self/task/{task}/status"):
                if "ctxt_switches" in line:
                    total += int(line.split()[1])
    return total
before = switches()
time.sleep(1)  # the only way to see that nothing happens
assert switches() - before <= 20, switches() - before
""",
        *target,
    )


def test_shutdown_ends_waits(run_child: Child, target: tuple[str, ...]) -> None:
    run_child(
        HEAD
        + """
errors = []
def read():
    try:
        store.read("stalls")
    except headrace.CancelledError as error:
        errors.append(error)
thread = threading.Thread(target=read)
thread.start()
while headrace.metrics().in_flight < 1:
    time.sleep(0.01)
headrace.shutdown()
thread.join()
assert len(errors) == 1
assert store.read("a").bytes() == b"hello"
""",
        *target,
    )
