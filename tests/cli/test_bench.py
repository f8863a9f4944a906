"""`headrace bench`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

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
