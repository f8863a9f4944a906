"""Samples of tokens in a shuffled order: by headrace, by single requests in turn, from a disk."""

from __future__ import annotations

import http.client
import itertools
import random
import time
from typing import Any
from urllib.parse import urlsplit

from bench.clients.engine import store_of
from bench.clients.measure import Answer, measured
from bench.clients.s3_peers import use_keys

TOKEN_BYTES = 2


def _check(request: Answer, sample: Any, number: int) -> None:
    """Compare a sample with the file, which lies on this machine, too."""
    import numpy as np

    seq_len = request["seq_len"]
    tokens = np.memmap(request["file"], "uint16", "r")
    expected = tokens[number * seq_len : (number + 1) * seq_len + 1]
    assert (np.asarray(sample) == expected).all()


def loader(request: Answer) -> Answer:
    """Batches of a Loader, with a step of so many seconds after each."""
    from headrace.torch import Loader, TokenDataset

    store = store_of(request)
    dataset = TokenDataset(store, seq_len=request["seq_len"], names=["tokens.bin"], dtype="uint16")
    _check(request, dataset[1], 1)
    batches = Loader(dataset, batch_size=request["batch_size"], shuffle=True, seed=1)

    def read(_: float) -> tuple[int, int]:
        count = size_bytes = 0
        for batch in itertools.islice(batches, request["batches"]):
            count += len(batch)
            size_bytes += batch.numel() * TOKEN_BYTES
            time.sleep(request["step_s"])
        return count, size_bytes

    return measured(read, 0)


def in_turn(request: Answer) -> Answer:
    """One request after the other on one connection: what a program without a client would do."""
    seq_len, size_bytes = request["seq_len"], (request["seq_len"] + 1) * TOKEN_BYTES
    chosen = random.Random(1)
    connection = http.client.HTTPConnection(urlsplit(request["endpoint"]).netloc, timeout=30)
    path = f"/storage/v1/b/{request['bucket']}/o/tokens.bin?alt=media"

    def get(number: int) -> bytes:
        begin = number * seq_len * TOKEN_BYTES
        connection.request(
            "GET", path, headers={"Range": f"bytes={begin}-{begin + size_bytes - 1}"}
        )
        return connection.getresponse().read()

    import numpy as np

    _check(request, np.frombuffer(get(1), "uint16"), 1)

    def read(_: float) -> tuple[int, int]:
        for _ in range(request["samples"]):
            get(chosen.randrange(request["sample_count"]))
        return request["samples"], request["samples"] * size_bytes

    return measured(read, 0)


def memory_map(request: Answer) -> Answer:
    """The same batches from a local file that is in the page cache, as nanoGPT does it."""
    import numpy as np
    import torch

    seq_len, batch_size = request["seq_len"], request["batch_size"]
    order = list(range(request["sample_count"]))
    random.Random(1).shuffle(order)
    tokens = np.memmap(request["file"], "uint16", "r")
    int(tokens[::1024].sum())  # now it is

    def read(_: float) -> tuple[int, int]:
        for begin in range(0, len(order), batch_size):
            torch.stack(
                [
                    torch.from_numpy(tokens[i * seq_len : (i + 1) * seq_len + 1].astype(np.int64))
                    for i in order[begin : begin + batch_size]
                ]
            )
            time.sleep(request["step_s"])
        return len(order), len(order) * (seq_len + 1) * TOKEN_BYTES

    return measured(read, 0)


def megatron(request: Answer) -> Answer:
    """Megatron-Core's reader of S3, alone: what is around it in a dataset costs nothing here."""
    import numpy as np
    from megatron.core.datasets.indexed_dataset import _S3BinReader
    from megatron.core.datasets.object_storage_utils import ObjectStorageConfig

    use_keys(request)
    seq_len, chosen = request["seq_len"], random.Random(1)
    config = ObjectStorageConfig("/nonexistent", bin_chunk_nbytes=request["chunk_bytes"])
    reader = _S3BinReader(f"s3://{request['bucket']}/tokens.bin", config)

    def get(number: int) -> Any:
        return reader.read(np.uint16, seq_len + 1, number * seq_len * TOKEN_BYTES)

    _check(request, get(1), 1)

    def read(_: float) -> tuple[int, int]:
        size_bytes = 0
        for _ in range(request["samples"]):
            size_bytes += get(chosen.randrange(request["sample_count"])).nbytes
        return request["samples"], size_bytes

    return measured(read, 0)
