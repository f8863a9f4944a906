"""The newest complete checkpoint under a prefix."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint

import headrace
import headrace.checkpoint
from headrace.checkpoint import _archive
from testing.faultserver.client import FaultServer
from tests.checkpoint.states import file_of, stock_file_of

DATA = file_of({"a": torch.arange(10)})


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


def test_a_folder_counts_when_its_metadata_is_there(tmp_path: Path) -> None:
    put(tmp_path, "step1/.metadata", b"x", 100)
    put(tmp_path, "step1/__0_0.distcp", DATA, 99)
    put(tmp_path, "step2/__0_0.distcp", DATA, 200)
    assert latest(tmp_path) == "step1"
    put(tmp_path, "step2/.metadata", b"x", 201)
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
    ais.write("run/step-14/.metadata", b"x")
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
