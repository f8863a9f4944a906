"""Saving: what is there afterwards, and what is there when it fails."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
import headrace.checkpoint
from headrace import CorruptDataError, HeadraceError, InvalidArgumentError, PreconditionFailedError
from testing.faultserver.client import FaultServer
from testing.servers import FakeGcsServer
from tests.checkpoint.states import (
    assert_same,
    file_of,
    filled,
    kinds,
    large_state,
    load,
    quiet,
    special_states,
    stock_load,
)

MIB = 1 << 20

with quiet():
    SPECIAL = special_states()


@pytest.fixture
def eager(server: FaultServer) -> headrace.Store:
    """A bucket whose requests are sent again at once."""
    server.bucket("bucket")
    return headrace.Store(
        "gs://bucket",
        endpoint=server.url,
        retry=headrace.RetryOptions(initial_backoff_s=0.001, max_backoff_s=0.002),
    )


@pytest.fixture
def _small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 1 MiB: as many requests as for a large checkpoint, and fewer bytes."""
    open_writer = headrace.Store.open_writer

    def small(self: headrace.Store, name: str, **options: Any) -> headrace.ObjectWriter:
        return open_writer(self, name, **{**options, "part_bytes": MIB})

    monkeypatch.setattr(headrace.Store, "open_writer", small)


def names(store: headrace.Store) -> list[str]:
    return [info.name for info in store.list("")]


@pytest.mark.parametrize("name", SPECIAL)
def test_what_is_saved_is_loaded(name: str, store: headrace.Store) -> None:
    info = headrace.checkpoint.save(SPECIAL[name], "run/a.pt", store=store)
    assert info == store.stat("run/a.pt")
    assert_same(load(store, "run/a.pt"), SPECIAL[name])
    assert_same(stock_load(store.read("run/a.pt").bytes(), weights_only=True), SPECIAL[name])
    assert names(store) == ["run/a.pt"]


@pytest.mark.every_store
def test_many_parts_make_one_file(store: headrace.Store) -> None:
    state = large_state(12, 4 * MIB) | {"one": filled(torch.float32, 5 * MIB)}
    info = headrace.checkpoint.save(state, "a.pt", store=store)
    assert store.read("a.pt").bytes() == file_of(state)
    assert info.size_bytes == len(file_of(state))
    assert_same(load(store), state)
    assert names(store) == ["a.pt"]


def test_a_url_is_enough(tmp_path: Path) -> None:
    for url in (tmp_path / "a.pt", str(tmp_path / "b.pt"), f"file://{tmp_path}/c.pt"):
        headrace.checkpoint.save({"x": torch.arange(4)}, url)
        assert headrace.checkpoint.load(url)["x"].tolist() == [0, 1, 2, 3]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "b.pt", "c.pt"]


@pytest.mark.every_store(without=["fake-gcs-server"])
def test_a_precondition_is_kept(store: headrace.Store) -> None:
    first = headrace.checkpoint.save([1], "a.pt", store=store, if_generation="absent")
    with pytest.raises(PreconditionFailedError):
        headrace.checkpoint.save([2], "a.pt", store=store, if_generation="absent")
    assert load(store) == [1]
    second = headrace.checkpoint.save([3], "a.pt", store=store, if_generation=first.generation)
    with pytest.raises(PreconditionFailedError):
        headrace.checkpoint.save([4], "a.pt", store=store, if_generation=first.generation)
    assert load(store) == [3]
    assert store.stat("a.pt").generation == second.generation


def test_what_cannot_be_pickled_sends_nothing(server: FaultServer, gcs: headrace.Store) -> None:
    with pytest.raises((TypeError, AttributeError)):
        headrace.checkpoint.save({"x": lambda: 0}, "a.pt", store=gcs)
    base = torch.arange(4, dtype=torch.int32)
    with pytest.raises(InvalidArgumentError):
        headrace.checkpoint.save([base, base.view(torch.float32)], "a.pt", store=gcs)
    assert kinds(server) == {}


@pytest.mark.every_store
def test_an_error_of_progress_leaves_nothing(store: headrace.Store) -> None:
    headrace.checkpoint.save([1], "a.pt", store=store)

    def fail(done_bytes: int, _: int) -> None:
        if done_bytes > 20 * MIB:
            raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        headrace.checkpoint.save(large_state(), "a.pt", store=store, progress=fail)
    assert load(store) == [1]
    assert names(store) == ["a.pt"]


def test_progress_ends_with_all_bytes(store: headrace.Store) -> None:
    steps: list[tuple[int, int]] = []
    headrace.checkpoint.save(
        large_state(), "a.pt", store=store, progress=lambda *step: steps.append(step)
    )
    assert steps == [(i * 4 * MIB, 40 * MIB) for i in range(1, 11)]


def test_a_bar_says_what_is_under_way_how_far_and_for_how_long(
    store: headrace.Store, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tqdm")
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    monkeypatch.setenv("COLUMNS", "200")
    headrace.checkpoint.save(large_state(), "a.pt", store=store, progress=True)
    saving = capsys.readouterr().err
    headrace.checkpoint.load("a.pt", store=store, progress=True)
    loading = capsys.readouterr().err
    for shown in (saving, loading):
        assert f"{store.url_of('a.pt')}:   0%" in shown
        assert f"{store.url_of('a.pt')}: 100%" in shown
        # Done and all bytes, the time that it took, and an estimate of what is left.
        assert re.search(r"\d+%.*\| [\d.]+M/4\d\.\dM \[\d\d:\d\d<\d\d:\d\d, ", shown)


def test_a_save_holds_a_few_parts(tmp_path: Path) -> None:
    from tests.checkpoint.test_memory import SAVE, run

    run(SAVE, True, tmp_path / "a.pt")


# ---- every request fails once

FAULTS: dict[str, Any] = {
    "reset": "reset",
    "lost answer": "lost_answer",
    "stall": "stall_head",
    "cut request": {"cut_request_after_bytes": 1000},
    "cut answer": {"cut_after_bytes": 5},
    "429": {"status": 429},
    "500": {"status": 500},
    "503": {"status": 503},
    "412": {"status": 412},
    "403": {"status": 403},
    "wrong checksum": "wrong_checksum",
}
# Told, and not done.
DONE_NOTHING = {"429", "500", "503", "412", "403"}
# Larger than two parts, so that there are parts, and something that joins them.
OLD = {"x": torch.zeros(10)}
NEW = {"x": filled(torch.uint8, 2 * MIB + 9), "y": torch.arange(5)}


def positions(server: FaultServer, store: headrace.Store) -> int:
    """How many requests a save sends."""
    server.reset(keep_buckets=True)
    headrace.checkpoint.save(NEW, "counted.pt", store=store)
    return len(server.log())


def cases() -> Iterator[tuple[str, bool]]:
    for fault in FAULTS:
        for for_ever in (False, True):
            yield fault, for_ever


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize(("fault", "for_ever"), list(cases()))
def test_a_fault_at_any_request_is_survived_or_told(
    fault: str, for_ever: bool, server: FaultServer, eager: headrace.Store
) -> None:
    store = eager
    if for_ever:
        store = store._derived(
            retry=headrace.RetryOptions(
                max_attempts=2, initial_backoff_s=0.001, max_backoff_s=0.002
            )
        )
    action = FAULTS[fault]
    if for_ever and fault == "429":  # more time than is left ends that at once
        action = {**action, "retry_after_s": 3600}
    if fault == "stall":  # what a time-out ends
        short = headrace.TimeoutOptions(first_byte_s=0.4, stall_s=0.4, total_s=1.5)
        store = store._derived(timeout=short)
    expected = file_of(NEW)
    # Each of these waits for a time-out: every third request stands for its neighbours.
    step = 3 if for_ever and fault == "stall" else 1
    for position in range(1, positions(server, eager) + 1, step):
        server.reset()
        server.bucket("bucket")
        server.put("bucket", "a.pt", file_of(OLD))
        rule = {"match": {}, "from": position, "action": action}
        server.faults([rule if for_ever else rule | {"count": 1}])
        saved = True
        try:
            headrace.checkpoint.save(NEW, "a.pt", store=store)
        except HeadraceError:
            saved = False
        server.faults([])
        there = server.get("bucket", "a.pt")
        # What is said to be saved is; and what is there is whole in any case.
        assert there == expected if saved else there in (expected, file_of(OLD))
        if not saved and fault in DONE_NOTHING:
            assert there == file_of(OLD)


@pytest.mark.usefixtures("_small_parts")
def test_refused_connections_are_opened_again(server: FaultServer, eager: headrace.Store) -> None:
    for position in range(1, 5):
        server.reset()
        server.bucket("bucket")
        server.close_connections("rst")
        server.faults([{"from": position, "count": 1, "action": "refuse"}])
        headrace.checkpoint.save(NEW, "a.pt", store=eager)
        assert server.get("bucket", "a.pt") == file_of(NEW)


def test_a_real_server_takes_it_and_gives_it_back(fake_gcs: FakeGcsServer, gcs_bucket: str) -> None:
    store = headrace.Store(f"gs://{gcs_bucket}", endpoint=fake_gcs.url)
    state = large_state() | {"one": filled(torch.float32, 5 * MIB), "small": torch.arange(3)}
    info = headrace.checkpoint.save(state, "run/a.pt", store=store)
    assert info.crc32c == store.stat("run/a.pt").crc32c
    assert_same(load(store, "run/a.pt"), state)
    assert_same(stock_load(fake_gcs.get(gcs_bucket, "run/a.pt")), state)
    assert names(store) == ["run/a.pt"]
    found = headrace.checkpoint.latest("run/", store=store)
    assert found == f"gs://{gcs_bucket}/run/a.pt"


@pytest.mark.usefixtures("_small_parts")
@pytest.mark.parametrize(("last", "state"), [("upload", OLD), ("compose", NEW)])
def test_a_checkpoint_whose_sum_is_told_wrong_is_an_error_and_is_there(
    last: str, state: Any, server: FaultServer, gcs: headrace.Store
) -> None:
    server.put("bucket", "a.pt", file_of({"old": torch.ones(1)}))
    server.faults([{"match": {"kind": [last, "get"]}, "action": "wrong_checksum"}])
    with pytest.raises(CorruptDataError, match=r"bucket/a\.pt"):
        headrace.checkpoint.save(state, "a.pt", store=gcs)
    server.faults([])
    assert_same(load(gcs), state)
