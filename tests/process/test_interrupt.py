"""Ctrl-C during a wait: an answer within 0.2 s, and a process that goes on."""

from __future__ import annotations

import pytest

from testing.faultserver.client import FaultServer
from tests.process.conftest import RunChild

CALLS = {
    "read": "store.read('stalls')",
    "read into": "store.read('stalls', into=bytearray(4))",
    "read_many": "store.read_many(NAMES + ['stalls'])",
    "read_batches": "list(store.read_batches([NAMES, ['stalls'], NAMES]))",
    "list": "list(store.list('stalls'))",
    "stat": "store.stat('stalls')",
    "write": "store.write('stalls', bytes(100_000))",
    "copy": "store.copy('000', 'stalls')",
    "delete": "store.delete('stalls')",
}

SCRIPT = """
    from in_child import *
    import threading
    control("faults", {"rules": [{"match": {"target_contains": "stalls"}, "action": "stall_head"}]})
    store = open_store()
    use(store)
    times = []
    for attempt in range(20):
        sent = []
        def interrupt():
            wait_for_stall()
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)
        thread = threading.Thread(target=interrupt)
        thread.start()
        try:
            CALL
        except KeyboardInterrupt:
            times.append(time.monotonic() - sent[0])
        else:
            raise AssertionError("there was an answer")
        thread.join()
        wait_for(lambda: control("stats")["in_flight"] == 0)  # it was given up there, too
        use(store)  # and nothing was written
        if in_time(times):
            break
    else:
        raise AssertionError(times)
    # The end.
    wait_for(lambda: headrace.metrics().in_flight == 0)  # counted after the caller is told
    assert headrace.metrics().memory_in_flight_bytes == 0
"""


@pytest.mark.serial
@pytest.mark.parametrize("call", CALLS)
def test_ctrl_c_ends_a_wait(run_child: RunChild, server: FaultServer, call: str) -> None:
    # A write is a request to the bucket: its name is in the body.
    script = SCRIPT.replace("CALL", CALLS[call])
    if call == "write":
        script = script.replace('{"target_contains": "stalls"}', '{"kind": "upload"}')
    run_child(script, server.url)


@pytest.mark.serial
def test_ctrl_c_while_a_body_arrives(run_child: RunChild, server: FaultServer) -> None:
    """The destination is let go, and nobody writes there any more."""
    script = SCRIPT
    for old, new in {
        '"stall_head"': '{"stall_after_bytes": 1000}',
        "CALL": "store.read('stalls-in-body', into=buffer)",
        "times = []": 'control("faults", {"rules": []})\n'
        '    store.write("stalls-in-body", b"x" * 50_000)\n'
        '    control("faults", {"rules": [{"match": {"path_contains": "stalls"},'
        ' "action": {"stall_after_bytes": 1000}}]})\n'
        "    buffer = bytearray(50_000)\n"
        "    times = []",
        "thread.join()": "buffer[:] = bytes(50_000); thread.join()",
        "use(store)  # and nothing was written": "assert not any(buffer)",
        "# The end.": "buffer.clear()",
    }.items():
        assert script.count(old) == 1, old
        script = script.replace(old, new)
    run_child(script, server.url)


@pytest.mark.serial
def test_ctrl_c_while_credentials_hang(run_child: RunChild, server: FaultServer) -> None:
    run_child(
        """
        from in_child import *
        import socket, threading
        metadata = socket.create_server(("127.0.0.1", 0))  # accepts, and says nothing
        os.environ["GCE_METADATA_HOST"] = "127.0.0.1:%d" % metadata.getsockname()[1]
        os.environ["GCE_METADATA_IP"] = os.environ["GCE_METADATA_HOST"]
        os.environ["CLOUDSDK_CONFIG"] = "/nonexistent"
        os.environ.pop("GOOGLE_APPLICATION_CREDENTIALS", None)
        store = open_store(credentials="google")
        times = []
        for attempt in range(20):
            sent = []
            wait_for(lambda: headrace.metrics().in_flight == 0)
            def interrupt():
                wait_for(lambda: headrace.metrics().in_flight == 1)
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)
            thread = threading.Thread(target=interrupt)
            thread.start()
            try:
                store.read("001")
            except KeyboardInterrupt:
                times.append(time.monotonic() - sent[0])
            else:
                raise AssertionError
            thread.join()
            use(open_store())
            if in_time(times):
                break
        else:
            raise AssertionError(times)
        """,
        server.url,
        stderr=None,
    )


def test_an_exception_of_a_signal_handler_ends_a_wait(
    run_child: RunChild, server: FaultServer
) -> None:
    run_child(
        """
        from in_child import *
        import threading
        class Alarm(Exception): pass
        def ring(*_):
            raise Alarm
        signal.signal(signal.SIGALRM, ring)
        store = open_store()
        def alarm():
            wait_for_stall()
            os.kill(os.getpid(), signal.SIGALRM)
        thread = threading.Thread(target=alarm)
        thread.start()
        try:
            store.read("stalls")
        except Alarm:
            pass
        else:
            raise AssertionError
        thread.join()
        use(store)
        """,
        server.url,
    )


def test_a_signal_that_raises_nothing_ends_nothing(
    run_child: RunChild, server: FaultServer
) -> None:
    run_child(
        """
        from in_child import *
        import threading
        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        store = open_store()
        def disturb():
            wait_for_stall()
            for count in range(1, 6):
                os.kill(os.getpid(), signal.SIGUSR1)
                wait_for(lambda: len(seen) == count)
            control("release", {})
        thread = threading.Thread(target=disturb)
        thread.start()
        assert store.read("stalls").bytes() == b"late"
        thread.join()
        assert len(seen) == 5
        """,
        server.url,
    )


def test_a_ctrl_c_that_is_not_caught_ends_the_process(
    run_child: RunChild, server: FaultServer
) -> None:
    run_child(
        """
        from in_child import *
        import threading
        store = open_store()
        use(store)
        def interrupt():
            wait_for_stall()
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        store.read_many(NAMES + ["stalls"])
        """,
        server.url,
        expect_code=-2,
        stderr=None,
    )
