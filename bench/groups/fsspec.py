"""File systems of fsspec: `headrace.fsspec` beside gcsfs and s3fs, and columns of Parquet files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import objects
from bench.groups.parquet import TABLES, column_clients
from bench.harness import LATENCY_S, S3, Answer, Bench, Client, ratios
from bench.objects import MIB

PEERS = {"gs://": ("fsspec-gcsfs", {}), "s3://": ("fsspec-s3fs", S3)}


def _bytes_per_cpu_s(answers: list[Answer]) -> list[float]:
    return [answer["bytes"] / answer["cpu_s"] for answer in answers]


def _times(answers: list[Answer]) -> list[float]:
    return [float(answer["wall_s"]) for answer in answers]


def beside_peers(bench: Bench) -> None:
    """A thousand ranges at a time, and one object after the other"""
    bucket = objects.LARGE
    with bench.nginx(bucket, s3=True) as server:
        for way, what in (
            ("ranges", "cat_ranges of 1,000 x 64 KiB"),
            ("sequential", "objects of 64 MiB, read(1 MiB)"),
        ):
            for scheme, (peer, options) in PEERS.items():
                group = f"fsspec, {scheme}, {what}, nginx"

                def client(name: str, way: str = way, options: dict[str, Any] = options) -> Client:
                    return lambda: bench.many(
                        name,
                        server.url,
                        bucket,
                        way=way,
                        size_bytes=bucket.sizes_bytes[0],
                        **options,
                    )

                answers = bench.alternate(
                    group,
                    {"headrace.fsspec": client("fsspec"), peer: client(peer)},
                    bench.effort.peer_repetitions,
                )
                ours, theirs = answers["headrace.fsspec"], answers[peer]
                bench.row(
                    group,
                    f"headrace.fsspec: bytes per CPU-second, over {peer.removeprefix('fsspec-')}",
                    "x",
                    ratios(_bytes_per_cpu_s(ours), _bytes_per_cpu_s(theirs)),
                    at_least=3,
                )
                for name, found in answers.items():
                    rates = [each["bytes"] / MIB / each["wall_s"] for each in found]
                    bench.row(group, f"{name.removeprefix('fsspec-')}: MiB/s", "", rates)


def random_access(bench: Bench) -> None:
    """200 reads of 4 KiB all over an object, where every answer takes its time"""
    bucket = objects.LARGE
    group = f"fsspec, 200 small reads, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
    with bench.nginx(bucket, latency_s=LATENCY_S) as server:

        def client(cache_type: str) -> Client:
            return lambda: bench.many(
                "fsspec",
                server.url,
                bucket,
                way="random",
                cache_type=cache_type,
                size_bytes=bucket.sizes_bytes[0],
                timeout_s=300,
            )

        caches = {"its own reader": "", **{f"fsspec's {c!r}": c for c in CACHES}}
        answers = bench.alternate(
            group,
            {name: client(cache) for name, cache in caches.items()},
            bench.effort.peer_repetitions,
        )
    for name, found in answers.items():
        bench.row(group, f"{name}: time", "s", _times(found))


CACHES = ("readahead", "bytes", "blockcache", "background")


def column(bench: Bench) -> None:
    """One column of Parquet files, where every answer takes its time"""
    group = f"fsspec: 1 column of Parquet, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
    with bench.nginx(TABLES, latency_s=LATENCY_S) as server:
        client = column_clients(bench, server.url)

        def raw() -> Answer:
            bench.only_beside_others()
            return client("parquet-raw")()

        answers = bench.alternate(
            group,
            {
                "cat_ranges": client("fsspec", way="column-chunks"),
                "raw": raw,
                "open_parquet_files": client("fsspec", way="column"),
                "pyarrow's dataset": client("fsspec", way="column-dataset"),
            },
            bench.effort.repetitions,
        )
    raws = _times(answers.pop("raw"))
    bench.row(group, "raw GETs of the same bytes: time", "s", raws)
    for name, found in answers.items():
        bench.row(group, f"{name}: time", "s", _times(found))
    for name, target in (("cat_ranges", 1.2), ("open_parquet_files", None)):
        bench.row(
            group,
            f"{name}: time, over raw GETs",
            "x",
            ratios(_times(answers[name]), raws),
            at_most=target,
        )


GROUPS: dict[str, Callable[[Bench], None]] = {
    "fsspec": beside_peers,
    "fsspec-random": random_access,
    "fsspec-parquet": column,
}
