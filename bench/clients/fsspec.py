"""File systems of fsspec: ours, gcsfs and s3fs, by the same calls."""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.clients.measure import Answer, check_all, connections, measured, objects_of

RANGE_BYTES = 64 << 10
PIECE_BYTES = 1 << 20
RANDOM_BYTES = 4 << 10


def _ours(request: Answer) -> Any:
    import headrace
    import headrace.fsspec

    if request.get("scheme") != "s3":
        return headrace.fsspec.GcsFileSystem(endpoint=request["endpoint"], credentials="anonymous")
    return headrace.fsspec.S3FileSystem(
        endpoint=request["endpoint"],
        credentials=headrace.AwsKeys(request["access_key"], request["secret_key"]),
        provider=headrace.S3Options(region=request["region"]),
    )


def _gcsfs(request: Answer) -> Any:
    # Else it asks Google by gRPC and TLS what kind of bucket this is, and gives up after a minute.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    import gcsfs

    return gcsfs.GCSFileSystem(project="bench", token="anon", endpoint_url=request["endpoint"])


def _s3fs(request: Answer) -> Any:
    from bench.clients.s3_peers import use_keys

    use_keys(request)
    import s3fs

    return s3fs.S3FileSystem(
        endpoint_url=request["endpoint"],
        client_kwargs={"region_name": request["region"]},
        config_kwargs={
            "max_pool_connections": 64,
            "response_checksum_validation": "when_required",
            "s3": {"addressing_style": "path"},
        },
    )


def _paths(request: Answer) -> tuple[list[str], list[int]]:
    names, sums = objects_of(request)
    return [f"{request['bucket']}/{name}" for name in names], sums


def _ranges(filesystem: Any, request: Answer) -> Answer:
    """`cat_ranges` of a thousand ranges of 64 KiB, again and again."""
    paths, sums = _paths(request)
    check_all(paths[:8], (filesystem.cat_file(path) for path in paths[:8]), sums[:8])
    size_bytes = request["size_bytes"]
    draw = random.Random(3)
    wanted = [
        (paths[i % len(paths)], draw.randrange(0, size_bytes - RANGE_BYTES)) for i in range(1000)
    ]
    names = [path for path, _ in wanted]
    starts = [start for _, start in wanted]
    ends = [start + RANGE_BYTES for start in starts]

    def read(duration_s: float) -> tuple[int, int]:
        until = time.perf_counter() + duration_s
        count = got = 0
        while not count or time.perf_counter() < until:
            found = filesystem.cat_ranges(names, starts, ends, on_error="raise")
            count += len(found)
            got += sum(map(len, found))
        if got != count * RANGE_BYTES:
            raise AssertionError(f"{got} bytes of {count} ranges")
        return count, got

    read(0)
    answer = measured(read, request["duration_s"])
    answer["connections"] = connections(request["endpoint"])
    return answer


def _sequential(filesystem: Any, request: Answer) -> Answer:
    """One object after the other, read by pieces of 1 MiB from its beginning to its end."""
    paths, sums = _paths(request)

    def whole(path: str) -> bytes:
        with filesystem.open(path, "rb") as file:
            return b"".join(iter(lambda: file.read(PIECE_BYTES), b""))

    check_all(paths[:1], [whole(paths[0])], sums[:1])

    def read(duration_s: float) -> tuple[int, int]:
        until = time.perf_counter() + duration_s
        got = 0
        for count, path in enumerate(itertools.cycle(paths), start=1):
            with filesystem.open(path, "rb") as file:
                while piece := file.read(PIECE_BYTES):
                    got += len(piece)
            if time.perf_counter() >= until:
                return count, got
        raise AssertionError

    return measured(read, request["duration_s"])


def _random(filesystem: Any, request: Answer) -> Answer:
    """Small reads all over one object, half of them near the one before, as HDF5 does."""
    paths, _ = _paths(request)
    size_bytes = request["size_bytes"]
    options = {"cache_type": request["cache_type"]} if request.get("cache_type") else {}

    def read(_: float) -> tuple[int, int]:
        draw, at, got = random.Random(3), 0, 0
        with filesystem.open(paths[0], "rb", **options) as file:
            for i in range(200):
                near = at + draw.randrange(64 << 10)
                at = near if i % 2 else draw.randrange(size_bytes)
                at = min(at, size_bytes - RANDOM_BYTES)
                file.seek(at)
                got += len(file.read(RANDOM_BYTES))
        return 200, got

    read(0)
    return measured(read, 0)


def _stream(filesystem: Any, request: Answer) -> Answer:
    """Reads of `io_bytes` of one large object, one after the other or anywhere, for `limit_s`."""
    paths, _ = _paths(request)
    size_bytes, io_bytes = request["size_bytes"], request["io_bytes"]
    options = request.get("open", {})
    draw = random.Random(3)
    with filesystem.open(paths[0], "rb", **options) as file:
        first = file.read(4096)  # a connection is open
    with Path(request["file"]).open("rb") as same:
        expected = same.read(4096)
    if first != expected:
        raise AssertionError(f"{paths[0]} was read with other bytes than it has")

    def read(limit_s: float) -> tuple[int, int]:
        until = time.perf_counter() + limit_s
        got = count = 0
        with filesystem.open(paths[0], "rb", **options) as file:
            while not count or time.perf_counter() < until:
                if request["random"]:
                    file.seek(draw.randrange(0, size_bytes - io_bytes))
                elif file.tell() >= size_bytes:
                    file.seek(0)
                got += len(file.read(io_bytes))
                count += 1
        return count, got

    return measured(read, request["limit_s"])


def _column(filesystem: Any, request: Answer) -> Answer:
    """One column of many files: footers apart, then the column chunks by one `cat_ranges`."""
    from fsspec.parquet import open_parquet_files
    from pyarrow import parquet

    from bench.clients.parquet import check_sum

    paths, _ = _paths(request)
    options = {"fs": filesystem, "columns": request["columns"], "engine": "pyarrow"}

    def tables() -> list[Any]:
        files = open_parquet_files(paths, footer_sample_size=64 << 10, **options)
        return [parquet.ParquetFile(file).read(request["columns"]) for file in files]

    check_sum(request, sum(float(table[0].to_numpy().sum()) for table in tables()))

    def read(_: float) -> tuple[int, int]:
        rows = sum(table.num_rows for table in tables())
        return rows, rows * 8

    return measured(read, 0)


def _column_chunks(filesystem: Any, request: Answer) -> Answer:
    """The bytes alone: one `cat_ranges` for the column chunks of all files."""
    from bench.clients.parquet import chunks_of

    chunks = chunks_of(request)
    names = [f"{request['bucket']}/{name}" for name, _, _ in chunks]
    starts, ends = [begin for _, begin, _ in chunks], [end for _, _, end in chunks]

    def read(_: float) -> tuple[int, int]:
        found = filesystem.cat_ranges(names, starts, ends, on_error="raise")
        size_bytes = sum(map(len, found))
        return size_bytes // 8, size_bytes

    read(0)
    return measured(read, 0)


def _column_dataset(filesystem: Any, request: Answer) -> Answer:
    """The same by pyarrow's own dataset, over the file system."""
    from pyarrow import dataset as arrow

    from bench.clients.parquet import BATCH_ROWS, check_sum

    paths, _ = _paths(request)
    opened = arrow.dataset(paths, format="parquet", filesystem=filesystem)

    def batches() -> Any:
        return opened.to_batches(columns=request["columns"], batch_size=BATCH_ROWS)

    check_sum(request, sum(batch[0].to_numpy().sum() for batch in batches()))

    def read(_: float) -> tuple[int, int]:
        rows = sum(len(batch) for batch in batches())
        return rows, rows * 8

    return measured(read, 0)


_WAYS: dict[str, Callable[[Any, Answer], Answer]] = {
    "ranges": _ranges,
    "sequential": _sequential,
    "random": _random,
    "stream": _stream,
    "column": _column,
    "column-chunks": _column_chunks,
    "column-dataset": _column_dataset,
}


def ours(request: Answer) -> Answer:
    """headrace.fsspec."""
    return _WAYS[request["way"]](_ours(request), request)


def gcsfs(request: Answer) -> Answer:
    """gcsfs."""
    return _WAYS[request["way"]](_gcsfs(request), request)


def s3fs(request: Answer) -> Answer:
    """s3fs."""
    return _WAYS[request["way"]](_s3fs(request), request)
