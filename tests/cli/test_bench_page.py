"""`headrace bench --html`: the page, as Chromium sees it."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import psutil
import pytest

from headrace import MiB
from headrace._cli.bench_page import _chosen, _tiles
from headrace._cli.bench_reads import Reads, quantile
from headrace._cli.bench_series import Measurement, Settings, settings_of
from testing.faultserver.client import FaultServer
from tests.cli.conftest import Run, Start, kinds
from tests.waiting import wait_until

pytest.importorskip("matplotlib")

TITLES = [
    "Throughput over time",
    "Waits for a batch",
    "Batch size",
    "Read-ahead",
    "Processes",
    "Steps",
    "Memory",
    "Start-up",
]


def dom_of(page: Path, tmp_path: Path) -> str:
    """Return the page as Chromium has read it, with nothing on its console."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed; tools/apt-packages.txt has it")
    done = subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--enable-logging=stderr",
            "--host-resolver-rules=MAP * ~NOTFOUND",
            "--dump-dom",
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert console == []
    return done.stdout


class Page(HTMLParser):
    """Counts elements, and collects what the page refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("href", "src", "xlink:href", "srcset", "action"):
                self.references.append(value or "")


def check_page(text: str) -> Page:
    page = Page(text)
    assert page.tags.count("figure") == page.tags.count("svg") == len(TITLES)
    assert "script" not in page.tags
    assert len(page.ids) == len(set(page.ids))
    inside = {f"#{each}" for each in page.ids}
    assert set(page.references) <= inside | {"data:,"}  # nothing from elsewhere
    assert {f"#{each}" for each in re.findall(r"url\(#([^)]+)\)", text)} <= inside
    return page


def test_the_page_has_every_plot_and_needs_nothing_else(
    server: FaultServer, run: Run, tmp_path: Path
) -> None:
    server.synthetic("many", 300, 1000, shape="flat")
    file = tmp_path / "report.html"
    done = run(
        "bench", "gs://many/", "--html", file, "--seconds", 0.05, "--repeats", 2,
        "--batch-size", 8, "--step-ms", 1, "--json",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    [found] = done.json
    assert found["batch_size"] == 8
    assert found["objects"] > 0
    text = dom_of(file, tmp_path)
    check_page(text)
    check_page(file.read_text())
    for title in TITLES:
        assert f"<h2>{title}</h2>" in text
    assert "gs://many" in text
    assert f"headrace bench gs://many/ --html {file}" in text
    assert "300 objects" in text
    assert "2 rounds of 0.05 s" in text
    assert "a step of the trainer takes 1 ms" in text
    assert "UTC" in text
    assert "stopped" not in text
    [table] = re.findall(r"<tbody>(.*?)</tbody>", text.partition("All measurements")[2])[:1]
    rows = [re.findall(r"<td>(.*?)</td>", row) for row in table.split("</tr>") if row]
    assert [row[0] for row in rows[:6]] == [
        "batches of 8",
        "batches of 2",
        "batches of 32",
        "batches of 8, one batch ahead",
        "batches of 8, 1.00 MiB ahead",
        "batches of 8, 16.0 MiB ahead",
    ]
    assert rows[6][0] == "batches of 8, 2 processes"
    assert all(row[1] == "2" for row in rows)
    assert list(tmp_path.glob(".report*")) == []


def test_what_was_measured_before_ctrl_c_becomes_a_page(
    server: FaultServer, start: Start, tmp_path: Path
) -> None:
    server.synthetic("many", 300, 1000, shape="flat")
    file = tmp_path / "report.html"
    process = start("bench", "gs://many/", "--html", file, "--seconds", 0.2, "--repeats", 500)
    seen: set[int] = set()

    def third_has_begun() -> bool:
        seen.update(child.pid for child in psutil.Process(process.pid).children())
        return len(seen) >= 3  # one after the other

    wait_until(third_has_begun)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert b"interrupted" in err
    assert b"Traceback" not in err
    text = file.read_text()
    check_page(text)
    assert "The command was stopped before all was measured" in text
    assert out


def test_ctrl_c_ends_a_bench_with_what_was_measured(server: FaultServer, start: Start) -> None:
    server.synthetic("many", 300, 1000, shape="flat")
    process = start("bench", "gs://many/", "--seconds", 600, "--json")
    wait_until(lambda: kinds(server).get("media", 0) > 1000)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=100)
    assert process.returncode == 130, err
    assert b'"objects": ' in out
    assert b"Traceback" not in err


@pytest.mark.parametrize(
    ("more", "code", "text"),
    [
        (["--html", "missing/report.html"], 3, "missing/report.html: the folder for this page"),
        (["--html", "report.html", "--epochs", "2"], 2, "leave out --epochs"),
    ],
)
def test_a_page_that_cannot_be_is_refused_before_anything_is_read(
    server: FaultServer, run: Run, more: list[str], code: int, text: str
) -> None:
    server.synthetic("many", 10, 1000, shape="flat")
    done = run("bench", "gs://many/", *more)
    assert done.code == code
    assert text in done.err
    assert server.log() == []


def test_an_object_that_cannot_be_read_is_told_and_no_page_written(
    server: FaultServer, run: Run, tmp_path: Path
) -> None:
    server.synthetic("many", 10, 1000, shape="flat")
    server.faults([{"match": {"kind": "media"}, "action": {"status": 403}}])
    done = run("bench", "gs://many/", "--html", tmp_path / "report.html", "--seconds", 0.05)
    assert done.code == 4
    assert done.err.startswith("headrace: PermissionDeniedError: gs://many/")
    assert "--anonymous for public buckets" in done.err
    assert "Traceback" not in done.err
    assert list(tmp_path.iterdir()) == []


def with_first_lines(folder: Path, lines: str) -> dict[str, str]:
    """Return the environment in which each process of a measurement runs these lines first."""
    text = f"import os, sys\nif 'headrace._cli.bench_process' in sys.orig_argv:\n    {lines}\n"
    (folder / "sitecustomize.py").write_text(text)
    return {"PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}


def test_a_process_that_tells_much_is_not_waited_for(
    server: FaultServer, run: Run, tmp_path: Path
) -> None:
    server.synthetic("many", 10, 1000, shape="flat")
    environment = with_first_lines(tmp_path, "sys.stderr.write('much\\n' * 100_000)")
    page = tmp_path / "report.html"
    done = run("bench", "gs://many/", "--html", page, "--seconds", 0.01, **environment)
    assert done.code == 0, done.err
    check_page(page.read_text())


@pytest.mark.parametrize("before", ["", "os.close(0); print('ready', flush=True); "])
def test_a_process_that_ends_says_why(
    server: FaultServer, run: Run, tmp_path: Path, before: str
) -> None:
    server.synthetic("many", 10, 1000, shape="flat")
    lines = before + "sys.stderr.write('much\\n' * 100_000 + 'its reason'); os._exit(3)"
    environment = with_first_lines(tmp_path, lines)
    page = tmp_path / "report.html"
    done = run("bench", "gs://many/", "--html", page, "--seconds", 0.01, **environment)
    assert done.code != 0
    assert "a process of the measurement has ended: its reason" in done.err
    assert "Traceback" not in done.err
    assert not page.exists()


def test_reads_of_files_have_no_tile_for_the_first_byte() -> None:
    def tiles(first_byte_s: float) -> str:
        reads = Reads(objects=4, bytes=40, duration_s=1.0, requests=4, first_byte_s=first_byte_s)
        return _tiles(Measurement(settings=Settings(batch_size=2), runs=[[reads]]))

    assert "to the first byte" not in tiles(0.0)
    assert "<b>2.00 ms</b><span>to the first byte, mean" in tiles(0.008)


def test_settings_differ_from_the_first_in_one_thing_each() -> None:
    every = settings_of(64, 8)
    base = vars(every[0])
    for each in every[1:]:
        assert sum(value != base[name] for name, value in vars(each).items()) == 1
    assert [each.processes for each in every if each.processes > 1] == [2, 4, 8]
    assert len(set(every)) == len(every)
    assert {each.batch_size for each in settings_of(1, 1)} == {1, 4}
    found = [Measurement(settings=each) for each in every]
    sizes = [each.settings.prefetch_bytes for each in _chosen(found, "prefetch_bytes")]
    assert sizes == [0, MiB, 16 * MiB, None]


def test_rates_are_sums_over_processes_and_quantiles_over_batches() -> None:
    first = Reads(objects=10, bytes=1000, duration_s=2.0, waits_s=[1.0, 3.0], ends_s=[1.0, 5.0])
    other = Reads(objects=30, bytes=500, duration_s=1.0, waits_s=[2.0], ends_s=[2.0])
    found = Measurement(settings=Settings(batch_size=5), runs=[[first, other], [first]])
    assert found.objects_per_s == [35.0, 5.0]
    assert found.bytes_per_s == [1000.0, 500.0]
    assert sorted(found.waits_s) == [1.0, 1.0, 2.0, 3.0, 3.0]
    assert first.steps_s == [1.0, 4.0]
    assert quantile(found.waits_s, 0.5) == 2.0
    assert quantile([], 0.5) == 0.0
    assert quantile([1.0], 0.99) == 1.0
