"""Packing into tar shards: what they hold, what it costs, and how it goes on."""

from __future__ import annotations

import functools
import gzip
import io
import json
import logging
import os
import subprocess
import sys
import tarfile
import tempfile
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import hypothesis
import hypothesis.strategies as st
import pytest
from webdataset.tariterators import group_by_keys, tar_file_expander

import headrace
from headrace import ObjectIndex
from headrace._pack.place import Place, Record
from headrace.torch import ShardDataset, ShardStream
from testing.faultserver.client import FaultServer
from tests.killed import kill_when_written
from tests.pack import functions
from tests.shards.tars import tar

KIB = 1024


def content(i: int, size_bytes: int = 1000) -> bytes:
    return (b"%06d." % i * size_bytes)[:size_bytes]


def fill(store: headrace.Store, count: int, size_bytes: int = 1000) -> None:
    """Write `count` samples of two fields, in three folders."""
    for i in range(count):
        store.write(f"in/{'abc'[i % 3]}/{i:06d}.jpg", content(i, size_bytes))
        store.write(f"in/{'abc'[i % 3]}/{i:06d}.json", b'{"i": %d}' % i)


def below(store: headrace.Store, name: str) -> headrace.Store:
    return store._derived(f"{store.url}/{name}")


def options_of(store: headrace.Store) -> dict[str, Any]:
    """Return what a store of another URL needs to reach the same server."""
    endpoint = store._settings.endpoint
    return {} if endpoint is None else {"endpoint": endpoint}


def members(store: headrace.Store, name: str = "train") -> dict[str, list[tuple[str, bytes]]]:
    """Return what Python's own reader finds in the shards."""
    found = {}
    for info in store.list(f"{name}-"):
        with tarfile.open(fileobj=io.BytesIO(store.read(info).bytes())) as archive:
            found[info.name] = [
                (each.name, archive.extractfile(each).read())  # type: ignore[union-attr]
                for each in archive
            ]
    return found


def shards(store: headrace.Store) -> dict[str, bytes]:
    return {info.name: store.read(info).bytes() for info in store.list("train-")}


def by_webdataset(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    for path in paths:
        with path.open("rb") as file:  # WebDataset(url) leaves its files open
            yield from group_by_keys(tar_file_expander([{"url": str(path), "stream": file}]))


# ---- what the shards hold


@pytest.mark.every_store
def test_samples_are_packed_whole_in_order_on_every_store(store: headrace.Store) -> None:
    fill(store, 10)
    out = below(store, "out")
    packed = headrace.pack(below(store, "in"), out, shard_samples=4)
    assert (packed.shards, packed.written, packed.samples, packed.skipped) == (3, 3, 10, ())
    found = members(out)
    assert list(found) == ["train-000000.tar", "train-000001.tar", "train-000002.tar"]
    assert [len(each) for each in found.values()] == [8, 8, 4]
    wanted = [(info.name, below(store, "in").read(info).bytes())
              for info in below(store, "in").list()]  # fmt: skip
    assert [each for shard in found.values() for each in shard] == wanted
    assert packed.size_bytes == sum(info.size_bytes for info in out.list("train-"))
    assert headrace.pack(below(store, "in"), out, shard_samples=4).written == 0


def test_the_saved_index_is_what_indexing_the_shards_gives(store: headrace.Store) -> None:
    fill(store, 10)
    out = below(store, "out")
    packed = headrace.pack(below(store, "in"), out, shard_samples=4, label="folder")
    saved = ObjectIndex.load("train.index", store=out)
    assert packed.index == saved == headrace.index_members(out)
    assert saved.column("member", range(3)) == ["a/000000.jpg", "a/000000.json", "a/000000.cls"]


def test_datasets_and_webdataset_read_the_same_samples(tmp_path: Path) -> None:
    fill(headrace.Store(tmp_path), 20)
    headrace.pack(tmp_path / "in", tmp_path / "out", shard_samples=6, shuffle=True, label="folder")
    pattern = str(tmp_path / "out" / "train-{000000..000003}.tar")

    def plain(sample: dict[str, Any]) -> tuple[str, bytes, bytes, bytes]:
        jpg, cls, text = (bytes(sample[name]) for name in ("jpg", "cls", "json"))
        return sample["__key__"], jpg, cls, text

    by_number = [plain(each) for each in ShardDataset(pattern, lambda sample: sample)]
    streamed = [plain(each) for each in ShardStream(pattern, lambda sample: sample)]
    theirs = [plain(each) for each in by_webdataset(sorted((tmp_path / "out").glob("*.tar")))]
    assert by_number == theirs
    assert sorted(streamed) == sorted(theirs)
    assert sorted(by_number) == sorted(
        (f"{'abc'[i % 3]}/{i:06d}", content(i), b"%d" % (i % 3), b'{"i": %d}' % i)
        for i in range(20)
    )
    assert [each[0] for each in by_number] != sorted(each[0] for each in by_number)


NAMES = st.one_of(
    st.from_regex(r"[a-z0-9]{1,20}(/[a-z]{1,10}){0,2}\.[a-z]{1,4}", fullmatch=True),
    st.from_regex(r"[a-z]{60,99}/[a-z]{60,120}\.jpg", fullmatch=True),
    st.from_regex(r"[äßλ字 =]{1,50}\.png", fullmatch=True),
)


@hypothesis.settings(max_examples=15)
@hypothesis.given(st.dictionaries(NAMES, st.binary(max_size=1500), min_size=1, max_size=8))
def test_every_reader_finds_the_same_files(files: dict[str, bytes]) -> None:
    # A name cannot be a file and a folder.
    files = {f"{i}/{name}": data for i, (name, data) in enumerate(files.items())}
    with tempfile.TemporaryDirectory() as folder:
        store = headrace.Store(folder)
        for name, data in files.items():
            store.write(f"in/{name}", data)
        packed = headrace.pack(Path(folder, "in"), Path(folder, "out"))
        shard = Path(folder, "out", "train-000000.tar")
        [found] = members(headrace.Store(Path(folder, "out"))).values()
        assert dict(found) == files
        assert headrace.index_members(shard) == packed.index
        for reader in ("/bin/tar", "/usr/bin/bsdtar"):
            into = Path(folder, Path(reader).name)
            into.mkdir()
            subprocess.run(
                [reader, "-xf", shard, "-C", into], check=True, env={"LC_ALL": "C.UTF-8"}
            )
            assert {name: (into / name).read_bytes() for name in files} == files


def test_shards_are_packed_anew(store: headrace.Store) -> None:
    for shard in range(3):
        store.write(
            f"in/{shard}.tar",
            tar(
                (f"{i:03d}.{field}", content(i) + field.encode())
                for i in range(shard * 5, shard * 5 + 5)
                for field in ("JPG", "seg.png")
            ),
        )
    out = below(store, "out")
    packed = headrace.pack(below(store, "in"), out, shard_samples=8, shuffle=True, seed=3)
    assert (packed.shards, packed.samples) == (2, 15)
    found = [each for shard in members(out).values() for each in shard]
    assert sorted(found) == sorted(
        (f"{i:03d}.{field}", content(i) + field.encode())
        for i in range(15)
        for field in ("JPG", "seg.png")
    )
    # A folder that was packed is taken for its shards.
    again = headrace.pack(out, below(store, "again"), shuffle=True)
    assert (again.shards, again.samples) == (1, 15)


def test_an_index_of_several_stores_is_packed_with_its_column(tmp_path: Path) -> None:
    for name in ("one", "two"):
        headrace.Store(tmp_path / name).write(f"{name}.txt", name.encode())
    index = ObjectIndex.from_urls(
        [str(tmp_path / "two" / "two.txt"), str(tmp_path / "one" / "one.txt")],
        roots=[tmp_path / "one", tmp_path / "two"],
        columns={"kind": ["x", "y"]},
    )
    headrace.pack(index, tmp_path / "out", label="kind")
    [found] = members(headrace.Store(tmp_path / "out")).values()
    assert found == [
        ("two.txt", b"two"), ("two.cls", b"x"), ("one.txt", b"one"), ("one.cls", b"y"),
    ]  # fmt: skip


def test_booleans_are_packed_as_the_numbers_of_their_classes(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path / "in")
    fill(headrace.Store(tmp_path), 2)
    index = store.index().filter(suffix=".jpg").with_columns({"is_new": [True, False]})
    headrace.pack(index, tmp_path / "out", label="is_new")
    [found] = members(headrace.Store(tmp_path / "out")).values()
    assert [body for name, body in found if name.endswith(".cls")] == [b"1", b"0"]


def test_sizes_that_an_index_does_not_have_are_asked_for(tmp_path: Path) -> None:
    for name in ("one", "two"):
        for i in range(2):
            headrace.Store(tmp_path / name).write(f"{name}-{i}.x", f"{name} {i}".encode())
    urls = [str(tmp_path / name / f"{name}-{i}.x") for i in range(2) for name in ("two", "one")]
    index = ObjectIndex.from_urls(
        urls, roots=[tmp_path / "one", tmp_path / "two"], columns={"kind": [3, 4, 5, 6]}
    )
    assert index.total_size_bytes is None
    headrace.pack(index, tmp_path / "out", label="kind")
    [found] = members(headrace.Store(tmp_path / "out")).values()
    assert [data for _, data in found] == [
        b"two 0", b"3", b"one 0", b"4", b"two 1", b"5", b"one 1", b"6",
    ]  # fmt: skip


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_what_the_index_is_wrong_about_is_an_error(store: headrace.Store, on_error: Any) -> None:
    store.write("in/a.x", b"0123456789")
    source = below(store, "in")
    for begins, ends, sizes in ([[5], [15], None], [None, None, [20]], [None, None, [5]]):
        index = ObjectIndex.from_names(
            ["a.x"], root=source.url, begins=begins, ends=ends, sizes_bytes=sizes
        )
        out = below(store, f"out-{ends}-{sizes}")
        if on_error == "raise":
            with pytest.raises(headrace.HeadraceError, match=r"a\.x"):
                headrace.pack(index, out, **options_of(store))
            continue
        packed = headrace.pack(index, out, on_error="skip", **options_of(store))
        assert (packed.samples, len(packed.skipped)) == (0, 1)
        assert list(members(out).values()) == [[]]


def test_ranges_are_packed_as_objects_are(tmp_path: Path) -> None:
    headrace.Store(tmp_path).write("whole.bin", b"0123456789")
    index = ObjectIndex.from_names(
        ["whole.bin"], root=tmp_path, sizes_bytes=[10], begins=[2], ends=[5]
    )
    headrace.pack(index, tmp_path / "out")
    [found] = members(headrace.Store(tmp_path / "out")).values()
    assert found == [("whole.bin", b"234")]


def test_empty_objects_and_large_ones_are_packed(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    large = os.urandom(20_000_000)  # more than is read together
    for name, data in [("a.x", b""), ("b.x", large), ("c.x", b""), ("d.x", b"d")]:
        store.write(f"in/{name}", data)
    headrace.pack(tmp_path / "in", tmp_path / "out")
    [found] = members(headrace.Store(tmp_path / "out")).values()
    assert found == [("a.x", b""), ("b.x", large), ("c.x", b""), ("d.x", b"d")]


# ---- transforms


def test_a_transform_makes_other_fields(store: headrace.Store) -> None:
    fill(store, 6)

    def transform(sample: dict[str, Any]) -> dict[str, Any] | None:
        number = json.loads(sample["json"].bytes())["i"]
        if number == 4:
            return None
        assert sample["__key__"].endswith(f"{number:06d}")
        assert sample["__url__"] == sample["jpg"].url
        drawn = sample["jpg"].rng().python.random()
        return {"jpg": sample["jpg"].bytes()[:10], "txt": "ä", "n": number, "r": f"{drawn}"}

    packed = headrace.pack(
        below(store, "in"), below(store, "out"), transform=transform, shard_samples=2, workers=3
    )
    assert (packed.samples, packed.dropped, packed.skipped) == (5, 1, ())
    found = [each for shard in members(below(store, "out")).values() for each in shard]
    assert len(found) == 5 * 4
    assert found[:3] == [
        ("a/000000.jpg", content(0)[:10]), ("a/000000.txt", "ä".encode()), ("a/000000.n", b"0"),
    ]  # fmt: skip
    drawn = [data for name, data in found if name.endswith(".r")]
    assert len(set(drawn)) == 5
    assert packed.index == headrace.index_members(below(store, "out"))
    # The same again: the samples' own seeds follow from their positions.
    before = shards(below(store, "out"))
    headrace.pack(
        below(store, "in"), below(store, "out"), transform=transform, shard_samples=2,
        overwrite=True,
    )  # fmt: skip
    assert shards(below(store, "out")) == before


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ([], "returned a list"),
        ({}, "no field"),
        ({"a/b": b""}, "'a/b'"),
        ({"A": b"", "a": b""}, "'a' twice"),
        ({"x": 1.5}, "a float as the field 'x'"),
    ],
)
def test_what_a_transform_may_not_return_is_refused(tmp_path: Path, made: Any, told: str) -> None:
    headrace.Store(tmp_path).write("in/a.txt", b"a")
    with pytest.raises(headrace.InvalidArgumentError, match=told) as raised:
        headrace.pack(tmp_path / "in", tmp_path / "out", transform=lambda _: made)
    assert raised.value.url.endswith("/in/a.txt")
    assert list(headrace.Store(tmp_path / "out").list("train-")) == []


def test_a_transform_that_ends_the_interpreter_is_an_error(tmp_path: Path) -> None:
    fill(headrace.Store(tmp_path), 4)
    with pytest.raises(headrace.HeadraceError, match=r"000002\.jpg: transform called sys\.exit"):
        headrace.pack(tmp_path / "in", tmp_path / "out", transform=functions.leave)
    packed = headrace.pack(
        tmp_path / "in", tmp_path / "out", transform=functions.leave, on_error="skip"
    )
    assert packed.samples == 3
    [(url, text)] = packed.skipped
    assert "000002.jpg" in url
    assert "'no more'" in text


def test_what_a_transform_raises_ends_it_and_says_where(tmp_path: Path) -> None:
    headrace.Store(tmp_path).write("in/a.txt", b"a")

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        raise LookupError("nothing")

    with pytest.raises(LookupError, match="nothing") as raised:
        headrace.pack(tmp_path / "in", tmp_path / "out", transform=transform)
    assert "in/a.txt" in raised.value.__notes__[0]


# ---- what cannot be read


def test_samples_that_cannot_be_read_are_left_out_and_told(
    gcs: headrace.Store, server: FaultServer
) -> None:
    fill(gcs, 10)
    index = below(gcs, "in").index()
    gcs.delete("in/b/000004.json")
    with pytest.raises(headrace.HeadraceError, match=r"000004\.json"):
        headrace.pack(index, below(gcs, "out"), endpoint=server.url)
    assert list(gcs.list("out/train-")) == []
    told: list[headrace.HeadraceError] = []
    packed = headrace.pack(index, below(gcs, "out"), on_error=told.append, endpoint=server.url)
    assert packed.samples == 9
    assert [url for url, _ in packed.skipped] == ["gs://bucket/in/b/000004.json"]
    assert [error.url for error in told] == ["gs://bucket/in/b/000004.json"]
    [found] = members(below(gcs, "out")).values()
    assert len(found) == 18
    assert not [name for name, _ in found if "000004" in name]
    assert packed.index == headrace.index_members(below(gcs, "out"))
    # Who runs it again is told again.
    again = headrace.pack(index, below(gcs, "out"), on_error="skip", endpoint=server.url)
    assert (again.written, again.skipped) == (0, packed.skipped)


def test_bytes_that_do_not_match_their_checksum_are_not_packed(
    gcs: headrace.Store, server: FaultServer
) -> None:
    fill(gcs, 3)
    server.faults([{"match": {"kind": "media"}, "action": {"flip_byte": 3}}])
    with pytest.raises(headrace.CorruptDataError):
        headrace.pack(below(gcs, "in"), below(gcs, "out"))
    assert list(gcs.list("out/train-")) == []


# ---- what it costs


def test_each_object_is_read_once_and_each_shard_written_once(
    gcs: headrace.Store, server: FaultServer
) -> None:
    fill(gcs, 60, 5000)
    begin = len(server.log())
    headrace.pack(below(gcs, "in"), below(gcs, "out"), shard_samples=20, shuffle=True)
    headrace.shutdown()
    log = [(each["kind"], unquote(each["target"])) for each in server.log()[begin:]]
    reads = Counter(target for kind, target in log if kind == "media" and "/o/in/" in target)
    assert len(reads) == 120
    assert set(reads.values()) == {1}
    # Three shards, what is remembered of them, the settings, and the index.
    assert len([kind for kind, _ in log if kind == "upload"]) == 3 + 3 + 1 + 1
    assert not [kind for kind, _ in log if kind in ("compose", "delete")]


def test_memory_does_not_grow_with_the_shards(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for i in range(300):
        store.write(f"in/{i:03d}.bin", bytes([i % 256]) * (1 << 20))
    script = """
        import resource, sys, headrace
        peak_kib = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        headrace.pack(sys.argv[1], sys.argv[2], shard_samples=1, name="warm", workers=1)
        before = peak_kib()
        headrace.pack(sys.argv[1], sys.argv[2], workers=1)
        print(peak_kib() - before)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), tmp_path / "in", tmp_path / "out"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout) < 70 * KIB  # of 300 MiB


# ---- going on


PACK = """
import sys, headrace
store = headrace.Store("gs://bucket/in", endpoint=sys.argv[1])
out = headrace.Store("gs://bucket/out", endpoint=sys.argv[1])
def tell(done, total):
    print("written", flush=True)
headrace.pack(store, out, shard_samples=2, shuffle=True, seed=5, workers=2, progress=tell)
"""


@pytest.mark.parametrize("times", [1, 3, 6, 9])
def test_a_killed_packing_goes_on_and_makes_the_same_shards(
    gcs: headrace.Store, server: FaultServer, times: int
) -> None:
    fill(gcs, 20)
    kill_when_written(server, PACK, times=times)
    out = below(gcs, "out")
    there = {info.name: info.generation for info in out.list("train-")}
    remembered = {info.name for info in out.list("_pack/train-")}
    packed = headrace.pack(below(gcs, "in"), out, shard_samples=2, shuffle=True, seed=5, workers=2)
    assert (packed.shards, packed.samples) == (10, 20)
    assert packed.written == 10 - len(remembered)
    for info in out.list("train-"):
        if f"_pack/{info.name.removesuffix('.tar')}.shard" in remembered:
            assert there[info.name] == info.generation  # it was left as it was
    whole = below(gcs, "whole")
    headrace.pack(below(gcs, "in"), whole, shard_samples=2, shuffle=True, seed=5)
    assert shards(out) == shards(whole)
    assert packed.index == headrace.index_members(out)


def test_a_shard_that_was_lost_or_replaced_is_packed_again(store: headrace.Store) -> None:
    fill(store, 8)
    out = below(store, "out")
    headrace.pack(below(store, "in"), out, shard_samples=2)
    before = shards(out)
    out.delete("train-000001.tar")
    out.write("train-000002.tar", b"something else")
    packed = headrace.pack(below(store, "in"), out, shard_samples=2)
    assert packed.written == 2
    assert shards(out) == before
    assert packed.index == headrace.index_members(out)


def test_what_a_lost_task_has_left_is_taken_or_replaced(store: headrace.Store) -> None:
    fill(store, 4)
    source, out = below(store, "in"), below(store, "out")
    headrace.pack(source, out, shard_samples=2)
    there = shards(out)
    index = below(store, "in").index()
    out.delete("_pack/train-000000.shard")
    settings = json.loads(out.read("_pack/train.json").bytes())
    settings.pop("packing")
    place = Place(out, "train")
    place.begin(settings, index, overwrite=False)
    # Whole, though nobody knew: as if a task had packed it since.
    assert place.look_again(1) == place.whole_shards(2)[1]
    # Without its record, it is replaced.
    out.write("train-000000.tar", b"of a task that was lost")
    with pytest.raises(headrace.PreconditionFailedError):
        out.write("train-000000.tar", b"", if_generation=place.condition("train-000000.tar"))
    assert place.look_again(0) is None
    info = out.write(
        "train-000000.tar", there["train-000000.tar"],
        if_generation=place.condition("train-000000.tar"),
    )  # fmt: skip
    record = Record(objects=[(info.name, info.size_bytes, info.generation)], samples=2, errors=[])
    place.remember(0, record)
    assert place.look_again(0) == replace(record, packing=place.look_again(1).packing)


def test_other_settings_are_refused_unless_it_may_overwrite(store: headrace.Store) -> None:
    fill(store, 8)
    source, out = below(store, "in"), below(store, "out")
    headrace.pack(source, out, shard_samples=2)
    with pytest.raises(
        headrace.InvalidArgumentError, match=r"shards was 4 and is 2; shard_samples was 2 and is 4"
    ):
        headrace.pack(source, out, shard_samples=4)
    source.write("a/new.jpg", b"new")
    with pytest.raises(headrace.InvalidArgumentError, match="the source has other objects"):
        headrace.pack(source, out, shard_samples=2)
    packed = headrace.pack(source, out, shard_samples=5, overwrite=True)
    assert (packed.shards, packed.written, packed.samples) == (2, 2, 9)
    assert len(list(out.list("train-"))) == 2


def test_shards_of_others_are_not_replaced(store: headrace.Store) -> None:
    fill(store, 2)
    out = below(store, "out")
    out.write("train-000000.tar", b"precious")
    with pytest.raises(headrace.InvalidArgumentError, match="nothing says how it was packed"):
        headrace.pack(below(store, "in"), out)
    assert out.read("train-000000.tar").bytes() == b"precious"
    assert headrace.pack(below(store, "in"), out, name="other").shards == 1


def test_a_progress_function_that_raises_stops_it(store: headrace.Store) -> None:
    fill(store, 20)
    calls: list[int] = []

    def tell(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 3:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        headrace.pack(
            below(store, "in"), below(store, "out"), shard_samples=1, progress=tell, workers=1
        )
    # What was under way may have become whole, and its record may be missing.
    whole = len(list(below(store, "out").list("train-")))
    assert 2 <= whole < 20
    packed = headrace.pack(below(store, "in"), below(store, "out"), shard_samples=1)
    assert packed.samples == 20
    assert 20 - whole <= packed.written <= 18


def test_progress_counts_the_bytes_of_the_source(store: headrace.Store) -> None:
    fill(store, 4)
    calls: list[tuple[int, int]] = []
    packed = headrace.pack(
        below(store, "in"), below(store, "out"), shard_samples=1,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    assert len(calls) == 4
    assert calls[-1] == (packed.source_bytes, packed.source_bytes)


# ---- what cannot be


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"shard_bytes": 0}, "shard_bytes is 0"),
        ({"shard_samples": 0}, "shard_samples is 0"),
        ({"seed": -1}, "seed is -1"),
        ({"name": "a/b"}, "name is 'a/b'"),
        ({"workers": 0}, "workers is 0"),
        ({"executor": "fibers"}, "executor is 'fibers'"),
        ({"on_error": "ignore"}, "on_error is 'ignore'"),
        ({"transform": 3}, "transform is 3"),
        ({"label": "kind"}, "no column 'kind'"),
    ],
)
def test_arguments_that_cannot_be_are_refused(
    tmp_path: Path, wrong: dict[str, Any], told: str
) -> None:
    headrace.Store(tmp_path).write("in/a.txt", b"a")
    with pytest.raises(headrace.InvalidArgumentError, match=told):
        headrace.pack(tmp_path / "in", tmp_path / "out", **wrong)
    assert not list((tmp_path / "out").glob("train-*"))


def test_sources_that_cannot_be_are_refused(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    store.write("in/a.txt", b"a")
    store.write("plain/README", b"a")
    store.write("mixed/a.txt", b"a")
    store.write("mixed/b.tar", tar([("b.txt", b"b")]))
    store.write("compressed/a.tar.gz", gzip.compress(tar([("b.txt", b"b")])))
    with pytest.raises(headrace.InvalidArgumentError, match=r"compressed shards.*a\.tar\.gz"):
        headrace.pack(tmp_path / "compressed", tmp_path / "out")
    with pytest.raises(headrace.InvalidArgumentError, match="lies in"):
        headrace.pack(tmp_path / "in", tmp_path / "in" / "shards")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for place in ("link", "link/shards"):
        with pytest.raises(headrace.InvalidArgumentError, match="lies in"):
            headrace.pack(tmp_path / "in", tmp_path / place)
    with pytest.raises(headrace.InvalidArgumentError, match="lies in"):
        headrace.pack(tmp_path / "link", tmp_path / "in" / "shards")
    with pytest.raises(headrace.InvalidArgumentError, match="no sample to pack"):
        headrace.pack(tmp_path / "plain", tmp_path / "out")
    with pytest.raises(headrace.InvalidArgumentError, match=r"b\.tar, beside other objects"):
        headrace.pack(tmp_path / "mixed", tmp_path / "out")
    with pytest.raises(headrace.InvalidArgumentError, match="has a folder"):
        headrace.pack(tmp_path / "in", tmp_path / "out", label="folder")
    with pytest.raises(headrace.NotFoundError):
        headrace.pack(str(tmp_path / "in" / "*.png"), tmp_path / "out")
    with pytest.raises(headrace.InvalidArgumentError, match="the source is a int"):
        headrace.pack(3, tmp_path / "out")  # type: ignore[arg-type]


def test_shards_that_are_to_be_packed_are_not_overwritten(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    fill(store, 4)
    there = tmp_path / "out"
    headrace.pack(tmp_path / "in", there, shard_samples=2)
    before = sorted(info.name for info in below(store, "out").list())
    (tmp_path / "link").symlink_to(there)
    index = ObjectIndex.load("train.index", store=below(store, "out"))
    for source in (there / "train-000000.tar", f"{there}/train-00000{{0..1}}.tar", index,
                   tmp_path / "link"):  # fmt: skip
        with pytest.raises(headrace.InvalidArgumentError, match="is to be packed"):
            headrace.pack(source, there, overwrite=True)
    assert sorted(info.name for info in below(store, "out").list()) == before


def test_overwriting_leaves_what_packings_of_other_names_remember(store: headrace.Store) -> None:
    fill(store, 4)
    source, there = below(store, "in"), below(store, "out")
    headrace.pack(source, there, name="train-big")
    headrace.pack(source, there)
    headrace.pack(source, there, overwrite=True)
    assert headrace.pack(source, there, name="train-big").written == 0


def test_an_index_that_nobody_packed_is_not_replaced(store: headrace.Store) -> None:
    fill(store, 4)
    there = below(store, "out")
    there.write("train.index", b"of somebody else")
    with pytest.raises(headrace.InvalidArgumentError, match=r"train\.index is there already"):
        headrace.pack(below(store, "in"), there)
    assert there.read("train.index").bytes() == b"of somebody else"


def test_a_packing_that_was_begun_anew_takes_no_shard_of_the_one_before(
    store: headrace.Store,
) -> None:
    fill(store, 6)
    source, there = below(store, "in"), below(store, "out")
    seed_of_latest = 0

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        nonlocal seed_of_latest
        if seed_of_latest == 0:  # in the middle of the first packing, another one overwrites it
            seed_of_latest = 2
            headrace.pack(source, there, overwrite=True, seed=2, **how)
            for info in there.list("train-"):  # lost, so that the first one can write its own
                there.delete(info.name)
        return {"jpg": sample["jpg"].bytes()}

    how: dict[str, Any] = {
        "shuffle": True, "shard_samples": 3, "workers": 1, "transform": transform,
    }  # fmt: skip
    with pytest.raises(headrace.PreconditionFailedError, match="begun a packing there anew"):
        headrace.pack(source, there, seed=1, **how)
    assert headrace.pack(source, there, seed=2, **how).written == 2
    names = Counter(name for each in members(there).values() for name, _ in each)
    assert len(names) == 6
    assert set(names.values()) == {1}


@pytest.mark.parametrize("name", ["n" * 70_000, "\udcff"])
def test_a_field_that_no_tar_can_have_leaves_out_its_sample(
    store: headrace.Store, name: str
) -> None:
    fill(store, 3)

    def transform(sample: dict[str, Any]) -> dict[str, Any]:
        is_odd = sample["__key__"].endswith("1")
        return {"jpg": sample["jpg"].bytes(), (name if is_odd else "txt"): b"text"}

    packed = headrace.pack(
        below(store, "in"), below(store, "out"), transform=transform, on_error="skip"
    )
    assert packed.samples == 2
    [(url, _)] = packed.skipped
    assert "000001" in url


def cut(sample: dict[str, Any], *, length: int) -> dict[str, Any]:
    return {"txt": sample["txt"].bytes()[:length]}


def test_other_arguments_of_a_partial_are_another_transform(tmp_path: Path) -> None:
    headrace.Store(tmp_path / "in").write("a.txt", b"text")

    def packed(**how: Any) -> int:
        transform = functools.partial(cut, **how)
        return headrace.pack(tmp_path / "in", tmp_path / "out", transform=transform).written

    assert packed(length=2) == 1
    assert packed(length=2) == 0
    with pytest.raises(headrace.InvalidArgumentError, match="transform was"):
        packed(length=3)
    key = "a secret, which is not written"
    headrace.pack(tmp_path / "in", tmp_path / "keyed", transform=functools.partial(keyed, key=key))
    assert key not in (tmp_path / "keyed" / "_pack" / "train.json").read_text()


def test_another_lambda_is_another_transform(tmp_path: Path) -> None:
    headrace.Store(tmp_path / "in").write("a.txt", b"text")

    def cutting(length: int) -> Any:
        return lambda sample: {"txt": sample["txt"].bytes()[:length]}

    def packed(transform: Any) -> int:
        return headrace.pack(tmp_path / "in", tmp_path / "out", transform=transform).written

    assert packed(cutting(2)) == 1
    assert packed(cutting(2)) == 0  # elsewhere, and the same
    for other in (
        cutting(3),
        lambda sample: {"txt": sample["txt"].bytes()[::-1]},
        lambda sample: {"txt": b"".join(each for each in [sample["txt"].bytes()])},
        lambda sample: {"txt": b"".join(each + b"-" for each in [sample["txt"].bytes()])},
    ):
        with pytest.raises(headrace.InvalidArgumentError, match="transform was"):
            packed(other)


def test_the_log_says_that_the_code_of_a_function_is_not_compared(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    headrace.Store(tmp_path / "in").write("a.txt", b"text")
    transform = functools.partial(cut, length=2)
    caplog.set_level(logging.INFO, "headrace")
    for _ in range(2):
        headrace.pack(tmp_path / "in", tmp_path / "out", transform=transform)
    told = [each.getMessage() for each in caplog.records if "overwrite=True" in each.getMessage()]
    assert len(told) == 1  # where nothing had to be written
    assert "cut" in told[0]


def keyed(sample: dict[str, Any], *, key: str) -> dict[str, Any]:
    return {"txt": f"{len(key)}"}
