"""`ParquetDataset`: what it yields, in which order, to whom; what it reads; how it is resumed."""

from __future__ import annotations

import copy
import errno
import gc
import io
import itertools
import logging
import pickle
import random
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pyarrow as pa
import pytest
import torch
from pyarrow import dataset as arrow_dataset
from pyarrow import parquet as pq
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import headrace
from headrace.torch import ParquetDataset
from headrace.torch._parquet_files import GroupRead, RowGroups
from testing.faultserver.client import FaultServer
from tests.parquet.tables import fill, number_of, packed, table
from tests.waiting import wait_until

COUNTS = [25, 10, 0, 7, 40, 1, 18]  # rows of each file; one has no row group


def number(row: dict[str, Any]) -> int:
    return int(row["number"])


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    """Seven files, of 101 rows in 13 row groups."""
    store = headrace.Store(tmp_path_factory.mktemp("local"))
    assert fill(store, COUNTS) == 101
    return store


def numbers_of(batches: Any) -> list[int]:
    return [i for batch in batches for i in batch["number"].tolist()]


# ---- what it yields


@pytest.mark.every_store
@pytest.mark.parametrize("shuffle", [False, True])
def test_it_yields_every_row_once(store: headrace.Store, shuffle: bool) -> None:
    count = fill(store, COUNTS)
    dataset = ParquetDataset(store, number_of, shuffle=shuffle)
    assert dataset.row_count == count
    for _ in range(2):
        numbers = list(dataset)
        assert sorted(numbers) == list(range(count))
        assert (numbers == sorted(numbers)) is not shuffle


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("use_dictionary", [False, True])
def test_the_rows_are_those_of_pyarrow(
    tmp_path: Path, compression: str, use_dictionary: bool
) -> None:
    rows = pa.table(
        {
            "a": pa.array([1, None, 3] * 50, pa.int32()),
            "b.c": pa.array([1.5, -2.0, float("inf")] * 50),
            "s": pa.array([{"bytes": b"x", "path": "y"}, {"bytes": None, "path": "z"}, None] * 50),
            "t": pa.array(["x", "", None] * 50).dictionary_encode(),
            "when": pa.array([0, 1, 2] * 50, pa.timestamp("us")),
            "deep": pa.array([[[1], []], None, [[2, 3], [4]]] * 50),
            "u": pa.array([0, 2**32 - 1, 7] * 50, pa.uint32()),
        }
    )
    for i in range(3):
        options = {"compression": compression, "use_dictionary": use_dictionary}
        (tmp_path / f"{i}.parquet").write_bytes(packed(rows, 40, **options))
    wanted = arrow_dataset.dataset(tmp_path, format="parquet").to_table().to_pylist()
    assert list(ParquetDataset(tmp_path)) == wanted
    columns = ["s", "b.c"]
    assert list(ParquetDataset(f"{tmp_path}/*.parquet", columns=columns)) == [
        {name: row[name] for name in columns} for row in wanted
    ]


def test_batches_are_tensors_of_numbers_and_lists_of_others(local: headrace.Store) -> None:
    batches = list(ParquetDataset(local, batch_size=16))
    assert [len(batch["text"]) for batch in batches] == [16] * 6 + [5]
    first = batches[0]
    assert first["number"].tolist() == list(range(16))
    assert first["number"].dtype == torch.int64
    assert first["even"].tolist() == [True, False] * 8
    assert first["even"].dtype == torch.bool
    assert first["pair"].shape == (16, 2)
    assert first["pair"].dtype == torch.float32
    assert first["pair"][15].tolist() == [15, -15]
    assert first["text"][3] == "row 3"
    assert [each.tolist() for each in first["tokens"][:3]] == [[], [0], [0, 1]]


def test_a_transform_of_batches_gets_a_table(local: headrace.Store) -> None:
    kinds = set()

    def sums(rows: pa.Table) -> int:
        kinds.add(type(rows))
        return int(sum(rows["number"].to_pylist()))

    dataset = ParquetDataset(local, sums, columns=["number"], batch_size=10, shuffle=True)
    assert sum(dataset) == sum(range(101))
    assert kinds == {pa.Table}


@pytest.mark.parametrize("shuffle", [False, True])
def test_no_batch_but_the_last_is_short(local: headrace.Store, shuffle: bool) -> None:
    batches = list(ParquetDataset(local, columns=["number"], batch_size=13, shuffle=shuffle))
    assert [len(batch["number"]) for batch in batches] == [13] * 7 + [10]
    assert sorted(numbers_of(batches)) == list(range(101))
    dropped = ParquetDataset(
        local, columns=["number"], batch_size=13, shuffle=shuffle, drop_last=True
    )
    assert [len(batch["number"]) for batch in dropped] == [13] * 7


def test_unsigned_numbers_become_signed_ones_that_hold_them(tmp_path: Path) -> None:
    values = {pa.uint8(): 255, pa.uint16(): 65535, pa.uint32(): 2**32 - 1, pa.uint64(): 2**63 - 1}
    rows = pa.table({str(kind): pa.array([value], kind) for kind, value in values.items()})
    (tmp_path / "a.parquet").write_bytes(packed(rows))
    [batch] = ParquetDataset(tmp_path, batch_size=1)
    assert [tensor.item() for tensor in batch.values()] == list(values.values())
    assert [tensor.dtype for tensor in batch.values()] == [
        torch.uint8, torch.int32, torch.int64, torch.int64,
    ]  # fmt: skip


def test_a_null_among_numbers_is_no_number(tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array([1, None])})
    (tmp_path / "a.parquet").write_bytes(packed(rows))
    assert list(ParquetDataset(tmp_path)) == [{"a": 1}, {"a": None}]
    with pytest.raises(headrace.InvalidArgumentError, match=r"'a' has a null, .*give a transform"):
        list(ParquetDataset(tmp_path, batch_size=2))


def test_an_error_of_a_transform_names_the_row(local: headrace.Store) -> None:
    def decode(row: dict[str, Any]) -> int:
        if row["number"] == 48:
            raise ValueError("odd")
        return int(row["number"])

    with pytest.raises(ValueError, match=r"odd.*part-004.parquet") as caught:
        list(ParquetDataset(local, decode))
    assert "in row 6 of row group 0, number 48 of the dataset" in caught.value.__notes__


# ---- order


def test_each_epoch_has_an_order_that_depends_on_the_seed(local: headrace.Store) -> None:
    dataset = ParquetDataset(local, number, columns=["number"], shuffle=True, seed=5)
    orders = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        orders.append(list(dataset))
    assert len({tuple(order) for order in orders}) == 3
    dataset.set_epoch(1)
    assert list(dataset) == orders[1]
    same = ParquetDataset(local, number, columns=["number"], shuffle=True, seed=5)
    assert list(same) == orders[0]
    other = ParquetDataset(local, number, columns=["number"], shuffle=True, seed=6)
    assert list(other) != orders[0]


@pytest.mark.parametrize("batch_size", [1, 7, 64])
def test_rows_and_batches_come_in_the_same_order(local: headrace.Store, batch_size: int) -> None:
    options: dict[str, Any] = {"columns": ["number"], "shuffle": True, "seed": 3}
    rows = list(ParquetDataset(local, number, **options))
    assert numbers_of(ParquetDataset(local, batch_size=batch_size, **options)) == rows


def test_rows_are_mixed_over_the_open_row_groups(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    fill(store, [2000], group_rows=100)
    order = list(ParquetDataset(store, number, columns=["number"], shuffle=True, shuffle_groups=4))
    assert sorted(order) == list(range(2000))
    first = Counter(i // 100 for i in order[:100])
    assert len(first) == 4
    assert min(first.values()) >= 8  # of 25
    follow = sum(b == a + 1 for a, b in itertools.pairwise(order))
    assert follow < 40  # 5 on average where nothing follows anything
    # A row's place in its row group says nothing about its place in the epoch.
    places = [order.index(i * 100 + k) for k in (0, 99) for i in range(20)]
    assert abs(statistics.mean(places[:20]) - statistics.mean(places[20:])) < 500


def test_random_transforms_depend_on_seed_and_epoch_alone(local: headrace.Store) -> None:
    def draw(row: dict[str, Any]) -> tuple[int, float, float]:
        return row["number"], random.random(), float(torch.rand(()))

    dataset = ParquetDataset(local, draw, columns=["number"], shuffle=True)
    before = torch.get_rng_state()
    one = sorted(dataset)
    assert torch.equal(torch.get_rng_state(), before)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    dataset.set_epoch(0)
    assert sorted(map(tuple, loader)) == one
    assert len({each[1] for each in one}) == 101
    dataset.set_epoch(1)
    assert sorted(dataset) != one


# ---- ranks and workers


@pytest.mark.parametrize("batch_size", [None, 8])
@pytest.mark.parametrize("uneven", ["drop", "pad", "keep"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_ranks_have_equal_steps(
    local: headrace.Store, world_size: int, uneven: Any, batch_size: int | None
) -> None:
    ranks = [
        list(
            ParquetDataset(
                local, columns=["number"], shuffle=True, uneven=uneven, batch_size=batch_size,
                rank=rank, world_size=world_size,
            )
        )
        for rank in range(world_size)
    ]  # fmt: skip
    found = Counter(
        i
        for items in ranks
        for i in (map(number, items) if batch_size is None else numbers_of(items))
    )
    lengths = {len(items) for items in ranks}
    remainder = 101 % world_size
    if uneven == "drop":
        assert len(lengths) == 1
        assert sum(found.values()) == len(found) == 101 - remainder
    elif uneven == "pad":
        assert len(lengths) == 1
        assert len(found) == 101
        assert sum(found.values()) == 101 + (world_size - remainder if remainder else 0)
    else:
        assert found == Counter(range(101))


@pytest.mark.parametrize("workers", [1, 2])
def test_workers_share_the_rows_and_one_batch_is_short(local: headrace.Store, workers: int) -> None:
    dataset = ParquetDataset(local, columns=["number"], batch_size=8, shuffle=True)
    batches = list(DataLoader(dataset, batch_size=None, num_workers=workers))
    assert [len(batch["number"]) for batch in batches] == [8] * 12 + [5]
    assert sorted(numbers_of(batches)) == list(range(101))


def test_workers_that_are_spawned(local: headrace.Store) -> None:
    dataset = ParquetDataset(local, columns=["number"], batch_size=8, shuffle=True)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, multiprocessing_context="spawn")
    assert sorted(numbers_of(loader)) == list(range(101))


def test_persistent_workers_see_the_epoch(local: headrace.Store) -> None:
    dataset = ParquetDataset(local, columns=["number"], batch_size=8, shuffle=True)
    loader = DataLoader(dataset, batch_size=None, num_workers=2, persistent_workers=True)
    orders = []
    for epoch in (0, 1, 0):
        dataset.set_epoch(epoch)
        orders.append(numbers_of(loader))
    assert orders[0] == orders[2] != orders[1]
    assert all(sorted(order) == list(range(101)) for order in orders)


# ---- states


@hypothesis.given(st.data())
def test_a_pass_continues_where_it_stopped(local: headrace.Store, data: st.DataObject) -> None:
    options: dict[str, Any] = {
        "columns": ["number"],
        "shuffle": data.draw(st.booleans()),
        "shuffle_groups": data.draw(st.integers(1, 6)),
        "batch_size": data.draw(st.sampled_from([None, 1, 3, 8, 200])),
        "seed": data.draw(st.integers(0, 3)),
    }
    whole = [str(item) for item in ParquetDataset(local, **options)]
    stop = data.draw(st.integers(0, len(whole)))
    dataset = ParquetDataset(local, **options)
    found = [str(item) for item in itertools.islice(dataset, stop)]
    state = copy.deepcopy(dataset.state_dict())
    other = ParquetDataset(local, **options)
    other.load_state_dict(pickle.loads(pickle.dumps(state)))
    second = data.draw(st.integers(0, len(whole) - stop))
    found += [str(item) for item in itertools.islice(other, second)]
    last = ParquetDataset(local, **options)
    last.load_state_dict(other.state_dict())
    assert found + [str(item) for item in last] == whole


@hypothesis.given(st.data())
def test_every_row_once_whatever_readers_stop_and_go_on(
    local: headrace.Store, data: st.DataObject
) -> None:
    found: list[int] = []
    states: list[Any] = []
    for stage in range(4):
        world_size = data.draw(st.integers(1, 7))
        batch_size = data.draw(st.sampled_from([None, 1, 3, 8, 200]))
        readers = [
            ParquetDataset(
                local, columns=["number"], shuffle=True, shuffle_groups=3, uneven="keep",
                batch_size=batch_size, rank=rank, world_size=world_size,
            )
            for rank in range(world_size)
        ]  # fmt: skip
        for reader in readers:
            if states:
                reader.load_state_dict(states)
            stop = None if stage == 3 else data.draw(st.integers(0, 30))
            items = list(itertools.islice(reader, stop))
            found += map(number, items) if batch_size is None else numbers_of(items)
        states = [reader.state_dict() for reader in readers]
    assert Counter(found) == Counter(range(101))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 1), (2, 0), (0, 2), (1, 2)])
def test_stateful_dataloaders_go_on_with_other_workers(
    local: headrace.Store, before: int, after: int
) -> None:
    def made() -> ParquetDataset:
        return ParquetDataset(local, columns=["number"], batch_size=4, shuffle=True)

    first = StatefulDataLoader(made(), batch_size=None, num_workers=before)
    found = numbers_of(itertools.islice(first, 9))
    state = first.state_dict()
    dataset = made()
    if before == after:
        second = StatefulDataLoader(dataset, batch_size=None, num_workers=after)
        second.load_state_dict(state)
    else:
        dataset.load_state_dict([state])
        second = StatefulDataLoader(dataset, batch_size=None, num_workers=after)
    assert sorted(found + numbers_of(second)) == list(range(101))


def test_a_state_of_other_data_or_another_order_is_refused(
    local: headrace.Store, tmp_path: Path
) -> None:
    state = ParquetDataset(local, batch_size=8, shuffle=True).state_dict()
    fill(headrace.Store(tmp_path), [101])
    with pytest.raises(headrace.InvalidArgumentError, match="of other data"):
        ParquetDataset(tmp_path, batch_size=8, shuffle=True).load_state_dict(state)
    for name, options in {
        "shuffle_groups": {"batch_size": 8, "shuffle": True, "shuffle_groups": 2},
        "shuffle": {"batch_size": 8},
    }.items():
        with pytest.raises(headrace.InvalidArgumentError, match=f"the state has {name}="):
            ParquetDataset(local, **options).load_state_dict(state)  # type: ignore[arg-type]
    dataset = ParquetDataset(local, batch_size=8, shuffle=True)
    for spans in (None, [[0]], [[5, 3]], [[0, 102]], [[0, 9], [8, 20]], [["0", 9]]):
        with pytest.raises(headrace.InvalidArgumentError, match="base"):
            dataset.load_state_dict({**state, "base": {"count": 101, "spans": spans}})
    for base in (None, {"count": 102, "spans": [[0, 102]]}):
        with pytest.raises(headrace.InvalidArgumentError, match="base"):
            dataset.load_state_dict({**state, "base": base})
    for odd in ({"yielded": 102}, {"share": [3, 2]}, {"share": None}, {"share": [0, "1"]}):
        with pytest.raises(headrace.InvalidArgumentError, match="the state's share"):
            dataset.load_state_dict({**state, **odd})


def test_a_pass_may_go_on_in_batches_of_another_size(local: headrace.Store) -> None:
    first = ParquetDataset(local, batch_size=8, shuffle=True)
    whole = numbers_of(first)
    first.set_epoch(0)
    found = numbers_of(itertools.islice(first, 3))
    other = ParquetDataset(local, batch_size=5, shuffle=True)
    other.load_state_dict(first.state_dict())
    assert found + numbers_of(other) == whole


@pytest.mark.parametrize("batch_size", [None, 16])
def test_an_error_amid_a_batch_loses_no_row(
    local: headrace.Store, monkeypatch: pytest.MonkeyPatch, batch_size: int | None
) -> None:
    dataset = ParquetDataset(local, columns=["number"], batch_size=batch_size, shuffle=True)
    whole = [str(item) for item in dataset]
    decoded = GroupRead.table
    # Four row groups are opened at first; the seventh is one that takes the place of another.
    fails = iter([False] * 6 + [True])

    def table_or_error(read: GroupRead) -> Any:
        if next(fails, False):
            raise headrace.UnavailableError("the server is away")
        return decoded(read)

    monkeypatch.setattr(GroupRead, "table", table_or_error)
    found: list[str] = []
    dataset.set_epoch(0)
    with pytest.raises(headrace.UnavailableError):
        found.extend(map(str, dataset))  # keeps what comes before the error
    assert 0 < len(found) < len(whole)
    dataset.load_state_dict(dataset.state_dict())
    assert found + [str(item) for item in dataset] == whole


# ---- rows by number


@pytest.mark.parametrize("batch_size", [None, 4])
def test_rows_by_number(local: headrace.Store, batch_size: int | None) -> None:
    dataset = ParquetDataset(local, columns=["number"], batch_size=batch_size)
    wanted = [5, 100, 0, 44, 5, -1, 43]
    found = dataset.rows(wanted)
    numbers = list(map(number, found)) if batch_size is None else found["number"].tolist()
    assert numbers == [5, 100, 0, 44, 5, 100, 43]
    for bad in (101, -102):
        with pytest.raises(IndexError, match=f"row {bad} is out of range: there are 101"):
            dataset.rows([0, bad])


def test_a_row_group_is_read_once_for_rows_of_it(gcs: headrace.Store, server: FaultServer) -> None:
    fill(gcs, [30])
    dataset = ParquetDataset(gcs, number, columns=["number"])
    before = len(_media(server))
    assert dataset.rows([11, 19, 10, 25]) == [11, 19, 10, 25]
    assert len(_media(server)) - before == 2
    assert dataset.rows([20, 29]) == [20, 29]  # of the row group that was read last
    assert len(_media(server)) - before == 2


# ---- what is read


def _media(server: FaultServer) -> list[int]:
    return [each["bytes_sent"] for each in server.log() if each["kind"] == "media"]


def _wide(rows: int, columns: int) -> pa.Table:
    draw = random.Random(1)
    return pa.table(
        {
            f"column {i:02d}": pa.array([draw.randbytes(100) for _ in range(rows)], pa.binary())
            for i in range(columns)
        }
    )


def test_only_the_wanted_columns_are_read(gcs: headrace.Store, server: FaultServer) -> None:
    data = packed(_wide(2000, 12), group_rows=1000)
    for name in ("a.parquet", "b.parquet"):
        gcs.write(name, data)
    metadata = pq.read_metadata(io.BytesIO(data))
    wanted = [3, 4, 9]
    needed = 2 * sum(
        metadata.row_group(group).column(column).total_compressed_size
        for group in range(2)
        for column in wanted
    )
    dataset = ParquetDataset(gcs, columns=[f"column {i:02d}" for i in wanted], batch_size=500)
    footers = _media(server)
    assert footers == [64 << 10] * 2  # one request a file
    assert sum(1 for _ in dataset) == 8
    sent = _media(server)[2:]
    assert len(sent) == 2 * 2 * 2  # the neighbours of a row group are one request
    assert needed <= sum(sent) <= 1.05 * needed


def test_a_large_footer_takes_one_more_request(gcs: headrace.Store, server: FaultServer) -> None:
    rows = pa.table({f"a long name for column {i:04d}": [i] for i in range(1500)})
    gcs.write("a.parquet", packed(rows))
    dataset = ParquetDataset(gcs, columns=["a long name for column 0007"])
    assert [size > 64 << 10 for size in _media(server)] == [False, True]
    assert list(dataset) == [{"a long name for column 0007": 7}]


def test_processes_without_the_footers_read_them_beside_the_columns(
    gcs: headrace.Store, server: FaultServer
) -> None:
    for name in ("a.parquet", "b.parquet"):
        gcs.write(name, packed(_wide(400, 12), group_rows=200))
    made = ParquetDataset(gcs, columns=["column 03"], batch_size=200)
    dataset = pickle.loads(pickle.dumps(made))
    before = len(_media(server))
    assert sum(len(batch["column 03"]) for batch in dataset) == 800
    # Four row groups, and two footers; those of row groups that are begun at once are read twice.
    assert 4 + 2 <= len(_media(server)) - before <= 4 + 4
    before = len(_media(server))
    assert sum(1 for _ in dataset) == 4
    assert len(_media(server)) - before == 4  # now they are known


def test_reads_ahead_are_bounded(gcs: headrace.Store, server: FaultServer) -> None:
    gcs.write("a.parquet", packed(_wide(1000, 1), group_rows=100))
    for prefetch_bytes, most in ((0, 2), (25_000, 4)):
        before = len(_media(server))
        dataset = ParquetDataset(gcs, batch_size=10, prefetch_bytes=prefetch_bytes)
        rows = iter(dataset)
        next(rows)
        rows.close()  # type: ignore[attr-defined]
        begun = len(_media(server)) - before - 1
        assert 1 <= begun <= most


def test_an_iterator_that_is_dropped_leaves_nothing_under_way(local: headrace.Store) -> None:
    rows = iter(ParquetDataset(local, columns=["number"], shuffle=True))
    next(rows)
    del rows
    headrace.shutdown()  # would say that something was under way
    assert len(list(ParquetDataset(local, columns=["number"]))) == 101


# ---- what cannot be


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _long_footer(data: bytes) -> bytes:
    return data[:-8] + (len(data)).to_bytes(4, "little") + b"PAR1"


def _flipped_footer(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return data[: -8 - length] + bytes(length) + data[-8:]


def _without_data(data: bytes) -> bytes:
    length = int.from_bytes(data[-8:-4], "little")
    return b"PAR1" + data[-8 - length :]


BAD_FILES = {
    "cut": (_cut, r"does not end as Parquet files do \(PAR1\): it is none, or was cut"),
    "no Parquet": (lambda data: b"a,b\n" * 100, "does not end as Parquet files do"),
    "empty": (lambda data: b"", "it has 0 bytes, and no Parquet file is so short"),
    "long footer": (_long_footer, r"footer is to have \d+ bytes, and the file has \d+"),
    "bad footer": (_flipped_footer, "its footer cannot be read"),
    "no data": (_without_data, "row group 0: a column chunk is to be the bytes .* it is damaged"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_a_bad_file_is_an_error_that_names_it(store: headrace.Store, kind: str) -> None:
    break_it, message = BAD_FILES[kind]
    fill(store, [10, 20, 10])
    store.write("part-001.parquet", break_it(store.read("part-001.parquet").bytes()))
    url = store.url_of("part-001.parquet")
    with pytest.raises(headrace.CorruptDataError, match=message) as caught:
        ParquetDataset(store)
    assert caught.value.url == url
    assert str(caught.value).startswith(url)
    told: list[Any] = []
    left = ParquetDataset(store, number, columns=["number"], on_error=told.append)
    assert list(left) == [*range(10), *range(30, 40)]
    assert [error.url for error in told] == [url]


def test_a_file_that_is_left_out_is_logged(
    local: headrace.Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" * 5)
    (tmp_path / "b.parquet").write_bytes(packed(table(0, 3)))
    with caplog.at_level(logging.WARNING, logger="headrace"):
        assert ParquetDataset(tmp_path, on_error="skip").row_count == 3
    assert "a.parquet" in caplog.text
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(headrace.InvalidArgumentError, match="no rows: all 1 files were left out"):
        ParquetDataset(tmp_path, on_error="skip")


def test_ranks_do_not_begin_where_files_were_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1" * 5)
    (tmp_path / "b.parquet").write_bytes(packed(table(0, 3)))
    left = ParquetDataset(tmp_path, on_error="skip", rank=0, world_size=2)
    with pytest.raises(headrace.InvalidArgumentError, match="1 of the files were left out"):
        list(left)


def test_too_many_open_files_are_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(packed(table(0, 3)))
    dataset = ParquetDataset(tmp_path, number, columns=["number"], on_error="skip")

    def fail(*_: Any, **__: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("pyarrow.parquet.ParquetFile.read_row_group", fail)
    with pytest.raises(OSError, match="Too many open files"):
        list(dataset)


def test_an_encrypted_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(packed(table(0, 3))[:-4] + b"PARE")
    with pytest.raises(headrace.InvalidArgumentError, match=r"a.parquet: its footer is encrypted"):
        ParquetDataset(tmp_path)


def test_flipped_bytes_of_a_column_are_an_error(tmp_path: Path) -> None:
    options = {"use_dictionary": False, "compression": "none", "write_page_checksum": True}
    data = bytearray(packed(table(0, 30), **options))
    chunk = pq.read_metadata(io.BytesIO(data)).row_group(1).column(2)
    data[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    (tmp_path / "a.parquet").write_bytes(data)
    assert len(list(ParquetDataset(tmp_path, columns=["number"]))) == 30
    with pytest.raises(
        headrace.CorruptDataError, match=r"a.parquet: row group 1 cannot be decoded"
    ):
        list(ParquetDataset(tmp_path))
    told: list[Any] = []
    left = ParquetDataset(tmp_path, number_of, on_error=told.append)
    assert list(left) == [*range(10), *range(20, 30)]
    assert len(told) == 1


@pytest.mark.every_store(without=["ais"])  # which pins no versions
def test_a_file_that_changes_is_an_error(store: headrace.Store) -> None:
    fill(store, [10, 10])
    dataset = ParquetDataset(store, number)
    store.write("part-001.parquet", packed(table(10, 11)))
    rows = iter(dataset)
    with pytest.raises(headrace.PreconditionFailedError, match=r"part-001.parquet"):
        list(rows)


def test_files_have_the_columns_of_the_first_one(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(packed(pa.table({"a": [1], "b": [1]})))
    (tmp_path / "b.parquet").write_bytes(packed(pa.table({"a": [2.5]})))
    with pytest.raises(headrace.InvalidArgumentError, match=r"b.parquet: it has no column 'b'"):
        ParquetDataset(tmp_path)
    with pytest.raises(
        headrace.InvalidArgumentError, match=r"b.parquet: its column 'a' is double, .*int64"
    ):
        ParquetDataset(tmp_path, columns=["a"])
    (tmp_path / "b.parquet").write_bytes(packed(pa.table({"b": [2], "a": [2], "c": [2]})))
    with pytest.raises(headrace.InvalidArgumentError, match=r"b.parquet: .*'c'"):
        ParquetDataset(tmp_path)
    columns = ["b", "a"]
    found = list(ParquetDataset(tmp_path, columns=columns))
    assert found == [{"b": 1, "a": 1}, {"b": 2, "a": 2}]
    assert list(found[1]) == columns


def test_files_without_rows_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(packed(table(0, 0)))
    with pytest.raises(headrace.InvalidArgumentError, match="there are no rows: none of the"):
        ParquetDataset(tmp_path)
    with pq.ParquetWriter(tmp_path / "b.parquet", table(0, 0).schema) as writer:
        writer.write_table(table(0, 4))
        writer.write_table(table(0, 0), row_group_size=1)
        writer.write_table(table(4, 3))
    assert list(ParquetDataset(tmp_path, number_of)) == list(range(7))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": []}, r"columns is \[\]; it must be a list of names"),
        ({"columns": "number"}, "columns is 'number'; it must be a list"),
        ({"columns": ["a", "a"]}, "columns has 'a' twice"),
        ({"columns": ["other"]}, "part-000.parquet: it has no column 'other'; its columns are"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"drop_last": True}, "there is no batch_size"),
        ({"shuffle": True, "shuffle_groups": 0}, "shuffle_groups is 0"),
        ({"uneven": "some"}, "uneven is 'some'"),
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
        ({"prefetch_bytes": -1}, "prefetch_bytes"),
        ({"transform": 5}, "transform is 5"),
    ],
)
def test_arguments_that_cannot_work(
    local: headrace.Store, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=message):
        ParquetDataset(local, **options)


def test_words_of_others_are_explained(local: headrace.Store) -> None:
    with pytest.raises(TypeError, match=r"did you mean batch_size=\?"):
        ParquetDataset(local, batch=3)  # type: ignore[arg-type]


def test_a_folder_without_such_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a\n1\n")
    with pytest.raises(headrace.NotFoundError, match=r"whose name ends with \.parquet"):
        ParquetDataset(tmp_path)
    with pytest.raises(headrace.NotFoundError, match=r"b\.parquet"):
        ParquetDataset(tmp_path / "b.parquet")


def test_without_pyarrow_the_error_names_the_extra(
    local: headrace.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(headrace.HeadraceError, match=r"pip install 'headrace\[parquet\]'"):
        ParquetDataset(local)


def test_it_tells_what_it_is(local: headrace.Store) -> None:
    dataset = ParquetDataset(local)
    assert repr(dataset).endswith("7 files)")
    assert dataset.schema.names == ["number", "text", "image", "even", "pair", "tokens"]
    assert len(dataset.files) == 7
    assert [store.url for store in dataset.stores] == [local.url]


def test_what_was_read_is_freed_once_it_is_decoded(local: headrace.Store) -> None:
    gc.collect()  # what earlier tests have read
    before = headrace.metrics().memory_live_bytes
    batches = list(ParquetDataset(local, batch_size=10))
    # The thread that decoded the last of it may not have let go of it yet.
    wait_until(lambda: headrace.metrics().memory_live_bytes == before)
    assert numbers_of(batches) == list(range(101))


# ---- found by a review


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize("workers", [0, 4])
def test_a_reader_of_nothing_but_bad_row_groups_leaves_them_out(
    tmp_path: Path, workers: int
) -> None:
    for file in range(4):
        (tmp_path / f"{file}.parquet").write_bytes(packed(table(file * 10, 10)))
    dataset = ParquetDataset(tmp_path, number, columns=["number"], on_error="skip")
    data = bytearray((tmp_path / "2.parquet").read_bytes())
    data[4:60] = b"\xff" * 56
    (tmp_path / "2.parquet").write_bytes(data)
    dataset = ParquetDataset(tmp_path, number, columns=["number"], on_error="skip")
    found = list(DataLoader(dataset, batch_size=None, num_workers=workers))
    assert sorted(found) == [*range(20), *range(30, 40)]


def test_a_rest_of_nothing_but_bad_row_groups_is_left_out(tmp_path: Path) -> None:
    for file in range(2):
        (tmp_path / f"{file}.parquet").write_bytes(packed(table(file * 10, 10)))
    data = bytearray((tmp_path / "1.parquet").read_bytes())
    data[4:60] = b"\xff" * 56
    (tmp_path / "1.parquet").write_bytes(data)

    def dataset() -> ParquetDataset:
        return ParquetDataset(tmp_path, number, columns=["number"], on_error="skip")

    first, second = dataset(), dataset()
    assert list(itertools.islice(first, 10)) == list(range(10))
    second.load_state_dict([first.state_dict()])
    assert list(second) == []


@pytest.mark.parametrize("batch_size", [None, 4])
def test_views_of_texts_and_bytes_are_shuffled(tmp_path: Path, batch_size: int | None) -> None:
    rows = pa.table(
        {
            "text": pa.array([f"{i}" for i in range(9)], pa.string_view()),
            "image": pa.array([b"%d" % i for i in range(9)], pa.binary_view()),
        }
    )
    (tmp_path / "a.parquet").write_bytes(packed(rows))
    found = list(ParquetDataset(tmp_path, shuffle=True, batch_size=batch_size))
    if batch_size is not None:
        found = [
            {"text": text, "image": image}
            for batch in found
            for text, image in zip(batch["text"], batch["image"], strict=True)
        ]
    assert sorted(row["text"] for row in found) == [f"{i}" for i in range(9)]
    assert all(row["image"] == row["text"].encode() for row in found)


@pytest.mark.parametrize("batch_size", [None, 2])
def test_a_value_that_cannot_be_given_is_an_error_that_names_its_column(
    tmp_path: Path, batch_size: int | None
) -> None:
    text = pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"], pa.binary()).buffers())
    for name, values in {
        "text": text,
        "pair": pa.array([[2**64 - 1]], pa.list_(pa.uint64(), 1)),
        "day": pa.array([2**31 - 1], pa.date32()),
        "time": pa.array([2**62], pa.timestamp("us")),
        "times": pa.array([[-(2**62)]], pa.list_(pa.timestamp("us"))),
        "zone": pa.array([2**55], pa.timestamp("ms", tz="Europe/Berlin")),
        "duration": pa.array([2**62], pa.duration("ms")),
    }.items():
        (tmp_path / f"{name}.parquet").write_bytes(packed(pa.table({name: values})))
        dataset = ParquetDataset(tmp_path / f"{name}.parquet", batch_size=batch_size)
        with pytest.raises(headrace.InvalidArgumentError, match=f"the column '{name}' has a value"):
            next(iter(dataset))


def test_a_footer_whose_names_are_no_text_is_damaged(tmp_path: Path) -> None:
    data = packed(pa.table({"number": pa.array([1])}), store_schema=False)
    at = data.rindex(b"number")
    (tmp_path / "a.parquet").write_bytes(data[:at] + b"\xff" + data[at + 1 :])
    with pytest.raises(headrace.CorruptDataError, match="its footer cannot be read"):
        ParquetDataset(tmp_path)


def test_small_row_groups_are_read_ahead_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(packed(table(0, 1000), 1))
    dataset = ParquetDataset(tmp_path, number, columns=["number"])
    started: list[int] = []
    start = RowGroups.start

    def counted(self: RowGroups, group: int) -> GroupRead:
        started.append(group)
        return start(self, group)

    monkeypatch.setattr(RowGroups, "start", counted)
    rows = iter(dataset)
    assert next(rows) == 0
    assert 32 <= len(started) <= 200
    rows.close()
    started.clear()
    assert list(dataset.rows([0, 999])) == [0, 999]
    assert list(dataset) == list(range(1000))


# ---- what a value is


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float32(), 2)])
def test_a_null_changes_no_other_row(tmp_path: Path, kind: pa.DataType) -> None:
    rows = [[1.0, 2.0], None, [None, 3.0], [4.0, 5.0]]
    pq.write_table(pa.table({"x": pa.array(rows, kind)}), tmp_path / "a.parquet")
    values = [row["x"] for row in ParquetDataset(tmp_path)]
    assert values[1] is None
    assert values[2] == [None, 3.0]
    assert [values[at].tolist() for at in (0, 3)] == [rows[0], rows[3]]


def test_shapes_booleans_and_lists_of_lists_are_tensors(tmp_path: Path) -> None:
    shape = pa.fixed_shape_tensor(pa.float32(), (2, 3))
    stored = pa.array([[1, 2, 3, 4, 5, 6]] * 2, pa.list_(pa.float32(), 6))
    rows = pa.table(
        {
            "shape": pa.ExtensionArray.from_storage(shape, stored),
            "flags": [[True, False], []],
            "nested": [[[1, 2], [3, 4]], [[1], [2, 3]]],
        }
    )
    pq.write_table(rows, tmp_path / "a.parquet")
    first, second = ParquetDataset(tmp_path)
    assert first["shape"].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert first["flags"].tolist() == [True, False]
    assert first["flags"].dtype == torch.bool
    assert first["nested"].tolist() == [[1, 2], [3, 4]]
    assert second["nested"] == [[1], [2, 3]]  # no tensor has rows of unequal lengths
    [batch] = ParquetDataset(tmp_path, columns=["shape"], batch_size=2)
    assert batch["shape"].shape == (2, 2, 3)


@pytest.mark.parametrize(
    ("kinds", "value"),
    [
        ([pa.string(), pa.large_string(), pa.string_view()], "a"),
        ([pa.binary(), pa.large_binary()], b"a"),
        ([pa.list_(pa.string()), pa.large_list(pa.large_string())], ["a"]),
    ],
)
def test_types_that_differ_by_their_offsets_are_one(
    tmp_path: Path, kinds: list[pa.DataType], value: object
) -> None:
    for at, kind in enumerate(kinds):
        pq.write_table(pa.table({"x": pa.array([value], kind)}), tmp_path / f"{at}.parquet")
    assert [row["x"] for row in ParquetDataset(tmp_path)] == [value] * len(kinds)


def test_files_that_are_no_part_of_a_table_are_left_out(tmp_path: Path) -> None:
    rows = pa.table({"x": [1]})
    for place in ("", "_day=1", "_temporary/0", ".ipynb_checkpoints"):
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, tmp_path / place / "a.parquet")
    dataset = ParquetDataset(tmp_path)
    assert dataset.row_count == 2
    assert "left out: 2 hidden objects" in repr(dataset)
    assert ParquetDataset(tmp_path, hidden=True).row_count == 4
    assert ParquetDataset(f"{tmp_path}/**/*.parquet").row_count == 2
    assert ParquetDataset(f"{tmp_path}/_temporary/**/*.parquet").row_count == 1


def test_a_folder_may_be_called_like_a_file(store: headrace.Store) -> None:
    def put(name: str, numbers: list[int]) -> None:
        file = io.BytesIO()
        pq.write_table(pa.table({"a": numbers}), file)
        store.write(name, file.getvalue())

    store.write("x.parquet/_SUCCESS", b"")
    put("x.parquet/part-0.snappy.parquet", [1, 2])
    put("x.parquet/part-1.snappy.parquet", [3])
    put("x.parquet.old", [7])
    put("y.parquet", [9])

    def numbers(*names: str) -> list[int]:
        sources = [store.url_of(name) for name in names]
        return [
            row["a"]
            for row in ParquetDataset(
                sources,
                **({} if store.url.startswith("file:") else {"endpoint": store._settings.endpoint}),
            )
        ]

    assert numbers("x.parquet") == numbers("x.parquet/") == [1, 2, 3]
    assert numbers("y.parquet", "x.parquet", "y.parquet") == [9, 1, 2, 3, 9]
    for missing in (["z.parquet"], ["y.parquet", "z.parquet"]):
        with pytest.raises(headrace.NotFoundError) as caught:
            numbers(*missing)
        assert caught.value.url == store.url_of("z.parquet")


# ---- what is left out


def number_unless(*bad: int) -> Callable[[Any], Any]:
    def transform(row: dict[str, Any]) -> int:
        found: int = row["number"]
        if found in bad:
            raise LookupError(found)
        return found

    return transform


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_whose_transform_raises_are_left_out(local: headrace.Store, shuffle: bool) -> None:
    bad = (3, 4, 50)

    def dataset_of(on_error: Any = "skip", **more: Any) -> ParquetDataset:
        return ParquetDataset(
            local, number_unless(*bad), columns=["number"], shuffle=shuffle, on_error=on_error,
            **more,
        )  # fmt: skip

    every = list(ParquetDataset(local, number, columns=["number"], shuffle=shuffle))
    left = [each for each in every if each not in bad]
    told: list[Any] = []
    assert list(dataset_of(told.append)) == left
    assert sorted(each.index for each in told) == sorted(bad)
    assert all(each.url.startswith(local.url) for each in told)
    with pytest.raises(headrace.CorruptDataError, match=r"3 samples of epoch 0.*max_skipped is 2"):
        list(dataset_of(max_skipped=2))
    dataset = dataset_of()
    rows = iter(dataset)
    for at in range(1, len(left)):
        next(rows)
        if at % 16:
            continue
        state = dataset.state_dict()
        for states in (state, [state]):
            other = dataset_of()
            other.load_state_dict(states)
            assert sorted(other) == sorted(left[at:])
            refused = dataset_of(max_skipped=2)
            refused.load_state_dict(states)
            if set(every[every.index(left[at - 1]) :]) & set(bad):
                with pytest.raises(headrace.CorruptDataError, match="3 samples of epoch 0"):
                    list(refused)
    with pytest.raises(LookupError):
        dataset.rows([3])


def test_a_batch_of_rows_whose_transform_raises_counts_as_its_rows(local: headrace.Store) -> None:
    def transform(batch: pa.Table) -> list[int]:
        found: list[int] = batch["number"].to_pylist()
        if 25 in found:
            raise LookupError
        return found

    def dataset_of(most: int) -> ParquetDataset:
        return ParquetDataset(
            local, transform, columns=["number"], batch_size=10, on_error="skip", max_skipped=most
        )

    found = [each for batch in dataset_of(10) for each in batch]
    assert found == [*range(20), *range(30, 101)]
    with pytest.raises(headrace.CorruptDataError, match="10 samples of epoch 0"):
        list(dataset_of(9))


def test_a_row_group_counts_as_its_rows_before_and_after_a_resume(tmp_path: Path) -> None:
    for file in range(3):
        (tmp_path / f"{file}.parquet").write_bytes(packed(table(file * 10, 10)))

    def dataset_of(most: int) -> ParquetDataset:
        return ParquetDataset(
            tmp_path, number, columns=["number"], on_error="skip", max_skipped=most
        )

    data = bytearray((tmp_path / "1.parquet").read_bytes())
    data[4:60] = b"\xff" * 56
    (tmp_path / "1.parquet").write_bytes(data)
    first, last, few = dataset_of(10), dataset_of(10), dataset_of(9)
    rows = iter(first)
    assert list(itertools.islice(rows, 11)) == [*range(10), 20]
    state = first.state_dict()
    assert state["skipped"] == 10
    last.load_state_dict(state)
    assert list(last) == list(range(21, 30))
    with pytest.raises(headrace.CorruptDataError, match=r"10 samples.*1\.parquet.*row group 0"):
        list(few)


def test_an_outage_is_no_bad_row_group(server: FaultServer, gcs: headrace.Store) -> None:
    fill(gcs, [10, 10])
    store = headrace.Store(
        gcs.url, endpoint=server.url, retry=headrace.RetryOptions(max_attempts=1)
    )
    dataset = ParquetDataset(store, number, columns=["number"], on_error="skip")
    for status, error in ((403, headrace.PermissionDeniedError), (503, headrace.UnavailableError)):
        server.faults(
            [{"match": {"kind": "media", "path_contains": "001"}, "action": {"status": status}}]
        )
        with pytest.raises(error):
            list(dataset)
    server.faults([])
