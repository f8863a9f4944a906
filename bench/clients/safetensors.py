"""Checkpoints in one file: loaded by us, and by a client that keeps what it reads and no more."""

from __future__ import annotations

import http.client
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

from bench.clients.checkpoints import _measured, _state
from bench.clients.engine import store_of
from bench.clients.measure import Answer
from bench.objects import MIB

_PART_BYTES = 16 * MIB


def save(request: Answer) -> Answer:
    """One file, saved by headrace."""
    import headrace.checkpoint

    state = _state(request["size_bytes"])
    tensor_bytes = sum(tensor.nbytes for tensor in state.values())
    store = store_of(request)
    return _measured(
        lambda: headrace.checkpoint.save(state, request["file"], store=store),
        tensor_bytes,
        held_before=True,
    )


def load(request: Answer) -> Answer:
    """All tensors, with their sums compared."""
    import headrace.checkpoint

    shapes = {name: each.shape for name, each in _state(request["size_bytes"], "meta").items()}
    tensor_bytes = sum(each.nbytes for each in _state(request["size_bytes"], "meta").values())
    found: dict[str, Any] = {}
    store = store_of(request)
    answer = _measured(
        lambda: found.update(headrace.checkpoint.load(request["file"], store=store)),
        tensor_bytes,
        held_before=False,
    )
    if {name: tensor.shape for name, tensor in found.items()} != shapes:
        raise AssertionError("what was loaded is not what was saved")
    return answer


def keep(request: Answer) -> Answer:
    """The file by ranges of 16 MiB, on as many connections as are best, into fresh memory.

    Nothing is compared, and no tensor made.
    """
    import torch

    place = urlsplit(request["endpoint"])
    path = f"/download/storage/v1/b/{request['bucket']}/o/{request['file']}?alt=media"
    size_bytes = request["file_bytes"]
    kept: list[Any] = []

    def read(begins: list[int], memory: memoryview) -> None:
        connection = http.client.HTTPConnection(place.hostname or "", place.port)
        for begin in begins:
            end = min(begin + _PART_BYTES, size_bytes)
            connection.request("GET", path, headers={"Range": f"bytes={begin}-{end - 1}"})
            response = connection.getresponse()
            while begin < end:
                begin += response.readinto(memory[begin:end])
            response.read()
        connection.close()

    def run() -> None:
        tensor = torch.empty(size_bytes, dtype=torch.uint8)
        kept.append(tensor)
        memory = memoryview(tensor.numpy())  # type: ignore[arg-type]
        begins = list(range(0, size_bytes, _PART_BYTES))
        threads = request["threads"]
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(lambda i: read(begins[i::threads], memory), range(threads)))

    return _measured(run, size_bytes, held_before=False)
