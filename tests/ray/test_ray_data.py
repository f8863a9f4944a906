"""Datasets of Ray Data, on a cluster of two nodes."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.ray_cluster import TwoNodes
from tests.shards.tars import tar
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.timeout(600),
    # Ray Data warns of its own defaults, and does not close what its progress writes to.
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore:.use_push_based_shuffle. is deprecated:DeprecationWarning"),
]

COUNT = 60


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[TwoNodes]:
    with TwoNodes() as nodes:
        yield nodes


def fill(store: headrace.Store) -> dict[str, bytes]:
    content = {f"{i:03d}.bin": b"%03d." % i * (i * 37 % 100) for i in range(COUNT)}
    for name, data in content.items():
        store.write(name, data)
    return {store.url_of(name): data for name, data in content.items()}


def test_each_object_is_a_row_and_is_read_once(gcs: headrace.Store, server: FaultServer) -> None:
    wanted = fill(gcs)
    begin = len(server.log())
    dataset = headrace.ray.read_objects(gcs, block_bytes=2000, override_num_blocks=4)
    assert dataset.schema().names == ["url", "bytes"]
    rows = dataset.take_all()
    assert len(rows) == COUNT
    assert {row["url"]: row["bytes"] for row in rows} == wanted
    reads = Counter(each["target"] for each in server.log()[begin:] if each["kind"] == "media")
    assert set(reads.values()) == {1}


def test_columns_of_an_index_are_columns(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    fill(store)
    labels = list(range(COUNT))
    index = store.index().with_columns(
        {"label": labels, "kind": [f"k{i}" for i in labels], "even": [i % 2 == 0 for i in labels]}
    )
    dataset = headrace.ray.read_objects(index[10:20], block_bytes=1)
    assert dataset.schema().types[-1] == pyarrow.bool_()
    rows = dataset.take_all()
    assert sorted((row["label"], row["kind"], row["even"]) for row in rows) == [
        (i, f"k{i}", i % 2 == 0) for i in range(10, 20)
    ]


def test_samples_of_shards_have_a_column_for_each_field(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for shard in range(3):
        store.write(
            f"{shard}.tar",
            tar(
                (f"{i:03d}.{field}", f"{field} {i}".encode())
                for i in range(shard * 5, shard * 5 + 5)
                for field in (("jpg", "cls") if i % 2 else ("jpg",))
            ),
        )
    dataset = headrace.ray.read_shards(tmp_path, block_bytes=3000)
    assert dataset.schema().names == ["__key__", "__url__", "cls", "jpg"]
    rows = sorted(dataset.take_all(), key=lambda row: row["__key__"])
    assert [row["jpg"] for row in rows] == [f"jpg {i}".encode() for i in range(15)]
    assert [row["cls"] for row in rows] == [
        f"cls {i}".encode() if i % 2 else None for i in range(15)
    ]
    assert rows[7]["__url__"] == store.url_of("1.tar")
    indexed = headrace.ray.read_shards(headrace.index_members(tmp_path), fields=["jpg"])
    assert indexed.schema().names == ["__key__", "__url__", "jpg"]
    assert indexed.count() == 15


def test_blocks_of_samples_do_not_keep_the_memory_of_the_samples() -> None:
    values = [bytearray(b"abc"), bytearray(), bytearray(b"de")]
    column = headrace.ray._content([values[0], None, values[1], memoryview(values[2])])
    column.validate(full=True)
    assert column.type == pyarrow.large_binary()
    assert column.to_pylist() == [b"abc", None, b"", b"de"]
    for value in values:
        value.clear()  # raises if somebody still has a view of it
    assert headrace.ray._content([b"1", b""]).to_pylist() == [b"1", b""]


def test_a_killed_process_is_read_again_and_each_row_comes_once(tmp_path: Path) -> None:
    wanted = fill(headrace.Store(tmp_path / "in"))
    marker = tmp_path / "killed"

    def kill_once(block: pyarrow.Table) -> pyarrow.Table:
        if any(url.endswith("031.bin") for url in block["url"].to_pylist()):
            try:
                marker.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return block

    dataset = headrace.ray.read_objects(tmp_path / "in", block_bytes=500, override_num_blocks=4)
    rows = dataset.map_batches(kill_once, batch_format="pyarrow", batch_size=None).take_all()
    assert marker.exists()
    assert len(rows) == COUNT
    assert {row["url"]: row["bytes"] for row in rows} == wanted


@pytest.mark.parametrize(
    ("wrong", "told"),
    [({"block_bytes": 0}, "block_bytes is 0")],
)
def test_arguments_that_cannot_be_are_refused(
    tmp_path: Path, wrong: dict[str, Any], told: str
) -> None:
    fill(headrace.Store(tmp_path))
    with pytest.raises(headrace.InvalidArgumentError, match=told):
        headrace.ray.read_objects(tmp_path, **wrong)


def test_a_source_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(headrace.NotFoundError):
        headrace.ray.read_objects(tmp_path / "nothing")


def test_a_task_has_two_blocks_at_most(gcs: headrace.Store, server: FaultServer) -> None:
    for i in range(12):
        gcs.write(f"{i:02d}", bytes(1000))
    read = headrace.ray._Entries(gcs.index(), (gcs,), 3000, None)
    (task,) = read.get_read_tasks(1)
    begin = len(server.log())

    def objects_read() -> int:
        return sum(each["kind"] == "media" for each in server.log()[begin:])

    blocks = iter(task())
    next(blocks)
    blocks.close()  # type: ignore[attr-defined]
    # One block was handed over, and the next was being read; the other two were not begun.
    assert objects_read() <= 2 * 3


MIB = 1 << 20


@pytest.mark.parametrize(
    ("objects", "cpus", "tasks"),
    [
        (1000, 2, 16),  # of two blocks of 32 objects each
        (1000, 64, 256),  # of blocks of 3
        (100, 80, 100),  # of one each: two for a CPU would be less than an object
        (3, 8, 3),
        (1, 1, 1),
    ],
)
def test_every_cpu_has_tasks_and_each_task_two_blocks_at_most(
    objects: int, cpus: int, tasks: int
) -> None:
    index = headrace.ObjectIndex.from_names(
        [f"{i:04d}" for i in range(objects)], sizes_bytes=[MIB] * objects, root="gs://bucket"
    )
    read = headrace.ray._Entries(index, (headrace.Store("gs://bucket"),), 32 * MIB, None)
    assert read.cut(cpus) == tasks
    runs = [task.read_fn for task in read.get_read_tasks(tasks)]
    assert len(runs) == tasks
    assert max(len(run.ends) for run in runs) <= 2
    assert sum(run.ends[-1] for run in runs) == objects


def test_ray_does_not_cut_blocks_again(gcs: headrace.Store) -> None:
    fill(gcs)
    dataset = headrace.ray.read_objects(gcs).materialize()
    assert "SplitBlocks" not in dataset.stats()
    assert sorted(row["url"] for row in dataset.take_all()) == sorted(
        gcs.url_of(f"{i:03d}.bin") for i in range(COUNT)
    )


def test_a_consumer_that_stops_has_two_blocks_a_slot_read_ahead(server: FaultServer) -> None:
    object_bytes, slots = 1 << 18, 2
    server.synthetic("many", 1200, object_bytes, shape="flat")
    dataset = headrace.ray.read_objects(
        "gs://many", endpoint=server.url, credentials="anonymous", block_bytes=1 << 20,
        override_num_blocks=8,
    )  # fmt: skip
    batches = iter(
        dataset.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0)
    )
    taken = next(batches).num_rows  # Ray has put several blocks into one

    def objects_read() -> int:
        return sum(each["kind"] == "media" for each in server.log())

    count, since_s = objects_read(), time.monotonic()

    def nothing_more_is_read() -> bool:  # for now, or for good
        nonlocal count, since_s
        if (found := objects_read()) != count:
            count, since_s = found, time.monotonic()
        return time.monotonic() - since_s >= 10

    wait_until(nothing_more_is_read)
    assert taken <= count <= taken * (1 + 2 * slots)
    assert count < 1200
    rest = sum(batch.num_rows for batch in batches)
    assert taken + rest == 1200


def test_the_cpus_of_read_tasks_are_those_of_the_cluster_or_fewer(cluster: TwoNodes) -> None:
    every = headrace.ray._cpus(None)
    assert every >= 2
    assert [headrace.ray._cpus(each) for each in (1, every + 5, 0)] == [1, every, 1]
