"""The demo from end to end: write, train, be killed, resume, evaluate, say what that took."""

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
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import headrace

if TYPE_CHECKING:
    from headrace.demo.training import Record

_REQUIRED_ACCURACY = 0.95
_LARGEST_BATCH = 256  # an epoch must have a middle to be stopped in


def main(
    url: str | os.PathLike[str] | None = None,
    *,
    epochs: int = 6,
    batch_size: int = 32,
    stop: bool = True,
    keep: bool = False,
    plot: str | os.PathLike[str] | None = "demo.png",
    json: str | os.PathLike[str] | None = None,
) -> int:
    """Train a small network on handwritten digits that are PNG objects, and say what it took.

    Args:
        url: ``gs://bucket/prefix`` or a folder, below which there is nothing yet; a folder
            may be missing. Default: a temporary one.
        epochs: how often each of the 1,437 training images is seen.
        batch_size: images in a batch, from 1 to 256.
        stop: kill the training in the middle of an epoch and resume it in a new process.
        keep: leave the objects there; they are deleted otherwise.
        plot: where the loss curve and the histogram of batch latencies go, as PNG; None: nowhere.
        json: where everything that was counted goes; None: nowhere.

    Returns:
        The exit status: 0 if everything that can be checked is as it should be.
    """
    missing = _missing_packages()
    if missing:
        _complain(f"the demo needs {', '.join(missing)}: pip install 'headrace[demo]'")
        return 2
    if epochs < 1:
        _complain(f"epochs is {epochs}; it must be at least 1")
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
            return _run(os.fspath(url), epochs, batch_size, stop, keep, plot, json, ending)
        except headrace.HeadraceError as error:
            _complain(str(error))
            return 1


class _Ending:
    """Ctrl-C and SIGTERM end the demo, and with it the process that trains; the objects go."""

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
        """Run a process to its end, or to ours; return its status."""
        process = None
        try:
            # Not between the start of the process and our knowing of it.
            self._is_starting = True
            try:
                process = subprocess.Popen(command)
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
    store = headrace.Store(url.rstrip("/") + "/")
    try:
        is_empty = next(store.list(max_results=1), None) is None
    except headrace.NotFoundError:  # a folder that is made by the first write, or no such bucket
        is_empty = True
    if not is_empty:
        _complain(f"there are objects below {store.url} already; the demo needs a place of its own")
        return 2
    objects = digits.png_objects()
    training_count = sum(name.startswith("train/") for name, _ in objects)
    try:
        print(f"writing {len(objects):,} digits to {store.url}", flush=True)
        began_s = time.perf_counter()
        stored = digits.write(store, store.prefix, objects)
        for _ in tqdm(stored, "written", len(objects), unit="object", disable=None):
            pass
        print(f"written in {time.perf_counter() - began_s:.1f} s", flush=True)
        written = headrace.metrics()
        records = list(_train(store.url, epochs, batch_size, stop, training_count, ending))
    finally:
        if not keep:
            with contextlib.suppress(headrace.NotFoundError):  # nothing could be written
                _delete_all(store)

    summary = report.summarize(records, written, epochs, training_count)
    print(report.as_text(summary))
    if plot is not None:
        report.plot(records, Path(plot))
        print(f"{plot} shows the loss and the batch latencies")
    if json_file is not None:
        Path(json_file).write_text(
            json.dumps({"summary": asdict(summary), "records": [asdict(each) for each in records]})
        )
    faults = report.faults(summary, _REQUIRED_ACCURACY)
    for fault in faults:
        _complain(fault)
    return 1 if faults else 0


def _train(
    url: str, epochs: int, batch_size: int, stop: bool, training_count: int, ending: _Ending
) -> Iterator[Record]:
    """Run the training processes, and yield what each recorded."""
    from headrace.demo.training import Job, Record

    batches_per_epoch = -(-training_count // batch_size)
    # Early in an epoch: the process goes on with what was read ahead when the notice comes.
    stop_after = (epochs // 2) * batches_per_epoch + 1 + batches_per_epoch // 8 if stop else None
    stops = [stop_after, None] if stop_after else [None]
    with tempfile.TemporaryDirectory(prefix="headrace-demo-record-") as folder:
        for number, stop_after_batches in enumerate(stops):
            job = Job(
                url=url,
                epochs=epochs,
                batch_size=batch_size,
                stop_after_batches=stop_after_batches,
                record=f"{folder}/{number}.json",
            )
            status = ending.run(
                [sys.executable, "-m", "headrace.demo.training", json.dumps(asdict(job))]
            )
            expected = 0 if stop_after_batches is None else -signal.SIGKILL
            if status != expected:
                raise headrace.InternalError(
                    f"the training process ended with status {status}, not {expected}; "
                    "what it printed is above"
                )
            record = Record(**json.loads(Path(job.record).read_text()))
            if stop_after_batches is not None:
                print(
                    f"process {record.pid} was told to stop, saved a checkpoint after batch "
                    f"{record.batch_in_epoch} of {batches_per_epoch} in epoch {epochs // 2 + 1} of "
                    f"{epochs}, and was killed; a new one resumes",
                    flush=True,
                )
            yield record


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


def _complain(text: str) -> None:
    print(f"headrace demo: {text}", file=sys.stderr)
