"""One column of many of Parquet files, beside raw requests for the same bytes and pyarrow."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from bench.harness import LATENCY_S, Answer, Bench, Client, cpu_us, ratios
from bench.objects import MIB, Bucket

COLUMNS = 8
GROUPS_PER_FILE = 4
GROUP_ROWS = 1 << 18  # 2 MiB of a column
WANTED = "column 3"


@dataclass(frozen=True, kw_only=True)
class Tables(Bucket):
    """Parquet files of random numbers, which no encoding and no compression shortens."""

    columns: int = COLUMNS
    groups_per_file: int = GROUPS_PER_FILE
    group_rows: int = GROUP_ROWS
    dtype: str = "float64"

    def object_name(self, index: int) -> str:
        return f"part-{index:03d}.parquet"

    def pieces(self, index: int) -> Iterator[bytes]:
        """One row group after the other, and a footer."""
        import numpy
        import pyarrow
        from pyarrow import parquet

        random = numpy.random.Generator(numpy.random.PCG64(index))
        names = [f"column {i}" for i in range(self.columns)]
        kind = pyarrow.from_numpy_dtype(self.dtype)
        schema = pyarrow.schema([(name, kind) for name in names])
        out = io.BytesIO()
        with parquet.ParquetWriter(
            out, schema, compression="none", use_dictionary=False, write_statistics=False
        ) as writer:
            for _ in range(self.groups_per_file):
                columns = [random.random(self.group_rows, self.dtype) for _ in names]
                writer.write_table(pyarrow.table(columns, schema=schema), self.group_rows)
        yield out.getvalue()


TABLES = Tables(name="bench-parquet", object_count=8, sizes_bytes=())


def column_clients(bench: Bench, endpoint: str) -> Callable[..., Client]:
    """Return what makes clients that read one column of the tables."""

    def client(name: str, **request: Any) -> Client:
        return lambda: bench.many(
            name,
            endpoint,
            TABLES,
            columns=[WANTED],
            folder=str((bench.root / TABLES.name).resolve()),
            **request,
        )

    return client


def parquet(bench: Bench) -> None:
    """Reading one column where every answer takes its time, as in the cloud"""
    column_mib = TABLES.object_count * GROUPS_PER_FILE * GROUP_ROWS * 8 // MIB
    group = (
        f"parquet: 1 of {COLUMNS} columns, {column_mib} MiB, nginx, first byte after "
        f"{LATENCY_S * 1e3:.0f} ms"
    )
    with bench.nginx(TABLES, latency_s=LATENCY_S) as server:
        client = column_clients(bench, server.url)

        def raw() -> Answer:
            bench.only_beside_others()
            return client("parquet-raw")()

        def arrow() -> Answer:
            bench.only_beside_others()
            return client("parquet-pyarrow")()

        answers = bench.alternate(
            group,
            {
                "ParquetDataset": client("parquet-columns"),
                "raw": raw,
                "pyarrow": arrow,
            },
            bench.effort.repetitions,
        )
    ours, raws, arrows = answers["ParquetDataset"], answers["raw"], answers["pyarrow"]
    bench.row(group, "ParquetDataset: time", "s", _times(ours))
    bench.row(group, "raw GETs of the same bytes: time", "s", _times(raws))
    bench.row(
        group,
        "ParquetDataset: time, over raw GETs",
        "x",
        ratios(_times(ours), _times(raws)),
        at_most=1.2,
    )
    bench.row(
        group,
        "ParquetDataset: bytes read, over those of the column",
        "x",
        [answer["read_bytes"] / answer["column_bytes"] for answer in ours],
        at_most=1.05,
    )
    bench.row(group, "ParquetDataset: reading all footers", "s", [a["open_s"] for a in ours])
    bench.row(group, "pyarrow over fsspec: time", "s", _times(arrows))
    bench.row(
        group,
        "ParquetDataset: rows per CPU-second, over pyarrow over fsspec",
        "x",
        ratios(cpu_us(arrows), cpu_us(ours)),
    )


def _times(answers: list[Answer]) -> list[float]:
    return [float(answer["wall_s"]) for answer in answers]


GROUPS: dict[str, Callable[[Bench], None]] = {"parquet": parquet}
