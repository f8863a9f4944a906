"""Processes that end in the midst of it: what they leave, and who removes it."""

from __future__ import annotations

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.joining.conftest import TEMPORARY, OpenStore
from tests.process.conftest import RunChild

NAMES = [f"{i:03d}" for i in range(100)]


@pytest.fixture
def server(server: FaultServer) -> FaultServer:
    """A server with the objects 000 to 099, as in_child expects them."""
    for name in NAMES:
        server.put("bucket", name, name.encode() * 1000)
    return server


START = """
    from in_child import *
    import threading, warnings
    from headrace import ComposeOptions

    TEMPORARY = "dataflux-composed-objects/"

    def temporaries():
        return control("names?bucket=bucket&prefix=" + TEMPORARY)

    def slow(kind, action, **more):
        match = {"kind": kind}
        if kind == "media":
            match["path_contains"] = TEMPORARY
        control("faults", {"rules": [{"match": match, "action": action, **more}]})

    def counted(kind):
        return control("stats")["by_kind"].get(kind, 0)

    store = open_store(provider=headrace.GcsOptions(compose_small_objects=ComposeOptions()))
    expected = [name.encode() * 1000 for name in NAMES]
    infos = [*store.list("0")]
    assert [info.name for info in infos] == NAMES
"""


def script(text: str) -> str:
    return START + text


@pytest.mark.parametrize("kind", ["compose", "media", "delete"])
def test_ctrl_c_in_a_wait_leaves_nothing(
    run_child: RunChild, server: FaultServer, kind: str
) -> None:
    out = run_child(
        script(
            f"""
    slow("{kind}", {{"delay_ms": 300}})
    def interrupt():
        wait_for(lambda: counted("{kind}") > 0)
        os.kill(os.getpid(), signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        while True:
            store.read_many(infos)
    except KeyboardInterrupt:
        pass
    thread.join()
    control("faults", {{"rules": []}})
    assert [each.bytes() for each in store.read_many(infos)] == expected
    headrace.shutdown()
    print(temporaries())
    """
        ),
        server.url,
    )
    assert out == "[]\n"


@pytest.mark.parametrize("kind", ["compose", "media", "delete"])
def test_a_ctrl_c_that_is_not_caught_leaves_nothing(
    run_child: RunChild, server: FaultServer, kind: str
) -> None:
    run_child(
        script(
            f"""
    slow("{kind}", {{"delay_ms": 100}})
    def interrupt():
        wait_for(lambda: counted("{kind}") > 0)
        os.kill(os.getpid(), signal.SIGINT)
    threading.Thread(target=interrupt).start()
    while True:
        store.read_many(infos)
    """
        ),
        server.url,
        expect_code=-2,
        stderr=None,
    )
    assert server.names("bucket", TEMPORARY) == []


@pytest.mark.parametrize("kind", ["compose", "media", "delete"])
def test_the_end_of_the_interpreter_leaves_nothing(
    run_child: RunChild, server: FaultServer, kind: str
) -> None:
    run_child(
        script(
            f"""
    slow("{kind}", {{"delay_ms": 100}})
    batches = iter(store.read_batches([infos[:40], infos[40:]] * 10))
    next(batches)
    """
        ),
        server.url,
    )
    assert server.names("bucket", TEMPORARY) == []
    assert server.stats()["by_kind"]["compose"] > 0


def test_an_exit_is_not_held_up_for_long_by_a_server_that_says_nothing(
    run_child: RunChild, server: FaultServer
) -> None:
    run_child(
        script(
            """
    slow("delete", "stall_head")
    assert [each.bytes() for each in store.read_many(infos)] == expected
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        headrace.shutdown()  # the server says nothing for as long as this process may run
    assert len(told) == 1 and "headrace clean gs://bucket" in str(told[0].message), told
    assert len(temporaries()) == 4
    """
        ),
        server.url,
    )


@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_what_a_killed_process_left_is_removed_by_the_next_one_and_by_clean(
    run_child: RunChild, server: FaultServer, number: str
) -> None:
    end = f"""
    slow("delete", "stall_head")
    assert [each.bytes() for each in store.read_many(infos)] == expected
    wait_for(lambda: len(temporaries()) == 4)
    os.kill(os.getpid(), signal.{number})
    time.sleep(60)
    """
    for _ in range(2):
        run_child(script(end), server.url, expect_code=-15 if number == "SIGTERM" else -9)
        assert len(server.names("bucket", TEMPORARY)) == 4
        server.faults([])
        if _ == 0:
            run_child(
                script(
                    """
    join = ComposeOptions(sweep_age_s=0.0)
    store = open_store(provider=headrace.GcsOptions(compose_small_objects=join))
    assert [each.bytes() for each in store.read_many(infos)] == expected
    wait_for(lambda: temporaries() == [])
    """
                ),
                server.url,
            )
        else:
            store = headrace.Store("gs://bucket", endpoint=server.url)
            young = headrace.clean(store)
            assert (len(young.deleted), len(young.younger)) == (0, 4)
            cleaned = headrace.clean(store, older_than_s=0)
            assert len(cleaned.deleted) == 4
        assert server.names("bucket", TEMPORARY) == []
    assert server.names("bucket") == NAMES


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_that_come_to_their_end_leave_nothing(
    run_child: RunChild, server: FaultServer, method: str
) -> None:
    """Python runs no exit handlers in such a child."""
    run_child(
        """
        from in_child import *
        import multiprocessing
        from headrace import ComposeOptions

        def work(store):
            infos = [*store.list("0")]
            samples = store.read_many(infos)
            assert [each.bytes() for each in samples] == [name.encode() * 1000 for name in NAMES]

        if __name__ == "__main__":
            rule = {"match": {"kind": "delete"}, "action": {"delay_ms": 200}}
            control("faults", {"rules": [rule]})
            store = open_store(provider=headrace.GcsOptions(compose_small_objects=ComposeOptions()))
            context = multiprocessing.get_context("METHOD")
            children = [context.Process(target=work, args=(store,)) for _ in range(2)]
            for child in children:
                child.start()
            for child in children:
                child.join()
                assert child.exitcode == 0
        """.replace("METHOD", method),
        server.url,
    )
    assert server.stats()["by_kind"]["compose"] == 8
    assert server.names("bucket", TEMPORARY) == []


def test_a_fork_in_the_midst_of_it_leaves_the_parents_objects_to_the_parent(
    run_child: RunChild, server: FaultServer
) -> None:
    out = run_child(
        script(
            """
    slow("delete", {"delay_ms": 200})
    batches = iter(store.read_batches([infos[:40], infos[40:]] * 3))
    next(batches)
    def child():
        own = store.read_many(infos)
        assert [each.bytes() for each in own] == expected
        headrace.shutdown()
    reap(fork(child))
    for samples in batches:
        pass
    headrace.shutdown()
    print(temporaries(), counted("compose") == counted("delete"))
    """
        ),
        server.url,
    )
    assert out == "[] True\n"


def test_a_store_crosses_to_another_process_with_its_options(open_store: OpenStore) -> None:
    import pickle

    store = open_store(join=headrace.ComposeOptions(max_objects=7))
    again = pickle.loads(pickle.dumps(store))
    assert again._settings.gcs.compose_small_objects == headrace.ComposeOptions(max_objects=7)
