"""Whatever goes wrong with joining, the bytes are right and nothing is left behind."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import warnings
from typing import Any
from urllib.parse import quote

import google_crc32c
import pytest

import headrace
from headrace import ComposeOptions
from testing.faultserver.client import FaultServer
from tests.faults.conftest import OFTEN
from tests.joining.conftest import JOIN, SHORT, TEMPORARY, OpenStore, left, rule, sent

Objects = dict[str, bytes]

FORBIDDEN = {"status": 403, "reason": "forbidden", "message": "no access to this"}
THROTTLED = {"status": 429, "reason": "rateLimitExceeded"}
SLOW_DOWN = {"status": 503, "reason": "slowDown", "message": "SlowDown"}

# What happens to every request of a kind, or to the first one; and how often what is sent then.
COMPOSE: dict[str, tuple[Any, dict[str, int]]] = {
    "404": ({"status": 404, "reason": "notFound"}, {"compose": 3, "media": 70}),
    "412": ({"status": 412, "reason": "conditionNotMet"}, {"compose": 3, "media": 70}),
    "a wrong checksum": ("wrong_checksum", {"compose": 3, "media": 70, "delete": 3}),
    "a lost answer": ("lost_answer", {"compose": 3, "get": 3, "media": 3, "delete": 3}),
}
# These may end with the first refusal, or with the third, as several are under way.
COMPOSE_STOPS: dict[str, Any] = {
    "429": THROTTLED,
    "503": SLOW_DOWN,
    "500": {"status": 500},
    "409": {"status": 409, "reason": "conflict"},
}
READ: dict[str, tuple[Any, dict[str, int]]] = {
    "403": (FORBIDDEN, {"media": 3 + 70}),
    "404": ({"status": 404, "reason": "notFound"}, {"media": 3 + 70}),
    "412": ({"status": 412, "reason": "conditionNotMet"}, {"media": 3 + 70}),
    "500": ({"status": 500}, {"media": 9 + 70}),
    "a wrong byte": ({"flip_byte": 5}, {"media": 6 + 70}),
}
ONCE: dict[str, tuple[str, Any]] = {
    f"{kind}: {name}": (kind, action)
    for kind in ("compose", "media", "delete")
    for name, action in {
        "a connection that breaks": "reset",
        "a lost answer": "lost_answer",
        "429": THROTTLED,
        "503": SLOW_DOWN,
        "500": {"status": 500},
        "no answer": "stall_head",
    }.items()
}
ONCE |= {
    "media: half of the body": ("media", {"reset_after_bytes": 1000}),
    "media: a body that is cut": ("media", {"cut_after_bytes": 1000}),
    "media: a wrong byte": ("media", {"flip_byte": 5}),
    "media: a body that stalls": ("media", {"stall_after_bytes": 1000}),
    "compose: a wrong checksum": ("compose", "wrong_checksum"),
    "compose: 403": ("compose", {"status": 403, "reason": "rateLimitExceeded"}),
}


def read_all(store: headrace.Store, objects: Objects) -> None:
    samples = store.read_many(store.list("data/"))
    assert [sample.bytes() for sample in samples] == [*objects.values()]


def read_all_and_end(server: FaultServer, store: headrace.Store, objects: Objects) -> list[str]:
    """Read, and return what is left."""
    read_all(store, objects)
    return left(server)


def composites(server: FaultServer, kind: str) -> set[str]:
    """The temporary objects that requests of a kind were about."""
    pattern = re.compile(rf"{re.escape(quote(TEMPORARY, safe=''))}[\w-]+")
    targets = [each["target"] for each in server.log() if each["kind"] == kind]
    return {found[0] for target in targets if (found := pattern.search(target))}


@pytest.mark.parametrize("case", ONCE)
def test_a_fault_that_comes_once_changes_nothing(
    server: FaultServer, objects: Objects, open_store: OpenStore, case: str
) -> None:
    kind, action = ONCE[case]
    server.faults([rule(kind, action, count=1)])
    stalls = "stall" in str(action)
    store = open_store(timeout=SHORT, retry=OFTEN) if stalls else open_store()
    read_all(store, objects)
    assert left(server) == []
    assert [each["fired"] for each in server.fault_counts()] == [1]


@pytest.mark.parametrize("case", COMPOSE)
def test_what_cannot_be_composed_is_read_one_by_one(
    server: FaultServer, objects: Objects, open_store: OpenStore, case: str
) -> None:
    action, expected = COMPOSE[case]
    server.faults([rule("compose", action)])
    read_all(open_store(), objects)
    assert left(server) == []
    assert sent(server) == expected


@pytest.mark.parametrize("kind", ["compose", "media"])
def test_connections_that_break_each_time_are_no_loss(
    server: FaultServer, objects: Objects, open_store: OpenStore, kind: str
) -> None:
    server.faults([rule(kind, "reset")])
    read_all(open_store(), objects)
    assert left(server) == []
    # How often each was tried depends on whether its connection was a new one. A compose that was
    # not answered begins a pause, and whether the others had begun by then is a race.
    composed, deleted = composites(server, "compose"), composites(server, "delete")
    assert len(composed) == 3 if kind == "media" else 1 <= len(composed) <= 3
    assert deleted == composed
    assert sent(server)["delete"] == len(deleted)
    reads = [each["target"] for each in server.log() if each["kind"] == "media"]
    assert sum("data%2F" in target for target in reads) == 70


def test_a_connection_that_breaks_begins_a_pause(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    """One group at a time: after the first there is no other attempt to compose."""
    server.faults([rule("compose", "reset")])
    read_all(open_store(join=ComposeOptions(pause_s=3600.0, max_in_flight=1)), objects)
    assert left(server) == []
    assert len(composites(server, "compose")) == 1
    counts = sent(server)
    assert (counts["delete"], counts["media"]) == (1, 70)


@pytest.mark.parametrize("case", COMPOSE_STOPS)
def test_a_service_that_is_busy_is_given_a_pause(
    server: FaultServer, objects: Objects, open_store: OpenStore, case: str
) -> None:
    store = open_store()
    server.faults([rule("compose", COMPOSE_STOPS[case])])
    read_all(store, objects)
    composes = sent(server)["compose"]
    assert 1 <= composes <= 3  # none was sent again
    read_all(store, objects)
    assert left(server) == []
    assert sent(server)["compose"] == composes
    assert sent(server)["media"] == 140


def test_after_the_pause_objects_are_joined_again(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store(join=ComposeOptions(pause_s=0.001))
    server.faults([rule("compose", THROTTLED, count=3)])
    read_all(store, objects)
    while "delete" not in sent(server):
        read_all(store, objects)
    assert left(server) == []


def test_the_service_may_ask_for_a_longer_pause(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store(join=ComposeOptions(pause_s=0.001))
    server.faults([rule("compose", {**THROTTLED, "retry_after_s": 3600})])
    read_all(store, objects)
    composes = sent(server)["compose"]
    for _ in range(5):
        read_all(store, objects)
    assert sent(server)["compose"] == composes


@pytest.mark.parametrize("case", READ)
def test_a_composite_that_cannot_be_read_is_no_loss(
    server: FaultServer, objects: Objects, open_store: OpenStore, case: str
) -> None:
    action, expected = READ[case]
    server.faults([rule("media", action)])
    read_all(open_store(), objects)
    assert left(server) == []
    found = sent(server)
    # Once the objects of one composite are read, those who wait to ask for another do so before
    # their time, which counts as no attempt: two waits each.
    early = found.pop("media") - expected["media"]
    assert 0 <= early <= (2 * 3 if case == "500" else 0)
    assert found == {"compose": 3, "delete": 3}


def test_who_may_not_write_reads_one_by_one_and_is_told_once(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    """A read-only bucket."""
    server.faults([rule("compose", FORBIDDEN), rule("delete", FORBIDDEN)])
    store = open_store()
    with pytest.warns(RuntimeWarning) as told:
        read_all(store, objects)
    assert len(told) == 1
    text = str(told[0].message)
    assert "gs://bucket/" in text
    assert "no access to this" in text
    assert "storage.objects.create" in text
    composes = sent(server)["compose"]
    assert composes <= 3
    read_all(store, objects)  # and nothing more is said: warnings are errors here
    assert left(server) == []
    assert sent(server) == {"compose": composes, "media": 140}


def test_who_may_not_delete_joins_no_more_and_is_told_what_to_do(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    server.faults([rule("delete", FORBIDDEN)])
    store = open_store(join=ComposeOptions(max_in_flight=1))
    with pytest.warns(RuntimeWarning) as told:
        names = read_all_and_end(server, store, objects)
    assert len(told) == 1
    # One at a time: the second group began after the first was refused, if at all.
    assert len(names) == sent(server)["compose"] == 1
    text = str(told[0].message)
    assert names[0] in text
    assert "headrace clean gs://bucket" in text
    assert "storage.objects.delete" in text
    assert sent(server)["media"] == 1 + 38
    # And that is what removes it.
    server.faults([])
    cleaned = headrace.clean(store, older_than_s=0)
    assert [info.name for info in cleaned.deleted] == names
    assert left(server) == []


@pytest.mark.parametrize(
    "action",
    [{"status": 500}, {"status": 412, "reason": "conditionNotMet"}, "reset"],
    ids=["500", "412", "reset"],
)
def test_what_could_not_be_deleted_is_told(
    server: FaultServer, objects: Objects, open_store: OpenStore, action: Any
) -> None:
    server.faults([rule("delete", action)])
    store = open_store()
    with pytest.warns(RuntimeWarning, match="headrace clean gs://bucket") as told:
        names = read_all_and_end(server, store, objects)
    assert len(told) == 1
    assert len(names) == 3
    assert any(name in str(told[0].message) for name in names)


def test_a_refusal_of_another_kind_is_told_too(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    server.faults([rule("compose", {"status": 400, "message": "not in this bucket"})])
    with pytest.warns(RuntimeWarning, match="not in this bucket"):
        read_all(open_store(), objects)
    assert left(server) == []
    assert sent(server)["media"] == 70


# ---- sources that change


def test_an_object_that_has_changed_is_named_and_its_new_bytes_are_not_handed_out(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store()
    infos = [*store.list("data/")]
    for name in ("data/005", "data/040"):
        server.put("bucket", name, objects[name][::-1])  # as long as it was
    results = store.read_many(infos, on_error="return")
    for info, result in zip(infos, results, strict=True):
        if info.name in ("data/005", "data/040"):
            assert isinstance(result, headrace.PreconditionFailedError)
            assert f"gs://bucket/{info.name}" in str(result)
        else:
            assert not isinstance(result, headrace.HeadraceError)
            assert result.bytes() == objects[info.name]
    assert left(server) == []
    assert sent(server) == {"compose": 3, "media": 64 + 1, "delete": 1}


def test_an_object_that_has_changed_is_read_as_it_is_now_by_who_wants_that(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store(on_change="reread")
    infos = [*store.list("data/")]
    server.put("bucket", "data/005", b"new")
    samples = store.read_many(infos)
    assert samples[5].bytes() == b"new"
    assert samples[4].bytes() == objects["data/004"]


def test_an_object_that_is_gone_is_named(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    store = open_store()
    infos = [*store.list("data/")]
    store.delete("data/033")
    with pytest.raises(headrace.NotFoundError, match="gs://bucket/data/033"):
        store.read_many(infos)
    assert left(server) == []


def test_a_composite_that_somebody_replaces_is_neither_handed_out_nor_deleted(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    server.faults([rule("compose", "old_generation_then_new", count=1)])
    store = open_store()
    with pytest.warns(RuntimeWarning, match="could not be deleted"):
        names = read_all_and_end(server, store, objects)
    assert len(names) == 1


@pytest.mark.filterwarnings("ignore:a temporary object could not be deleted:RuntimeWarning")
@pytest.mark.parametrize(
    "lie", [{"componentCount": 31}, {"componentCount": 1}, {"size": "7"}, {"crc32c": "AAAAAA=="}]
)
def test_a_composite_that_cannot_be_of_its_sources_is_not_even_read(
    server: FaultServer, objects: Objects, open_store: OpenStore, lie: dict[str, object]
) -> None:
    whole = b"".join([*objects.values()][:32])
    checksum = base64.b64encode(google_crc32c.Checksum(whole).digest()).decode()
    answer = {
        "name": f"{TEMPORARY}x",
        "generation": "7",
        "size": str(len(whole)),
        "crc32c": checksum,
        "componentCount": 32,
        **lie,
    }
    action = {"status": 200, "perform": True, "body": json.dumps(answer)}
    server.faults([rule("compose", action, count=1)])
    store = open_store()
    samples = store.read_many([*store.list("data/")][:32])
    assert [sample.bytes() for sample in samples] == [*objects.values()][:32]
    headrace.shutdown()  # after the attempt to delete it by a generation that it has not
    assert sent(server)["media"] == 32


# ---- ends that come early


def test_an_iteration_that_is_broken_off_leaves_nothing(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    for fault in ([], [rule("compose", {"delay_ms": 40})], [rule("media", {"delay_ms": 40})]):
        server.faults(fault)
        store = open_store()
        infos = [*store.list("data/")]
        iterator = iter(store.read_batches([infos[:10], infos[10:40], infos[40:]] * 5))
        assert next(iterator)[0].bytes() == objects["data/000"]
        iterator.close()
        assert left(server) == []


def test_what_a_killed_process_left_is_swept_by_the_next_one(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    ours = [f"{TEMPORARY}headrace-{i:032x}" for i in range(3)]
    others = [f"{TEMPORARY}6f1b2c3d-0a1b-4c2d-8e3f-0123456789ab", f"{TEMPORARY}headrace-x"]
    for name in ours[:2] + others:
        server.put("bucket", name, b"left", ageSeconds=3700)
    server.put("bucket", ours[2], b"in use", ageSeconds=3500)
    store = open_store()
    read_all(store, objects)
    read_all(store, objects)
    while len(server.names("bucket", TEMPORARY)) > 3:
        pass  # in the background
    assert left(server) == sorted([*others, ours[2]])
    lists = [each for each in server.log() if each["kind"] == "list"]
    assert sum("composed" in each["target"] for each in lists) == 1


def test_a_sweep_that_is_refused_disturbs_nobody(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    infos = [*open_store(join=None).list("data/")]
    server.faults([{"match": {"kind": "list"}, "action": FORBIDDEN}])
    samples = open_store().read_many(infos)
    assert [sample.bytes() for sample in samples] == [*objects.values()]
    assert left(server) == []


def test_no_handler_of_a_signal_is_touched(
    server: FaultServer, objects: Objects, open_store: OpenStore
) -> None:
    import signal

    def handlers() -> list[Any]:
        numbers = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
        return [signal.getsignal(number) for number in sorted(numbers)]

    def caught() -> list[str]:
        with open("/proc/self/status") as status:
            return re.findall(r"^Sig(?:Cgt|Ign|Blk):.*$", status.read(), re.MULTILINE)

    before = handlers(), caught()
    read_all(open_store(), objects)
    assert left(server) == []
    assert (handlers(), caught()) == before


def test_memory_is_given_back(server: FaultServer, objects: Objects, open_store: OpenStore) -> None:
    store = open_store()
    with warnings.catch_warnings(), contextlib.suppress(headrace.HeadraceError):
        warnings.simplefilter("ignore")
        for kind in ("compose", "media", "delete"):
            for action in ("reset", FORBIDDEN, "wrong_checksum"):
                server.faults([rule(kind, action)])
                read_all(open_store(), objects)
        server.faults([])
        read_all(store, objects)
    while "delete" not in sent(server) or server.stats()["in_flight"]:
        pass
    metrics = headrace.metrics()
    assert metrics.memory_live_bytes == 0
    assert metrics.memory_in_flight_bytes == 0


def test_the_default_options_are_what_the_guide_says() -> None:
    join = ComposeOptions()
    assert (join.max_size_bytes, join.max_objects, join.max_in_flight) == (16 << 20, 32, 32)
    assert (join.pause_s, join.sweep_age_s) == (5.0, 3600.0)
    assert JOIN.max_objects == 32
