"""`headrace.trace`: what is in the file, compared with what the server saw."""

from __future__ import annotations

import collections
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import pytest

import headrace
from headrace import _engine
from headrace._process import tracing
from testing.faultserver.client import FaultServer
from tests.trace.events import dropped, load, requests, spans

FAST = headrace.RetryOptions(initial_backoff_s=0.001, max_backoff_s=0.002)


def test_every_request_that_the_server_saw_is_a_span(
    server: FaultServer, gcs: headrace.Store, tmp_path: Path
) -> None:
    file = tmp_path / "trace.json"
    with headrace.trace(file) as recording:
        for i in range(50):
            gcs.write(f"o{i:02d}", b"x" * 1000)
        assert len(gcs.read_many([f"o{i:02d}" for i in range(50)])) == 50
        assert len(list(gcs.list())) == 50
        gcs.delete("o00")
        headrace.shutdown()
    events = load(file)
    found = requests(events)
    assert len(found) == len(server.log()) == recording.attempts == 102
    assert recording.dropped == dropped(file) == 0
    seen = collections.Counter((each["method"], each["status"]) for each in server.log())
    assert collections.Counter((each["method"], each["status"]) for each in found) == seen
    reads = [each for each in found if each["method"] == "GET" and each["bytes"] == 1000]
    assert len(reads) == 50
    assert {each["end"] for each in found} == {"done"}
    assert {each["host"] for each in found} == {f"127.0.0.1:{server.port}"}
    assert len({each["request"] for each in found}) == 102
    assert sum(event["ph"] == "b" for event in events) == 50  # reads were queued
    phases = spans(events, "phase")
    names = collections.Counter(event["name"] for event in phases)
    assert names["first byte"] == names["body"] == 102
    assert 1 <= names["connect"] <= server.stats()["connections_opened"]


def test_a_retried_request_has_a_span_for_each_attempt(server: FaultServer, tmp_path: Path) -> None:
    server.bucket("bucket")
    server.put("bucket", "a", b"bytes")
    server.faults([{"match": {"kind": "media"}, "count": 2, "action": {"status": 503}}])
    store = headrace.Store("gs://bucket", endpoint=server.url, retry=FAST)
    with headrace.trace(tmp_path / "trace.json"):
        assert store.read("a").bytes() == b"bytes"
        with pytest.raises(headrace.NotFoundError):
            store.read("missing")
    found = requests(load(tmp_path / "trace.json"))
    first = [each for each in found if each["request"] == found[0]["request"]]
    assert [(each["attempt"], each["status"], each["end"]) for each in first] == [
        (1, 503, "failed"),
        (2, 503, "failed"),
        (3, 206, "done"),
    ]
    assert [each["status"] for each in found if each not in first] == [404]
    assert found[-1]["error"] == "not found"


def test_a_hedge_is_a_span_of_its_own(server: FaultServer, tmp_path: Path) -> None:
    server.bucket("bucket")
    hedged = headrace.ParallelOptions(hedge=True)
    store = headrace.Store("gs://bucket", endpoint=server.url, parallel=hedged, retry=FAST)
    names = [f"o{i:02d}" for i in range(50)]
    for name in names:
        store.write(name, b"x" * 1000)
    for _ in store.read_batches(names for _ in range(40)):  # so that it knows what is late
        pass
    server.faults([{"match": {"path_contains": "o07"}, "count": 1, "action": "stall_head"}])
    before = headrace.metrics()
    with headrace.trace(tmp_path / "trace.json"), ThreadPoolExecutor(1) as threads:
        late = threads.submit(store.read_many, names)
        # Where a pause of the machine has used up what hedges cost, others earn it again.
        while not late.done():
            store.read_many(names[8:])
        assert len(late.result()) == 50
        after = headrace.metrics()
    found = requests(load(tmp_path / "trace.json"))
    hedges = [each for each in found if each["is_hedge"]]
    assert 1 <= len(hedges) <= after.hedges_total - before.hedges_total
    won = [each for each in hedges if "o07" in each["target"] and each["end"] == "done"]
    assert len(won) == 1
    [of_it] = [
        each for each in found if each["request"] == won[0]["request"] and not each["is_hedge"]
    ]
    assert of_it["was_hedged"]
    assert of_it["status"] == 206
    headrace.shutdown()


def test_a_query_with_a_signature_is_not_in_the_file(
    server: FaultServer, gcs: headrace.Store, tmp_path: Path
) -> None:
    gcs.write("a", b"x")
    with headrace.trace(tmp_path / "trace.json"):
        gcs.read("a")
    assert any("?" in each["target"] for each in server.log())
    assert all("?" not in each["target"] for each in requests(load(tmp_path / "trace.json")))


def test_a_full_ring_keeps_the_newest_and_tells_how_many_are_lost(
    gcs: headrace.Store, tmp_path: Path
) -> None:
    gcs.write("a", b"x")
    file = tmp_path / "trace.json"
    with headrace.trace(file, attempts_per_thread=3):
        for _ in range(40):
            gcs.read("a")
    found = requests(load(file))
    assert 1 <= len(found) <= 3 * 4
    assert dropped(file) == 40 - len(found)
    assert max(each["request"] for each in found) - min(each["request"] for each in found) < 40


def test_a_recording_is_off_again_after_its_end(gcs: headrace.Store, tmp_path: Path) -> None:
    gcs.write("a", b"x")
    recording = headrace.trace(tmp_path / "trace.json")
    recording.stop()
    gcs.read("a")
    recording.stop()  # a second time does nothing
    assert requests(load(tmp_path / "trace.json")) == []
    assert _engine.end_timeline() == ([], 0)


def test_only_one_recording_at_a_time(tmp_path: Path) -> None:
    recording = headrace.trace(tmp_path / "first.json")
    with pytest.raises(headrace.InvalidArgumentError, match=r"first\.json"):
        headrace.trace(tmp_path / "second.json")
    recording.stop()
    assert not (tmp_path / "second.json").exists()
    with headrace.trace(tmp_path / "second.json"):
        pass
    assert load(tmp_path / "second.json")


def test_a_folder_that_is_missing_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(headrace.NotFoundError, match="missing"):
        headrace.trace(tmp_path / "missing" / "trace.json")
    assert not tracing.is_on()


@pytest.mark.parametrize("wrong", [0, -1, 1.5, None])
def test_a_ring_needs_room_for_one_attempt(tmp_path: Path, wrong: object) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="attempts_per_thread"):
        headrace.trace(tmp_path / "trace.json", attempts_per_thread=wrong)  # type: ignore[arg-type]
    assert not tracing.is_on()


def test_an_exception_ends_the_recording_and_the_file_is_whole(
    gcs: headrace.Store, tmp_path: Path
) -> None:
    gcs.write("a", b"x")

    def interrupted() -> None:
        with headrace.trace(tmp_path / "trace.json"):
            gcs.read("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert len(requests(load(tmp_path / "trace.json"))) == 1


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "trace.json"
    file.mkdir()  # in whose place no file can come
    recording = headrace.trace(file)
    with pytest.raises(OSError, match=r"trace\.json"):
        recording.stop()
    assert os.listdir(tmp_path) == ["trace.json"]
    assert not tracing.is_on()


def test_odd_names_make_valid_json(tmp_path: Path, gcs: headrace.Store) -> None:
    name = 'q"uote\\back\u202eslash/ü'
    gcs.write(name, b"x")
    with headrace.trace(tmp_path / "trace.json"):
        tracing.note('"odd"', 1, 2, argument="\u2028")
        gcs.read(name)
    events = load(tmp_path / "trace.json")
    assert len(requests(events)) == 1
    assert spans(events, "loader", '"odd"')


def test_more_events_than_are_written_at_once(tmp_path: Path) -> None:
    count = 2 * tracing._EVENTS_PER_WRITE + 1
    with headrace.trace(tmp_path / "trace.json"):
        for number in range(count):
            tracing.note("step", number + 1, number + 2, number=number)
    found = spans(load(tmp_path / "trace.json"), "loader", "step")
    assert [event["args"]["number"] for event in found] == list(range(count))


attempt = st.tuples(st.integers(1, 1000), st.integers(0, 50), st.integers(0, 2))


@hypothesis.given(st.lists(attempt, max_size=60))
def test_attempts_get_tracks_on_which_they_do_not_overlap(
    each: list[tuple[int, int, int]],
) -> None:
    attempts = [
        {"begun_ns": begun, "ended_ns": begun + lasts, "io_thread": thread}
        for begun, lasts, thread in each
    ]
    ends: dict[int, int] = {}
    lanes: dict[int, set[int]] = collections.defaultdict(set)
    placed = list(tracing._on_tracks(attempts))
    assert len(placed) == len(attempts)
    for track, found in placed:
        assert ends.get(track, 0) <= found["begun_ns"]
        ends[track] = found["ended_ns"]
        lanes[found["io_thread"]].add(track)
    assert len(ends) == sum(map(len, lanes.values()))  # a track is one thread's
    for thread, tracks in lanes.items():  # and there are no more than are needed
        own = [each for each in attempts if each["io_thread"] == thread]
        at_once = max(
            sum(
                one["begun_ns"] <= at["begun_ns"] < max(one["ended_ns"], one["begun_ns"] + 1)
                for one in own
            )
            for at in own
        )
        assert len(tracks) <= at_once


def test_metrics_as_prometheus_reads_them(gcs: headrace.Store) -> None:
    parser = pytest.importorskip("prometheus_client.parser")
    gcs.write("a", b"x" * 1000)
    gcs.read("a")
    metrics = headrace.metrics()
    families = {
        each.name: each for each in parser.text_string_to_metric_families(metrics.prometheus())
    }
    found = {
        sample.name.removeprefix("headrace_"): sample.value
        for family in families.values()
        for sample in family.samples
    }
    assert found == json.loads(json.dumps(metrics.__dict__))
    assert found["bytes_read_total"] >= 1000
    assert families["headrace_requests"].type == "counter"
    assert families["headrace_in_flight"].type == "gauge"


def test_the_time_of_requests_is_counted_by_phase(server: FaultServer, gcs: headrace.Store) -> None:
    headrace.shutdown()
    gcs.write("a", b"x" * 1000)
    before = headrace.metrics()
    server.latency(30)
    for _ in range(5):
        gcs.read("a")
    after = headrace.metrics()
    assert after.first_byte_s_total - before.first_byte_s_total >= 5 * 0.030
    assert after.queue_s_total > before.queue_s_total >= 0
    assert after.body_s_total > before.body_s_total
