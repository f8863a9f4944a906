"""Files in the page cache, into tensors: headrace.torch, and what a Dataset of one's own does."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from bench.clients.measure import (
    CHECKED_OBJECTS,
    Answer,
    check_all,
    family_cpu_s,
    measured,
    objects_of,
)


class OwnDataset:
    """What one writes without headrace. Both ways give writable tensors."""

    def __init__(self, paths: list[str], way: str) -> None:
        self._paths = paths
        self._read = {"read": _read, "readinto": _readinto}[way]

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        return self._read(self._paths[index])


def _read(path: str) -> Any:
    import torch

    with open(path, "rb") as file:
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def _readinto(path: str) -> Any:
    """Without a copy, for those who know how."""
    import os

    import torch

    with open(path, "rb", buffering=0) as file:
        tensor = torch.empty(os.fstat(file.fileno()).st_size, dtype=torch.uint8)
        assert file.readinto(tensor.numpy()) == len(tensor)
        return tensor


def _folder_epochs(
    request: Answer, dataset: Any, batches_of: Callable[[Any], Iterable[Any]]
) -> Answer:
    """Check the first objects; an epoch to warm up; then some that are measured."""
    names, sums = objects_of(request)
    samples = itertools.islice(itertools.chain.from_iterable(batches_of(dataset)), CHECKED_OBJECTS)
    names = names[:CHECKED_OBJECTS]
    check_all(names, (sample.numpy().tobytes() for sample in samples), sums[:CHECKED_OBJECTS])

    def read(epochs: int) -> tuple[int, int]:
        object_count = size_bytes = 0
        for _ in range(epochs):
            for batch in batches_of(dataset):
                object_count += len(batch)
                size_bytes += len(batch) * batch[0].numel()
        return object_count, size_bytes

    read(1)
    answer = measured(lambda _: read(request["epochs"]), 0, cpu=family_cpu_s)
    assert answer["objects"] == request["epochs"] * len(dataset)
    return answer


def _own(request: Answer) -> OwnDataset:
    names, _ = objects_of(request)
    return OwnDataset([str(Path(request["folder"], name)) for name in names], request["way"])


def _ours(request: Answer) -> Any:
    import headrace
    from headrace.torch import MapDataset

    headrace.configure(**request.get("engine", {}))
    return MapDataset(request["folder"])


def _batches(dataset: Any, batch_size: int) -> Iterable[list[int]]:
    for begin in range(0, len(dataset), batch_size):
        yield list(range(begin, min(begin + batch_size, len(dataset))))


def own(request: Answer) -> Answer:
    """`open().read()`, one file after the other, a list of tensors a batch."""
    return _folder_epochs(
        request,
        _own(request),
        lambda dataset: (
            [dataset[i] for i in indices] for indices in _batches(dataset, request["batch_size"])
        ),
    )


def map_batches(request: Answer) -> Answer:
    """`MapDataset.__getitems__`, batch after batch."""
    return _folder_epochs(
        request,
        _ours(request),
        lambda dataset: (
            dataset.__getitems__(indices) for indices in _batches(dataset, request["batch_size"])
        ),
    )


def loader(request: Answer) -> Answer:
    """`Loader` at its defaults: each batch is one tensor."""
    from headrace.torch import Loader

    return _folder_epochs(
        request, _ours(request), lambda dataset: Loader(dataset, request["batch_size"])
    )


def workers(request: Answer) -> Answer:
    """torch's DataLoader with worker processes; each batch is one tensor."""
    import torch

    dataset = _own(request) if "way" in request else _ours(request)
    loader: Any = torch.utils.data.DataLoader(
        dataset,
        batch_size=request["batch_size"],
        num_workers=request["num_workers"],
        persistent_workers=True,
    )
    return _folder_epochs(request, dataset, lambda _: loader)
