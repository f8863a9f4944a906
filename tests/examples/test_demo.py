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
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
import pytest

from testing.servers import DelayedServer, FakeGcsServer

# Each takes some ten seconds on two cores; they start several interpreters that import torch.
pytestmark = pytest.mark.timeout(240)

EPOCHS = 4
TRAINING_OBJECTS = 1437
ALL_OBJECTS = 1797
LATENCY_S = 0.02


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


def check(report: dict[str, Any]) -> None:
    summary = report["summary"]
    assert summary["accuracy"] >= 0.95
    assert summary["model_is_equal"]
    assert summary["objects"] == TRAINING_OBJECTS
    assert summary["images"] == EPOCHS * TRAINING_OBJECTS
    assert summary["objects_read"] == EPOCHS * TRAINING_OBJECTS
    assert (summary["deliveries_min"], summary["deliveries_max"]) == (1, 1)

    first, second = report["records"]
    assert first["pid"] != second["pid"]
    assert 0 < first["batch_in_epoch"] < summary["batches_per_epoch"]
    assert second["first_batch_number"] == len(first["losses"])
    # What both trained on in the interrupted epoch is the whole epoch, without overlap.
    both = set(first["delivered"]) & set(second["delivered"])
    assert len(both) == 1
    before, after = (set(each["delivered"][both.copy().pop()]) for each in (first, second))
    assert before
    assert after
    assert before.isdisjoint(after)
    assert len(before) + len(after) == TRAINING_OBJECTS


@pytest.fixture(scope="module")
def run_in_folder(tmp_path_factory: pytest.TempPathFactory) -> RunInFolder:
    folder = tmp_path_factory.mktemp("demo")
    bucket = folder / "bucket"
    bucket.mkdir()
    return RunInFolder(folder, bucket, *run_demo(str(bucket), folder))


def test_it_trains_from_a_folder_is_killed_and_resumes(run_in_folder: RunInFolder) -> None:
    assert run_in_folder.done.returncode == 0, run_in_folder.done.stderr
    check(run_in_folder.report)
    assert run_in_folder.report["summary"]["counters"]["training"]["retries_total"] == 0


def test_it_says_and_draws_what_it_measured(run_in_folder: RunInFolder) -> None:
    text = run_in_folder.done.stdout
    for words in ("accuracy", "images/s", "waiting for data", "p50", "p99", "first batch after"):
        assert words in text
    for words in ("peak memory", "requests", "connections", "checksums verified", "exactly once"):
        assert words in text
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
    assert [path for path in run_in_folder.bucket.rglob("*") if path.is_file()] == []


def test_stop_and_resume_change_no_loss(run_in_folder: RunInFolder, tmp_path: Path) -> None:
    bucket = tmp_path / "not" / "there yet"
    done, report = run_demo(str(bucket), tmp_path, "--no-stop")
    assert done.returncode == 0, done.stderr
    (uninterrupted,) = report["records"]
    first, second = run_in_folder.report["records"]
    assert first["losses"] + second["losses"] == uninterrupted["losses"]
    assert second["accuracy"] == uninterrupted["accuracy"]


def test_it_counts_what_a_distant_server_counts(tmp_path: Path) -> None:
    with FakeGcsServer() as server:
        server.make_bucket("demo")
        with DelayedServer(server.url, latency_s=LATENCY_S) as delayed:
            done, report = run_demo(
                "gs://demo/digits", tmp_path, "--keep", STORAGE_EMULATOR_HOST=delayed.url
            )
            assert done.returncode == 0, done.stderr
            check(report)
            counters = report["summary"]["counters"]
            requests = sum(each["requests_total"] for each in counters.values())
            log = delayed.requests_when(lambda log: len(log) >= requests)
        assert set(server.names("demo")) > {"digits/run/checkpoint.pt", "digits/run/model.pt"}

    assert len(log) == requests
    assert median(request.seconds for request in log) >= LATENCY_S * 0.9  # nginx counts whole ms
    connections = sum(each["connections_opened_total"] for each in counters.values())
    assert len({request.connection for request in log}) == connections

    reads = [request for request in log if request.object_read is not None]
    assert sum(each["bytes_read_total"] for each in counters.values()) == sum(
        request.body_bytes for request in reads
    )
    assert sum(each["checksums_verified_total"] for each in counters.values()) == len(reads)
    times = Counter(request.object_read for request in reads)
    # Over stop and resume: every training object once per epoch, every held-out one once.
    training = {name: n for name, n in times.items() if str(name).startswith("digits/train/")}
    assert len(training) == TRAINING_OBJECTS
    assert set(training.values()) == {EPOCHS}
    held_out = {name: n for name, n in times.items() if str(name).startswith("digits/test/")}
    assert len(held_out) == ALL_OBJECTS - TRAINING_OBJECTS
    assert set(held_out.values()) == {1}


def test_it_touches_no_place_that_is_in_use(tmp_path: Path) -> None:
    (tmp_path / "mine").write_bytes(b"1")
    done, _ = run_demo(str(tmp_path), tmp_path)
    assert done.returncode == 2
    assert "there are objects below" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("option", ["--epochs=0", "--batch-size=0", "--batch-size=257"])
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
    _, alive = psutil.wait_procs(training, timeout=10)
    assert alive == []
    assert [path for path in bucket.rglob("*") if path.is_file()] == []
