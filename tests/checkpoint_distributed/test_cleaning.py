"""Files of saves that were killed: what `clean` takes away, and what it never does."""

from __future__ import annotations

import gzip
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.filesystem import FileSystemWriter

import headrace
from testing.faultserver.client import FaultServer
from tests.checkpoint_distributed.conftest import Place, assert_same, blank, file_place, gcs_place
from tests.nursery import Nursery

KilledSave = Callable[[Place], None]

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

STATE = {f"w{i}": torch.full((1000,), float(i)) for i in range(8)}

KILLED = """
import os, pickle, signal, sys
import torch
import torch.distributed.checkpoint as dcp
from headrace.checkpoint import DistributedWriter

class Killed(DistributedWriter):
    def finish(self, metadata, results):
        os.kill(os.getpid(), signal.SIGKILL)

options = pickle.loads(bytes.fromhex(sys.argv[2]))
state = {f"w{i}": torch.full((1000,), -1.0) for i in range(8)}
dcp.save(state, storage_writer=Killed(sys.argv[1], thread_count=2, **options))
"""


def clean(place: Place, **options: Any) -> headrace.Cleaned:
    store = headrace.Store(f"{place.url}/", **place.options)
    return headrace.clean(store, **({"older_than_s": 0, "checkpoints": True} | options))


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    imports = "import torch.distributed.checkpoint, headrace.checkpoint"
    with Nursery(imports, warnings_are_errors=False) as nursery:
        yield nursery


@pytest.fixture
def killed_save(nursery: Nursery, tmp_path_factory: pytest.TempPathFactory) -> KilledSave:
    folder = tmp_path_factory.mktemp("killed")

    def killed_save(place: Place) -> None:
        options = pickle.dumps(place.options).hex()
        nursery.run(folder, KILLED, place.url, options, expect_code=-9, stderr=None)

    return killed_save


def deleted(cleaned: headrace.Cleaned) -> list[str]:
    return sorted(info.name.rpartition("/")[2] for info in cleaned.deleted)


def loaded(place: Place) -> dict[str, Any]:
    state = blank(STATE)
    dcp.load(state, storage_reader=place.reader())
    return state


@pytest.mark.every_store
def test_a_save_that_was_killed_leaves_nothing_behind_clean(
    killed_save: KilledSave, place: Place
) -> None:
    killed_save(place)
    names = place.names()
    assert len(names) == 2
    assert deleted(clean(place, checkpoints=False)) == []
    looked = clean(place, older_than_s=3600)
    assert deleted(looked) == []
    assert sorted(info.name.rpartition("/")[2] for info in looked.younger) == names
    assert deleted(clean(place, dry_run=True)) == names
    assert place.names() == names
    assert deleted(clean(place)) == names
    assert place.names() == []


def test_the_checkpoint_that_was_there_before_keeps_all_that_it_needs(
    killed_save: KilledSave, place: Place
) -> None:
    writer = place.writer(thread_count=3)
    writer.attach({"meta.pt": b"small"})
    dcp.save(STATE, storage_writer=writer)
    before = place.names()
    killed_save(place)
    assert len(place.names()) == len(before) + 2
    assert len(deleted(clean(place))) == 2
    assert place.names() == before
    assert_same(loaded(place), STATE)
    assert place.reader().attachment("meta.pt") == b"small"


def test_of_complete_checkpoints_of_every_kind_nothing_is_deleted(tmp_path: Path) -> None:
    place = file_place(tmp_path)
    for name, options in {
        "threads": {"thread_count": 4},
        "each": {"single_file_per_rank": False},
        "again": {},
    }.items():
        for _ in range(2):  # the second one replaces the first
            dcp.save(
                STATE,
                storage_writer=headrace.checkpoint.DistributedWriter(tmp_path / name, **options),  # type: ignore[arg-type]
            )
    alone = headrace.checkpoint.DistributedWriter(tmp_path / "alone")
    dcp.save(STATE, storage_writer=alone, use_collectives=False)
    dcp.save(STATE, storage_writer=FileSystemWriter(tmp_path / "stock"))
    (tmp_path / "stock" / ".metadata").unlink()  # theirs to clean
    before = sorted(tmp_path.rglob("*"))
    assert deleted(clean(place)) == []
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_replaced_checkpoint_left_is_deleted(gcs: Place, server: FaultServer) -> None:
    dcp.save(STATE, storage_writer=gcs.writer())
    server.faults([{"match": {"kind": "delete"}, "action": {"status": 403}}])
    dcp.save(STATE, storage_writer=gcs.writer())
    server.faults([])
    assert len(gcs.data_names()) == 2
    assert len(deleted(clean(gcs))) == 1
    assert_same(loaded(gcs), STATE)


def test_where_metadata_cannot_be_read_nothing_is_deleted(gcs: Place, server: FaultServer) -> None:
    dcp.save(STATE, storage_writer=gcs.writer())
    gcs.put(f"__0_0-{7:032x}.distcp", b"of a killed save")
    names = gcs.names()
    server.faults([{"match": {"kind": "media"}, "action": {"status": 403}}])
    cleaned = clean(gcs)
    assert gcs.names() == names
    assert deleted(cleaned) == []
    assert [type(error) for _, error in cleaned.failed] == [headrace.PermissionDeniedError]
    server.faults([])
    assert deleted(clean(gcs)) == [f"__0_0-{7:032x}.distcp"]


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data.replace(b".distcp", b".distcq", 1), id="a bit"),
        pytest.param(lambda data: data[: len(data) // 10], id="cut"),
        pytest.param(lambda data: data[:-1], id="cut in its checksum"),
        pytest.param(lambda data: data[:-9] + b"x" + data[-8:], id="its checksum's name"),
        pytest.param(lambda data: b"", id="empty"),
        pytest.param(gzip.compress, id="compressed"),
    ],
)
def test_where_metadata_is_damaged_nothing_is_deleted(place: Place, damage: Any) -> None:
    dcp.save(STATE, storage_writer=place.writer())
    place.put(f"__0_0-{7:032x}.distcp", b"of a killed save")
    good = place.get(".metadata")
    place.put(".metadata", damage(good))
    names = place.names()
    cleaned = clean(place)
    assert place.names() == names
    assert deleted(cleaned) == []
    ((name, error),) = cleaned.failed
    assert name.endswith(".metadata")
    assert isinstance(error, headrace.CorruptDataError)
    place.put(".metadata", good)
    assert deleted(clean(place)) == [f"__0_0-{7:032x}.distcp"]
    assert_same(loaded(place), STATE)


def test_a_prefix_is_a_folder_and_not_the_beginning_of_its_name(
    gcs: Place, server: FaultServer
) -> None:
    left = f"__0_0-{7:032x}.distcp"
    gcs.put(left, b"data")
    bucket, _, prefix = gcs.url.removeprefix("gs://").partition("/")
    server.put(bucket, f"{prefix}0/{left}", b"data")
    store = headrace.Store(gcs.url, **gcs.options)
    cleaned = headrace.clean(store, older_than_s=0, checkpoints=True)
    assert [info.name for info in cleaned.deleted] == [f"{prefix}/{left}"]


def test_what_links_lead_to_stays(tmp_path: Path) -> None:
    for folder in ("run", "outside"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"__0_0-{7:032x}.distcp").write_bytes(b"data")
    (tmp_path / "run" / "link").symlink_to(tmp_path / "outside")
    cleaned = headrace.clean(tmp_path / "run", older_than_s=0, checkpoints=True)
    assert deleted(cleaned) == [f"__0_0-{7:032x}.distcp"]
    assert len(list((tmp_path / "outside").iterdir())) == 1


def test_a_refused_list_of_uploads_does_not_end_it(gcs: Place, server: FaultServer) -> None:
    left = f"__0_0-{7:032x}.distcp"
    gcs.put(left, b"data")
    server.faults([{"match": {"kind": "multipart_list"}, "action": {"status": 403}}])
    cleaned = clean(gcs)
    assert deleted(cleaned) == [left]
    assert [type(error) for _, error in cleaned.failed] == [headrace.PermissionDeniedError]


def test_metadata_is_searched_and_not_executed(place: Place, tmp_path: Path) -> None:
    needed, other = f"__0_0-{1:032x}.distcp", f"__0_0-{2:032x}.distcp"

    class Shouts:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    place.put(needed, b"data")
    place.put(other, b"data")
    place.put("__3.metadata", pickle.dumps([Shouts(), needed]))
    assert deleted(clean(place)) == [other]
    assert place.names() == sorted(["__3.metadata", needed])
    assert not (tmp_path / "executed").exists()


def test_names_that_are_not_ours_stay(place: Place) -> None:
    names = ["__0_0.distcp", f"__0_0-{1:032x}.distcp.old", f"a-{1:032x}.distcp", "weights.pt"]
    for name in names:
        place.put(name, b"data")
    assert deleted(clean(place)) == []
    assert place.names() == sorted(names)


@pytest.mark.parametrize("on", ["file", "gs"])
@pytest.mark.parametrize(("at", "beside"), [("step200", "step2000"), ("step2000", "step200")])
def test_a_step_whose_name_begins_as_anothers_does_is_another(
    killed_save: KilledSave,
    tmp_path: Path,
    server: FaultServer,
    bucket: str,
    on: str,
    at: str,
    beside: str,
) -> None:
    def place(step: str) -> Place:
        return file_place(tmp_path / step) if on == "file" else gcs_place(server, bucket, step)

    def latest(where: Place) -> str | None:
        if on == "file":
            return headrace.checkpoint.latest(where.url)
        whole = headrace.Store(f"gs://{bucket}", **where.options)
        return headrace.checkpoint.latest(where.url.rpartition("/")[2], store=whole)

    here, other = place(at), place(beside)
    killed_save(here)
    dcp.save(STATE, storage_writer=other.writer())
    complete = other.names()
    assert latest(here) is None
    assert latest(other) == other.url
    assert len(deleted(clean(here))) == 2
    assert (here.names(), other.names()) == ([], complete)
    dcp.save({"w0": torch.ones(3)}, storage_writer=here.writer())
    assert latest(here) == here.url
    assert latest(other) == other.url
    state = {"w0": torch.zeros(3)}
    dcp.load(state, storage_reader=here.reader())
    assert state["w0"].tolist() == [1, 1, 1]
    assert_same(loaded(other), STATE)
    # A save that replaces one deletes that one's files, and no others.
    dcp.save({"w0": torch.full((3,), 2.0)}, storage_writer=here.writer())
    assert len(here.data_names()) == 1
    assert other.names() == complete
    assert deleted(clean(here)) == deleted(clean(other)) == []
