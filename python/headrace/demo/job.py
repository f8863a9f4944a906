"""The demo from end to end: write, train, train again and be killed, resume, compare, report."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import headrace

if TYPE_CHECKING:
    from headrace.demo.report import Resumption
    from headrace.demo.training import Record

_REQUIRED_ACCURACY = 0.95
_LARGEST_BATCH = 256  # an epoch must have a middle to be stopped in


def main(
    url: str | os.PathLike[str] | None = None,
    *,
    shards: bool = False,
    epochs: int = 4,
    batch_size: int = 32,
    stop: bool = True,
    keep: bool = False,
    plot: str | os.PathLike[str] | None = "demo.png",
    json: str | os.PathLike[str] | None = None,
) -> int:
    """Train a small network on handwritten digits that are PNG objects, and report what it took.

    Args:
        url: ``gs://bucket/prefix``, ``s3://bucket/prefix`` or a folder, with nothing below it yet;
            a folder need not exist. Default: a temporary folder.
        shards: put the images into tar shards, and read them there, one by one.
        epochs: the number of passes over the 1,437 training images; with `stop`, at least 2.
        batch_size: images in a batch, from 1 to 256.
        stop: train a second time. One process is stopped in the middle of an epoch, and one is
            killed while it saves a checkpoint; each time a new process resumes.
        keep: keep the objects instead of deleting them.
        plot: a PNG file for the loss curve and the histogram of batch latencies; None: no plot.
        json: a file for everything that was counted; None: no file.

    Returns:
        The exit status: 0 if all checks pass.
    """
    missing = _missing_packages()
    if missing:
        _complain(f"the demo needs {', '.join(missing)}: pip install 'headrace[demo]'")
        return 2
    if epochs < (2 if stop else 1):
        _complain(f"epochs is {epochs}; it must be at least {2 if stop else 1}")
        return 2
    if not 1 <= batch_size <= _LARGEST_BATCH:
        _complain(f"batch_size is {batch_size}; it must be from 1 to {_LARGEST_BATCH}")
        return 2
    with contextlib.ExitStack() as stack:
        if url is None:
            url = stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-demo-"))
            keep = True  # goes with the folder
        ending = stack.enter_context(_Ending())
        try:
            return _run(os.fspath(url), shards, epochs, batch_size, stop, keep, plot, json, ending)
        except headrace.HeadraceError as error:
            _complain(str(error))
            return 1


class _Ending:
    """Lets Ctrl-C and SIGTERM end the demo and its training process, and delete the objects."""

    def __init__(self) -> None:
        self._number = 0
        self._is_starting = False

    def __enter__(self) -> _Ending:
        if threading.current_thread() is threading.main_thread():
            self._before = {
                number: signal.signal(number, self._end)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
        else:
            self._before = {}
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self._number = number
        if not self._is_starting:
            self._raise()

    def _raise(self) -> None:
        _complain("interrupted")
        raise SystemExit(128 + self._number)

    def run(self, command: list[str]) -> int:
        """Run a process to its end, or to that of this process, and return its status."""
        process = None
        try:
            # No signal may end us between the start of the process and the assignment.
            self._is_starting = True
            try:
                # In a group of its own, which Ctrl-C does not reach: this process ends it.
                process = subprocess.Popen(command, process_group=0)
            finally:
                self._is_starting = False
            if self._number:
                self._raise()
            return process.wait()
        finally:
            if process is not None and process.returncode is None:
                process.kill()
                process.wait()


def _run(
    url: str,
    shards: bool,
    epochs: int,
    batch_size: int,
    stop: bool,
    keep: bool,
    plot: str | os.PathLike[str] | None,
    json_file: str | os.PathLike[str] | None,
    ending: _Ending,
) -> int:
    from tqdm import tqdm

    from headrace.demo import digits, report

    for option, file in (("plot", plot), ("json", json_file)):
        if file is not None and not os.access(Path(file).absolute().parent, os.W_OK):
            _complain(f"{option} is {os.fspath(file)!r}; its folder is missing or not writable")
            return 2
    store = headrace.Store(url)
    try:
        is_empty = next(store.list(max_results=1), None) is None
    except headrace.NotFoundError:  # a folder that the first write makes, or no such bucket
        is_empty = True
    if not is_empty:
        _complain(f"there are objects below {store.url} already; the demo needs a place of its own")
        return 2
    objects = digits.png_objects()
    training_count = sum(name.startswith("train/") for name, _ in objects)
    try:
        what = f"{len(objects):,} digits"
        if shards:
            objects = digits.shards_of(objects)
            what += f" in {len(objects)} shards"
        _say(f"writing {what} to {store.url}")
        began_s = time.perf_counter()
        stored = digits.write(store, "", objects)
        for _ in tqdm(stored, "written", len(objects), unit="object", disable=None):
            pass
        _say(f"written in {time.perf_counter() - began_s:.1f} s")
        written = headrace.metrics()
        records, resumption = _train(
            store.url_of(""), shards, epochs, batch_size, stop, training_count, ending
        )
    finally:
        if not keep:
            with contextlib.suppress(headrace.NotFoundError):  # nothing could be written
                _delete_all(store)

    summary = report.summarize(records, written, epochs, training_count)
    _say(report.as_text(summary, resumption))
    if plot is not None:
        report.plot(records, Path(plot))
        _say(f"{plot} shows the loss and the batch latencies")
    if json_file is not None:
        results = {
            "summary": asdict(summary),
            "resumption": None if resumption is None else asdict(resumption),
            "records": [asdict(each) for each in records],
        }
        Path(json_file).write_text(json.dumps(results))
    faults = report.faults(summary, resumption, _REQUIRED_ACCURACY)
    for fault in faults:
        _complain(fault)
    return 1 if faults else 0


def _train(
    url: str,
    shards: bool,
    epochs: int,
    batch_size: int,
    stop: bool,
    training_count: int,
    ending: _Ending,
) -> tuple[list[Record], Resumption | None]:
    """Train without a stop, then again with a stop and a kill; return the records."""
    from headrace.demo.report import resumption_of
    from headrace.demo.training import Job, Record, bits

    steps_per_epoch = -(-training_count // batch_size)
    with tempfile.TemporaryDirectory(prefix="headrace-demo-record-") as folder:

        def process(run: str, *, expected: int = 0, **disturbance: int) -> Record:
            job = Job(
                url=url,
                run=run,
                shards=shards,
                epochs=epochs,
                batch_size=batch_size,
                steps_per_checkpoint=max(1, steps_per_epoch * 3 // 4),
                record=f"{folder}/{len(os.listdir(folder))}.json",
                **disturbance,
            )
            status = ending.run(
                [sys.executable, "-m", "headrace.demo.training", json.dumps(asdict(job))]
            )
            if status != expected or not os.path.exists(job.record):
                raise headrace.InternalError(
                    f"the training process ended with status {status}, where {expected} was "
                    "expected, or before its time; what it printed is above"
                )
            return Record(**json.loads(Path(job.record).read_text()))

        def place(step: int) -> str:
            epoch, batch = divmod(step, steps_per_epoch)
            return f"step {step} (batch {batch} of {steps_per_epoch} in epoch {epoch + 1})"

        first = process("run1")
        _say(f"run 1, process {first.pid}: {first.last_step} steps in one go")
        if not stop:
            return [first], None

        # Early in an epoch: after the notice, the process trains on what it has read ahead.
        stop_at = (epochs - 1) // 2 * steps_per_epoch + 1 + steps_per_epoch // 8
        stopped = process("run2", stop_after_step=stop_at)
        _say(
            f"run 2, process {stopped.pid}: told to stop after step {stop_at}, trained on what it "
            f"had read ahead,\n    saved {place(stopped.last_step)}, and ended"
        )
        killed = process("run2", killed_in_save=2, expected=-signal.SIGKILL)
        left_bytes = _temporary_bytes(url)
        _say(
            f"run 2, process {killed.pid}: resumed after step {killed.first_step}, saved step "
            f"{killed.saved_steps[-1]}, was killed (SIGKILL)\n    while it was saving "
            f"{place(killed.last_step)}"
        )
        resumed = process("run2")
        _say(
            f"run 2, process {resumed.pid}: resumed after step {resumed.first_step}, with the "
            f"newest complete checkpoint,\n    {resumed.resumed_from}"
        )
    models = [bits(headrace.checkpoint.load(f"{url}{run}/model.pt")) for run in ("run1", "run2")]
    second = [stopped, killed, resumed]
    return [first, *second], resumption_of(
        first, second, stop_at, left_bytes, equal=models[0] == models[1]
    )


def _temporary_bytes(url: str) -> int | None:
    """Return the bytes of temporary objects in the bucket; None where writes make none."""
    from headrace.demo.training import UPLOADS, bucket_of

    store = bucket_of(url)
    return None if store is None else sum(info.size_bytes for info in store.list(UPLOADS))


def _delete_all(store: headrace.Store) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(32) as deleters:
        names = [info.name for info in store.list()]
        list(deleters.map(lambda name: store.delete(name, missing_ok=True), names))


def _missing_packages() -> list[str]:
    from importlib.util import find_spec

    packages = {
        "matplotlib": "matplotlib",
        "numpy": "numpy",
        "PIL": "pillow",
        "sklearn": "scikit-learn",
        "torch": "torch",
        "tqdm": "tqdm",
    }
    return [package for module, package in packages.items() if find_spec(module) is None]


def _say(text: str) -> None:
    print(text, flush=True)


def _complain(text: str) -> None:
    print(f"headrace demo: {text}", file=sys.stderr)
