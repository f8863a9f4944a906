"""A thousand processes made and ended: nothing hangs, nothing is left over.

HEADRACE_PROCESS_CYCLES says how many; the default is what every change must pass.
"""

from __future__ import annotations

import os

import pytest

from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild, wait_until_closed

CYCLES = int(os.environ.get("HEADRACE_PROCESS_CYCLES", "1000"))
SPAWNS = max(1, CYCLES // 25)


@pytest.mark.timeout(240 + CYCLES // 5)
def test_forks_leave_nothing_behind(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        """
        from in_child import *
        store = open_store()
        use(store)
        def count():
            return thread_names(), open_sockets(), len(os.listdir("/proc/self/fd"))
        before = count()
        for cycle in range(int(sys.argv[2])):
            def child():
                if cycle % 4 != 3:  # every fourth does nothing
                    use(store, NAMES[cycle % 90 : cycle % 90 + 2])
            reap(fork(child))
            if cycle % 50 == 0:
                use(store)
        use(store, NAMES[:1])
        assert count()[0] == before[0], (before, count())
        assert count()[1] <= before[1], (before, count())  # idle connections may have been closed
        assert count()[2] <= before[2], (before, count())
        """,
        server.url,
        CYCLES - SPAWNS,
        timeout_s=200 + CYCLES // 5,
    )
    wait_until_closed(server)


@pytest.mark.timeout(240 + CYCLES // 5)
def test_spawns_leave_nothing_behind(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        """
        from in_child import *
        import multiprocessing
        def work(store):
            use(store, NAMES[:2])
        if __name__ == "__main__":
            store = open_store()
            use(store)
            before = thread_names(), open_sockets()
            context = multiprocessing.get_context("spawn")
            for first in range(0, int(sys.argv[2]), 2):
                processes = [context.Process(target=work, args=(store,)) for _ in range(2)]
                for process in processes:
                    process.start()
                for process in processes:
                    process.join(120)
                    assert process.exitcode == 0, process.exitcode
            use(store, NAMES[:1])
            assert thread_names() == before[0]
            assert open_sockets() <= before[1]  # idle connections may have been closed
        """,
        server.url,
        SPAWNS,
        timeout_s=200 + CYCLES // 5,
    )
    wait_until_closed(server)
