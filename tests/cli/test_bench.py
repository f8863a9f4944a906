"""`headrace bench`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace._cli.bench_reads import read_for, shuffled_batches
from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run, kinds


def test_an_epoch_reads_each_object_once(server: FaultServer, run: Run) -> None:
    server.synthetic("many", 2500, 1000, shape="flat")
    done = run("bench", "gs://many/", "--epochs", 2, "--batch-size", 100, "--json")
    assert (done.code, done.err) == (0, "")
    [found] = done.json
    assert (found["listed_objects"], found["epochs"]) == (2500, 2)
    assert (found["objects"], found["batches"], found["bytes"]) == (5000, 50, 5_000_000)
    assert (found["requests"], found["retries"]) == (5000, 0)
    assert kinds(server)["media"] == 5000
    assert kinds(server)["list"] > 3  # more than pages: they were asked for in parallel
    assert found["checksums_verified"] == 5000
    names = [entry["target"] for entry in server.log() if entry["kind"] == "media"]
    assert len(set(names)) == 2500
    assert names[:2500] != sorted(names[:2500])


def test_an_epoch_has_the_samples_that_are_asked_for(server: FaultServer, run: Run) -> None:
    for name in ("a.png", "b.txt", ".git/c.png"):
        server.put("bucket", f"mixed/{name}", b"1")
    for options, count in (
        ([], 2),
        (["--suffix", ".png"], 1),
        (["--hidden"], 3),
        (["--suffix", ".png", "--hidden"], 2),
    ):
        done = run("bench", "gs://bucket/mixed/", "--epochs", 1, "--json", *options)
        assert (done.code, done.json[0]["objects"]) == (0, count), options


def test_what_is_measured_fits_together(server: FaultServer, run: Run) -> None:
    server.synthetic("many", 1000, 10_000, shape="flat")
    [found] = run("bench", "gs://many", "--epochs", 1, "--json").json
    assert abs(found["objects_per_s"] * found["duration_s"] - 1000) < 1e-6
    assert abs(found["gib_per_s"] * found["duration_s"] * 2**30 - 1e7) < 1
    waits = [found[f"batch_p{p}_s"] for p in (50, 90, 99)]
    assert 0 <= waits[0] <= waits[1] <= waits[2] <= found["duration_s"]
    assert 0 < found["first_batch_s"] <= found["duration_s"]
    assert found["cpu_us_per_object"] > 0
    cpu_s = found["cpu_us_per_object"] * 1000 / 1e6
    assert abs(found["cpu_s_per_gib"] * 1e7 / 2**30 - cpu_s) < 1e-6
    assert found["peak_rss_bytes"] > found["peak_object_bytes"] > 0
    assert found["connections"] >= 1


def test_the_seed_decides_the_order_of_every_epoch() -> None:
    infos = [headrace.ObjectInfo(f"{i:03}", 1) for i in range(100)]
    index = headrace.ObjectIndex.from_objects(infos)

    def epochs(seed: int) -> list[list[headrace.ObjectInfo]]:
        batches = list(islice(shuffled_batches(index, 32, seed), 8))
        assert [len(batch) for batch in batches] == [32, 32, 32, 4] * 2
        return [[info for batch in batches[i : i + 4] for info in batch] for i in (0, 4)]

    first, second = epochs(7)
    assert first != second
    assert set(first) == set(second) == set(infos)
    assert epochs(7) == [first, second]
    assert epochs(8)[0] != first


def test_it_stops_after_so_many_seconds(tmp_path: Path, run: Run) -> None:
    for i in range(10):
        (tmp_path / f"{i}").write_bytes(bytes(100))
    [found] = run("bench", tmp_path, "--seconds", 0.1, "--batch-size", 3, "--json").json
    assert found["duration_s"] >= 0.1
    assert found["batches"] >= 1
    done = run("bench", tmp_path, "--seconds", 0)
    assert done.code == 0
    for text in ("objects/s", "GiB/s", "p50", "p99", "first batch", "peak memory", "connections"):
        assert text in done.out.decode()


def test_nothing_to_read_is_code_3(server: FaultServer, run: Run) -> None:
    for url in ("gs://bucket", "gs://none", "gs://bucket/none/"):
        assert run("bench", url).code == 3


def test_an_object_that_fails_ends_it(server: FaultServer, run: Run) -> None:
    server.synthetic("many", 100, 10, shape="flat")
    server.faults([{"match": {"kind": "media"}, "from": 50, "count": 1, "action": {"status": 403}}])
    done = run("bench", "gs://many", "--epochs", 1)
    assert (done.code, done.out) == (4, b"")
    assert done.err.startswith("headrace: PermissionDeniedError: gs://many/")


def test_the_requests_of_an_engine_that_was_stopped_are_not_subtracted(server: FaultServer) -> None:
    server.synthetic("many", 8, 1000, shape="flat")
    store = headrace.Store("gs://many")
    index = store.index()
    for _ in range(20):
        store.read(index[0])
    before = headrace.metrics().requests_total

    class Restarting:
        def read_batches(
            self, batches: Iterable[list[headrace.ObjectInfo]], **_: object
        ) -> Iterator[Any]:
            headrace.shutdown()
            return store.read_batches(batches)

    found = read_for(Restarting(), index, batch_size=8, seconds=0, epochs=5)  # type: ignore[arg-type]
    assert found.requests == 40 > before


def test_all_that_came_from_the_server_is_told(server: FaultServer, run: Run) -> None:
    server.synthetic("many", 500, 1000, shape="flat")
    [found] = run("bench", "gs://many/", "--epochs", 2, "--json").json
    assert found["complete_epochs"] == 2
    assert (found["read_bytes"], found["read_amplification"]) == (1_000_000, 1.0)
    # The body of one answer breaks off at its half.
    server.reset(keep_buckets=True)
    cut = {"match": {"kind": "media"}, "from": 3, "count": 1, "action": {"reset_after_bytes": 500}}
    server.faults([cut])
    [found] = run("bench", "gs://many/", "--epochs", 1, "--batch-size", 10, "--json").json
    sent = sum(each["bytes_sent"] for each in server.log() if each["kind"] == "media")
    assert found["read_bytes"] == sent


def test_a_batch_of_other_objects_is_an_error() -> None:
    class Mixing:
        def read_batches(
            self, batches: Iterable[list[headrace.ObjectInfo]], **_: object
        ) -> Iterator[Any]:
            for batch in batches:
                yield [headrace.Sample(b"", name=info.name) for info in reversed(batch)]

    infos = [headrace.ObjectInfo(f"{i:03}", 0) for i in range(8)]
    index = headrace.ObjectIndex.from_objects(infos)
    with pytest.raises(headrace.InternalError, match="batch 1 has other objects"):
        read_for(Mixing(), index, batch_size=4, seconds=0, epochs=1)  # type: ignore[arg-type]


# ---- beside a loader of the user's

LOADERS = """
def present(urls, batch_size):
    print("noise")
    for begin in range(0, len(urls), batch_size):
        yield [open(url, "rb").read() for url in urls[begin : begin + batch_size]]

def first_half(urls, batch_size):
    return present(urls[: len(urls) // 2], batch_size)

def twice(urls, batch_size):
    return present([urls[0], *urls[:-1]], batch_size)

def endless(urls, batch_size):
    while True:
        yield from present(urls, batch_size)

def decoded(urls, batch_size):
    for batch in present(urls, batch_size):
        yield [body[:10] for body in batch]

def numbers(urls, batch_size):
    yield [1, 2, 3]

def failing(urls, batch_size):
    raise OSError("no such bucket")
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A folder of 40 files of different sizes, and beside it the module `loaders`."""
    (tmp_path / "loaders.py").write_text(LOADERS)
    folder = tmp_path / "data"
    folder.mkdir()
    for i in range(40):
        (folder / f"{i:02}").write_bytes(bytes(100 + i))
    return folder


def path_of(files: Path) -> str:
    """Return what lets Python find `loaders`."""
    return os.pathsep.join(filter(None, [str(files.parent), os.environ.get("PYTHONPATH")]))


def against(run: Run, files: Path, function: str, *options: object) -> Any:
    return run(
        "bench", files, "--against", f"loaders:{function}", *("--epochs", 1, "--repeats", 1),
        *("--batch-size", 8, "--json"), *options, PYTHONPATH=path_of(files),
    )  # fmt: skip


def test_a_loader_is_measured_beside_headrace(files: Path, run: Run) -> None:
    done = against(run, files, "present", "--epochs", 3, "--repeats", 2)
    assert (done.code, done.err) == (0, "")
    [found] = done.json
    assert (found["listed_objects"], found["ranks"]) == (40, 1)
    ours, theirs = found["sides"]
    assert (ours["by"], theirs["by"]) == ("headrace", "loaders:present")
    for side in (ours, theirs):
        assert (side["runs"], side["complete_epochs"], side["objects"]) == (2, 6, 240)
        assert side["bytes"] == 6 * sum(range(100, 140))
        for name in ("objects_per_s", "first_batch_s", "batch_p99_s", "cpu_us_per_object"):
            assert 0 < side[name]["min"] <= side[name]["median"] <= side[name]["max"], name


def test_ranks_share_the_objects(server: FaultServer, run: Run) -> None:
    server.synthetic("many", 101, 1000, shape="flat")
    done = run("bench", "gs://many", "--ranks", 2, "--epochs", 1, "--repeats", 1, "--json")
    assert (done.code, done.err) == (0, "")
    [side] = done.json[0]["sides"]
    assert (side["objects"], side["complete_epochs"]) == (101, 2)
    names = [entry["target"] for entry in server.log() if entry["kind"] == "media"]
    assert len(set(names)) == len(names) == 101
    assert side["first_batch_fastest_rank_s"]["median"] <= side["first_batch_s"]["median"]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("first_half", "an epoch of 40 objects, 4780 bytes, gave 20 samples of"),
        ("twice", "gave 40 samples of"),
        ("endless", "an epoch of 40 objects, 4780 bytes, gave 4"),
        ("decoded", "gave 40 samples of 400 bytes"),
        ("numbers", "TypeError: memoryview: a bytes-like object is required"),
        ("failing", "OSError: no such bucket"),
        ("missing", "has no attribute 'missing'"),
    ],
)
def test_a_loader_that_gives_something_else_is_refused(
    files: Path, run: Run, function: str, told: str
) -> None:
    done = against(run, files, function)
    assert done.code != 0
    assert done.out == b""
    assert told in done.err


def test_a_comparison_is_a_table(files: Path, run: Run) -> None:
    done = run(
        "bench", files, "--against", "loaders:present", "--seconds", 0, "--ranks", 2,
        "--repeats", 1, PYTHONPATH=path_of(files),
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    text = done.out.decode()
    for part in ("loaders:present", "last rank's first batch", "exact epochs", "CPU"):
        assert part in text


def test_what_does_not_go_together_is_refused(files: Path, run: Run) -> None:
    done = run("bench", files, "--ranks", 41)
    assert "--ranks is 41, and there are 40 objects" in done.err
    done = run("bench", files, "--ranks", 2, "--html", files.parent / "page.html")
    assert "leave them out" in done.err
