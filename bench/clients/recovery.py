"""headrace through an outage: when each of its requests was done."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import headrace
from bench.clients.engine import store_of
from bench.clients.measure import Answer, batches_for


class _Times:
    """Completions by steps of the machine's clock, which the side of the server reads, too."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self.failed = 0
        self.steps: Counter[int] = Counter()
        self._lock = threading.Lock()

    def done(self) -> None:
        with self._lock:
            self.steps[int(time.monotonic() / self._step_s)] += 1

    def fail(self) -> None:
        with self._lock:
            self.failed += 1


def requests(request: Answer) -> Answer:
    """Reads by `read_batches`; or reads, writes or pages of a listing, one at a time a thread.

    A request that fails is counted, not raised.
    """
    store = store_of(request)
    infos = list(store.list())
    times = _Times(request["step_s"])
    end_s = time.monotonic() + request["duration_s"]

    def batches() -> None:
        batches = batches_for(infos, request["batch_size"], request["duration_s"])
        for samples in store.read_batches(batches, on_error="return"):
            for sample in samples:
                times.fail() if isinstance(sample, Exception) else times.done()

    def loop(do: Callable[[int], object]) -> Callable[[], None]:
        def run() -> None:
            i = 0
            while time.monotonic() < end_s:
                i += 1
                try:
                    do(i)
                except headrace.HeadraceError:
                    times.fail()
                else:
                    times.done()

        return run

    work: dict[str, Callable[[], None]] = {
        "batches": batches,
        "reads": loop(lambda i: store.read(infos[i % len(infos)])),
        "writes": loop(lambda _: store.write(f"written/{threading.get_ident()}", b"x" * 100)),
        "lists": loop(lambda _: store.list_page(max_results=10)),
    }
    threads = [threading.Thread(target=work[request["work"]]) for _ in range(request["threads"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"failed": times.failed, "steps": dict(times.steps)}
