"""Traces of loaders and of several processes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


import headrace
from headrace.torch import Loader, MapDataset
from testing.faultserver.client import FaultServer
from tests.trace.events import load, requests, spans

RunChild = Callable[..., subprocess.CompletedProcess[str]]


def fill(server: FaultServer, count: int) -> str:
    server.bucket("bucket")
    for i in range(count):
        server.put("bucket", f"{i:04d}", b"%04d" % i * 25)
    return server.url


@pytest.mark.parametrize("threads", [0, 2])
def test_the_spans_of_a_loader(server: FaultServer, tmp_path: Path, threads: int) -> None:
    fill(server, 40)
    dataset = MapDataset("gs://bucket", lambda sample: sample.tensor().float(), endpoint=server.url)
    loader = Loader(dataset, 8, transform_threads=threads)
    with headrace.trace(tmp_path / "trace.json"):
        assert len(list(loader)) == 5
        headrace.shutdown()
    events = load(tmp_path / "trace.json")
    loading = spans(events, "loader")
    names = [event["name"] for event in loading]
    assert names.count("wait for a batch") == 6  # the last one finds the end
    assert names.count("trainer") == 5
    assert names.count("collate") == 5
    made = [event["args"]["samples"] for event in loading if event["name"] == "transform"]
    assert sum(made) == 40
    assert len(made) == 5 * max(1, threads)
    assert len(requests(events)) == 40


def test_what_stats_tell_of_where_time_and_bytes_went(server: FaultServer) -> None:
    fill(server, 40)
    server.faults([{"match": {"kind": "media"}, "count": 3, "action": {"status": 503}}])
    dataset = MapDataset(
        "gs://bucket",
        lambda sample: sample.tensor().float(),
        endpoint=server.url,
        retry=headrace.RetryOptions(initial_backoff_s=0.001, max_backoff_s=0.002),
    )
    loader = Loader(dataset, 8, transform_threads=2)
    empty = loader.stats
    assert (empty.requests, empty.wait_fraction, empty.read_amplification) == (0, 0.0, 0.0)
    server.latency(10)
    for _ in loader:
        pass
    stats = loader.stats
    assert (stats.requests, stats.retries) == (43, 3)
    assert (stats.read_bytes, stats.size_bytes, stats.read_amplification) == (4000, 4000, 1.0)
    assert stats.checksums_verified == 40
    assert stats.transform_s > 0
    assert stats.collate_s > 0
    assert stats.first_byte_s >= 40 * 0.010
    assert stats.queue_s > 0
    assert stats.body_s > 0
    assert stats.trainer_s > 0
    assert stats.wait_fraction == stats.wait_s / (stats.wait_s + stats.trainer_s)


@pytest.mark.parametrize("epochs", [1, 5])
def test_stats_begin_anew_with_an_engine_that_does(server: FaultServer, epochs: int) -> None:
    fill(server, 8)
    store = headrace.Store("gs://bucket", endpoint=server.url)
    for _ in range(20):
        store.read("0000")
    loader = Loader(MapDataset(store), 8)
    headrace.shutdown()
    assert loader.stats.requests == 0
    for _ in range(epochs):
        list(loader)
    assert loader.stats.requests == 8 * epochs


def script(body: str) -> str:
    return f"""
import os, sys
import headrace
from headrace.torch import MapDataset
import torch.utils.data
# How long torch waits for a worker's end, on a busy machine too.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 100.0
url, folder = sys.argv[1:]
dataset = MapDataset("gs://bucket", lambda sample: sample.tensor(), endpoint=url)
{body}
"""


def files_of(folder: Path) -> dict[str, Any]:
    return {path.name: load(path) for path in folder.iterdir()}


def test_each_worker_of_a_dataloader_writes_a_file(
    server: FaultServer, tmp_path: Path, run_child: RunChild
) -> None:
    url = fill(server, 40)
    run_child(
        script("""
with headrace.trace(folder + "/trace.json"):
    loader = torch.utils.data.DataLoader(dataset, 8, num_workers=2)
    assert len(list(loader)) == 5
"""),
        url,
        str(tmp_path),
    )
    files = files_of(tmp_path)
    assert len(files) == 3
    counts = {name: len(requests(events)) for name, events in files.items()}
    assert counts.pop("trace.json") == 0  # it was listed before
    assert sum(counts.values()) == 40
    assert sorted(counts.values()) == [16, 24]
    workers = [events for name, events in files.items() if name != "trace.json"]
    assert sum(len(spans(events, "loader", "read")) for events in workers) == 5
    assert sum(len(spans(events, "loader", "transform")) for events in workers) == 5
    assert len({events[0]["pid"] for events in files.values()}) == 3


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_the_environment_records_a_process_and_its_workers(
    server: FaultServer, tmp_path: Path, run_child: RunChild, method: str
) -> None:
    url = fill(server, 16)
    program = tmp_path / "program.py"
    traces = tmp_path / "traces"
    traces.mkdir()
    program.write_text(
        f"""
import sys
import torch.utils.data
from headrace.torch import MapDataset

def transform(sample):
    return sample.tensor()

if __name__ == "__main__":
    dataset = MapDataset("gs://bucket", transform, endpoint={url!r})
    loader = torch.utils.data.DataLoader(
        dataset, 8, num_workers=2, multiprocessing_context={method!r}
    )
    assert len(list(loader)) == 2
"""
    )
    run_child(
        f"import subprocess, sys; sys.exit(subprocess.call([sys.executable, {str(program)!r}]))",
        HEADRACE_TRACE=str(traces / "job.json"),
    )
    files = files_of(traces)
    assert len(files) == 3
    assert all(re.fullmatch(r"job\.\d+\.json", name) for name in files), files.keys()
    counts = [sum(each["bytes"] == 100 for each in requests(events)) for events in files.values()]
    assert sorted(counts) == [0, 8, 8]


def test_a_process_that_is_interrupted_leaves_a_whole_file(
    server: FaultServer, tmp_path: Path, run_child: RunChild
) -> None:
    url = fill(server, 8)
    run_child(
        script("""
headrace.trace(folder + "/trace.json")
dataset[0]
os.kill(os.getpid(), 2)
"""),
        url,
        str(tmp_path),
        expect_code=-2,
    )
    [(name, events)] = files_of(tmp_path).items()
    assert name == "trace.json"
    assert sum(each["bytes"] == 100 for each in requests(events)) == 1


def test_a_process_that_is_killed_leaves_none(
    server: FaultServer, tmp_path: Path, run_child: RunChild
) -> None:
    url = fill(server, 8)
    run_child(
        script("""
headrace.trace(folder + "/trace.json")
dataset[0]
os.kill(os.getpid(), 9)
"""),
        url,
        str(tmp_path),
        expect_code=-9,
    )
    assert files_of(tmp_path) == {}


def test_a_forked_child_that_reads_nothing_writes_nothing(
    server: FaultServer, tmp_path: Path, run_child: RunChild
) -> None:
    url = fill(server, 8)
    run_child(
        script("""
with headrace.trace(folder + "/trace.json"):
    pid = os.fork()
    if pid == 0:
        sys.exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    dataset[0]
"""),
        url,
        str(tmp_path),
    )
    assert list(files_of(tmp_path)) == ["trace.json"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_recording_that_a_child_began_and_did_not_stop_is_written(
    server: FaultServer, tmp_path: Path, run_child: RunChild, method: str
) -> None:
    url = fill(server, 8)
    program, trace = tmp_path / "program.py", tmp_path / "trace.json"
    program.write_text(
        f"""
import multiprocessing
import headrace

def read():
    headrace.trace({str(trace)!r})
    headrace.Store("gs://bucket", endpoint={url!r}).read("0000")

if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=read)
    child.start()
    child.join()
    assert child.exitcode == 0
"""
    )
    run_child(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert len(requests(load(trace))) == 1


def test_forked_children_write_where_the_environment_said_wherever_they_are(
    server: FaultServer, tmp_path: Path, run_child: RunChild
) -> None:
    url = fill(server, 8)
    (tmp_path / "elsewhere").mkdir()
    run_child(
        """
import os, sys
import headrace
from headrace._process import tracing
url, folder = sys.argv[1:]
os.chdir(folder)
store = headrace.Store("gs://bucket", endpoint=url)
store.read("0000")
assert tracing._current._attempts_per_thread == 65536
os.chdir("elsewhere")
pid = os.fork()
if pid == 0:
    store.read("0000")
    assert tracing._current.path == f"{folder}/job.{os.getpid()}.json", tracing._current.path
    assert tracing._current._attempts_per_thread == 8192
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
""",
        url,
        str(tmp_path),
        HEADRACE_TRACE="job.json",
    )
    (tmp_path / "elsewhere").rmdir()  # which is empty
    names = sorted(files_of(tmp_path))
    assert len(names) == 2
    assert all(re.fullmatch(r"job\.\d+\.json", name) for name in names), names


def test_torch_is_not_needed_to_record(tmp_path: Path, run_child: RunChild) -> None:
    run_child(
        """
import sys
import headrace
with headrace.trace(sys.argv[1]):
    pass
assert "torch" not in sys.modules and "numpy" not in sys.modules
""",
        str(tmp_path / "trace.json"),
    )
    assert requests(load(tmp_path / "trace.json")) == []
