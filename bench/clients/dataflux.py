"""gcs-torch-dataflux as it is released, and headrace.compat by the same calls.

The scripts are the same for both: what differs is which of the two an import finds. They run by the
peers' Python, where the original is installed, or by ours after `headrace.compat.install()`.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from typing import Any

import google_crc32c

from bench.clients.measure import Answer, batches_for, check_all, family_cpu_s, objects_of
from bench.clients.peers import google_client


class _Rounds:
    """A batch sampler that goes round and round until it is told to stop."""

    def __init__(self, object_count: int, batch_size: int) -> None:
        self._indices = range(object_count)
        self._batch_size = batch_size

    def __iter__(self) -> Iterator[list[int]]:
        return batches_for(self._indices, self._batch_size, float("inf"))


def _dataset(request: Answer) -> Any:
    # Without a client it makes its own, which finds the server as Google's clients find emulators.
    os.environ["STORAGE_EMULATOR_HOST"] = request["endpoint"]
    if request["client"].startswith("dataflux"):
        _grant_permissions()
    options = {
        "sort_listing_results": True,
        "num_processes": 1,
        "disable_compose": not request["compose"],
    }
    if request.get("kind") == "iterable":
        from dataflux_pytorch import dataflux_iterable_dataset as iterable

        return iterable.DataFluxIterableDataset(
            project_name="bench", bucket_name=request["bucket"], config=iterable.Config(**options)
        )
    from dataflux_pytorch import dataflux_mapstyle_dataset as mapstyle

    return mapstyle.DataFluxMapStyleDataset(
        project_name="bench",
        bucket_name=request["bucket"],
        config=mapstyle.Config(threads_per_process=request["threads"], **options),
    )


def _grant_permissions() -> None:
    """Let the original have what it asks for: fake-gcs-server knows no permissions."""
    from google.cloud import storage

    def granted(_: Any, permissions: list[str], **__: Any) -> list[str]:
        return permissions

    storage.Bucket.test_iam_permissions = granted


def _loader(request: Answer, dataset: Any) -> Any:
    import torch

    options: dict[str, Any] = {"num_workers": request["num_workers"], "collate_fn": list}
    if request.get("kind") == "iterable":
        return torch.utils.data.DataLoader(dataset, batch_size=request["batch_size"], **options)
    rounds = _Rounds(len(dataset.objects), request["batch_size"])
    return torch.utils.data.DataLoader(dataset, batch_sampler=rounds, **options)


def read_batches(request: Answer) -> Answer:
    """Batches of bytes, in the trainer's process and, with workers, through their pipes.

    CPU is that of the trainer and its workers. The clock starts in the midst of one pass, after the
    warm-up and with a batch; it ends with the first batch after its time, or with the last.
    """
    dataset = _dataset(request)
    names, sums = objects_of(request)
    assert [name for name, _ in dataset.objects] == names
    if request["threads"] > 1:
        # One whose pool holds a connection for each thread. It has none when workers are forked.
        dataset.storage_client = google_client(request["endpoint"], max(10, request["threads"]))
    # The first batch shows that these are the objects; behind 30 ms a thread takes two seconds for
    # it.
    batches = iter(_loader(request, dataset))
    began_s = time.perf_counter()
    first = next(batches)
    count = len(first)
    check_all(names[:count], first, sums[:count])  # also of workers: theirs begin with these
    del first
    while time.perf_counter() - began_s < request["warm_up_s"]:
        next(batches)
    object_count = size_bytes = 0
    begin_cpu_s, begin_s = family_cpu_s(), time.perf_counter()
    for batch in batches:
        object_count += len(batch)
        size_bytes += sum(map(len, batch))
        del batch
        if time.perf_counter() - begin_s >= request["duration_s"]:
            break
    return {
        "objects": object_count,
        "bytes": size_bytes,
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": family_cpu_s() - begin_cpu_s,
    }


def epoch(request: Answer) -> Answer:
    """One epoch in a process that has listed and has not yet read anything."""
    dataset = _dataset(request)
    names, sums = objects_of(request)
    if request["threads"] > 1:
        dataset.storage_client = google_client(request["endpoint"], max(10, request["threads"]))
    import torch

    loader = torch.utils.data.DataLoader(dataset, batch_size=request["batch_size"], collate_fn=list)
    begin_cpu_s, begin_s = family_cpu_s(), time.perf_counter()
    contents = [content for batch in loader for content in batch]
    answer = {
        "objects": len(contents),
        "bytes": sum(map(len, contents)),
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": family_cpu_s() - begin_cpu_s,
    }
    check_all(names, contents, sums)
    return answer


def epochs(request: Answer) -> Answer:
    """Several epochs, one after the other, or as much of them as comes in `limit_s`.

    The clock runs from the first iterator to the last batch. Map-style datasets are shuffled.
    `asked` is how many objects all the epochs have.
    """
    dataset = _dataset(request)
    _, sums = objects_of(request)
    import torch

    is_map = request["kind"] == "map"
    torch.manual_seed(7)
    options = {"shuffle": True} if is_map else {}
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=request["batch_size"], collate_fn=list, **options
    )
    object_count = size_bytes = 0
    begin_cpu_s, begin_s = family_cpu_s(), time.perf_counter()
    first: list[Any] = []
    for batch in itertools.chain.from_iterable(itertools.repeat(loader, request["epochs"])):
        object_count += len(batch)
        size_bytes += sum(map(len, batch))
        first = first or batch
        del batch
        if time.perf_counter() - begin_s >= request["limit_s"]:
            break
    answer = {
        "objects": object_count,
        "bytes": size_bytes,
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": family_cpu_s() - begin_cpu_s,
        "asked": request["epochs"] * len(sums),
    }
    found = [google_crc32c.value(bytes(content)) for content in first]
    if set(found) - set(sums) or (not is_map and found != sums[: len(found)]):
        raise AssertionError("other bytes were read than were stored")
    return answer


# ---- the same by our import


def compat_read_batches(request: Answer) -> Answer:
    """headrace.compat: the same script."""
    _install()
    return read_batches(request)


def compat_epoch(request: Answer) -> Answer:
    """headrace.compat: the same script."""
    _install()
    return epoch(request)


def compat_epochs(request: Answer) -> Answer:
    """headrace.compat: the same script."""
    _install()
    return epochs(request)


def _install() -> None:
    import headrace.compat

    headrace.compat.install()
