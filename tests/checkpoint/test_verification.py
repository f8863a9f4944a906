"""Damage: which of it is seen, and what the error says."""

from __future__ import annotations

import datetime
import io
from pathlib import Path
from typing import Any

import pytest
import torch

import headrace
import headrace.checkpoint
from headrace import CorruptDataError, _engine
from testing.faultserver.client import FaultServer
from tests.checkpoint.flips import Campaign, changed, flips, load_all, load_by_name
from tests.checkpoint.states import assert_same, file_of, filled, kinds, load, stock_file_of

STATE = {
    "weight": filled(torch.float32, 40, 30),
    "bias": filled(torch.bfloat16, 7, seed=1),
    "empty": torch.zeros(0),
    "large": filled(torch.float32, 20_000, seed=2),
}
NESTED = {"model": STATE, "step": 3}
TODAY = int(datetime.datetime.now(datetime.UTC).strftime("%Y%m%d"))


@pytest.mark.parametrize("count", [100, pytest.param(10_000, marks=pytest.mark.soak)])
def test_no_flipped_bit_of_ours_goes_unseen(count: int, tmp_path: Path) -> None:
    data = file_of(STATE)
    campaign = Campaign(tmp_path, data, STATE)
    campaign.run(flips(data, count, TODAY), load_all)
    assert (campaign.detected, campaign.harmless) == (count, 0)


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.soak)])
def test_no_flipped_bit_of_ours_reaches_a_tensor_that_is_read_alone(
    count: int, tmp_path: Path
) -> None:
    data = file_of(STATE)
    campaign = Campaign(tmp_path, data, STATE)
    campaign.run(flips(data, count, TODAY + 1), load_by_name)
    assert campaign.detected + campaign.harmless == count
    # Harmless is only what stands between the contents, which is not read then.
    directory = _engine.find_directory(data, len(data))
    _, frames, _ = _engine.parse_directory(data[directory:], directory)
    between = Campaign(tmp_path, data, STATE)
    inside = [
        (at, bit)
        for at, bit in flips(data, count, TODAY + 1)
        if not any(begin <= at < begin + len(frame) for begin, frame in frames)
    ]
    between.run(iter(inside), load_by_name)
    assert (between.detected, between.harmless) == (len(inside), 0)


@pytest.mark.parametrize("count", [100, pytest.param(5000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("read", [load_all, load_by_name])
def test_a_flipped_bit_of_torchs_files_is_seen_or_does_not_matter(
    read: Any, count: int, tmp_path: Path
) -> None:
    data = stock_file_of(STATE)
    campaign = Campaign(tmp_path, data, STATE)
    campaign.run(flips(data, count, TODAY + 2), read)
    assert campaign.detected + campaign.harmless == count
    assert campaign.detected > campaign.harmless


def test_torch_itself_sees_nothing() -> None:
    # What the sums are for.
    data = stock_file_of(STATE)
    at = data.index(STATE["large"].numpy().tobytes())
    found = torch.load(io.BytesIO(changed(data, at, 0)))
    assert not torch.equal(found["large"].view(torch.int32), STATE["large"].view(torch.int32))


@pytest.mark.parametrize(
    ("write", "sum_name"), [(file_of, "CRC-32C"), (stock_file_of, "CRC-32")], ids=["ours", "stock"]
)
@pytest.mark.parametrize(
    "read",
    [load, lambda store: headrace.checkpoint.open("a.pt", store=store).tensor("model.weight")],
    ids=["whole", "alone"],
)
def test_the_error_names_object_and_tensor(
    write: Any, sum_name: str, read: Any, store: headrace.Store
) -> None:
    data = write(NESTED)
    at = data.index(STATE["weight"].numpy().tobytes())
    store.write("a.pt", changed(data, at + 100, 3))
    with pytest.raises(CorruptDataError) as raised:
        read(store)
    assert str(raised.value) == (
        f"{store.url_of('a.pt')}: the tensor 'model.weight' (record data/0) is damaged: its "
        f"{sum_name} is not the one that was saved with it"
    )
    assert raised.value.url == store.url_of("a.pt")


def test_damage_between_the_records_is_seen_on_every_store(store: headrace.Store) -> None:
    data = file_of(NESTED)
    store.write("a.pt", changed(data, data.index(b"data/1") - 20, 0))
    with pytest.raises(CorruptDataError, match="what stands between its records is damaged"):
        load(store)
    # What is read alone has a sum of its own.
    reader = headrace.checkpoint.open("a.pt", store=store)
    assert_same(reader.tensor("model.weight"), STATE["weight"])


def test_damage_on_the_way_is_read_once_more(server: FaultServer, gcs: headrace.Store) -> None:
    state = {"a": filled(torch.float32, 1 << 20), "b": filled(torch.float32, 1 << 20, seed=1)}
    for write in (file_of, stock_file_of):
        server.reset(keep_buckets=True)
        server.put("bucket", "a.pt", write(state))
        # The third read is the first of a storage.
        server.faults(
            [{"match": {"kind": "media"}, "from": 3, "count": 1, "action": {"flip_byte": 999}}]
        )
        assert_same(load(gcs), state)
        assert kinds(server) == {"get": 1, "media": 2 + 2 + 1}


def test_damage_is_not_seen_without_verify(tmp_path: Path) -> None:
    data = file_of(STATE)
    at = data.index(STATE["large"].numpy().tobytes())
    (tmp_path / "a.pt").write_bytes(changed(data, at, 0))
    found = load(headrace.Store(tmp_path), verify=False)
    assert not torch.equal(found["large"].view(torch.int32), STATE["large"].view(torch.int32))


def test_a_file_that_torch_wrote_without_sums_is_loaded(tmp_path: Path) -> None:
    torch.serialization.set_crc32_options(False)
    try:
        data = stock_file_of(STATE)
    finally:
        torch.serialization.set_crc32_options(True)
    (tmp_path / "a.pt").write_bytes(data)
    assert_same(load(headrace.Store(tmp_path)), STATE)


@pytest.mark.parametrize("write", [file_of, stock_file_of], ids=["ours", "stock"])
def test_no_beginning_of_a_file_is_loaded(write: Any, tmp_path: Path) -> None:
    data = write(STATE)
    store = headrace.Store(tmp_path)
    for size in [*range(1, 4), *range(4, len(data), 997), *range(len(data) - 200, len(data))]:
        (tmp_path / "a.pt").write_bytes(data[:size])
        with pytest.raises(headrace.HeadraceError, match=r"a\.pt"):
            load(store)


def test_bytes_of_another_file_at_the_end_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pt").write_bytes(file_of(STATE) + file_of({"x": torch.ones(3)}))
    with pytest.raises(CorruptDataError, match=r"a\.pt: what its end says"):
        load(headrace.Store(tmp_path))
