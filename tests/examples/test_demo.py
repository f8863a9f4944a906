"""The demo, as `make demo` and `headrace demo` run it; its counts are those of the server."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import termios
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import pytest

import headrace
from headrace.demo.report import Resumption, Summary, faults
from testing.servers import DelayedServer, FakeGcsServer, LoggedRequest

# They start several interpreters that import torch.
pytestmark = pytest.mark.timeout(960)

EPOCHS = 3
TRAINING_OBJECTS = 1437
ALL_OBJECTS = 1797
STEPS_PER_EPOCH = 45
LATENCY_S = 0.02
PART_BYTES = 16 << 20


def run_demo(
    url: str, folder: Path, *options: str, **environment: str
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    report = folder / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "headrace.demo", url, f"--epochs={EPOCHS}", *options]
        + [f"--plot={folder / 'demo.png'}", f"--json={report}"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, json.loads(report.read_text()) if report.exists() else {}


class RunInFolder(NamedTuple):
    folder: Path
    bucket: Path
    done: subprocess.CompletedProcess[str]
    report: dict[str, Any]


def images_of(batches: Iterable[Any]) -> Counter[tuple[int, str]]:
    return Counter((epoch, url) for epoch, urls in batches for url in urls)


def last_step(record: dict[str, Any]) -> int:
    return int(record["first_step"]) + len(record["losses"])


def check(report: dict[str, Any]) -> None:
    """Judge the records, without what the demo itself says of them."""
    assert report["summary"]["accuracy"] >= 0.95
    first, stopped, killed, resumed = report["records"]
    assert len({each["pid"] for each in report["records"]}) == 4

    # Run 1: each object exactly once in each epoch, and nothing else was read.
    once = images_of(first["batches"])
    assert len(once) == once.total() == EPOCHS * TRAINING_OBJECTS == first["objects_read"]
    assert last_step(first) == EPOCHS * STEPS_PER_EPOCH
    assert first["resumed_from"] is None
    assert first["model_is_equal"]

    # Run 2 is stopped in mid-epoch, with nothing read in vain, and goes on there.
    assert stopped["resumed_from"] is None
    assert stopped["saved_steps"][-1] == last_step(stopped)
    assert last_step(stopped) % STEPS_PER_EPOCH != 0
    assert stopped["objects_read"] == images_of(stopped["batches"]).total()
    assert killed["first_step"] == last_step(stopped)
    assert killed["resumed_from"].endswith(f"step{last_step(stopped):05d}.pt")

    # It is killed in the middle of saving, and goes on from what was saved before.
    (saved,) = killed["saved_steps"]
    assert last_step(stopped) < saved < last_step(killed)
    assert resumed["first_step"] == saved
    assert resumed["resumed_from"].endswith(f"step{saved:05d}.pt")
    assert resumed["objects_read"] == images_of(resumed["batches"]).total()

    # Without what was lost it is run 1: the same batches, losses, and weights.
    for what in ("batches", "losses"):
        kept = stopped[what] + killed[what][: saved - killed["first_step"]] + resumed[what]
        assert kept == first[what]
        # What was lost was the same, too, and was done again.
        assert killed[what] == first[what][killed["first_step"] : last_step(killed)]
    assert report["resumption"]["weights_are_equal"]
    assert resumed["accuracy"] == first["accuracy"]
    assert report["resumption"]["repeated_images"] == sum(
        len(urls) for _, urls in first["batches"][saved : last_step(killed)]
    )


@pytest.fixture(scope="module")
def run_in_folder(tmp_path_factory: pytest.TempPathFactory) -> RunInFolder:
    folder = tmp_path_factory.mktemp("demo")
    bucket = folder / "not" / "there yet"
    return RunInFolder(folder, bucket, *run_demo(str(bucket), folder))


def test_in_a_folder_it_is_stopped_and_killed_and_comes_to_the_same_weights(
    run_in_folder: RunInFolder,
) -> None:
    assert run_in_folder.done.returncode == 0, run_in_folder.done.stderr
    check(run_in_folder.report)
    assert run_in_folder.report["summary"]["counters"]["training"]["retries_total"] == 0


@pytest.mark.soak  # the run in a folder stands for it; shards have tests of their own
def test_with_shards_it_does_the_same_with_the_samples_in_them(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    done, report = run_demo(str(bucket), tmp_path, "--shards", "--keep")
    assert done.returncode == 0, done.stderr
    assert "writing 1,797 digits in 19 shards to " in done.stdout
    assert len(list(bucket.glob("t*/*.tar"))) == 19
    check(report)
    places = {place for _, urls in report["records"][0]["batches"] for place in urls}
    assert all(".tar/" in place for place in places)


def test_it_says_and_draws_what_it_measured(run_in_folder: RunInFolder) -> None:
    text = run_in_folder.done.stdout
    for words in ("accuracy", "images/s", "waiting for data", "p50", "p99", "first batch after"):
        assert words in text
    for words in ("peak memory", "requests", "connections", "checksums verified", "exactly once"):
        assert words in text
    _, stopped, killed, resumed = run_in_folder.report["records"]
    assert f"process {stopped['pid']}: told to stop after step" in text
    assert f"process {killed['pid']}: resumed after step {killed['first_step']}" in text
    assert f"was killed (SIGKILL)\n    while it was saving step {last_step(killed)} " in text
    assert f"process {resumed['pid']}: resumed after step {resumed['first_step']}" in text
    assert f"exactly those of steps {resumed['first_step'] + 1} to {last_step(killed)};" in text
    assert "of both runs: bit for bit the same" in text
    assert (run_in_folder.folder / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_it_shows_progress_on_a_terminal(tmp_path: Path) -> None:
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    terminal, its_end = pty.openpty()
    termios.tcsetwinsize(its_end, (24, 100))
    with subprocess.Popen(
        [sys.executable, "-m", "headrace.demo", str(bucket), "--epochs=1", "--no-stop"]
        + [f"--plot={tmp_path / 'demo.png'}"],
        stdout=subprocess.DEVNULL,
        stderr=its_end,
    ) as process:
        os.close(its_end)
        shown = b""
        with contextlib.suppress(OSError):  # EIO: nobody writes to the terminal any more
            while piece := os.read(terminal, 65536):
                shown += piece
    os.close(terminal)
    assert process.wait() in (0, 1)  # after one epoch the accuracy may be too low
    assert b"1797/1797" in shown
    assert b"45/45" in shown


def test_it_leaves_no_objects_behind(run_in_folder: RunInFolder) -> None:
    assert list(headrace.Store(run_in_folder.bucket).list()) == []


class DistantServer:
    """A bucket ``demo``, far away."""

    def __init__(self, server: FakeGcsServer, delayed: DelayedServer) -> None:
        self._server, self._delayed = server, delayed
        self.environment = {"STORAGE_EMULATOR_HOST": delayed.url}

    def names(self) -> set[str]:
        return set(self._server.names("demo"))

    def log_of(self, requests: int) -> list[LoggedRequest]:
        """Return all requests when there are so many; each is logged after it was answered."""
        return self._delayed.requests_when(lambda log: len(log) >= requests)


@pytest.fixture
def distant_server() -> Iterator[DistantServer]:
    with FakeGcsServer() as server:
        server.make_bucket("demo")
        with DelayedServer(server.url, latency_s=LATENCY_S) as delayed:
            yield DistantServer(server, delayed)


def requests_of(report: dict[str, Any]) -> int:
    return sum(each["requests_total"] for each in report["summary"]["counters"].values())


def times_read(log: list[LoggedRequest]) -> Counter[str]:
    return Counter(request.object_read for request in log if request.object_read is not None)


@pytest.mark.soak  # the run in a folder stands for it, and `.ci/run` runs the demo on gs://, too
def test_on_a_distant_server_it_is_stopped_and_killed_and_comes_to_the_same_weights(
    distant_server: DistantServer, tmp_path: Path
) -> None:
    done, report = run_demo("gs://demo/digits", tmp_path, "--keep", **distant_server.environment)
    assert done.returncode == 0, done.stderr
    check(report)
    first, stopped, killed, resumed = report["records"]

    # Of the checkpoint that was being written there is one part, and `headrace clean` removes it.
    names = distant_server.names()
    saved = {"run1": first["saved_steps"]}
    saved["run2"] = [step for each in (stopped, killed, resumed) for step in each["saved_steps"]]
    assert {name for name in names if not name.startswith(("digits/train/", "digits/test/"))} == {
        *(f"digits/{run}/model.pt" for run in saved),
        *(f"digits/{run}/checkpoints/step{step:05d}.pt" for run in saved for step in saved[run]),
        *(parts := [name for name in names if name.startswith("headrace-uploads/")]),
    }
    assert len(parts) == 1
    assert report["resumption"]["left_bytes"] == PART_BYTES
    subprocess.run(
        [sys.executable, "-m", "headrace", "clean", "--older-than=0", "gs://demo"],
        env={**os.environ, **distant_server.environment},
        check=True,
    )
    assert distant_server.names() == names - set(parts)

    # Each training object was read once in each epoch of both runs. Besides, what was lost with the
    # killed process: what it had trained on since its checkpoint, and what it had read ahead.
    times = times_read(distant_server.log_of(requests_of(report)))
    training = Counter({name: n for name, n in times.items() if name.startswith("digits/train/")})
    assert len(training) == TRAINING_OBJECTS

    def names_of(batches: list[Any]) -> Counter[str]:
        return Counter(url.removeprefix("gs://demo/") for _, urls in batches for url in urls)

    begin, end = resumed["first_step"], last_step(killed)
    lost = training - names_of(first["batches"] * 2)
    trained_on = names_of(first["batches"][begin:end])
    assert trained_on <= lost
    assert lost - trained_on <= names_of(first["batches"][end : end + STEPS_PER_EPOCH // 2])
    assert (lost - trained_on).total() >= report["resumption"]["read_in_vain"]
    assert training - lost == names_of(first["batches"] * 2)


@pytest.mark.soak  # `.ci/run` runs the demo on gs://, too
def test_it_counts_what_a_distant_server_counts(
    distant_server: DistantServer, run_in_folder: RunInFolder, tmp_path: Path
) -> None:
    options = ("--keep", "--no-stop")
    done, report = run_demo("gs://demo/digits", tmp_path, *options, **distant_server.environment)
    assert done.returncode == 0, done.stderr
    assert report["resumption"] is None
    (only,) = report["records"]
    assert only["losses"] == run_in_folder.report["records"][0]["losses"]

    requests = requests_of(report)
    log = distant_server.log_of(requests)
    assert len(log) == requests
    assert median(request.seconds for request in log) >= LATENCY_S * 0.9  # nginx counts whole ms
    counters = report["summary"]["counters"].values()
    connections = sum(each["connections_opened_total"] for each in counters)
    assert len({request.connection for request in log}) == connections

    reads = [request for request in log if request.object_read is not None]
    assert sum(each["bytes_read_total"] for each in counters) == sum(
        request.body_bytes for request in reads
    )
    times = times_read(log)
    training = {name: n for name, n in times.items() if name.startswith("digits/train/")}
    assert len(training) == TRAINING_OBJECTS
    assert set(training.values()) == {EPOCHS}
    held_out = {name: n for name, n in times.items() if name.startswith("digits/test/")}
    assert len(held_out) == ALL_OBJECTS - TRAINING_OBJECTS
    assert set(held_out.values()) == {1}
    whole = sum(training.values()) + sum(held_out.values())
    assert sum(each["checksums_verified_total"] for each in counters) == whole


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"accuracy": 0.5}, "the accuracy is 0.500"),
        ({"model_is_equal": False}, "the model read back is not the one written"),
        ({"is_once": False}, "not every image was in exactly one batch of every epoch"),
        ({"objects_read": 0}, "0 images were read to train on 4,311 images"),
        ({"drained_at": 66}, "these should rise"),
        ({"killed_at": 66}, "these should rise"),
        ({"left_bytes": 0}, "the unfinished checkpoint left nothing"),
        ({"resumed_at": 62}, "it resumed from step 62"),
        ({"is_same": False}, "did not train on the batches of the first"),
        ({"is_repeated_exactly": False}, "trained on twice are not those after"),
        ({"read_without_need": 1}, "1 images were read in vain"),
        ({"weights_are_equal": False}, "the weights of both runs differ"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_whatever_is_not_as_it_should_be_is_a_fault(
    run_in_folder: RunInFolder, change: dict[str, Any], sentence: str
) -> None:
    summary = Summary(**run_in_folder.report["summary"])
    resumption = Resumption(**run_in_folder.report["resumption"])
    assert faults(summary, resumption, 0.95) == []
    if change.keys() <= run_in_folder.report["summary"].keys():
        summary = replace(summary, **change)
    else:
        resumption = replace(resumption, **change)
    (fault,) = faults(summary, resumption, 0.95)
    assert sentence in fault


def test_it_touches_no_place_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"1")
    done, _ = run_demo(str(tmp_path), tmp_path)
    assert done.returncode == 2
    assert "there are objects below" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    "option", ["--epochs=0", "--epochs=1", "--batch-size=0", "--batch-size=257"]
)
def test_options_that_cannot_work_are_refused(option: str, tmp_path: Path) -> None:
    done, _ = run_demo(str(tmp_path), tmp_path, option)
    assert done.returncode == 2
    assert "it must be" in done.stderr


def test_a_plot_that_cannot_be_written_is_told_before_the_training(tmp_path: Path) -> None:
    done, _ = run_demo(str(tmp_path / "bucket"), tmp_path / "missing")
    assert done.returncode == 2
    assert "its folder is missing or not writable" in done.stderr
    assert not (tmp_path / "bucket").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_end_in_the_middle_leaves_no_process_and_no_objects(
    tmp_path: Path, number: signal.Signals
) -> None:
    bucket = tmp_path / "bucket"
    with subprocess.Popen(
        [sys.executable, "-m", "headrace.demo", str(bucket), "--epochs=1000", "--no-stop"]
        + [f"--plot={tmp_path / 'demo.png'}"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        group = psutil.Process(process.pid)
        while not (training := group.children()):
            assert process.poll() is None
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.send_signal(number)
        _, err = process.communicate()
    assert process.returncode == 128 + number
    assert "Traceback" not in err
    # An orphan, if there is one, is seen here for ever; a dead one until init has heard of it.
    _, alive = psutil.wait_procs(training, timeout=120)
    assert alive == []
    assert [path for path in bucket.rglob("*") if path.is_file()] == []
