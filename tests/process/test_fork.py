"""A fork, whatever the parent's store is doing; both processes go on."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from testing.faultserver.client import FaultServer
from tests.process.conftest import (
    RunChild,
    child_command,
    child_environment,
    wait_until_closed,
)

# How a store may be at the fork; each ends with `store` and `after()`, which ends what was begun.
STATES = {
    "unused": """
        from in_child import *
        store = open_store()
        def after(): pass
    """,
    "used": """
        from in_child import *
        store = open_store()
        assert store.read("007").bytes() == b"007" * 1000
        def after(): pass
    """,
    "idle connections": """
        from in_child import *
        store = open_store()
        control("latency", {"first_byte_ms": 20})
        use(store, NAMES)
        control("latency", {"first_byte_ms": 0})
        assert headrace.metrics().connections_open >= 16
        def after(): pass
    """,
    "reads in flight": """
        from in_child import *
        import threading
        store = open_store()
        late = []
        reader = threading.Thread(target=lambda: late.append(store.read("stalls").bytes()))
        reader.start()
        reading = store.read_batches([["001"], ["002", "003"]])
        next(reading)
        wait_for_stall()
        parent = os.getpid()
        def after():
            if os.getpid() == parent:
                control("release", {})
                reader.join()
                assert late == [b"late"]
                assert [s.bytes() for s in next(reading)] == [b"002" * 1000, b"003" * 1000]
            else:
                try:
                    next(reading)
                except headrace.CancelledError as error:
                    assert "before a fork" in str(error), error
                else:
                    raise AssertionError("a parent's read went on in the child")
    """,
    "samples held": """
        from in_child import *
        store = open_store()
        samples = store.read_many(NAMES)
        views = [memoryview(sample) for sample in samples]
        def after():
            global samples
            assert [s.bytes() for s in samples] == [name.encode() * 1000 for name in NAMES]
            samples[0].numpy()[:] = 1  # memory of one's own
            samples = None
            views.clear()
            use(store)
    """,
}


@pytest.mark.parametrize("order", ["child first", "parent first", "both at once"])
@pytest.mark.parametrize("state", STATES)
def test_both_go_on_after_a_fork(
    run_child: RunChild, server: FaultServer, state: str, order: str
) -> None:
    run_child(
        STATES[state]
        + """
        order = sys.argv[2]
        go_read, go_write = os.pipe()
        def child():
            if order == "parent first":
                os.read(go_read, 1)
            use(store)
            after()
            use(store)
        pid = fork(child)
        if order == "child first":
            reap(pid)
        use(store)
        after()
        use(store)
        os.write(go_write, b"x")
        if order != "child first":
            reap(pid)
        """,
        server.url,
        order,
    )


@pytest.mark.parametrize("state", STATES)
def test_a_fork_in_a_fork(run_child: RunChild, server: FaultServer, state: str) -> None:
    run_child(
        STATES[state]
        + """
        def grandchild():
            use(store)
        def child():
            reap(fork(grandchild))  # the child itself has not used it yet
            use(store)
            reap(fork(grandchild))
            after()
            use(store)
        reap(fork(child))
        after()
        use(store)
        """,
        server.url,
    )


@pytest.mark.parametrize("state", STATES)
def test_a_forked_child_exits_like_any_interpreter(
    run_child: RunChild, server: FaultServer, state: str
) -> None:
    """With atexit and the destruction of all modules, used or not."""
    out = run_child(
        STATES[state]
        + """
        for uses in (False, True):
            pid = os.fork()
            if pid == 0:
                if uses:
                    use(store)
                print("child", flush=True)
                sys.exit(0)
            reap(pid)
        after()
        use(store)
        print("parent")
        """,
        server.url,
    )
    assert out == "child\nchild\nparent\n"


@pytest.mark.parametrize("package", ["google.oauth2.service_account", "netrc"])
def test_a_fork_waits_for_the_imports_of_the_credentials_thread(
    run_child: RunChild, server: FaultServer, package: str
) -> None:
    """The child, too, can import what the parent was importing."""
    run_child(
        """
        import os, threading
        begun, wanted, at_fork = (threading.Event() for _ in range(3))
        os.register_at_fork(before=at_fork.set)  # runs behind those that come later
        from in_child import *

        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == sys.argv[2]:
                    begun.set()
                    wanted.wait()
                    at_fork.wait(1)  # a fork that does not wait comes now

        class Account:
            valid, token, expiry = True, "token", None
            def refresh(self, request): pass

        sys.meta_path.insert(0, Finder())
        store = open_store(credentials=Account())
        reader = threading.Thread(target=lambda: use(store))
        reader.start()
        begun.wait()
        wanted.set()
        pid = fork(lambda: use(store))
        reap(pid)
        reader.join()
        use(store)
        """,
        server.url,
        package,
    )


def test_the_server_sees_the_parents_end_while_a_child_lives(
    tmp_path: Path, server: FaultServer
) -> None:
    """The child holds none of the parent's sockets."""
    script = (
        STATES["idle connections"]
        + """
        connections = headrace.metrics().connections_open
        pid = fork(lambda: sys.stdin.read())
        print(pid, connections, flush=True)
        os.close(1)
        os._exit(0)  # nothing is closed but by the kernel
    """
    )
    parent = subprocess.Popen(
        child_command(tmp_path, script, server.url),
        env=child_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    with parent.stdin, parent.stdout:
        pid, connections = map(int, parent.stdout.readline().split())
        assert connections >= 16
        assert parent.wait(timeout=80) == 0
        wait_until_closed(server)
        os.kill(pid, 0)  # the child is there
        stats = server.stats()
        assert stats["connections_client_fin"] + stats["connections_client_rst"] >= connections


def test_the_child_says_nothing_on_the_parents_connections(
    run_child: RunChild, server: FaultServer
) -> None:
    """Neither a request nor a TLS alert nor a FIN: the parent goes on with the same ones."""
    run_child(
        STATES["idle connections"]
        + """
        opened = headrace.metrics().connections_opened_total
        for _ in range(5):
            pid = os.fork()
            if pid == 0:
                sys.exit(0)
            reap(pid)
            use(store)
        assert headrace.metrics().connections_opened_total == opened
        """,
        server.url,
    )


def test_samples_are_freed_in_the_child_while_the_parent_allocates(
    run_child: RunChild, server: FaultServer
) -> None:
    """At the fork another thread may hold any lock of the allocator of blocks."""
    run_child(
        """
        from in_child import *
        import threading
        store = open_store()
        ended = threading.Event()
        def allocate():
            while not ended.is_set():
                use(store, NAMES[:10])
        threads = [threading.Thread(target=allocate) for _ in range(4)]
        for thread in threads:
            thread.start()
        rounds = int(100 * float(os.environ.get("HEADRACE_PROCESS_CYCLES", "1000")) / 1000)
        for round in range(max(rounds, 10)):
            samples = store.read_many(NAMES[:5]) + [headrace.Sample(bytes(100_000))]
            def child():
                global samples
                samples = None
                if round % 10 == 0:
                    use(store, NAMES[:5])
            pid = fork(child)
            samples = None
            reap(pid)
        ended.set()
        for thread in threads:
            thread.join()
        use(store)
        """,
        server.url,
        timeout_s=200,
    )


def test_configured_options_reach_the_child(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        """
        from in_child import *
        headrace.configure(io_threads=1, memory_budget_bytes=123 << 20)
        store = open_store()
        use(store)
        def child():
            assert headrace.metrics() == headrace.Metrics()
            use(store)
            assert headrace.metrics().memory_budget_bytes == 123 << 20
            assert headrace_threads().count("headrace-io") <= 1, headrace_threads()
        reap(fork(child))
        """,
        server.url,
    )
