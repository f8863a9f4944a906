"""Nothing is called saved that is not, and what was there before stays."""

from __future__ import annotations

import random
import re
import subprocess
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp

import headrace
from headrace.checkpoint._distributed import DistributedWriter, ordering
from headrace.checkpoint._distributed.ordering import commit, take_turn
from testing.faultserver.client import FaultServer
from tests.checkpoint_distributed.conftest import Place, assert_same, blank, training_state
from tests.checkpoint_distributed.planners import SavesAfter, raising

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

QUICK = headrace.RetryOptions(max_attempts=2, initial_backoff_s=0.001, max_backoff_s=0.002)


def saved(place: Place, value: float) -> dict[str, Any]:
    state = {f"w{i}": torch.full((10,), value + i) for i in range(8)}
    dcp.save(state, storage_writer=place.writer())
    return state


def loaded(place: Place, state: dict[str, Any]) -> dict[str, Any]:
    made = blank(state)
    dcp.load(made, storage_reader=place.reader())
    return made


def attached(writer: DistributedWriter) -> DistributedWriter:
    writer.attach({"meta.pt": b"small"})
    return writer


@pytest.mark.parametrize("thread_count", range(1, 9))
@pytest.mark.parametrize("failing", [0, 3, 7])
def test_one_shard_that_fails_in_any_thread_fails_the_save(
    place: Place, thread_count: int, failing: int
) -> None:
    before = saved(place, 1.0)
    names = place.names()
    later = {f"w{i}": torch.full((10,), 50.0 + i) for i in range(8)}
    of = f"w{failing}"
    with pytest.raises(dcp.CheckpointException, match="this shard cannot be had"):
        dcp.save(
            later,
            storage_writer=place.writer(thread_count=thread_count),
            planner=SavesAfter(resolve_data=raising(OSError("this shard cannot be had"), of)),
        )
    assert place.names() == names
    assert_same(loaded(place, before), before)


def test_an_upload_that_fails_fails_the_save_and_takes_the_others_away(
    gcs: Place, server: FaultServer
) -> None:
    before = saved(gcs, 1.0)
    names = gcs.names()
    for position in range(1, 5):
        rule = {"match": {"kind": "upload"}, "from": position, "action": {"status": 503}}
        server.faults([rule])
        writer = gcs.writer(thread_count=4, retry=QUICK)
        with pytest.raises(dcp.CheckpointException, match="HTTP 503"):
            dcp.save({f"w{i}": torch.full((10,), 9.0) for i in range(8)}, storage_writer=writer)
        server.faults([])
        assert gcs.names() == names
        assert_same(loaded(gcs, before), before)


def test_metadata_that_cannot_be_written_leaves_the_old_checkpoint(
    gcs: Place, server: FaultServer
) -> None:
    before = saved(gcs, 1.0)
    rule = {"match": {"kind": "upload"}, "from": 2, "action": {"status": 503}}
    server.faults([rule])
    with pytest.raises(dcp.CheckpointException, match="HTTP 503"):
        dcp.save(blank(before), storage_writer=gcs.writer(retry=QUICK))
    server.faults([])
    assert_same(loaded(gcs, before), before)
    # What the broken save has left goes with the next one.
    later = saved(gcs, 2.0)
    assert len(gcs.names()) == 2
    assert_same(loaded(gcs, later), later)


@pytest.mark.parametrize("status", [400, 403])
@pytest.mark.parametrize("overwrites", [False, True])
def test_a_commit_that_is_refused_leaves_nothing_of_its_save(
    gcs: Place, server: FaultServer, status: int, overwrites: bool
) -> None:
    before = saved(gcs, 1.0) if overwrites else None
    names = gcs.names()
    server.faults([{"match": {"kind": "upload"}, "from": 3, "action": {"status": status}}])
    with pytest.raises(dcp.CheckpointException, match=f"HTTP {status}"):
        dcp.save({"w": torch.ones(1)}, storage_writer=attached(gcs.writer()))
    assert server.fault_counts()[0]["fired"] == 1
    server.faults([])
    assert gcs.names() == names
    if before is not None:
        assert_same(loaded(gcs, before), before)


def test_an_attachment_that_is_refused_takes_the_whole_save_away(
    gcs: Place, server: FaultServer
) -> None:
    rule = {"match": {"kind": "upload"}, "from": 2, "action": {"status": 403}}
    server.faults([rule])
    with pytest.raises(dcp.CheckpointException, match="HTTP 403"):
        dcp.save({"w": torch.ones(1)}, storage_writer=attached(gcs.writer()))
    assert gcs.names() == []


def test_a_commit_whose_answer_is_lost_and_whose_result_may_not_be_seen_loses_no_file(
    gcs: Place, server: FaultServer
) -> None:
    server.faults(
        [
            {"match": {"kind": "upload"}, "from": 2, "count": 1, "action": {"lost_answer": True}},
            {"match": {"kind": "get"}, "action": {"status": 403}},
        ]
    )
    state = {"w": torch.ones(3)}
    with pytest.raises(dcp.CheckpointException, match="HTTP 403"):
        dcp.save(state, storage_writer=gcs.writer())
    server.faults([])
    assert_same(loaded(gcs, state), state)


def test_an_answer_that_is_lost_after_the_commit_does_not_break_the_checkpoint(
    gcs: Place, server: FaultServer
) -> None:
    saved(gcs, 1.0)
    rule = {
        "match": {"kind": "upload"},
        "from": 2,
        "count": 1,
        "action": {"lost_answer": True},
    }
    server.faults([rule])
    later = saved(gcs, 2.0)
    assert server.fault_counts()[0]["fired"] == 1
    assert_same(loaded(gcs, later), later)


def test_no_overwrite_refuses_a_folder_with_a_checkpoint(place: Place) -> None:
    before = saved(place, 1.0)
    with pytest.raises(dcp.CheckpointException, match="overwrite is False"):
        dcp.save(before, storage_writer=place.writer(overwrite=False))
    assert_same(loaded(place, before), before)


@pytest.mark.every_store
def test_overwriting_leaves_one_checkpoint_and_nothing_else(place: Place) -> None:
    saved(place, 1.0)
    place.put("__0_7.distcp", b"of an older save by stock torch")
    place.put("notes.txt", b"not ours")
    later = saved(place, 2.0)
    assert len(place.data_names()) == 1
    assert place.names()[0] == ".metadata"
    assert place.names()[-1] == "notes.txt"
    assert_same(loaded(place, later), later)


def test_what_a_replaced_checkpoint_leaves_because_it_may_not_be_deleted_is_told(
    gcs: Place, server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    saved(gcs, 1.0)
    server.faults([{"match": {"kind": "delete"}, "action": {"status": 403}}])
    later = saved(gcs, 2.0)
    assert re.search("1 of the 1 files of the checkpoint that it replaced", caplog.text)
    assert_same(loaded(gcs, later), later)


def test_of_two_processes_that_save_at_once_one_wins_and_the_other_says_so(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headrace.checkpoint._distributed import ordering

    saved(place, 1.0)
    faster = {f"w{i}": torch.full((10,), 5.0 + i) for i in range(8)}

    def save_in_between(name: str) -> None:
        if name == "w0":
            dcp.save(faster, storage_writer=place.writer())
            ordering._places.clear()  # as another process would have done it

    slower = {f"w{i}": torch.full((10,), 7.0 + i) for i in range(8)}
    planner = SavesAfter(resolve_data=save_in_between)
    with pytest.raises(dcp.CheckpointException, match=r"Another save to .* was completed"):
        dcp.save(slower, storage_writer=place.writer(), planner=planner)
    assert_same(loaded(place, faster), faster)
    assert len(place.data_names()) == 1


def test_a_save_that_began_earlier_does_not_replace_a_later_one_of_this_process(
    place: Place,
) -> None:
    later = {"w": torch.full((10,), 5.0)}
    ready, go_on = threading.Event(), threading.Event()

    def wait(_: str) -> None:
        ready.set()
        assert go_on.wait(120)

    errors: list[BaseException] = []

    def save_earlier() -> None:
        try:
            dcp.save(
                {"w": torch.zeros(10)},
                storage_writer=place.writer(),
                planner=SavesAfter(resolve_data=wait),
                no_dist=True,
            )
        except BaseException as error:  # CheckpointException is none of Exception's
            errors.append(error)

    thread = threading.Thread(target=save_earlier)
    thread.start()
    assert ready.wait(120)
    dcp.save(later, storage_writer=place.writer())
    go_on.set()
    thread.join()
    assert "a later save of this process is complete already" in str(errors[0])
    assert_same(loaded(place, later), later)
    assert len(place.data_names()) == 1


@pytest.mark.every_store
def test_a_later_save_follows_an_earlier_one_that_was_completed_meanwhile(place: Place) -> None:
    earlier = {"w": torch.zeros(10)}

    writer = place.writer()
    staged: Any = writer.stage(earlier)

    def save_in_between(_: str) -> None:
        # Of this process, begun before: as if it had been staged first.
        assert staged.settled.turn < take_turn()
        dcp.save(staged, storage_writer=writer)

    planner = SavesAfter(resolve_data=save_in_between)
    later = {"w": torch.full((10,), 5.0)}
    dcp.save(later, storage_writer=place.writer(), planner=planner)
    assert_same(loaded(place, later), later)
    assert len(place.names()) == 2


def test_commits_of_one_process_chain() -> None:
    generations = ["absent"]

    def write(expected: str) -> str:
        assert expected == generations[-1]
        generations.append(f"g{len(generations)}")
        return generations[-1]

    start = take_turn()
    first, second, third = take_turn(), take_turn(), take_turn()
    commit("x://chain", first, "absent", start, frozenset({"a"}), write)
    assert commit("x://chain", third, "absent", start, frozenset({"c"}), write) == {"a"}
    with pytest.raises(headrace.PreconditionFailedError, match="a later save"):
        commit("x://chain", second, "absent", start, frozenset({"b"}), write)
    now = take_turn()
    assert commit("x://chain", now, "g2", now, frozenset({"d"}), write) == frozenset()
    generations.append("absent")  # somebody has deleted it
    now = take_turn()
    assert commit("x://chain", now, "absent", now, frozenset(), write) == frozenset()


def test_a_commit_that_takes_long_holds_up_no_other_place() -> None:
    written = threading.Event()

    def wait_for_the_other(generation: str) -> str:
        assert generation == "absent"
        assert written.wait(240)
        return "slow"

    def commit_elsewhere(_: str) -> str:
        return "quick"

    start = take_turn()
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(
            commit, "x://slow", take_turn(), "absent", start, frozenset(), wait_for_the_other
        )
        commit("x://quick", take_turn(), "absent", start, frozenset(), commit_elsewhere)
        written.set()
        assert slow.result() == frozenset()


def test_places_that_were_committed_to_long_ago_are_forgotten() -> None:
    for i in range(200):
        start = take_turn()
        commit(f"x://many/{i}", take_turn(), "absent", start, frozenset(), lambda _: "g")
    assert len(ordering._places) == ordering._REMEMBERED
    assert "x://many/199" in ordering._places


def test_the_newest_of_three_saves_that_overlap_replaces_what_the_second_wrote() -> None:
    there = ["absent"]

    def write(generation: str) -> str:
        if generation != there[-1]:
            raise headrace.PreconditionFailedError(f"is {there[-1]}, not {generation}")
        there.append(f"g{len(there)}")
        return there[-1]

    url = "x://three"
    first, second, seen = take_turn(), take_turn(), take_turn()
    commit(url, first, "absent", seen, frozenset({"a"}), write)
    third, seen_by_third = take_turn(), take_turn()
    assert commit(url, second, "absent", seen, frozenset({"b"}), write) == {"a"}
    assert commit(url, third, "g1", seen_by_third, frozenset({"c"}), write) == {"b"}


def test_a_folder_that_was_deleted_is_saved_to_again(place: Place) -> None:
    for value in (1.0, 2.0, 3.0):
        state = saved(place, value)
        assert_same(loaded(place, state), state)
        reader = place.reader()
        reader._folder.delete(place.names())
        assert place.names() == []


def test_a_folder_without_metadata_says_what_it_is(place: Place) -> None:
    state = {"w": torch.zeros(3)}
    with pytest.raises(dcp.CheckpointException, match="There is nothing below"):
        loaded(place, state)
    place.put("__0_0.distcp", b"data")
    with pytest.raises(dcp.CheckpointException, match="no save to it was completed"):
        loaded(place, state)
    place.put("__0.metadata", b"x")
    place.put("__1.metadata", b"x")
    with pytest.raises(headrace.NotFoundError) as caught:
        place.reader().read_metadata(rank=2)
    assert "without collectives by 2 ranks" in str(caught.value)


def test_a_save_staged_before_another_was_completed_and_deleted_is_saved(place: Place) -> None:
    other, writer = place.writer(), place.writer()
    later = {"w": torch.full((10,), 5.0)}
    earlier = other.stage(blank(later))
    staged = writer.stage(later)
    dcp.save(earlier, storage_writer=other)
    other._current_folder().delete(place.names())
    dcp.save(staged, storage_writer=writer)
    assert_same(loaded(place, later), later)
    assert len(place.names()) == 2


def test_a_file_that_is_gone_is_named(place: Place, tmp_path: Any) -> None:
    state = saved(place, 1.0)
    (name,) = place.data_names()
    reader = place.reader()
    reader.set_up_storage_reader(reader.read_metadata(), True)
    reader._folder.delete([name])
    with pytest.raises(dcp.CheckpointException, match=re.escape(name)):
        loaded(place, state)


def test_a_file_that_was_cut_off_is_an_error(place: Place) -> None:
    state = saved(place, 1.0)
    (name,) = place.data_names()
    place.put(name, place.get(name)[:-300])
    with pytest.raises(dcp.CheckpointException, match=re.escape(name)):
        loaded(place, state)


def test_a_sparse_tensor_is_refused_by_name_because_nobody_could_load_it(place: Place) -> None:
    state = {"dense": torch.ones(3), "mine": torch.eye(3).to_sparse()}
    with pytest.raises(dcp.CheckpointException) as raised:
        dcp.save(state, storage_writer=place.writer())
    (error,) = raised.value.failures.values()
    text = "".join(traceback.format_exception(error[0]))
    assert "cannot load a tensor of the layout torch.sparse_coo" in text
    assert "while saving 'mine'" in text
    assert place.names() == []


def test_a_meta_tensor_is_refused_by_name(place: Place) -> None:
    with pytest.raises(dcp.CheckpointException, match="meta tensor has no data"):
        dcp.save({"w": torch.empty(3, device="meta")}, storage_writer=place.writer())
    assert place.names() == []


def test_metadata_that_is_no_metadata_is_corrupt(place: Place) -> None:
    import pickle

    for data in (b"", b"garbage", pickle.dumps(5), pickle.dumps(5) + b"more"):
        place.put(".metadata", data)
        with pytest.raises(headrace.CorruptDataError, match=r"\.metadata"):
            place.reader().read_metadata()


def test_a_truncated_file_is_named(place: Place) -> None:
    state = saved(place, 1.0)
    name = max(place.data_names(), key=lambda each: len(place.get(each)))
    good = place.get(name)
    for left in (0, 10, len(good) - 1):
        place.put(name, good[:left])
        with pytest.raises(dcp.CheckpointException) as caught:
            loaded(place, state)
        told = rf"CorruptDataError: \S+{re.escape(name)}: it is truncated: it has {left} bytes"
        assert re.search(told, str(caught.value)), str(caught.value)[-600:]
    place.put(name, good)
    assert_same(loaded(place, state), state)


@pytest.mark.parametrize("seed", range(3))
def test_every_flipped_bit_is_noticed_and_the_tensor_named(tmp_path: Any, seed: int) -> None:
    from tests.checkpoint_distributed.conftest import file_place

    place = file_place(tmp_path / "checkpoint")
    state = training_state()
    del state["model"]["empty"]  # planners never ask for a tensor without elements
    dcp.save(state, storage_writer=place.writer(thread_count=2))
    choose = random.Random(seed)
    sizes = {name: len(place.get(name)) for name in place.names()}
    assert sum(sizes.values()) > 1_200_000
    for trial in range(60):
        # One trial in three in the metadata, which has few of the bytes.
        name = ".metadata" if trial % 3 == 0 else choose.choice(place.data_names())
        good = place.get(name)
        bit = choose.randrange(8 * sizes[name])
        bad = bytearray(good)
        bad[bit // 8] ^= 1 << bit % 8
        place.put(name, bytes(bad))
        with pytest.raises(dcp.CheckpointException) as caught:
            loaded(place, state)
        if name == ".metadata":
            told = "do not match its CRC-32C|no metadata of a checkpoint|it is damaged"
            assert re.search(told, str(caught.value)), bit
        else:
            assert "CorruptDataError" in str(caught.value), (name, bit)
            assert re.search(r"'(model\.\w+|step|names\.\d|names)' in file://", str(caught.value))
        place.put(name, good)
    assert_same(loaded(place, state), state)


def test_without_verify_a_flipped_bit_loads(place: Place) -> None:
    dcp.save({"w": torch.zeros(1000)}, storage_writer=place.writer())
    (name,) = place.data_names()
    data = bytearray(place.get(name))
    data[len(data) // 2] ^= 1
    place.put(name, bytes(data))
    state = {"w": torch.ones(1000)}
    dcp.load(state, storage_reader=place.reader(verify=False))
    assert state["w"].count_nonzero() == 1


def test_temporaries_that_a_retention_policy_keeps_are_a_warning_and_no_error(
    gcs: Place, server: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    state = {"w": torch.arange(5 << 20)}
    refusal = {"status": 403, "reason": "retentionPolicyNotMet", "message": "retention policy"}
    server.faults([{"match": {"kind": "delete"}, "action": refusal}])
    dcp.save(state, storage_writer=gcs.writer())
    (told,) = (each.getMessage() for each in caplog.records if each.name == "headrace")
    assert re.search(r"\.distcp: 3 temporary objects .* upload='resumable'", told)
    assert_same(loaded(gcs, state), state)
    before = server.stats()["by_kind"]["delete"]
    other = headrace.checkpoint.DistributedWriter(
        f"{gcs.url}/other", upload="resumable", **gcs.options
    )
    dcp.save(state, storage_writer=other)
    assert sum(each.name == "headrace" for each in caplog.records) == 1
    assert server.stats()["by_kind"]["delete"] == before


def test_a_full_disk_fails_the_save_and_keeps_what_was_there(tmp_path: Any) -> None:
    from tests.checkpoint_distributed.conftest import file_place

    script = """
import resource, signal, sys
import torch
import torch.distributed.checkpoint as dcp
from headrace.checkpoint import DistributedWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    dcp.save({"w0": torch.zeros(10 << 20)}, storage_writer=DistributedWriter(sys.argv[1]))
except dcp.CheckpointException as error:
    print(error)
"""
    place = file_place(tmp_path / "checkpoint")
    before = saved(place, 1.0)
    names = place.names()
    done = subprocess.run(
        [sys.executable, "-c", script, place.url], capture_output=True, text=True, timeout=200
    )
    told = r"ResourceError.*__0_0-\w+\.distcp: too large for this file system"
    assert re.search(told, done.stdout), done.stderr
    assert place.names() == names
    assert_same(loaded(place, before), before)
