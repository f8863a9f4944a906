"""Every way of misbehaving, through every call: the right bytes or the right error, and an end.

On gs:// all of it, and on s3:// one call of each fault; `make soak` has the others.

A fault that comes once is cured by another attempt, or told at once if nothing can cure it. One
that stays is told with the object's URL, the status and the attempts. No call ever gives fewer or
other bytes than are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.conformance.subject import but_for_time
from tests.faults.conftest import FAST, OFTEN, OpenStore
from tests.waiting import wait_until

# For what a time-out ends.
SHORT = headrace.TimeoutOptions(first_byte_s=0.15, stall_s=0.15)
PATIENT = headrace.TimeoutOptions()
# Throttled requests go on until their deadline.
SOON = headrace.TimeoutOptions(total_s=1.5)

DATA = bytes(i * 37 % 251 for i in range(100_000))
OTHERS = {f"other-{i}": b"%d" % i * 1000 for i in range(5)}


@dataclass(frozen=True)
class Fault:
    action: dict[str, Any] | str
    lasting: type[headrace.HeadraceError] | None
    """What is raised if it stays; None: the call succeeds all the same."""
    http_status: int | None = None
    cured: bool = True
    """Whether another attempt may help, if it comes once."""
    attempts: int = 1
    """If it stays and more attempts than this do not help."""
    performs: bool = False
    """The server does what it is asked, so that a write finds out that it has succeeded."""
    body_only: bool = False
    """It needs a body of some size: reads only."""

    @property
    def stalls(self) -> bool:
        return "stall" in str(self.action)


UNAVAILABLE = headrace.UnavailableError
CORRUPT = headrace.CorruptDataError
TIMED_OUT = headrace.TimedOutError
DENIED = headrace.PermissionDeniedError
INVALID = headrace.InvalidArgumentError
THROTTLED = headrace.ThrottledError

FAULTS = {
    "reset": Fault("reset", UNAVAILABLE),
    "reset at the first byte": Fault({"reset_after_bytes": 0}, UNAVAILABLE, body_only=True),
    "cut at the first byte": Fault({"cut_after_bytes": 0}, UNAVAILABLE, body_only=True),
    "stalled head": Fault("stall_head", TIMED_OUT),
    "garbage head": Fault("garbage_head", UNAVAILABLE),
    "huge head": Fault({"huge_head": 1 << 20}, UNAVAILABLE, performs=True),
    "delay": Fault({"delay_ms": 30}, None),
    "drip": Fault({"drip": {"bytes": 30_000, "every_ms": 5}}, None),
    "chunked": Fault({"chunked": True}, None),
    "close after": Fault({"close_after": True}, None),
    "announced close": Fault({"close_after": "announced"}, None),
    "no hash": Fault("no_hash", None),
    "429": Fault({"status": 429}, THROTTLED, 429),
    "503": Fault({"status": 503}, UNAVAILABLE, 503),
    "503 slow down": Fault({"status": 503, "reason": "SlowDown"}, THROTTLED, 503),
    "500": Fault({"status": 500}, UNAVAILABLE, 500),
    "502 with a page of text": Fault({"status": 502, "body": "<html>Bad</html>"}, UNAVAILABLE, 502),
    "504": Fault({"status": 504}, UNAVAILABLE, 504),
    "408": Fault({"status": 408}, TIMED_OUT, 408),
    "400": Fault({"status": 400, "message": "no such wish"}, INVALID, 400, cured=False),
    "401": Fault({"status": 401}, DENIED, 401, cured=False),
    "403": Fault({"status": 403}, DENIED, 403, cured=False),
    "404": Fault({"status": 404}, headrace.NotFoundError, 404, cured=False),
}

# Of bodies; these have answers of their own.
BODY_FAULTS = {
    "reset in the body": Fault({"reset_after_bytes": 40_000}, None, body_only=True),
    "cut in the body": Fault({"cut_after_bytes": 40_000}, None, body_only=True),
    "stall in the body": Fault({"stall_after_bytes": 40_000}, None, body_only=True),
    "wrong checksum": Fault({"wrong_checksum": True}, CORRUPT, body_only=True),
    "flipped first byte": Fault({"flip_byte": 0}, CORRUPT, body_only=True),
    "flipped last byte": Fault({"flip_byte": 99_999}, CORRUPT, body_only=True),
}

# The length contradicts the answer's own range: a malformed answer, of which no byte is taken. On
# S3 whole objects are asked for without a range.
LENGTH_FAULTS = {
    "too long a length": Fault({"wrong_length": 5}, UNAVAILABLE, body_only=True),
    "too short a length": Fault({"wrong_length": -5}, UNAVAILABLE, body_only=True),
}

FAULTS_OF = {"gs": FAULTS | BODY_FAULTS | LENGTH_FAULTS, "s3": FAULTS | BODY_FAULTS}


def on(scheme: str, name: str, call: str) -> Fault:
    """What a fault comes to on a store."""
    fault = FAULTS_OF[scheme][name]
    # Responses to HEAD, which `stat` is on S3, have no body: no code of an error, and no length
    # where bodies come in chunks.
    is_head = scheme == "s3" and call == "stat"
    if scheme == "s3" and (name == "401" or (name == "400" and is_head)):
        # Keys may have expired, so that others are asked for.
        return replace(fault, cured=True, attempts=2)
    if is_head and name == "chunked":
        return replace(fault, lasting=CORRUPT, cured=False)
    if is_head and name == "503 slow down":
        return replace(fault, lasting=UNAVAILABLE)
    return fault


def read(store: headrace.Store) -> None:
    sample = store.read("target")
    assert sample.bytes() == DATA


def read_many(store: headrace.Store) -> None:
    names = [*OTHERS, "target"]
    samples = store.read_many(names)
    assert [sample.bytes() for sample in samples] == [*OTHERS.values(), DATA]


def read_batches(store: headrace.Store) -> None:
    batches = list(store.read_batches([[*OTHERS], ["target"]]))
    assert [sample.bytes() for batch in batches for sample in batch] == [*OTHERS.values(), DATA]


def read_into(store: headrace.Store) -> None:
    buffer = bytearray(len(DATA))
    store.read("target", into=buffer)
    assert buffer == DATA


def stat(store: headrace.Store) -> None:
    assert store.stat("target").size_bytes == len(DATA)


def list_names(store: headrace.Store) -> None:
    assert [info.name for info in store.list()] == sorted(["target", *OTHERS])


def write(store: headrace.Store) -> None:
    assert store.write("new", DATA).size_bytes == len(DATA)


# What is called, the kind of request that it makes, and the name that its errors tell.
CALLS: dict[str, tuple[Callable[[headrace.Store], None], str, str]] = {
    "read": (read, "media", "target"),
    "read_into": (read_into, "media", "target"),
    "read_many": (read_many, "media", "target"),
    "read_batches": (read_batches, "media", "target"),
    "stat": (stat, "get", "target"),
    "list": (list_names, "list", ""),
    "write": (write, "upload", "new"),
}
READS = [name for name, (_, kind, _) in CALLS.items() if kind == "media"]


def cases() -> Iterator[Any]:
    for scheme, faults in FAULTS_OF.items():
        for number, (name, fault) in enumerate(faults.items()):
            calls = READS if fault.body_only else list(CALLS)
            for call in calls:
                in_ci = scheme == "gs" or call == calls[number % len(calls)]
                yield pytest.param(
                    scheme,
                    on(scheme, name, call),
                    call,
                    id=f"{scheme}-{name}-{call}",
                    marks=() if in_ci else pytest.mark.soak,
                )


CASES = [*cases()]


@pytest.fixture(params=["gs", "s3"])
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def objects(server: FaultServer) -> None:
    server.put("bucket", "target", DATA)
    for name, data in OTHERS.items():
        server.put("bucket", name, data)


def rule(call: str, fault: Fault, **more: Any) -> list[dict[str, Any]]:
    kind = CALLS[call][1]
    match: dict[str, Any] = {"kind": kind}
    if kind == "media":
        match["path_contains"] = "/target"
    return [{"match": match, "action": fault.action, **more}]


def told_url(store: headrace.Store, call: str, fault: Fault) -> str:
    """What an error is about: a listing that is not found has no bucket."""
    url = store.url_of(CALLS[call][2])
    return url.rstrip("/") if fault.http_status == 404 else url


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize(("scheme", "fault", "call"), CASES)
def test_a_fault_that_comes_once(
    server: FaultServer, open_store: OpenStore, fault: Fault, call: str
) -> None:
    run = CALLS[call][0]
    store = open_store(timeout=SHORT, retry=OFTEN) if fault.stalls else open_store()
    url = told_url(store, call, fault)
    server.faults(rule(call, fault, count=1))
    if fault.lasting is None or fault.cured:
        run(store)
        assert server.fault_counts()[0]["fired"] == 1
        assert call != "write" or server.get("bucket", "new") == DATA
    else:
        with pytest.raises(fault.lasting) as caught:
            run(store)
        assert caught.value.url == url
        assert caught.value.http_status == fault.http_status
        assert caught.value.attempts == 1
        assert server.fault_counts()[0]["matched"] == 1


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize(("scheme", "fault", "call"), CASES)
def test_a_fault_that_stays(
    server: FaultServer, open_store: OpenStore, fault: Fault, call: str
) -> None:
    run = CALLS[call][0]
    timeout = SHORT if fault.stalls else SOON if fault.lasting is THROTTLED else PATIENT
    # Where each attempt brings some more of the body, one that is only slow must not be the last.
    ends_well = fault.stalls and fault.lasting is None
    store = open_store(timeout=timeout, retry=OFTEN if ends_well else FAST)
    url = told_url(store, call, fault)
    server.faults(rule(call, fault))
    if fault.lasting is None or (fault.performs and call == "write"):
        run(store)
        return
    with pytest.raises(fault.lasting) as caught:
        run(store)
    error = caught.value
    assert error.url == url
    assert url in str(error)
    assert error.http_status == fault.http_status
    assert error.attempts >= 1
    if fault.stalls and call != "write":
        # A busy server comes to a request after the client has given it up.
        wait_until(lambda: server.fault_counts()[0]["matched"] >= error.attempts)
    matched = server.fault_counts()[0]["matched"]
    if fault.lasting is THROTTLED:
        assert error.attempts > FAST.max_attempts  # that one goes on until the deadline
    elif not fault.cured or fault.attempts > 1:
        assert error.attempts == matched == fault.attempts
    elif fault.lasting is CORRUPT:
        assert 2 <= matched <= 4  # read once more, then told
    elif call != "write":  # which also asks what has become of the one before
        assert error.attempts == FAST.max_attempts
        assert matched >= error.attempts  # a connection that died while idle is no attempt
    assert call != "write" or "new" not in server.names("bucket")
    assert f"{error.attempts} attempt" in str(error)
    # All is well as soon as the server is.
    server.faults([])
    run(open_store())


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("call", READS)
@pytest.mark.parametrize("wrong_length", [5, -5])
@pytest.mark.parametrize("count", [1, None])
def test_a_wrong_length_never_gives_other_bytes(
    server: FaultServer, store: headrace.Store, call: str, wrong_length: int, count: int | None
) -> None:
    server.faults(rule(call, Fault({"wrong_length": wrong_length}, None), count=count))
    told: str | None = store.url_of("target")
    try:
        CALLS[call][0](store)
    except headrace.HeadraceError as error:
        told = error.url
    assert told == store.url_of("target")
    assert server.fault_counts()[0]["fired"] >= 1


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("name", list(BODY_FAULTS))
def test_an_error_of_one_object_is_no_error_of_its_neighbours(
    server: FaultServer, open_store: OpenStore, name: str
) -> None:
    server.faults(rule("read_many", BODY_FAULTS[name]))
    ends_well = BODY_FAULTS[name].stalls and BODY_FAULTS[name].lasting is None
    store = open_store(timeout=SHORT, retry=OFTEN) if ends_well else open_store()
    *others, last = store.read_many([*OTHERS, "target"], on_error="return")
    assert [sample.bytes() for sample in others] == list(OTHERS.values())
    lasting = BODY_FAULTS[name].lasting
    if lasting is None:
        assert isinstance(last, headrace.Sample)
        assert last.bytes() == DATA
    else:
        assert isinstance(last, lasting)
        assert last.url == store.url_of("target")


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("name", ["wrong checksum", "flipped first byte"])
def test_verification_can_be_turned_off(
    server: FaultServer, open_store: OpenStore, name: str
) -> None:
    server.faults(rule("read", BODY_FAULTS[name]))
    assert len(open_store(verify=False).read("target")) == len(DATA)


@pytest.mark.usefixtures("objects")
@pytest.mark.parametrize("action", ["wrong_range", "ignore_range"])
@pytest.mark.parametrize("count", [1, None])
def test_ranges_that_are_not_those_asked_for(
    server: FaultServer, open_store: OpenStore, action: str, count: int | None
) -> None:
    """The bytes asked for, or an error; never others."""
    server.faults([{"match": {"has_range": True}, "count": count, "action": action}])
    store = open_store(
        parallel=headrace.ParallelOptions(range_threshold_bytes=30_000, range_bytes=64 << 10)
    )
    for begin, end in [(0, 10), (70, 90_000), (99_000, None)]:
        if action == "wrong_range" and count is None:
            with pytest.raises(headrace.HeadraceError, match=f"{store.url}/target: "):
                store.read("target", begin=begin, end=end)
        else:
            assert store.read("target", begin=begin, end=end).bytes() == DATA[begin:end]


@pytest.mark.usefixtures("objects")
def test_a_change_in_mid_read_is_told(server: FaultServer, open_store: OpenStore) -> None:
    """Pieces of two generations never make one sample."""
    server.faults(
        [
            {
                "match": {"kind": "media"},
                "count": 1,
                "action": {"old_generation_then_new": True, "cut_after_bytes": 50_000},
            }
        ]
    )
    store = open_store()
    with pytest.raises(headrace.PreconditionFailedError) as caught:
        store.read("target")
    assert caught.value.url == store.url_of("target")
    server.put("bucket", "target", DATA)
    server.faults(
        [
            {
                "match": {"kind": "media"},
                "count": 1,
                "action": {"old_generation_then_new": True, "cut_after_bytes": 50_000},
            }
        ]
    )
    assert open_store(on_change="reread").read("target").bytes() == server.get("bucket", "target")


def test_a_write_whose_answer_is_lost_is_written_once(
    server: FaultServer, store: headrace.Store
) -> None:
    server.faults([{"match": {"kind": "upload"}, "count": 1, "action": "lost_answer"}])
    info = store.write("created", b"x" * 1000, if_generation="absent")
    assert server.get("bucket", "created") == b"x" * 1000
    # S3 does not tell the time in its answer to a write.
    assert but_for_time(info) == but_for_time(store.stat("created"))


def test_a_delete_whose_answer_is_lost(server: FaultServer, store: headrace.Store) -> None:
    server.put("bucket", "target", b"x")
    server.faults([{"match": {"kind": "delete"}, "count": 1, "action": "lost_answer"}])
    store.delete("target", missing_ok=True)
    assert server.names("bucket") == []


def test_a_write_that_arrived_damaged_is_refused_by_the_server(
    server: FaultServer, store: headrace.Store
) -> None:
    """The sum travels with it: an error of the way is not stored."""
    store.write("target", DATA)
    assert server.log()[-1]["kind"] == "upload"
    assert store.stat("target").crc32c is not None


def test_no_server_at_all(server: FaultServer, open_store: OpenStore) -> None:
    with FaultServer() as other:
        gone = other.url
    store = open_store(endpoint=gone)
    for call in (
        lambda: store.read("target"),
        lambda: list(store.list()),
        lambda: store.write("target", b""),
    ):
        with pytest.raises(headrace.UnavailableError) as caught:
            call()
        assert caught.value.attempts == FAST.max_attempts
        assert caught.value.http_status is None


def test_refused_connections(server: FaultServer, store: headrace.Store) -> None:
    server.put("bucket", "target", DATA)
    server.faults([{"count": 2, "action": "refuse"}])
    assert store.read("target").bytes() == DATA
    server.faults([{"action": "refuse"}])
    headrace.shutdown()
    with pytest.raises(headrace.UnavailableError) as caught:
        store.read("target")
    assert caught.value.url == store.url_of("target")
    assert caught.value.attempts == FAST.max_attempts


def test_connections_that_died_while_idle_cost_no_attempt(
    server: FaultServer, open_store: OpenStore
) -> None:
    store = open_store(retry=headrace.RetryOptions(max_attempts=1))
    for name, data in OTHERS.items():
        server.put("bucket", name, data)
    for mode in ("fin", "rst") * 5:
        assert [s.bytes() for s in store.read_many(list(OTHERS))] == list(OTHERS.values())
        server.close_connections(mode)
    assert [s.bytes() for s in store.read_many(list(OTHERS))] == list(OTHERS.values())


def test_one_in_five_requests_fails(server: FaultServer, open_store: OpenStore) -> None:
    """Many faults at once, from everywhere; everything is right in the end."""
    names = [f"{i:03d}" for i in range(200)]
    for name in names:
        server.put("bucket", name, name.encode() * 500)
    faults = ["reset", {"cut_after_bytes": 700}, {"status": 503}, {"flip_byte": 3}]
    server.faults(
        [
            {"match": {"kind": "media"}, "fraction": 0.05, "seed": i, "action": action}
            for i, action in enumerate(faults)
        ]
    )
    store = open_store(
        retry=headrace.RetryOptions(max_attempts=10, initial_backoff_s=0.001, max_backoff_s=0.01)
    )
    batches = [names[i : i + 20] for i in range(0, 200, 20)]
    for _ in range(3):
        failed = 0
        for batch, samples in zip(
            batches, store.read_batches(batches, on_error="return"), strict=True
        ):
            for name, sample in zip(batch, samples, strict=True):
                if isinstance(sample, headrace.CorruptDataError):
                    failed += 1  # twice in a row damaged
                else:
                    assert isinstance(sample, headrace.Sample), sample
                    assert sample.bytes() == name.encode() * 500
        assert failed <= 5
    assert sum(count["fired"] for count in server.fault_counts()) > 50
