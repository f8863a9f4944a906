"""Packing by processes: the same bytes as by threads, and what becomes of processes that end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.pack import functions
from tests.waiting import wait_until


def fill(folder: Path, count: int = 20) -> Path:
    store = headrace.Store(folder / "in")
    for i in range(count):
        store.write(f"{i:03d}.jpg", b"%03d." % i * 100)
    return folder / "in"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("train-*")}


PACKING: dict[str, Any] = {"shard_samples": 4, "shuffle": True, "seed": 3}


@pytest.mark.parametrize("transform", [None, functions.shrink])
def test_processes_write_the_shards_that_threads_write(tmp_path: Path, transform: Any) -> None:
    source = fill(tmp_path)
    by_threads, by_processes = (
        headrace.pack(
            source, tmp_path / executor, executor=executor, transform=transform, workers=2,
            **PACKING,
        )
        for executor in ("threads", "processes")
    )  # fmt: skip
    assert files(tmp_path / "threads") == files(tmp_path / "processes")
    assert len(files(tmp_path / "threads")) == 5
    assert by_processes.written == 5
    assert by_processes.dropped == by_threads.dropped == (2 if transform else 0)
    assert by_processes.index == headrace.index_members(tmp_path / "processes")
    again = headrace.pack(
        source, tmp_path / "processes", executor="processes", transform=transform, **PACKING
    )
    assert again.written == 0


@pytest.mark.parametrize("layout", ["raw", "megatron"])
def test_processes_write_the_tokens_that_threads_write(tmp_path: Path, layout: Any) -> None:
    source = fill(tmp_path)
    for executor in ("threads", "processes"):
        headrace.pack_tokens(
            source, tmp_path / executor, functions.encode, layout=layout, executor=executor,
            workers=2, **PACKING,
        )  # fmt: skip
    assert files(tmp_path / "threads") == files(tmp_path / "processes")
    assert len(files(tmp_path / "threads")) == (5 if layout == "raw" else 10)


def test_processes_read_each_object_once(gcs: headrace.Store, server: FaultServer) -> None:
    for i in range(12):
        gcs.write(f"in/{i:03d}.jpg", b"%03d." % i * 100)
    source, out = (gcs._derived(f"{gcs.url}/{name}") for name in ("in", "out"))
    begin = len(server.log())
    headrace.pack(source, out, shard_samples=3, executor="processes", workers=2)
    log = server.log()[begin:]
    assert (
        len([each for each in log if each["kind"] == "media" and "in%2F" in each["target"]]) == 12
    )
    # Four shards, what is remembered of them, the settings, and the index.
    assert len([each for each in log if each["kind"] == "upload"]) == 4 + 4 + 1 + 1


def test_progress_counts_the_bytes_of_the_source(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    packed = headrace.pack(
        fill(tmp_path), tmp_path / "out", shard_samples=4, executor="processes", workers=2,
        progress=lambda done, total: calls.append((done, total)),
    )  # fmt: skip
    assert calls == sorted(calls)
    assert calls[-1] == (packed.source_bytes, packed.source_bytes)


def test_a_progress_function_that_raises_stops_it(tmp_path: Path) -> None:
    source = fill(tmp_path)

    def tell(done: int, total: int) -> None:
        raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        headrace.pack(
            source, tmp_path / "out", executor="processes", workers=1, progress=tell, **PACKING
        )
    there = len(files(tmp_path / "out"))
    assert there < 5
    # Others go on.
    packed = headrace.pack(source, tmp_path / "out", **PACKING)
    assert packed.samples == 20


def test_what_cannot_be_sent_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    source = fill(tmp_path)
    with pytest.raises(headrace.InvalidArgumentError, match="functions of a module"):
        headrace.pack(source, tmp_path / "out", transform=lambda _: None, executor="processes")
    assert files(tmp_path / "out") == {}


def test_what_a_transform_raises_names_its_sample(tmp_path: Path) -> None:
    source = fill(tmp_path)
    with pytest.raises(headrace.HeadraceError, match="OddError: this and that") as raised:
        headrace.pack(source, tmp_path / "out", transform=functions.raise_odd, executor="processes")
    [note] = raised.value.__notes__
    assert ".jpg" in note


def test_a_killed_process_is_an_error_and_the_same_call_goes_on(tmp_path: Path) -> None:
    source = fill(tmp_path)
    transform = functions.KillsItsProcess(tmp_path, "011")
    how = {"transform": transform, "executor": "processes", "workers": 2, **PACKING}
    with pytest.raises(headrace.HeadraceError, match="the same call goes on"):
        headrace.pack(source, tmp_path / "out", **how)
    assert (tmp_path / "killed").exists()
    packed = headrace.pack(source, tmp_path / "out", **how)
    assert packed.samples == 18
    headrace.pack(source, tmp_path / "whole", transform=transform, **PACKING)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


# ---- scripts

SCRIPT = """
import sys
from pathlib import Path
import headrace
from tests.pack import functions

folder = Path(sys.argv[1])
if __name__ == "__main__":
    headrace.pack(
        folder / "in", folder / "out", transform=functions.Hangs(folder, "011"), workers=2,
        shard_samples=4, executor="processes",
    )
"""


def started(folder: Path, script: str, repository: Path) -> subprocess.Popen[str]:
    file = folder / "script.py"
    file.write_text(script)
    return subprocess.Popen(
        [sys.executable, file, folder],
        env={**os.environ, "PYTHONPATH": str(repository)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def is_running(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_processes_end_when_the_one_that_started_them_is_killed(
    tmp_path: Path, repository: Path
) -> None:
    fill(tmp_path)
    with started(tmp_path, SCRIPT, repository) as script:
        wait_until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        script.kill()
        wait_until(lambda: not is_running(pid))


def test_ctrl_c_ends_the_processes_and_loses_no_shard(tmp_path: Path, repository: Path) -> None:
    fill(tmp_path)
    # Nothing hangs; each step of progress waits until Ctrl-C has come.
    script = SCRIPT.replace("functions.Hangs(folder, \"011\")", "functions.shrink").replace(
        'executor="processes",', 'executor="processes", progress=tell,'
    ).replace("folder = ", TELL + "folder = ")  # fmt: skip
    with started(tmp_path, script, repository) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "under way\n"
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()
        assert process.wait() == -signal.SIGINT
    assert said.count("Traceback") == 1, said  # of the process that was interrupted
    assert said.rstrip().endswith("KeyboardInterrupt")
    remembered = {path.stem for path in (tmp_path / "out" / "_pack").glob("*.shard")}
    assert {path.stem for path in (tmp_path / "out").glob("*.tar")} == remembered
    packed = headrace.pack(
        tmp_path / "in", tmp_path / "out", transform=functions.shrink, shard_samples=4
    )
    assert packed.written == 5 - len(remembered)


TELL = """
import signal

def tell(done, total):
    print("under way", flush=True)
    signal.pause()

"""


def test_a_script_without_a_guard_is_told_so(tmp_path: Path, repository: Path) -> None:
    fill(tmp_path)
    script = SCRIPT.replace('if __name__ == "__main__":', "if True:")
    with started(tmp_path, script, repository) as process:
        _, said = process.communicate()
    assert process.returncode == 1
    assert "put what packs below if __name__" in said
    assert files(tmp_path / "out") == {}
