"""Reads into the caller's memory that end early: afterwards nobody writes there any more."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.faults.conftest import OpenStore

SIZE = 4_000_000
DATA = bytes(i * 37 % 251 for i in range(1000)) * (SIZE // 1000)


def as_bytearray() -> tuple[Any, Any]:
    buffer = bytearray(SIZE)
    return buffer, buffer


def as_numpy() -> tuple[Any, Any]:
    numpy = pytest.importorskip("numpy")
    array = numpy.zeros(SIZE, dtype=numpy.uint8)
    return array, array.data


def as_tensor() -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(SIZE, dtype=torch.uint8)
    return tensor, tensor.numpy().data


def as_slice_of_a_slab() -> tuple[Any, Any]:
    """As of pinned memory, which is taken once and handed out in pieces."""
    torch = pytest.importorskip("torch")
    slab = torch.zeros(2 * SIZE, dtype=torch.uint8)
    tensor = slab[SIZE // 2 : SIZE // 2 + SIZE]
    return tensor, tensor.numpy().data


def as_floats() -> tuple[Any, Any]:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(SIZE // 4000, 1000, dtype=torch.float32)
    return tensor, tensor.view(torch.uint8).reshape(-1).numpy().data


MAKERS = [as_bytearray, as_numpy, as_tensor, as_slice_of_a_slab, as_floats]


class AlarmError(Exception):
    pass


@contextmanager
def alarm_when(condition: Callable[[], bool]) -> Iterator[None]:
    """SIGALRM for the main thread as soon as the condition holds, raised there as AlarmError."""

    def ring(*_: object) -> None:
        raise AlarmError

    def watch() -> None:
        while not condition() and not done.is_set():
            time.sleep(0.002)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    done = threading.Event()
    before = signal.signal(signal.SIGALRM, ring)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def patient(server: FaultServer, open_store: OpenStore) -> headrace.Store:
    server.put("bucket", "o", DATA)
    return open_store(
        parallel=headrace.ParallelOptions(range_threshold_bytes=1_000_000, range_bytes=700_000)
    )


@pytest.mark.parametrize("make", MAKERS)
def test_a_destination_is_filled(patient: headrace.Store, make: Any) -> None:
    into, view = make()
    patient.read("o", into=into)
    assert view == DATA
    into, view = make()
    [sample] = patient.read_many([patient.stat("o")], into=[into])
    assert view == DATA
    assert sample.bytes() == DATA


@pytest.mark.parametrize("make", MAKERS)
def test_an_interrupted_read_writes_no_more(
    server: FaultServer, patient: headrace.Store, make: Any
) -> None:
    server.faults([{"match": {"kind": "media"}, "action": {"stall_after_bytes": 300_000}}])
    into, view = make()
    # The last byte that is sent has arrived; it is no zero.
    with alarm_when(lambda: view[299_999] != 0), pytest.raises(AlarmError):
        patient.read("o", into=into)
    view[:] = b"\xff" * SIZE
    server.reset(keep_buckets=True)  # what was stalled would go on, if it still could
    assert patient.read("o").bytes() == DATA
    assert view == b"\xff" * SIZE


def test_a_read_that_times_out_writes_no_more(server: FaultServer, open_store: OpenStore) -> None:
    server.put("bucket", "o", DATA)
    server.faults([{"match": {"kind": "media"}, "action": {"drip": {"bytes": 10, "every_ms": 5}}}])
    buffer = bytearray(SIZE)
    parallel = headrace.ParallelOptions(range_threshold_bytes=1_000_000)
    impatient = open_store(timeout=headrace.TimeoutOptions(total_s=0.2), parallel=parallel)
    with pytest.raises(headrace.TimedOutError) as caught:
        impatient.read("o", into=buffer)
    assert caught.value.url == "gs://bucket/o"
    buffer[:] = b"\xff" * SIZE
    server.faults([])
    assert open_store(parallel=parallel).read("o").bytes() == DATA
    assert buffer == b"\xff" * SIZE
    del caught  # its traceback holds the frames of the call
    buffer.clear()  # nobody else holds it


@pytest.mark.parametrize(
    ("action", "kind"),
    [
        ({"flip_byte": 17}, headrace.CorruptDataError),
        ({"status": 404}, headrace.NotFoundError),
        ({"cut_after_bytes": 0}, headrace.UnavailableError),
        ({"wrong_length": 1}, headrace.UnavailableError),
    ],
)
def test_a_read_that_fails_lets_its_buffer_go(
    server: FaultServer, store: headrace.Store, action: Any, kind: type[Exception]
) -> None:
    server.put("bucket", "o", DATA)
    match = {"kind": "media"}
    server.faults(
        [
            {"match": match, "count": 1, "action": {"stall_head": True}},
            {"match": match, "action": action},
        ]
    )
    buffer = bytearray(SIZE)
    raised: list[type[BaseException]] = []

    def read() -> None:
        try:
            store.read("o", into=buffer)
        except BaseException as error:
            raised.append(type(error))

    thread = threading.Thread(target=read)
    thread.start()
    while not server.stats()["by_kind"].get("media"):
        pass
    # Until the answer comes the engine has it, and so it cannot be resized.
    with pytest.raises(BufferError):
        buffer.clear()
    server.release()
    thread.join()
    assert raised == [kind]
    buffer.clear()
    assert buffer == b""


def test_one_of_many_that_fails_leaves_the_others_right(
    server: FaultServer, store: headrace.Store
) -> None:
    for i in range(10):
        server.put("bucket", f"{i}", b"%d" % i * 5000)
    server.faults([{"match": {"path_contains": "/o/4"}, "action": {"status": 403}}])
    buffers = [bytearray(5000) for _ in range(10)]
    results = store.read_many([f"{i}" for i in range(10)], into=buffers, on_error="return")
    for i, (buffer, result) in enumerate(zip(buffers, results, strict=True)):
        if i == 4:
            assert isinstance(result, headrace.PermissionDeniedError)
        else:
            assert buffer == b"%d" % i * 5000
