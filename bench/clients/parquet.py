"""Some columns of Parquet files: by headrace, by plain requests, and by pyarrow over fsspec."""

from __future__ import annotations

import http.client
import itertools
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import local
from typing import Any

from bench.clients.engine import store_of
from bench.clients.measure import Answer, measured, objects_of

BATCH_ROWS = 1 << 16
RAW_CONNECTIONS = 32


def chunks_of(request: Answer) -> list[tuple[str, int, int]]:
    """The ranges of the wanted columns: file, begin and end."""
    from pyarrow import parquet

    chunks = []
    for name in objects_of(request)[0]:
        metadata = parquet.read_metadata(Path(request["folder"], name))
        wanted = [metadata.schema.names.index(column) for column in request["columns"]]
        for group, column in itertools.product(range(metadata.num_row_groups), wanted):
            chunk = metadata.row_group(group).column(column)
            begin = chunk.data_page_offset
            chunks.append((name, begin, begin + chunk.total_compressed_size))
    return chunks


def check_sum(request: Answer, total: float) -> None:
    """Compare the sum of all values with that of pyarrow's own reading of the files."""
    from pyarrow import parquet

    wanted = sum(
        float(column.to_numpy().sum(dtype="float64"))
        for name in objects_of(request)[0]
        for column in parquet.read_table(
            Path(request["folder"], name), columns=request["columns"]
        ).columns
    )
    if abs(total - wanted) > 1e-6 * wanted:
        raise AssertionError(f"the sum is {total}, and should be {wanted}")


def columns(request: Answer) -> Answer:
    """A pass of a ParquetDataset, from `iter` on, in batches; reading the footers is told, too."""
    import headrace
    from headrace.torch import ParquetDataset

    store = store_of(request)
    begin_s = time.perf_counter()
    dataset = ParquetDataset(store, columns=request["columns"], batch_size=BATCH_ROWS)
    open_s = time.perf_counter() - begin_s
    check_sum(
        request,
        sum(float(column.double().sum()) for batch in dataset for column in batch.values()),
    )
    before = headrace.metrics()

    def read(_: float) -> tuple[int, int]:
        rows = size_bytes = 0
        for batch in dataset:
            rows += len(batch[request["columns"][0]])
            size_bytes += sum(column.nbytes for column in batch.values())
        return rows, size_bytes

    answer = measured(read, 0)
    after = headrace.metrics()
    return {
        **answer,
        "open_s": open_s,
        "requests": after.requests_total - before.requests_total,
        "read_bytes": after.bytes_read_total - before.bytes_read_total,
        "column_bytes": sum(end - begin for _, begin, end in chunks_of(request)),
    }


def raw(request: Answer) -> Answer:
    """The column's bytes alone by one request for each chunk, in threads; nothing is decoded."""
    chunks = chunks_of(request)
    mine = local()
    at = urllib.parse.urlsplit(request["endpoint"])

    def get(chunk: tuple[str, int, int]) -> int:
        name, begin, end = chunk
        if not hasattr(mine, "connection"):
            mine.connection = http.client.HTTPConnection(at.hostname or "", at.port)
        mine.connection.request(
            "GET",
            f"/download/storage/v1/b/{request['bucket']}/o/{name}?alt=media",
            headers={"Range": f"bytes={begin}-{end - 1}"},
        )
        body = memoryview(bytearray(end - begin))
        response = mine.connection.getresponse()
        got = 0
        while got < len(body) and (count := response.readinto(body[got:])):
            got += count
        response.read()
        if got != len(body):
            raise AssertionError(f"{name}: {got} of {len(body)} bytes")
        return got

    with ThreadPoolExecutor(RAW_CONNECTIONS) as threads:
        list(threads.map(get, chunks))  # opens the connections

        def read(_: float) -> tuple[int, int]:
            size_bytes = sum(threads.map(get, chunks))
            return size_bytes // 8, size_bytes

        return measured(read, 0)


def pyarrow_fsspec(request: Answer) -> Answer:
    """pyarrow's dataset over fsspec's HTTP, in batches of as many rows."""
    import fsspec
    from pyarrow import dataset as arrow
    from pyarrow import fs

    http_fs: Any = fsspec.filesystem("http")
    urls = [
        f"{request['endpoint']}/download/storage/v1/b/{request['bucket']}/o/{name}?alt=media"
        for name in objects_of(request)[0]
    ]
    opened = arrow.dataset(
        urls, format="parquet", filesystem=fs.PyFileSystem(fs.FSSpecHandler(http_fs))
    )

    def batches() -> Any:
        return opened.to_batches(columns=request["columns"], batch_size=BATCH_ROWS)

    check_sum(request, sum(batch[0].to_numpy().sum() for batch in batches()))

    def read(_: float) -> tuple[int, int]:
        rows = sum(len(batch) for batch in batches())
        return rows, rows * 8

    return measured(read, 0)
