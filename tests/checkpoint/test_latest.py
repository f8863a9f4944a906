"""The newest complete checkpoint under a prefix."""

from __future__ import annotations

import datetime
import logging
import os
import pickle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint
from hypothesis import given
from hypothesis import strategies as st

import headrace
import headrace.checkpoint
from headrace import HeadraceError
from headrace._checkpoints.newest import Candidate, NoCheckpointError, group_of, newest, numbers_in
from headrace.checkpoint import _archive
from testing.faultserver.client import FaultServer
from tests.checkpoint.states import file_of, stock_file_of

DATA = file_of({"a": torch.arange(10)})
METADATA = pickle.dumps(torch.distributed.checkpoint.metadata.Metadata({}))


def put(folder: Path, name: str, data: bytes, updated_s: int) -> None:
    """Write a file that was changed at that time."""
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)
    os.utime(file, (updated_s, updated_s))


def latest(folder: Path) -> str | None:
    found = headrace.checkpoint.latest(folder)
    return found and found.removeprefix(f"file://{folder}/")


def test_the_newest_of_whole_files_is_found(tmp_path: Path) -> None:
    put(tmp_path, "b.pt", DATA, 100)
    put(tmp_path, "a.pt", stock_file_of([1]), 300)
    put(tmp_path, "c.pt", DATA, 200)
    assert latest(tmp_path) == "a.pt"


def test_what_is_cut_or_something_else_is_passed_over(tmp_path: Path) -> None:
    put(tmp_path, "old.pt", DATA, 100)
    put(tmp_path, "cut.pt", DATA[:-1], 200)
    put(tmp_path, "half.pt", DATA[: len(DATA) // 2], 201)
    put(tmp_path, "empty.pt", b"", 202)
    put(tmp_path, "log.txt", b"loss 0.1\n", 203)
    assert latest(tmp_path) == "old.pt"


def test_the_name_decides_between_files_of_one_time(tmp_path: Path) -> None:
    for name in ("step1.pt", "step3.pt", "step2.pt"):
        put(tmp_path, name, DATA, 100)
    assert latest(tmp_path) == "step3.pt"


@pytest.mark.parametrize(
    "names",
    [
        ["step8.pt", "step9.pt", "step10.pt"],
        ["run2/step10.pt", "run10/step1.pt"],
        ["epoch=9-step=10-val_loss=0.10.ckpt", "epoch=10-step=2-val_loss=0.25.ckpt"],
        ["epoch=1-val_loss=nan.ckpt", "epoch=2-val_loss=-0.5.ckpt", "epoch=3-val_loss=1e-05.ckpt"],
        ["2026-09-30.pt", "2026-10-01.pt"],
        ["2026.9.30.pt", "2026.10.1.pt"],
        ["step8.safetensors", "step9.safetensors"],
    ],
)
def test_whole_numbers_in_names_decide_whatever_the_times_say(
    names: list[str], tmp_path: Path
) -> None:
    for i, name in enumerate(names):
        data = DATA
        if name.endswith(".safetensors"):
            headrace.checkpoint.save({"a": torch.ones(1)}, tmp_path / "made.safetensors")
            data = (tmp_path / "made.safetensors").read_bytes()
            (tmp_path / "made.safetensors").unlink()
        put(tmp_path, name, data, 1000 - i)
    assert latest(tmp_path) == names[-1]
    assert headrace.checkpoint.latest(tmp_path, by="time") == f"file://{tmp_path}/{names[0]}"


def test_names_that_differ_in_decimals_alone_are_compared_by_their_times(tmp_path: Path) -> None:
    put(tmp_path, "loss=0.10.pt", DATA, 200)
    put(tmp_path, "loss=0.25.pt", DATA, 100)
    put(tmp_path, "loss=-0.25.pt", DATA, 150)
    assert latest(tmp_path) == "loss=0.10.pt"


def test_one_file_and_several_of_the_same_name_are_compared_by_number(tmp_path: Path) -> None:
    state = {"a": torch.ones(3), "b": torch.ones(2)}
    for step, options in ((9, {}), (10, {"max_shard_bytes": 8})):
        url = tmp_path / f"step{step}" / "model.fp16.safetensors"
        headrace.checkpoint.save(state, url, **options)  # type: ignore[arg-type]
        for each in url.parent.iterdir():
            os.utime(each, (1000 - step, 1000 - step))
    assert latest(tmp_path) == "step10/model.safetensors.index.fp16.json"


def test_a_warning_names_both_where_times_contradict_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(tmp_path, "step10.pt", DATA, 1000)
    put(tmp_path, "step9.pt", DATA, 1002)
    put(tmp_path, "step8.pt", DATA[:-1], 1010)
    assert latest(tmp_path) == "step10.pt"
    assert [each for each in caplog.messages if "by the numbers" in each] == []
    put(tmp_path, "step7.pt", DATA, 1003)
    caplog.clear()
    assert latest(tmp_path) == "step10.pt"
    (told,) = (each for each in caplog.messages if "by the numbers" in each)
    for text in ("step10.pt is the newest", "step7.pt was written later", 'by="time"'):
        assert text in told
    caplog.clear()
    assert headrace.checkpoint.latest(tmp_path, by="time") == f"file://{tmp_path}/step7.pt"
    assert [each for each in caplog.messages if "by the numbers" in each] == []


def test_what_is_passed_over_is_in_the_log_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headrace")
    put(tmp_path, "step2.pt", DATA[:-1], 100)
    put(tmp_path, "README.md", b"# Run 1", 101)
    put(tmp_path, "step3-00001-of-00002.pt", DATA, 102)
    put(tmp_path, "step4/__0_0.distcp", DATA, 103)
    assert latest(tmp_path) is None
    told = {
        record.getMessage().split("/")[-1]: record.levelname
        for record in caplog.records
        if "passes over" in record.getMessage()
    }
    by_name = {text.split(":")[0]: (level, text) for text, level in told.items()}
    assert {name: level for name, (level, _) in by_name.items()} == {
        "step2.pt": "WARNING",
        "README.md": "INFO",
        "step3-00001-of-00002.pt": "INFO",
        "step4": "INFO",
    }
    for name, text in (("README.md", "begin as a zip"), ("step4", "no .metadata")):
        assert text in by_name[name][1]


@pytest.mark.parametrize(
    "name",
    [
        "step2-00001-of-00004.pt",
        "pytorch_model-00001-of-00002.bin",
        "pytorch_model-00001-of-00002.fp16.bin",
        "pytorch_model.fp16-00001-of-00002.bin",
        "step2-00001-of-00004",
    ],
)
def test_a_part_is_no_checkpoint(name: str, tmp_path: Path) -> None:
    put(tmp_path, "step1.pt", DATA, 100)
    put(tmp_path, name, DATA, 200)
    assert latest(tmp_path) == "step1.pt"


@pytest.mark.parametrize("status", [400, 403, 405, 501])
def test_an_object_that_the_store_refuses_to_show_is_an_error(
    status: int, server: FaultServer
) -> None:
    store = headrace.Store(
        "gs://bucket", endpoint=server.url, retry=headrace.RetryOptions(max_attempts=1)
    )
    metadata = "folder3/.metadata"
    for name, data in (("step1.pt", DATA), ("step2.pt", DATA), (metadata, METADATA)):
        server.put("bucket", name, data)
    for root in ("folder3", ""):
        server.faults([{"match": {"kind": "media"}, "count": 1, "action": {"status": status}}])
        with pytest.raises(HeadraceError) as raised:
            headrace.checkpoint.latest(root, store=store)
        assert raised.value.http_status == status


NAMES = st.builds(
    str.format,
    st.sampled_from(["step{}.pt", "epoch={}-step={}-loss=0.{}.ckpt", "{}/a.pt", "best{2}.pt"]),
    *[st.integers(0, 12)] * 3,
)


@given(
    st.dictionaries(NAMES, st.tuples(st.integers(0, 5), st.booleans()), max_size=12),
    st.sampled_from(["number", "time"]),
)
def test_of_any_names_and_times_the_newest_by_the_rule_is_found(
    found: dict[str, tuple[int, bool]], by: Any
) -> None:
    begin = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    candidates = [
        Candidate(
            name,
            SimpleNamespace(name=name, updated=begin + datetime.timedelta(seconds=time_s)),
            name,
        )  # type: ignore[arg-type]
        for name, (time_s, _) in found.items()
    ]

    def require_whole(candidate: Candidate) -> None:
        if not found[candidate.name][1]:
            raise NoCheckpointError(candidate.name)

    def by_time(name: str) -> tuple[Any, ...]:
        return found[name][0], numbers_in(name), name

    def by_number(name: str) -> tuple[Any, ...]:
        return numbers_in(name), found[name][0], name

    wholes = [name for name, (_, is_whole) in found.items() if is_whole]
    expected = max(wholes, key=by_time, default=None)
    if expected is not None and by == "number":
        text = group_of(expected)
        expected = max((name for name in wholes if group_of(name) == text), key=by_number)
    root: Any = SimpleNamespace(url_of=lambda name: name, url="")
    assert newest(root, candidates, require_whole, by) == expected


def test_a_folder_counts_when_its_metadata_is_there(tmp_path: Path) -> None:
    put(tmp_path, "step1/.metadata", METADATA, 100)
    put(tmp_path, "step1/__0_0.distcp", DATA, 99)
    put(tmp_path, "step2/__0_0.distcp", DATA, 200)
    assert latest(tmp_path) == "step1"
    put(tmp_path, "step2/.metadata", METADATA, 201)
    assert latest(tmp_path) == "step2"
    put(tmp_path, "single.pt", DATA, 202)
    assert latest(tmp_path) == "single.pt"


def test_none_is_none(tmp_path: Path) -> None:
    assert headrace.checkpoint.latest(tmp_path) is None
    put(tmp_path, "cut.pt", DATA[:-1], 200)
    assert headrace.checkpoint.latest(tmp_path) is None


def test_a_directory_is_not_the_beginning_of_its_neighbours_name(tmp_path: Path) -> None:
    put(tmp_path, "run1/a.pt", DATA, 100)
    put(tmp_path, "run10/b.pt", DATA, 200)
    assert latest(tmp_path / "run1") is not None
    assert str(headrace.checkpoint.latest(tmp_path / "run1")).endswith("/run1/a.pt")


def test_without_times_numbers_in_names_decide(
    ais_server: FaultServer, ais: headrace.Store
) -> None:
    for step in (8, 9, 10, 11):
        headrace.checkpoint.save({"a": torch.tensor(step)}, f"run/step-{step}", store=ais)
    assert all(info.updated is None for info in ais.list())
    assert ais.stat("run/step-8").updated is None
    assert headrace.checkpoint.latest("run", store=ais) == "ais://bucket/run/step-11"
    # An older name that is saved again is not taken for newer: nothing tells that it is.
    headrace.checkpoint.save({"a": torch.tensor(9)}, "run/step-9", store=ais)
    ais.read("run/step-8")
    assert headrace.checkpoint.latest("run", store=ais) == "ais://bucket/run/step-11"
    # Neither what is torn nor what is something else.
    ais.write("run/step-12", DATA[:-1])
    ais.write("run/log-13.txt", b"loss 0.1")
    ais.write("run/step-14/__0_0.distcp", DATA)
    assert headrace.checkpoint.latest("run", store=ais) == "ais://bucket/run/step-11"
    # A folder counts with its metadata.
    ais.write("run/step-14/.metadata", METADATA)
    assert headrace.checkpoint.latest("run", store=ais) == "ais://bucket/run/step-14"


def test_without_times_other_names_cannot_be_compared(ais: headrace.Store) -> None:
    for name in ("run/best.pt", "run/last.pt"):
        headrace.checkpoint.save({"a": torch.tensor(1)}, name, store=ais)
    with pytest.raises(headrace.InvalidArgumentError, match=r"best\.pt or .*last\.pt the newest"):
        headrace.checkpoint.latest("run", store=ais)
    ais.delete("run/best.pt")
    assert headrace.checkpoint.latest("run", store=ais) == "ais://bucket/run/last.pt"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_of_a_real_cluster_the_newest_is_found(ais_cluster: Any, ais_bucket: str) -> None:
    store = headrace.Store(f"ais://{ais_bucket}", endpoint=ais_cluster.url)
    for step in (8, 9, 10, 11):
        headrace.checkpoint.save({"a": torch.tensor(step)}, f"ck/step-{step}", store=store)
    assert headrace.checkpoint.latest("ck", store=store) == f"ais://{ais_bucket}/ck/step-11"
    torch.distributed.checkpoint.save(
        {"a": torch.arange(4)},
        storage_writer=headrace.checkpoint.DistributedWriter("ck/step-100", store=store),
    )
    assert headrace.checkpoint.latest("ck", store=store) == f"ais://{ais_bucket}/ck/step-100"
    store.delete("ck/step-100/.metadata")
    assert headrace.checkpoint.latest("ck", store=store) == f"ais://{ais_bucket}/ck/step-11"


def test_a_bucket_is_searched_by_prefix(server: FaultServer, gcs: headrace.Store) -> None:
    for name in ("run1/step1.pt", "run1/step2.pt", "run2/step9.pt"):
        server.put("bucket", name, DATA)
    found = headrace.checkpoint.latest("run1/", store=gcs)
    assert found == "gs://bucket/run1/step2.pt"
    # One listing, and the ends of one object: it is small.
    by_kind = server.stats()["by_kind"]
    assert {kind: count for kind, count in by_kind.items() if count} == {"list": 1, "media": 1}
    again = headrace.checkpoint.load(found.removeprefix("gs://bucket/"), store=gcs)
    assert again["a"].tolist() == list(range(10))


@pytest.mark.parametrize(
    ("replacements", "expected"),
    [([DATA], "2.pt"), ([DATA[:-1]], "1.pt"), ([None], "1.pt"), ([DATA, DATA], "1.pt")],
    ids=["by another", "by a cut one", "deleted", "again and again"],
)
def test_a_file_that_is_replaced_meanwhile_is_looked_at_once_more(
    replacements: list[bytes | None],
    expected: str,
    server: FaultServer,
    gcs: headrace.Store,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.put("bucket", "1.pt", DATA)
    server.put("bucket", "2.pt", DATA)
    left = list(replacements)
    read_ranges = gcs._derived(on_change="error").read_ranges

    def replace_and_read(wanted: Any, **options: Any) -> Any:
        if wanted[0][0].name == "2.pt" and left:
            data = left.pop(0)
            if data is None:
                gcs.delete("2.pt")
            else:
                server.put("bucket", "2.pt", data)
        return read_ranges(wanted, **options)

    monkeypatch.setattr(_archive, "pinned", lambda _: SimpleNamespace(read_ranges=replace_and_read))
    assert headrace.checkpoint.latest("", store=gcs) == f"gs://bucket/{expected}"
    assert left == []


def test_what_latest_says_of_nothing_cannot_be_loaded(tmp_path: Path) -> None:
    newest = headrace.checkpoint.latest(tmp_path)
    assert newest is None
    for use in (headrace.checkpoint.load, headrace.checkpoint.open):
        with pytest.raises(TypeError, match=r"what checkpoint\.latest says if there is none yet"):
            use(newest)  # type: ignore[arg-type]
