"""Threads that share a store, and an engine that has nothing to do."""

from __future__ import annotations

import pytest

from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild


def test_eight_threads_read_at_once(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        """
        from in_child import *
        import random, threading
        store = open_store()
        barrier = threading.Barrier(8)
        failures = []
        def work(seed):
            random_ = random.Random(seed)
            barrier.wait()
            try:
                for _ in range(30):
                    names = random_.sample(NAMES, 10)
                    use(store, names)
                    assert store.read(names[0]).bytes() == names[0].encode() * 1000
                    first, second = store.read_batches([names[:5], names[5:]])
                    assert [s.bytes()[:3].decode() for s in first + second] == names
                    assert store.stat(names[1]).size_bytes == 3000
                    assert [info.name for info in store.list(names[2])] == [names[2]]
                    own = f"own/{seed}"
                    store.write(own, names[3].encode())
                    assert store.read(own).bytes() == names[3].encode()
            except BaseException as error:
                failures.append(error)
                raise
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        # Once per process, not per thread:
        assert headrace_threads().count("headrace-io") <= min(4, os.cpu_count())
        """,
        server.url,
    )


def test_one_read_batches_passed_between_threads(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        """
        from in_child import *
        import threading
        store = open_store()
        reading = store.read_batches([[name] for name in NAMES])
        lock, seen = threading.Lock(), []
        def work():
            while True:
                with lock:
                    batch = next(reading, None)
                    if batch is None:
                        return
                    seen.append(batch[0].bytes()[:3].decode())
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == NAMES
        """,
        server.url,
    )


def test_the_first_use_by_many_threads_makes_one_engine(
    run_child: RunChild, server: FaultServer
) -> None:
    run_child(
        """
        from in_child import *
        import threading
        headrace.configure(io_threads=2)
        for _ in range(10):
            store = open_store()
            barrier = threading.Barrier(8)
            def work():
                barrier.wait()
                use(store, NAMES[:3])
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            # A thread has its name, and leaves the list, a moment after it is started or joined.
            def io_threads():
                return [name for name in headrace_threads() if "io" in name]
            wait_for(lambda: io_threads() == ["headrace-io-0", "headrace-io-1"])
            use(store, NAMES[:3])
            assert len(io_threads()) == 2, headrace_threads()
            headrace.shutdown()
        """,
        server.url,
    )


@pytest.mark.serial
def test_an_idle_engine_uses_no_cpu(run_child: RunChild, server: FaultServer) -> None:
    """With threads, open connections and samples in hand, nothing wakes up."""
    run_child(
        """
        from in_child import *
        import contextlib, re, resource
        store = open_store()
        samples = store.read_many(NAMES)
        assert headrace.metrics().connections_open > 0
        def switches():
            found = {}
            for task in Path("/proc/self/task").iterdir():
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                    if (task / "comm").read_text().startswith("headrace"):
                        status = (task / "status").read_text()
                        found[task.name] = re.findall(r"ctxt_switches:\\s+(\\d+)", status)
            return found
        # What is done after the last answer may take a moment, and a busy machine may put off a
        # thread that is about to rest; what wakes up every few seconds does so in every window.
        for _ in range(6):
            before, cpu = switches(), time.process_time()
            select.select([], [], [], 4.0)
            cpu = time.process_time() - cpu
            if before and switches() == before and cpu < 0.01:
                break
        else:
            raise AssertionError((before, switches(), cpu))
        """,
        server.url,
    )
