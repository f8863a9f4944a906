"""`loader.stats.verdict`: what limits a run, from what cannot be mistaken."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace._process.verdict import Evidence, verdict_of
from headrace.torch import Loader, MapDataset
from testing.faultserver.client import FaultServer
from tests.torch.conftest import fill
from tests.waiting import wait_until

# A run of 10 s on two cores whose bytes were always late, with next to no CPU time.
LATE = Evidence(
    duration_s=10,
    wait_s=9,
    bytes_wait_s=8.9,
    cpu_s=0.5,
    cores=2,
    requests=1000,
    throttled=0,
    first_byte_s=180,
    body_s=1,
)


@pytest.mark.parametrize(
    ("limit", "changes"),
    [
        ("latency", {}),
        ("bandwidth", {"body_s": 100}),
        ("bandwidth", {"first_byte_s": 0, "body_s": 0}),  # a disk: it has no phases
        ("throttling", {"throttled": 10}),
        ("latency", {"throttled": 9}),
        ("memory", {"held_wait_s": 5}),
        ("latency", {"held_wait_s": 4}),
        ("consumer", {"wait_s": 0.4}),
        ("transform", {"bytes_wait_s": 4}),
        ("cpu", {"cpu_s": 19}),
        ("cpu", {"starved_s": 3}),  # other processes have the cores
        ("cpu", {"cpu_s": 19, "transform_cpu_s": 9}),
        # The lengths of requests say "latency"; but transforms have the cores.
        ("transform", {"cpu_s": 19, "transform_cpu_s": 15}),
        ("transform", {"starved_s": 3, "cpu_s": 8, "transform_cpu_s": 7}),
        ("cpu", {"cores": 0.05}),  # the quota of a cgroup
        ("unknown", {"duration_s": 0, "wait_s": 0, "bytes_wait_s": 0}),
        ("unknown", {"requests": 0, "first_byte_s": 0, "body_s": 0}),
    ],
)
def test_each_limit_has_its_signs(limit: str, changes: dict[str, Any]) -> None:
    verdict = verdict_of(replace(LATE, **changes))
    assert verdict.limit == limit
    assert str(verdict) == f"{limit}: {verdict.reason}. {verdict.advice}"
    assert 0 <= verdict.waited <= 1
    json.dumps(asdict(verdict))


def test_a_transform_of_bytes_that_are_there_is_no_wait_for_bytes(server: FaultServer) -> None:
    store = fill(server, 64)
    begun, goes_on = threading.Event(), threading.Event()

    def transform(sample: headrace.Sample) -> int:
        if sample.index is not None and sample.index >= 32:
            begun.set()
            goes_on.wait()
        return len(sample)

    loader = Loader(MapDataset(store, transform), 32, collate_fn=list, transform_threads=1)
    iterator = iter(loader)
    next(iterator)
    # An object is counted while its request still ends, and before the thread has its bytes.
    wait_until(lambda: (now := headrace.metrics()).objects_read_total == 64 and now.in_flight == 0)
    assert begun.wait(120)
    before = loader.stats
    assert before.bytes_wait_s <= before.wait_s
    taking = threading.Thread(target=lambda: next(iterator))
    taking.start()
    goes_on.set()
    taking.join()
    after = loader.stats
    assert after.bytes_wait_s == before.bytes_wait_s
    assert after.wait_s > before.wait_s


def test_bytes_that_come_late_are_waited_for(server: FaultServer) -> None:
    store = fill(server, 8)
    server.faults([{"match": {"kind": "media"}, "action": "stall_head"}])
    loader = Loader(MapDataset(store, len), 8, collate_fn=list)
    iterator = iter(loader)
    taking = threading.Thread(target=lambda: next(iterator))
    taking.start()
    wait_until(lambda: server.stats()["in_flight"] >= 8)
    server.faults([])
    server.release()
    taking.join()
    stats = loader.stats
    assert 0 < stats.bytes_wait_s <= stats.wait_s
    assert stats.held_wait_s == 0
    assert stats.cores > 0


def test_a_trace_says_what_limited_the_loaders(server: FaultServer, tmp_path: Path) -> None:
    dataset = MapDataset(fill(server, 32), len)
    with headrace.trace(tmp_path / "trace.json") as recording:
        assert recording.verdict is None
        for _ in Loader(dataset, 8, collate_fn=list):
            pass
    assert recording.verdict is not None
    assert recording.verdict.limit != "unknown"
    facts = json.loads((tmp_path / "trace.json").read_text())["otherData"]
    assert facts["verdict"] == str(recording.verdict)
    with headrace.trace(tmp_path / "none.json") as recording:
        pass
    assert recording.verdict is not None
    assert recording.verdict.limit == "unknown"
