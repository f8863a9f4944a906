"""`ShardStream`: what it yields, in which order, to whom, and where it continues."""

from __future__ import annotations

import concurrent.futures
import gzip
import hashlib
import io
import itertools
import json
import logging
import pickle
import random
import re
import statistics
import tarfile
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import torch
from torch.utils.data import DataLoader

import headrace
from headrace.torch import Loader, ShardDataset, ShardStream
from testing.faultserver.client import FaultServer
from tests.conftest import SEARCHED
from tests.shards.tars import by_webdataset, fill, media, number_of, samples_of, tar, zstd
from tests.shards.test_shard_dataset import NAMES, as_reference, by_reference, is_like_webdataset
from tests.waiting import wait_until

Packer = Callable[[bytes], bytes]
PACKERS: dict[str, Packer] = {
    ".tar": lambda data: data,
    ".tar.gz": lambda data: gzip.compress(data[:777], 1) + gzip.compress(data[777:], 1),
    ".tar.zst": lambda data: zstd(data[:1000]) + zstd(data[1000:]),
}


def pack(store: headrace.Store, counts: Iterable[int], suffix: str = ".tar") -> int:
    """Write shards of so many samples each, numbered on, and return how many there are."""
    begin = 0
    for shard, count in enumerate(counts):
        data = PACKERS[suffix](tar(samples_of(begin, count, 300)))
        store.write(f"shard-{shard:03d}{suffix}", data)
        begin += count
    return begin


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> headrace.Store:
    """Ten plain shards of 0 to 40 samples, 180 of them."""
    store = headrace.Store(tmp_path_factory.mktemp("local"))
    assert pack(store, [20, 40, 3, 17, 0, 30, 1, 25, 4, 40]) == 180
    return store


# ---- what it yields


@pytest.mark.every_store
@pytest.mark.parametrize("suffix", PACKERS)
def test_it_yields_every_sample_once(store: headrace.Store, suffix: str) -> None:
    count = pack(store, [20, 7, 13], suffix)
    stream = ShardStream(store, number_of)
    assert list(stream) == list(range(count))
    assert list(stream) == list(range(count))


@hypothesis.settings(max_examples=100)
@hypothesis.given(
    st.lists(NAMES.filter(is_like_webdataset), min_size=1, max_size=12),
    st.sampled_from([*PACKERS]),
)
def test_samples_are_those_of_shard_dataset(names: list[str], suffix: str) -> None:
    names = [name for name in names if name.rstrip("/") == name]
    data = tar([(name, b"%d" % i) for i, name in enumerate(names)])
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.tar").write_bytes(data)
        try:
            wanted = [as_reference(sample) for sample in ShardDataset(folder)]
        except headrace.InvalidArgumentError as error:
            if "no sample:" in str(error):
                wanted = []
            else:
                with pytest.raises(headrace.InvalidArgumentError, match=re.escape(str(error))):
                    list(ShardStream(folder))
                return
        Path(folder, "a.tar").unlink()
        Path(folder, "a" + suffix).write_bytes(PACKERS[suffix](data))
        found = [as_reference(sample) for sample in ShardStream(folder)]
        for sample in found:
            sample["__url__"] = sample["__url__"].replace(suffix, ".tar")
        assert found == wanted


@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_samples_are_those_of_webdataset_and_tarfile(tmp_path: Path, tar_format: int) -> None:
    draw = random.Random(7)
    members = [
        (f"{'long/' * (k * 7 % 60)}{k:04d}.{field}", draw.randbytes(draw.randrange(90_000)))
        for k in range(40)
        for field in ("jpg", "seg.png")
    ]
    (tmp_path / "a.tar").write_bytes(tar(members, tar_format=tar_format))
    wanted = [
        {"__key__": f"train/{k:05d}", "json": {"number": k}, "txt": "ä" * draw.randrange(50)}
        for k in range(40)
    ]
    (tmp_path / "b.tar").write_bytes(by_webdataset(wanted))
    found = [as_reference(sample) for sample in ShardStream(f"{tmp_path}/*.tar")]
    assert found == by_reference(tmp_path, ["a.tar", "b.tar"])
    with tarfile.open(tmp_path / "a.tar") as archive:
        bodies = [archive.extractfile(each).read() for each in archive]  # type: ignore[union-attr]
    assert [sample[name] for sample in found[:40] for name in ("jpg", "seg.png")] == bodies


def test_a_transform_sees_fields_that_have_their_own_memory(store: headrace.Store) -> None:
    fill(store, 1, 3)
    fields = list(ShardStream(store, lambda fields: fields))
    first = fields[0]
    assert list(first) == ["__key__", "__url__", "jpg", "cls"]
    assert first["__url__"] == store.url_of("shard-000.tar") == first["jpg"].url
    assert first["jpg"].generation == store.stat("shard-000.tar").generation
    draws = [first[name].rng().python.random() for name in ("jpg", "cls")]
    assert draws[0] == draws[1] != fields[1]["jpg"].rng().python.random()
    assert pickle.loads(pickle.dumps(first))["jpg"].bytes() == first["jpg"].bytes()


def test_hard_links_and_sparse_files_are_what_they_lead_to_and_have(tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        info = tarfile.TarInfo("0.jpg")
        info.size = 5
        archive.addfile(info, io.BytesIO(b"hello"))
        link = tarfile.TarInfo("0.copy")
        link.type, link.linkname = tarfile.LNKTYPE, "0.jpg"
        archive.addfile(link)
    (tmp_path / "a.tar").write_bytes(out.getvalue())
    [sample] = ShardStream(tmp_path, lambda fields: fields)
    assert sample["copy"].bytes() == sample["jpg"].bytes() == b"hello"
    assert sample["copy"].numpy().ctypes.data == sample["jpg"].numpy().ctypes.data


def test_only_the_wanted_fields_are_kept(store: headrace.Store) -> None:
    fill(store, 1, 3)
    samples = list(ShardStream(store, fields=["CLS", "jpg"]))
    assert list(samples[0]) == ["__key__", "__url__", "cls", "jpg"]
    assert list(next(iter(ShardStream(store, fields=["cls"])))) == ["__key__", "__url__", "cls"]
    with pytest.raises(headrace.InvalidArgumentError, match=r"shard-000\.tar: .*no field 'png'"):
        list(ShardStream(store, fields=["png"]))


# ---- what it costs


@pytest.mark.parametrize("suffix", PACKERS)
def test_each_byte_is_sent_once_and_compared(
    gcs: headrace.Store, server: FaultServer, suffix: str
) -> None:
    count = pack(gcs, [40] * 5, suffix)
    stored = sum(info.size_bytes or 0 for info in gcs.list())
    before = len(media(server))
    assert len(list(ShardStream(gcs))) == count
    sent = media(server)[before:]
    assert (sum(sent), len(sent)) == (stored, 5)


def test_a_damaged_shard_is_found_by_its_checksum(gcs: headrace.Store, server: FaultServer) -> None:
    pack(gcs, [40])
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 700}}])
    with pytest.raises(headrace.CorruptDataError, match="CRC32C"):
        list(ShardStream(gcs))


def test_memory_is_bounded_while_nobody_takes_anything(gcs: headrace.Store) -> None:
    for shard in range(4):
        gcs.write(f"{shard}.tar.zst", zstd(tar(samples_of(shard * 400, 400, 20_000))))
    stream = ShardStream(gcs, prefetch_bytes=4 << 20, shards_ahead=1)
    engine = gcs._open()[0]
    before = engine.live_bytes
    numbers = 0
    most = 0
    for sample in stream:
        most = max(most, engine.live_bytes - before)
        numbers += 1
        del sample
    assert numbers == 1600
    assert most <= 6 << 20  # blocks are a quarter larger than their bytes at most
    del stream
    wait_until(lambda: engine.live_bytes == before)


# ---- order


def test_the_order_is_that_of_the_seed_and_the_epoch(local: headrace.Store) -> None:
    stream = ShardStream(local, number_of, shuffle=True, shuffle_window=30)
    first = list(stream)
    assert sorted(first) == list(range(180))
    assert first == list(ShardStream(local, number_of, shuffle=True, shuffle_window=30))
    stream.set_epoch(1)
    second = list(stream)
    assert first != second
    assert sorted(second) == list(range(180))
    assert first != list(ShardStream(local, number_of, shuffle=True, shuffle_window=30, seed=1))


def test_a_window_moves_samples_at_most_so_far_and_evenly(tmp_path: Path) -> None:
    size, count = 100, 4000
    (tmp_path / "a.tar").write_bytes(tar(samples_of(0, count, 1)))
    moves: list[int] = []
    firsts: Counter[int] = Counter()
    stream = ShardStream(tmp_path, lambda sample: int(sample["__key__"]), shuffle_window=size)
    for epoch in range(5):
        stream.set_epoch(epoch)
        order = list(stream)
        assert sorted(order) == list(range(count))
        moves += [at - number for at, number in enumerate(order)]
        firsts.update(number % 10 for number in order[:: count // 200])
    inner = moves
    assert max(map(abs, inner)) <= size
    # Where it comes from and where it goes are uniform in the window.
    assert abs(statistics.fmean(inner)) < 1
    assert 0.8 < statistics.pstdev(inner) / (size / 6**0.5) < 1.2
    # Neighbours do not stay neighbours: of a shuffled window, one pair in `size` does.
    neighbours = sum(b - a == 1 for a, b in itertools.pairwise(order))
    assert neighbours < 3 * count / size * 2
    assert max(firsts.values()) < 2 * sum(firsts.values()) / 10


def test_random_numbers_of_a_sample_depend_on_nothing_but_itself(local: headrace.Store) -> None:
    def draw(fields: dict[str, Any]) -> tuple[str, float, float]:
        return fields["__key__"], fields["jpg"].rng().python.random(), random.random()

    state = random.getstate()
    wanted = sorted(ShardStream(local, draw))
    assert random.getstate() == state
    for world_size in (2, 3):
        found: list[Any] = []
        for rank in range(world_size):
            found += ShardStream(
                local, draw, shuffle_window=9, uneven="keep", rank=rank, world_size=world_size
            )
        assert sorted(found) == wanted


# ---- ranks and workers


def of_ranks(source: Any, world_size: int, workers: int = 0, **options: Any) -> list[list[int]]:
    """Return what each rank gets."""
    out = []
    for rank in range(world_size):
        stream = ShardStream(source, number_of, rank=rank, world_size=world_size, **options)
        out.append(list(DataLoader(stream, batch_size=None, num_workers=workers)))
    return out


@pytest.mark.parametrize("world_size", [1, 2, 3, 7, 180])
def test_with_an_index_all_ranks_have_the_same_number(
    local: headrace.Store, world_size: int
) -> None:
    index = headrace.index_members(local)
    options = {"shuffle": True, "shuffle_window": 8}
    ranks = of_ranks(index, world_size, **options)
    assert {len(numbers) for numbers in ranks} == {180 // world_size}
    everything = list(itertools.chain(*ranks))
    assert len(set(everything)) == len(everything)
    kept = of_ranks(index, world_size, uneven="keep", **options)
    assert sorted(itertools.chain(*kept)) == list(range(180))
    padded = of_ranks(index, world_size, uneven="pad", **options)
    assert {len(numbers) for numbers in padded} == {-(-180 // world_size)}
    assert set(itertools.chain(*padded)) == set(range(180))


def test_workers_of_all_ranks_have_the_same_number_with_an_index(local: headrace.Store) -> None:
    index = headrace.index_members(local)
    counts = []
    for rank in range(2):
        stream = ShardStream(index, number_of, rank=rank, world_size=2)
        counts.append([len(batch) for batch in DataLoader(stream, 8, num_workers=2)])
    assert counts[0] == counts[1]
    assert sum(counts[0]) == 90


def test_a_cut_shard_is_read_from_where_its_samples_begin(
    gcs: headrace.Store, server: FaultServer
) -> None:
    gcs.write("a.tar", tar(samples_of(0, 1000, 2000)))
    index = headrace.index_members(gcs)
    whole = gcs.stat("a.tar").size_bytes or 0
    before = len(media(server))
    options = {"rank": 3, "world_size": 4, "endpoint": server.url}
    assert list(ShardStream(index, number_of, **options)) == list(range(750, 1000))
    assert sum(media(server)[before:]) < 0.26 * whole
    before = len(media(server))
    found = of_ranks(index, 4, endpoint=server.url, prefetch_bytes=1 << 20)
    assert list(itertools.chain(*found)) == list(range(1000))
    pieces = 3 * (64 << 10)  # in which their shares end
    assert sum(media(server)[before:]) <= whole + pieces


def test_an_index_of_a_part_of_the_members_is_refused(local: headrace.Store) -> None:
    index = headrace.index_members(local)
    with pytest.raises(headrace.InvalidArgumentError, match="give an index of all members"):
        list(ShardStream(index[:10], number_of))


def test_without_an_index_several_ranks_say_what_an_epoch_is(local: headrace.Store) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match="epoch_samples"):
        of_ranks(local, 2)
    kept = of_ranks(local, 3, uneven="keep")
    assert sorted(itertools.chain(*kept)) == list(range(180))
    for world_size in (2, 3):
        for samples in (50, 180, 1000):
            ranks = of_ranks(local, world_size, epoch_samples=samples, shuffle=True)
            assert {len(numbers) for numbers in ranks} == {samples // world_size}
    assert len(of_ranks(local, 2, 2, epoch_samples=41)[1]) == 20


def test_a_state_is_for_one_way_to_treat_a_remainder(local: headrace.Store) -> None:
    index = headrace.index_members(local)

    def stream(uneven: Any, rank: int = 0) -> ShardStream:
        return ShardStream(index, number_of, uneven=uneven, rank=rank, world_size=7)

    for uneven in ("drop", "pad", "keep"):
        states = []
        for rank in range(7):
            begun = stream(uneven, rank)
            next(iter(begun))
            states.append(begun.state_dict())
        for other in {"drop", "pad", "keep"} - {uneven}:
            with pytest.raises(
                headrace.InvalidArgumentError, match=f"the state has uneven='{uneven}'"
            ):
                stream(other).load_state_dict(states[0])
        stream(uneven).load_state_dict(states[0])
        fewer = ShardStream(index, number_of, uneven=uneven)  # type: ignore[arg-type]
        if uneven == "pad":  # what fills up belongs to seven readers
            with pytest.raises(headrace.InvalidArgumentError, match="as many ranks and workers as"):
                fewer.load_state_dict(states)
        else:
            fewer.load_state_dict(states)


def test_workers_share_the_shards(local: headrace.Store) -> None:
    for workers in (1, 2):
        [numbers] = of_ranks(local, 1, workers, shuffle=True, shuffle_window=20)
        assert sorted(numbers) == list(range(180))


def test_workers_that_persist_see_a_new_epoch(local: headrace.Store) -> None:
    stream = ShardStream(local, number_of, shuffle=True)
    loader = DataLoader(stream, batch_size=None, num_workers=2, persistent_workers=True)
    first = list(loader)
    stream.set_epoch(1)
    second = list(loader)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(180))


# ---- the index that wids writes


def wids(folder: Path, counts: Iterable[int], suffix: str, **more: Any) -> Path:
    """Write shards of so many samples each, and what wids' `wids-index create` writes of them."""
    counts = list(counts)
    pack(headrace.Store(folder), counts, suffix)
    shards = [
        {
            "url": file.name,
            "md5sum": hashlib.md5(file.read_bytes()).hexdigest(),
            "nsamples": count,
            "filesize": file.stat().st_size,
        }
        for file, count in zip(sorted(folder.glob(f"*{suffix}")), counts, strict=True)
    ]
    index = {"__kind__": "wids-shard-index-v1", "wids_version": 1, "shardlist": shards, "name": "t"}
    (folder / "index.json").write_text(json.dumps({**index, **more}))
    return folder / "index.json"


@pytest.mark.parametrize("suffix", PACKERS)
def test_with_an_index_of_wids_all_ranks_have_the_same_number(tmp_path: Path, suffix: str) -> None:
    index = wids(tmp_path, [20, 40, 3, 17, 0, 30, 1], suffix)
    for world_size in (1, 2, 5):
        ranks = of_ranks(index, world_size, shuffle=True, shuffle_window=8)
        assert {len(numbers) for numbers in ranks} == {111 // world_size}
        everything = list(itertools.chain(*ranks))
        assert len(set(everything)) == len(everything)
    draw = random.Random(21)
    for _ in range(5):
        run = Run(str(index), draw, shuffle=True, shuffle_window=7, uneven="keep")
        run.go_on(draw.randrange(1, 4), 2, draw.randrange(111))
        run.go_on(draw.randrange(1, 4), 1, None)
        assert sorted(run.seen) == list(range(111))


def test_an_index_of_wids_spares_the_listing(gcs: headrace.Store, server: FaultServer) -> None:
    pack(gcs, [4, 6], ".tar.gz")
    names = ["shard-000.tar.gz", gcs.url_of("shard-001.tar.gz")]
    shards = [{"url": name, "nsamples": n} for name, n in zip(names, [4, 6], strict=True)]
    index = {"wids_version": 1, "shardlist": shards, "base": gcs.url}
    gcs.write("a/i.json", json.dumps(index).encode())
    before = server.stats()["by_kind"]
    stream = ShardStream(gcs.url_of("a/i.json"), number_of, endpoint=server.url)
    assert list(stream) == list(range(10))
    asked = Counter(server.stats()["by_kind"])
    asked.subtract(before)
    assert +asked == {"get": 2, "media": 3}


def test_an_index_of_wids_that_is_stale_is_an_error(tmp_path: Path) -> None:
    counts = [5, 3]
    index = wids(tmp_path, counts, ".tar.gz")
    state = ShardStream(index).state_dict()
    described = json.loads(index.read_text())
    for wrong in (4, 6):
        described["shardlist"][0]["nsamples"] = wrong
        index.write_text(json.dumps(described))
        with pytest.raises(headrace.InvalidArgumentError, match=rf"the index has {wrong}"):
            list(ShardStream(index))
        with pytest.raises(headrace.InvalidArgumentError, match="counts="):
            ShardStream(index).load_state_dict(state)
    pack(headrace.Store(tmp_path), [5, 4], ".tar.gz")
    with pytest.raises(headrace.InvalidArgumentError, match="make the index anew"):
        ShardStream(index)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("{", "no JSON"),
        ("[1]", "no 'shardlist'"),
        ('{"wids_version": 1, "shardlist": []}', "no 'shardlist'"),
        ('{"wids_version": 2, "shardlist": [{}]}', "wids_version is 2"),
        ('{"wids_version": 1, "shardlist": [{"url": "a.tar"}]}', "each must have a 'url'"),
        ('{"wids_version": 1, "shardlist": [{"url": 3, "nsamples": 4}]}', "each must have a 'url'"),
        ('{"wids_version": 1, "shardlist": [7]}', "each must have a 'url'"),
        ('{"wids_version": 1, "shardlist": [{}], "datasets": [{}]}', "other datasets"),
        ('{"wids_version": 1, "shardlist": [{}], "base": 3}', "its base is 3"),
    ],
)
def test_what_is_no_index_of_wids_is_refused(tmp_path: Path, content: str, text: str) -> None:
    (tmp_path / "i.json").write_text(content)
    with pytest.raises(headrace.InvalidArgumentError, match=rf"i\.json: .*{text}"):
        ShardStream(tmp_path / "i.json")


# ---- state


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("window", [0, 25])
def test_it_continues_after_any_sample(tmp_path: Path, suffix: str, window: int) -> None:
    count = pack(headrace.Store(tmp_path), [11, 2, 30, 5], suffix)
    options = {"shuffle": True, "shuffle_window": window}
    whole = list(ShardStream(tmp_path, number_of, **options))
    for at in range(0, count + 1, 3):
        stream = ShardStream(tmp_path, number_of, **options)
        iterator = iter(stream)
        head = list(itertools.islice(iterator, at))
        state = pickle.loads(pickle.dumps(stream.state_dict()))
        other = ShardStream(tmp_path, number_of, **options)
        other.load_state_dict(state)
        assert other.state_dict() == state
        assert head + list(other) == whole
        other.set_epoch(0)
        assert list(other) == whole  # the next pass is a whole one


def test_to_continue_in_a_plain_tar_costs_nothing_twice(
    gcs: headrace.Store, server: FaultServer
) -> None:
    gcs.write("a.tar", tar(samples_of(0, 1000, 2000)))
    whole = gcs.stat("a.tar").size_bytes or 0
    stream = ShardStream(gcs, number_of)
    iterator = iter(stream)
    head = list(itertools.islice(iterator, 900))
    state = stream.state_dict()
    iterator.close()  # type: ignore[attr-defined]
    before = len(media(server))
    stream.load_state_dict(state)
    assert head + list(stream) == list(range(1000))
    assert sum(media(server)[before:]) == whole - 900 * (512 + 2048 + 512 + 512)


def test_epochs_that_go_on_read_shards_once(gcs: headrace.Store, server: FaultServer) -> None:
    pack(gcs, [40] * 8)
    stream = ShardStream(gcs, number_of, shuffle=True, shuffle_window=30, epoch_samples=160)
    before = len(media(server))
    seen = Counter(number for _ in range(4) for number in stream)
    assert seen == dict.fromkeys(range(320), 2)
    # And at the end of its last shard, an epoch does not know that there are no more samples.
    assert len(media(server)) - before <= 16 + 3


def test_few_shards_are_open_whose_samples_are_large(
    gcs: headrace.Store, server: FaultServer
) -> None:
    for shard in range(6):
        gcs.write(f"{shard}.tar", tar(samples_of(4 * shard, 4, 300_000)))
    index = headrace.index_members(gcs)
    stream = ShardStream(index, number_of, prefetch_bytes=256 << 10, endpoint=server.url)
    begin = len(server.log())
    iterator = iter(stream)
    assert list(itertools.islice(iterator, 3)) == [0, 1, 2]
    reads = [each for each in server.log()[begin:] if each["kind"] == "media"]
    assert len({each["target"].split("?")[0] for each in reads}) <= 2
    assert list(iterator) == list(range(3, 24))


class Run:
    """A world of readers of one stream, read step by step, that may stop and go on as another."""

    def __init__(self, source: Any, draw: random.Random, **options: Any) -> None:
        self.source, self.draw, self.options = source, draw, options
        self.seen: list[int] = []
        self.states: list[Any] = []

    def go_on(self, world_size: int, lanes_of_rank: int, steps: int | None) -> None:
        """Read so many samples, of all readers in a random order; None: all that are left."""
        lanes = world_size * lanes_of_rank
        streams = [Lane(self, lane, lanes, world_size) for lane in range(lanes)]
        live = list(streams)
        while live and (steps is None or steps > 0):
            one = self.draw.choice(live)
            number = next(one.iterator, None)
            if number is None:
                live.remove(one)
                continue
            self.seen.append(number)
            steps = None if steps is None else steps - 1
        self.states = [one.stream.state_dict() for one in streams]


class Lane:
    """One reader, as a DataLoader worker is one."""

    def __init__(self, run: Run, lane: int, lanes: int, world_size: int) -> None:
        self.stream = ShardStream(run.source, number_of, **run.options)
        self.stream._lane = lambda: (lane, lanes)  # type: ignore[method-assign]
        self.stream._ranks.now = lambda: (lane % world_size, world_size)  # type: ignore[method-assign]
        if run.states:
            self.stream.load_state_dict({"ranks": run.states})
        self.iterator = iter(self.stream)


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("window", [0, 30])
def test_stopped_at_random_steps_it_continues_with_any_readers(
    local: headrace.Store, indexed: bool, window: int
) -> None:
    draw = random.Random(17)
    source: Any = headrace.index_members(local) if indexed else local
    for _ in range(25):
        run = Run(source, draw, shuffle=True, shuffle_window=window, uneven="keep")
        left = 180
        while left > 0 and draw.random() < 0.8:
            steps = draw.randrange(left + 1)
            run.go_on(draw.randrange(1, 4), draw.randrange(1, 4), steps)
            left = 180 - len(run.seen)
        run.go_on(draw.randrange(1, 4), draw.randrange(1, 4), None)
        assert sorted(run.seen) == list(range(180))


@pytest.mark.parametrize("suffix", [".tar.gz", ".tar.zst"])
def test_compressed_shards_continue_with_any_readers(tmp_path: Path, suffix: str) -> None:
    count = pack(headrace.Store(tmp_path), [11, 2, 30, 5], suffix)
    draw = random.Random(18)
    for _ in range(10):
        run = Run(tmp_path, draw, shuffle=True, shuffle_window=7, uneven="keep")
        run.go_on(draw.randrange(1, 4), 2, draw.randrange(count))
        run.go_on(draw.randrange(1, 4), 1, None)
        assert sorted(run.seen) == list(range(count))


def test_zeros_behind_a_compressed_shard_lose_no_sample(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    assert pack(store, [3, 2], ".tar.gz") == 5
    for info in list(store.list()):
        store.write(info.name, store.read(info).bytes() + bytes(5000))
    assert list(ShardStream(store, number_of)) == [0, 1, 2, 3, 4]


def test_an_epoch_of_so_many_samples_has_them_after_a_resume_too(local: headrace.Store) -> None:
    draw = random.Random(19)
    for samples in (60, 180, 400):
        run = Run(local, draw, shuffle=True, epoch_samples=samples)
        run.go_on(2, 2, 50)
        run.go_on(3, 1, None)
        assert len(run.seen) in range(samples - 5, samples + 1)
        if samples == 60:
            assert len(set(run.seen)) == len(run.seen)


def test_ranks_have_the_same_number_after_a_resume(local: headrace.Store) -> None:
    index = headrace.index_members(local)
    draw = random.Random(20)
    for _ in range(10):
        run = Run(index, draw, shuffle=True, shuffle_window=20)
        run.go_on(2, 2, draw.randrange(150))
        before = len(run.seen)
        counts = []
        for lane in range(3):
            numbers = list(Lane(run, lane, 3, 3).iterator)
            counts.append(len(numbers))
            run.seen += numbers
        assert len(set(counts)) == 1
        assert sum(counts) == (180 - before) // 3 * 3
        assert len(set(run.seen)) == len(run.seen)


# torchdata 0.11 calls what torch 2.14 deprecates.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("every", [1, 3])
def test_torchdata_keeps_its_place(local: headrace.Store, workers: int, every: int) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        stream = ShardStream(local, number_of, shuffle=True, shuffle_window=20)
        options: dict[str, Any] = {"multiprocessing_context": "fork"} if workers else {}
        return StatefulDataLoader(
            stream, batch_size=4, num_workers=workers, snapshot_every_n_steps=every, **options
        )

    whole = [batch.tolist() for batch in loader()]
    for at in (1, 7, 20):
        first = loader()
        iterator = iter(first)
        head = [next(iterator).tolist() for _ in range(at)]
        state = first.state_dict()
        del iterator
        again = loader()
        again.load_state_dict(state)
        assert head + [batch.tolist() for batch in again] == whole
        # And with other workers: from the states of all readers, which are inside.
        other = ShardStream(local, number_of, shuffle=True, shuffle_window=20)
        if every == 1:
            other.load_state_dict([state])
            rest = list(DataLoader(other, None, num_workers=1))
            assert sorted(itertools.chain(rest, *head)) == list(range(180))
            everything = list(DataLoader(other, None, num_workers=1))
            assert sorted(everything) == list(range(180))


def begun(source: Any, epoch: int, at: int) -> tuple[list[int], ShardStream]:
    """Return what a pass of two readers has yielded, and a stream that has loaded their states."""
    head: list[int] = []
    states = []
    for rank in range(2):
        stream = ShardStream(
            source, number_of, shuffle=True, uneven="keep", rank=rank, world_size=2
        )
        stream.set_epoch(epoch)
        iterator = iter(stream)
        head += itertools.islice(iterator, at + rank)
        states.append(stream.state_dict())
        iterator.close()  # type: ignore[attr-defined]
    stream = ShardStream(source, number_of, shuffle=True, uneven="keep")
    stream.load_state_dict(states)
    return head, stream


def a_pass(stream: ShardStream, workers: int) -> list[int]:
    return sorted(stream if workers == 0 else DataLoader(stream, None, num_workers=workers))


@pytest.mark.parametrize("then", [0, 1, 2])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_one_pass_takes_a_loaded_state_with_all_of_its_readers(
    local: headrace.Store, first: int, then: int
) -> None:
    head, stream = begun(local, 4, 31)
    assert sorted(head + a_pass(stream, first)) == list(range(180))
    assert a_pass(stream, then) == list(range(180))
    assert a_pass(stream, first) == list(range(180))


@pytest.mark.parametrize("workers", [0, 1])
def test_a_loaded_state_is_of_its_epoch(local: headrace.Store, workers: int) -> None:
    head, stream = begun(local, 4, 31)
    assert stream.epoch == 4
    stream.set_epoch(4)
    assert stream.state_dict()["base"]["begun"]
    stream.set_epoch(5)
    assert not stream.state_dict()["base"]["begun"]
    assert a_pass(stream, workers) == list(range(180))
    stream.set_epoch(4)
    assert sorted(head + a_pass(stream, 2)) == list(range(180))
    stream.set_epoch(4)
    assert a_pass(stream, workers) == list(range(180))


def test_a_loader_that_was_given_up_has_taken_the_state(local: headrace.Store) -> None:
    _, stream = begun(local, 0, 20)
    for seed in (7, 8):
        generator = torch.Generator().manual_seed(seed)
        loader = DataLoader(stream, None, num_workers=2, generator=generator)
        iterator = iter(loader)
        taken = [next(iterator) for _ in range(4)]
        del iterator
    assert len(set(taken)) == 4
    for workers in (1, 0, 2):
        assert a_pass(stream, workers) == list(range(180))


def test_workers_that_begin_by_the_same_seed_take_a_state_once(local: headrace.Store) -> None:
    head, stream = begun(local, 0, 20)
    for workers, wanted in ((2, head), (2, []), (1, [])):
        generator = torch.Generator().manual_seed(7)
        loader = DataLoader(stream, None, num_workers=workers, generator=generator)
        assert sorted([*wanted, *loader]) == list(range(180))


@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_persistent_workers_take_a_loaded_state_once(local: headrace.Store, context: str) -> None:
    head, stream = begun(local, 0, 20)
    loader = DataLoader(
        stream, None, num_workers=2, persistent_workers=True, multiprocessing_context=context
    )
    assert sorted([*head, *loader]) == list(range(180))
    for epoch in (0, 1):
        stream.set_epoch(epoch)
        assert sorted(loader) == list(range(180))
    stream.load_state_dict(stream.state_dict())
    stream.set_epoch(3)
    assert sorted(loader) == list(range(180))
    stream.set_epoch(2)
    with pytest.raises(headrace.InvalidArgumentError, match="make a new DataLoader"):
        list(loader)


def test_states_of_something_else_are_refused(local: headrace.Store, tmp_path: Path) -> None:
    stream = ShardStream(local, number_of, shuffle=True, shuffle_window=5)
    state = stream.state_dict()
    bad: list[tuple[Any, str]] = [
        ({**state, "seed": 1}, "seed"),
        ({**state, "shuffle_window": 6}, "shuffle_window=6"),
        ({**state, "uneven": "keep"}, "uneven='keep'"),
        ({**state, "fingerprint": "0"}, "other data"),
        ({**state, "lane": 1}, "that cannot be"),
        ({**state, "rests": [[1, 2]]}, "for what is left of a shard"),
        ({**state, "rests": [[0, 0, [0, 0, 0, 6]]]}, "for what is left of a shard"),
        ({**state, "rests": [[0, 0, [0, 0, 0, 1 << 60]]]}, "for what is left of a shard"),
        ({**state, "rests": [[3, 0, [0, 0, 0, 2]]]}, "for what is left of a shard"),
        ({**state, "rests": [[-1, 0, [0, 0, 0, 2]]]}, "for what is left of a shard"),
        ({**state, "share": [3]}, "share"),
        ({**state, "base": {"frontier": 0}}, "base"),
        ({**state, "version": 99}, "version"),
        ({}, "not a state"),
        ([], "not a state"),
        ("text", "not a state"),
        ([{**state, "lanes": 2}], "that of reader 1 is missing"),
        ([{**state, "lanes": 1 << 60}], "that of reader 1 is missing"),
        ([{**state, "lanes": 2}, {**state, "lanes": 2, "lane": 1, "epoch": 3}], "one moment"),
    ]
    for wrong, text in bad:
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            stream.load_state_dict(wrong)
    stream.load_state_dict(state)
    other = ShardStream(local, number_of, shuffle=True, shuffle_window=5, rank=1, world_size=2)
    other.load_state_dict(state)
    with pytest.raises(headrace.InvalidArgumentError, match="the states of all readers"):
        iter(other)


def test_a_reader_that_is_said_to_be_far_ahead_of_another_is_refused(
    local: headrace.Store,
) -> None:
    stream = ShardStream(local, number_of, epoch_samples=10)
    state = stream.state_dict()
    both = [{**state, "lanes": 2, "lane": lane, "begun": lane << 50} for lane in range(2)]
    with pytest.raises(headrace.InvalidArgumentError, match="not of one moment"):
        stream.load_state_dict(both)


@pytest.mark.parametrize("workers", [0, 2])
def test_an_index_of_no_samples_is_an_epoch_of_none(tmp_path: Path, workers: int) -> None:
    stream = ShardStream(wids(tmp_path, [0, 0], ".tar"), number_of, shuffle=True)
    for _ in range(2):
        assert list(DataLoader(stream, None, num_workers=workers)) == []
        stream.load_state_dict([stream.state_dict()])


def test_what_fills_up_the_ranks_belongs_to_them(local: headrace.Store) -> None:
    index = headrace.index_members(local)
    streams = [
        ShardStream(index, number_of, uneven="pad", rank=rank, world_size=7) for rank in range(7)
    ]
    whole = [list(stream) for stream in streams]
    states = []
    for stream in streams:
        iterator = iter(stream)
        next(iterator)
        states.append(stream.state_dict())
    with pytest.raises(headrace.InvalidArgumentError, match="as many ranks and workers as there"):
        ShardStream(index, uneven="pad", rank=0, world_size=2).load_state_dict(states)
    for rank, stream in enumerate(streams):
        stream.load_state_dict(states[rank])
        assert list(stream) == whole[rank][1:]


# ---- epochs of so many samples


def test_an_epoch_of_fewer_samples_than_ranks_is_refused(local: headrace.Store) -> None:
    for source in (local, headrace.index_members(local)):
        stream = ShardStream(source, epoch_samples=3, rank=0, world_size=4)
        with pytest.raises(headrace.InvalidArgumentError, match="3, and there are 4 ranks"):
            list(stream)
        assert len(list(ShardStream(source, epoch_samples=4, rank=3, world_size=4))) == 1


@pytest.mark.parametrize("world_size", [1, 2])
def test_shards_without_samples_make_no_epoch(tmp_path: Path, world_size: int) -> None:
    for name in ("a.tar", "b.tar", "c.tar"):
        (tmp_path / name).write_bytes(tar([("README", b"no sample")]))
    assert list(ShardStream(tmp_path)) == []
    stream = ShardStream(tmp_path, epoch_samples=10, rank=0, world_size=world_size)
    with pytest.raises(headrace.InvalidArgumentError, match="none of the 3 shards has a sample"):
        list(stream)


def readers_of(source: Any, ranks: int, workers: int, **options: Any) -> list[ShardStream]:
    """Return the streams of all readers, each as a DataLoader worker has one."""
    run, lanes = Run(source, random.Random(0), **options), ranks * workers
    streams = [Lane(run, lane, lanes, ranks).stream for lane in range(lanes)]
    for stream in streams:
        stream.set_epoch(0)
    return streams


@hypothesis.settings(max_examples=SEARCHED or 25, deadline=None)
@hypothesis.given(data=st.data())
def test_over_epochs_a_reader_gets_every_sample_before_it_gets_one_again(
    local: headrace.Store, data: st.DataObject
) -> None:
    """However it is stopped and goes on, and exactly as if it had not been stopped."""
    ranks, workers = data.draw(st.integers(1, 7)), data.draw(st.integers(1, 3))
    samples = data.draw(st.integers(ranks, 300), "epoch_samples")
    options = {
        "epoch_samples": samples,
        "shuffle": data.draw(st.booleans(), "shuffle"),
        "shuffle_window": data.draw(st.sampled_from([0, 7, 60]), "window"),
    }
    lengths: Counter[int] = Counter()
    for lane, stream in enumerate(readers_of(local, ranks, workers, **options)):
        again = readers_of(local, ranks, workers, **options)[lane]
        seen = Counter(range(180))
        for epoch in range(data.draw(st.integers(1, 5), "epochs")):
            whole = list(stream)
            seen.update(whole)
            lengths[epoch, lane % ranks] += len(whole)
            assert max(seen.values()) - min(seen.values()) <= 1
            stop = data.draw(st.none() | st.integers(0, len(whole)), "stop")
            head: list[int] = []
            if stop is not None:
                head += itertools.islice(again, stop)
                state = json.loads(json.dumps(again.state_dict()))
                again = readers_of(local, ranks, workers, **options)[lane]
                again.load_state_dict(state)
                assert again.state_dict() == state
            assert head + list(again) == whole
    assert {lengths[0, rank] for rank in range(ranks)} == {samples // ranks}


def test_readers_that_begin_with_shards_of_their_own_read_each_once_in_an_epoch(
    tmp_path: Path,
) -> None:
    pack(headrace.Store(tmp_path), [10] * 12)
    for ranks, workers in ((1, 1), (2, 2), (3, 1), (4, 3)):
        readers = readers_of(tmp_path, ranks, workers, shuffle=True, epoch_samples=120)
        for epoch in range(3):
            seen = Counter(number for stream in readers for number in stream)
            assert seen == dict.fromkeys(range(120), 1), epoch


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_an_epoch_goes_on_where_the_last_one_ended_in_whatever_process(
    local: headrace.Store, workers: int, persistent: bool
) -> None:
    options: dict[str, Any] = {"shuffle": True, "shuffle_window": 8, "epoch_samples": 50}
    readers = readers_of(local, 1, max(1, workers), **options)
    stream = ShardStream(local, number_of, **options)
    loader = DataLoader(stream, None, num_workers=workers, persistent_workers=persistent)
    for epoch in range(6):
        if epoch % 2:
            stream.set_epoch(epoch)
        assert sorted(loader) == sorted(itertools.chain(*readers)), epoch
    # Another epoch than the next one, and one after an epoch that was left, have no history.
    stream.set_epoch(9)
    fresh = ShardStream(local, number_of, **options)
    fresh.set_epoch(9)
    wanted = sorted(DataLoader(fresh, None, num_workers=workers))
    assert sorted(loader) == wanted
    stream.set_epoch(8)
    next(iter(loader))
    assert sorted(loader) == wanted


def test_an_epoch_after_a_resume_with_other_readers_goes_on_too(local: headrace.Store) -> None:
    draw = random.Random(22)
    for _ in range(4):
        run = Run(local, draw, shuffle=True, shuffle_window=draw.choice([0, 9]), epoch_samples=60)
        run.go_on(draw.randrange(1, 4), draw.randrange(1, 4), draw.randrange(40))
        lanes = draw.randrange(1, 4)
        readers = [Lane(run, lane, lanes, 1) for lane in range(lanes)]
        for reader in readers:
            run.seen += reader.iterator
        assert len(run.seen) == 60
        for reader in readers:
            own, epochs = set[int](), 0
            while own != set(range(180)) and epochs < 30 * lanes:
                own.update(reader.stream)  # first of what the readers before have left
                epochs += 1
            assert own == set(range(180))


def test_every_reader_comes_to_all_shards(tmp_path: Path) -> None:
    # As many shards as readers: by turns of a fixed length, each would have one again and again.
    pack(headrace.Store(tmp_path), [5, 0])
    for rank in range(2):
        stream = ShardStream(tmp_path, number_of, epoch_samples=40, rank=rank, world_size=2)
        assert Counter(stream) == dict.fromkeys(range(5), 4)
    pack(headrace.Store(tmp_path), [5, 5])
    for rank in range(2):
        stream = ShardStream(tmp_path, number_of, epoch_samples=40, rank=rank, world_size=2)
        assert set(stream) == set(range(10))


def states_of(streams: Iterable[ShardStream], samples: int) -> list[dict[str, Any]]:
    """Return the states of readers that have yielded so many samples each."""
    states = []
    for stream in streams:
        iterator = iter(stream)
        assert len(list(itertools.islice(iterator, samples))) == samples
        states.append(json.loads(json.dumps(stream.state_dict())))
    return states


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_yield_their_shares_of_a_window_that_was_begun(tmp_path: Path, ranks: int) -> None:
    pack(headrace.Store(tmp_path), [14] * 6)
    how: dict[str, Any] = {"shuffle": True, "shuffle_window": 100, "epoch_samples": 40}
    states = states_of(readers_of(tmp_path, 1, 1, **how), 1)
    readers = readers_of(tmp_path, ranks, 1, **how)
    for stream in readers:
        stream.load_state_dict(states)
    assert [len(list(stream)) for stream in readers] == [39 // ranks] * ranks
    # What a rank has left of the window is there for whoever goes on.
    one, other = readers_of(tmp_path, 2, 1, **how)
    one.load_state_dict(states)
    other.load_state_dict(states)
    seen = [*one, *itertools.islice(other, 3)]
    last = ShardStream(tmp_path, number_of, **how)
    last.load_state_dict([one.state_dict(), other.state_dict()])
    seen += last
    assert len(set(seen)) == len(seen) == 39


@pytest.mark.parametrize(
    ("counts", "ranks", "samples"), [([5], 2, 5), ([3, 0], 4, 3), ([8] * 4, 16, 8)]
)
def test_the_ends_of_shards_are_no_shards_without_samples(
    tmp_path: Path, counts: list[int], ranks: int, samples: int
) -> None:
    count = pack(headrace.Store(tmp_path), counts)
    epoch = ranks * (samples + count)
    states = states_of(readers_of(tmp_path, ranks, 1, epoch_samples=epoch), samples)
    stream = ShardStream(tmp_path, number_of, epoch_samples=epoch)
    stream.load_state_dict(states)
    assert len(list(stream)) == ranks * count


@pytest.mark.parametrize("window", [1, 4, 100])
def test_a_window_ends_where_a_sample_could_come_again(tmp_path: Path, window: int) -> None:
    count = pack(headrace.Store(tmp_path), [3, 9, 1, 5])
    stream = ShardStream(
        tmp_path, number_of, shuffle=True, shuffle_window=window, epoch_samples=3 * count
    )
    numbers = list(stream)
    for begin in range(0, len(numbers), count):
        assert sorted(numbers[begin : begin + count]) == list(range(count))


# torchdata 0.11 calls what torch 2.14 deprecates.
@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
@pytest.mark.parametrize("workers", [0, 1])
def test_the_next_epoch_goes_on_behind_a_checkpoint_of_the_end_of_one(
    local: headrace.Store, workers: int
) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        how: dict[str, Any] = {"shuffle": True, "shuffle_window": 5, "epoch_samples": 12}
        return StatefulDataLoader(ShardStream(local, number_of, **how), None, num_workers=workers)

    whole = loader()
    epochs, state = [list(whole) for _ in range(4)], None
    for epoch in epochs:
        again = loader()
        if state is not None:
            again.load_state_dict(state)
        assert (list(again) or list(again)) == epoch  # first may come the rest of the epoch before
        state = again.state_dict()


# ---- errors


def test_a_torn_shard_is_an_error_after_its_samples(store: headrace.Store) -> None:
    pack(store, [3, 3])
    store.write("shard-001.tar", tar(samples_of(3, 3, 300))[:4000])
    seen: list[int] = []
    with pytest.raises(headrace.CorruptDataError, match=r"shard-001\.tar") as raised:
        seen.extend(ShardStream(store, number_of))
    assert seen == [0, 1, 2, 3]
    assert raised.value.url == store.url_of("shard-001.tar")


def test_what_a_function_raises_ends_the_pass_and_is_no_broken_shard(store: headrace.Store) -> None:
    pack(store, [3] * 4)
    calls: list[Any] = []

    def refuse(error: Any) -> None:
        calls.append(error.member)
        raise headrace.CorruptDataError("enough")

    def transform(fields: dict[str, Any]) -> int:
        number = number_of(fields)
        if number == 4:
            raise headrace.NotFoundError("not there")
        return number

    stream = ShardStream(store, transform, on_error=refuse)
    seen: list[int] = []
    with pytest.raises(headrace.CorruptDataError, match="enough"):
        seen.extend(stream)
    assert seen == [0, 1, 2, 3]
    assert len(calls) == 1
    assert stream.state_dict().get("skipped", 0) == 0


def test_where_samples_are_not_counted_those_yielded_say_how_many_may_be_left_out(
    store: headrace.Store,
) -> None:
    pack(store, [1500, 1500])

    def transform(fields: dict[str, Any]) -> int:
        number = number_of(fields)
        if number % 150 == 149:
            raise ValueError
        return number

    assert len(list(ShardStream(store, transform, on_error="skip"))) == 2980
    with pytest.raises(headrace.CorruptDataError, match="max_skipped is 10"):
        list(ShardStream(store, lambda fields: 1 // (number_of(fields) % 2), on_error="skip"))


@pytest.mark.parametrize("suffix", PACKERS)
def test_broken_shards_are_left_out_if_that_is_wanted(
    store: headrace.Store, suffix: str, caplog: pytest.LogCaptureFixture
) -> None:
    pack(store, [3, 3, 3, 3], suffix)
    broken = store.read(f"shard-001{suffix}").bytes()
    store.write(f"shard-001{suffix}", broken[: len(broken) // 2 - 100])
    store.write(f"shard-002{suffix}", b"no tar at all" * 100)
    errors: list[headrace.HeadraceError] = []
    numbers = list(ShardStream(store, number_of, on_error=errors.append))
    assert set(numbers) >= {0, 1, 2, 9, 10, 11}
    assert [error.url for error in errors] == [
        store.url_of(f"shard-00{shard}{suffix}") for shard in (1, 2)
    ]
    with caplog.at_level(logging.WARNING, "headrace"):
        assert list(ShardStream(store, number_of, on_error="skip")) == numbers
    first, total = [record.getMessage() for record in caplog.records]
    assert f"shard-001{suffix}" in first
    assert "from sample " in first
    assert "2 units of unknown size of epoch 0" in total
    assert f"shard-001{suffix}" in total
    assert f"shard-002{suffix}" in total


@pytest.mark.parametrize("epoch_samples", [None, 40])
@pytest.mark.parametrize("by_loader", [False, True])
def test_a_begun_window_that_nobody_can_read_is_not_the_end(
    tmp_path: Path, epoch_samples: int | None, by_loader: bool
) -> None:
    pack(headrace.Store(tmp_path), [13] * 5)

    def make() -> Any:
        how: dict[str, Any] = {"shuffle_window": 4, "epoch_samples": epoch_samples}
        if by_loader:
            return Loader(ShardStream(tmp_path, number_of, **how), 1, shuffle=True, on_error="skip")
        return ShardStream(tmp_path, number_of, shuffle=True, on_error="skip", **how)

    first = make()
    begun = [int(each) for each in itertools.islice(iter(first), 2)]
    state = json.loads(json.dumps(first.state_dict()))
    again = make()
    (tmp_path / f"shard-{begun[0] // 13:03d}.tar").unlink()
    again.load_state_dict(state)
    rest = [int(each) for each in again]
    # Of a Loader, each of two errors takes the place of a sample.
    wanted = 52 if epoch_samples is None else 38 - 2 * by_loader
    assert len(set(rest)) == len(rest) == wanted
    assert begun[0] // 13 not in {number // 13 for number in rest}


def test_if_all_shards_are_left_out_that_is_an_error(store: headrace.Store) -> None:
    for name in ("a.tar", "b.tar"):
        store.write(name, b"no tar at all" * 100)
    for options in ({}, {"epoch_samples": 10}):
        with pytest.raises(headrace.CorruptDataError, match=r"there is no sample.*a\.tar.*b\.tar"):
            list(ShardStream(store, on_error="skip", **options))


def number_unless(*bad: int) -> Callable[[dict[str, Any]], int]:
    def transform(fields: dict[str, Any]) -> int:
        number = number_of(fields)
        if number in bad:
            raise LookupError(number)
        return number

    return transform


@pytest.mark.parametrize("indexed", [False, True])
@pytest.mark.parametrize("shuffle_window", [0, 5])
def test_samples_whose_transform_raises_are_left_out(
    local: headrace.Store, shuffle_window: int, indexed: bool
) -> None:
    source: Any = headrace.index_members(local.url) if indexed else local
    how: dict[str, Any] = {"shuffle": True, "shuffle_window": shuffle_window}

    def stream_of(on_error: Any = "skip", **more: Any) -> ShardStream:
        return ShardStream(source, number_unless(3, 4, 21), on_error=on_error, **how, **more)

    every = list(ShardStream(source, number_of, **how))
    left = [number for number in every if number not in (3, 4, 21)]
    told: list[Any] = []
    assert list(stream_of(told.append)) == left
    assert sorted(each.args[0] for each in told) == [3, 4, 21]
    assert all(each.member == f"{each.args[0]:06d}" for each in told)
    assert all(each.url.startswith(local.url) for each in told)
    with pytest.raises(headrace.CorruptDataError, match=r"3 samples of epoch 0.*max_skipped is 2"):
        list(stream_of(max_skipped=2))
    stream = stream_of()
    iterator = iter(stream)
    for at in range(1, len(left)):
        next(iterator)
        if at % 16:
            continue
        state = json.loads(json.dumps(stream.state_dict()))
        for states in (state, [state]):
            other = stream_of()
            other.load_state_dict(states)
            rest = list(other)
            assert sorted(rest) == sorted(left[at:])
            refused = stream_of(max_skipped=2)
            refused.load_state_dict(states)
            if any(number in every[every.index(left[at - 1]) :] for number in (3, 4, 21)):
                with pytest.raises(headrace.CorruptDataError, match="3 samples of epoch 0"):
                    list(refused)


def test_what_the_trainer_handles_is_no_outage_of_a_shard(store: headrace.Store) -> None:
    pack(store, [3, 3])
    store.write("shard-001.tar", tar(samples_of(3, 3, 300))[:4000])
    try:
        raise ConnectionResetError
    except ConnectionResetError:
        assert list(ShardStream(store, number_of, on_error="skip")) == [0, 1, 2, 3]


def test_a_reader_goes_on_until_it_has_the_samples_of_an_epoch(local: headrace.Store) -> None:
    stream = ShardStream(local, number_unless(3, 4), epoch_samples=20, on_error="skip")
    found = list(stream)
    assert len(found) == 20
    assert not {3, 4} & set(found)


def test_the_rest_of_a_shard_counts_as_its_samples(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    pack(store, [3, 20, 3])
    path = tmp_path / "shard-001.tar"
    data = bytearray(path.read_bytes())
    data[6 * 2048 :] = b"\xff" * (len(data) - 6 * 2048)
    path.write_bytes(data)
    listed = [
        {"url": f"shard-{shard:03d}.tar", "nsamples": count}
        for shard, count in enumerate((3, 20, 3))
    ]
    (tmp_path / "index.json").write_text(json.dumps({"wids_version": 1, "shardlist": listed}))

    def stream_of(most: int) -> ShardStream:
        return ShardStream(tmp_path / "index.json", number_of, on_error="skip", max_skipped=most)

    found = list(stream_of(20))
    lost = 26 - len(found)
    assert 0 < lost < 20
    assert found == [*range(23 - lost), 23, 24, 25]
    assert list(stream_of(lost)) == found
    with pytest.raises(headrace.CorruptDataError, match=f"{lost} samples of epoch 0"):
        list(stream_of(lost - 1))


@pytest.mark.parametrize(
    ("status", "error"), [(403, headrace.PermissionDeniedError), (503, headrace.UnavailableError)]
)
def test_an_outage_is_no_broken_shard(
    server: FaultServer, gcs: headrace.Store, status: int, error: type[Exception]
) -> None:
    pack(gcs, [3, 3])
    store = headrace.Store(
        gcs.url, endpoint=server.url, retry=headrace.RetryOptions(max_attempts=1)
    )
    stream = ShardStream(store, on_error="skip")
    server.faults(
        [{"match": {"kind": "media", "path_contains": "001"}, "action": {"status": status}}]
    )
    with pytest.raises(error):
        list(stream)
    server.faults([])


@pytest.mark.parametrize(
    ("members", "text"),
    [
        ([*samples_of(0, 2), *samples_of(0, 1)], "in two places"),
        ([("0.jpg", b"1"), ("0.JPG", b"2")], "already"),
        ([("0.__url__", b"1")], "of their own"),
    ],
)
def test_samples_that_cannot_be_are_errors(store: headrace.Store, members: Any, text: str) -> None:
    store.write("a.tar", tar(members))
    with pytest.raises(headrace.InvalidArgumentError, match=rf"a\.tar: .*{text}"):
        list(ShardStream(store))


def test_members_in_no_sample_are_left_out_and_logged(
    store: headrace.Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.write("a.tar", tar([("README", b"x"), *samples_of(0, 2), ("__meta__/a.json", b"{}")]))
    with caplog.at_level(logging.WARNING, "headrace"):
        assert len(list(ShardStream(store))) == 2
    assert "'README' and 1 more" in caplog.text


def test_a_shard_of_another_compression_is_refused(store: headrace.Store) -> None:
    store.write("a.tar.bz2", b"BZh91AY&SY" + bytes(100))
    with pytest.raises(headrace.InvalidArgumentError, match="compressed by bzip2"):
        list(ShardStream(store))


def test_a_shard_that_is_replaced_is_an_error(store: headrace.Store) -> None:
    pack(store, [3])
    stream = ShardStream(store)
    pack(store, [4])
    with pytest.raises(headrace.PreconditionFailedError, match=r"shard-000\.tar"):
        list(stream)


def test_errors_of_a_transform_name_the_sample(local: headrace.Store) -> None:
    def fail(fields: dict[str, Any]) -> int:
        number = number_of(fields)
        if number == 21:
            raise ValueError("no good")
        return number

    stream = ShardStream(local, fail)
    iterator = iter(stream)
    assert [next(iterator) for _ in range(21)] == list(range(21))
    with pytest.raises(ValueError, match=r"no good .*shard-001\.tar") as raised:
        next(iterator)
    assert raised.value.__notes__ == ["in the sample '000021'"]
    again = ShardStream(local, number_of)
    again.load_state_dict(stream.state_dict())
    assert next(iter(again)) == 21


def test_what_cannot_be_is_an_error(local: headrace.Store) -> None:
    for wrong, text in (
        ({"fields": "jpg"}, "fields is 'jpg'"),
        ({"transform": 3}, "transform is 3"),
        ({"shuffle_window": -1}, "shuffle_window is -1"),
        ({"epoch_samples": 0}, "epoch_samples is 0"),
        ({"epoch_samples": 5, "uneven": "pad"}, "leave out uneven"),
        ({"uneven": "some"}, "uneven is 'some'"),
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
        ({"shards_ahead": -1}, "shards_ahead is -1"),
        ({"rank": 1}, "give both"),
    ):
        with pytest.raises(headrace.InvalidArgumentError, match=text):
            ShardStream(local, **wrong)  # type: ignore[arg-type]
    for unknown, text in (
        ({"shardshuffle": 100}, "did you mean shuffle="),
        ({"batch_size": 3}, "DataLoader"),
    ):
        with pytest.raises(TypeError, match=text):
            ShardStream(local, **unknown)
    with pytest.raises(headrace.NotFoundError):
        ShardStream(local.url + "/none-{0..1}.tar")


def test_a_pass_that_is_given_up_leaves_nothing_behind(gcs: headrace.Store) -> None:
    pack(gcs, [40] * 5)
    stream = ShardStream(gcs, number_of, shards_ahead=3)
    iterator = iter(stream)
    assert next(iterator) == 0
    del iterator
    engine = gcs._open()[0]
    wait_until(lambda: engine.live_bytes == 0)


def test_closing_a_shard_ends_the_wait_of_another_thread(
    gcs: headrace.Store, server: FaultServer
) -> None:
    pack(gcs, [40])
    stream = ShardStream(headrace.index_members(gcs), endpoint=server.url)
    server.faults([{"match": {"kind": "media"}, "action": {"stall_after_bytes": 0}}])
    for _ in range(5):
        shard = stream._shard_read(0, 0, 0)
        with concurrent.futures.ThreadPoolExecutor() as threads:
            taken = threads.submit(shard.take)
            wait_until(lambda: server.stats()["in_flight"] == 1)
            shard.close()
            assert isinstance(taken.exception(), headrace.CancelledError)
        wait_until(lambda: server.stats()["in_flight"] == 0)
        with pytest.raises(headrace.CancelledError, match="was closed"):
            shard.take()


def test_batches_of_samples_are_tensors(local: headrace.Store) -> None:
    batch = next(iter(DataLoader(ShardStream(local, fields=["jpg"]), 4)))
    assert batch["jpg"].shape == (4, 300)
    assert batch["jpg"].dtype == torch.uint8


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_a_worker_of_nothing_but_a_bad_shard_leaves_it_out(tmp_path: Path) -> None:
    for file in range(4):
        with tarfile.open(tmp_path / f"{file}.tar", "w") as tar:
            member = tarfile.TarInfo(f"{file}.txt")
            member.size = 3
            tar.addfile(member, io.BytesIO(b"abc"))
    (tmp_path / "2.tar").write_bytes(b"\xff" * 4096)
    stream = ShardStream(tmp_path, _key_of_a_sample, on_error="skip")
    found = list(DataLoader(stream, batch_size=None, num_workers=4))
    assert sorted(found) == ["0", "1", "3"]


def _key_of_a_sample(fields: dict[str, Any]) -> str:
    return str(fields["__key__"])
