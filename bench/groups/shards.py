"""Samples of tar shards: in random order beside plain objects, and streamed beside webdataset."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import objects
from bench.harness import LATENCY_S, Answer, Bench, Client, Connections, rate_ratios, ratios
from bench.objects import GENERATION, KIB, Bucket


@dataclass(frozen=True, kw_only=True)
class Shards(Bucket):
    """Tars of samples that have one field each, the objects of another bucket."""

    of: Bucket
    shard_samples: int

    def object_name(self, index: int) -> str:
        return f"shard-{index:03d}.tar"

    def pieces(self, index: int) -> Iterator[bytes]:
        """A header and a field, again and again."""
        for i in range(index * self.shard_samples, (index + 1) * self.shard_samples):
            member = tarfile.TarInfo(f"{i:06d}.jpg")
            member.size = self.of.size_bytes(i)
            file = io.BytesIO()
            with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
                archive.addfile(member, io.BytesIO(b"".join(self.of.pieces(i))))
            # Without the blocks of zeros at the end of an archive.
            yield file.getvalue()[: 512 + (member.size + 511) // 512 * 512]
        yield bytes(1024)


def _shards(name: str, of: Bucket, shard_samples: int) -> Shards:
    return Shards(
        name=name,
        object_count=of.object_count // shard_samples,
        sizes_bytes=(),
        of=of,
        shard_samples=shard_samples,
    )


SHARDS = _shards("bench-shards", objects.MIDDLE, 250)
SMALL_SHARDS = _shards("bench-shards-1k", objects.SMALL, 4_000)


def shards(bench: Bench) -> None:
    """Random members where every answer takes its time, as in the cloud; and what an index costs"""
    kib = objects.MIDDLE.sizes_bytes[0] // KIB
    group = f"shards: samples of {kib} KiB, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
    epoch_objects = bench.effort.middle_objects
    with bench.nginx(objects.MIDDLE, SHARDS, latency_s=LATENCY_S) as server:

        def client(name: str, bucket: Bucket, **request: str) -> Client:
            return lambda: bench.many(
                name,
                server.url,
                bucket,
                epoch_objects=epoch_objects,
                warm_up_objects=epoch_objects,
                **request,
            )

        answers = bench.alternate(
            group,
            {
                "plain objects": client("loader", objects.MIDDLE),
                "shards": client(
                    "shards-loader", SHARDS, folder=str((bench.root / SHARDS.name).resolve())
                ),
            },
            bench.effort.repetitions,
        )
    plain, packed = answers["plain objects"], answers["shards"]

    def share(part: str, whole: str) -> list[float]:
        return [answer[part] / answer[whole] for answer in packed]

    bench.rates(group, "ShardDataset, shuffled", packed)
    bench.rates(group, "MapDataset of plain objects", plain)
    bench.row(
        group,
        "ShardDataset, over plain objects",
        "x",
        rate_ratios(packed, plain),
        at_least=0.8,
    )
    bench.cpu(group, "ShardDataset, shuffled", packed)
    bench.cpu(group, "MapDataset of plain objects", plain)
    bench.row(
        group,
        "index_members: bytes read, of those of the shards",
        "",
        share("index_bytes", "shard_bytes"),
        at_most=0.01,
    )
    bench.row(group, "index_members: requests a member", "", share("index_requests", "members"))
    bench.row(group, "index_members", "s", [_index_s(answer) for answer in packed])


def _index_s(answer: Answer) -> float:
    return float(answer["index_s"])


def streams(bench: Bench) -> None:
    """Shards from beginning to end where every answer takes its time, as in the cloud"""
    for bucket, epoch_samples in (
        (SHARDS, bench.effort.middle_objects),
        (SMALL_SHARDS, bench.effort.small_objects),
    ):
        _streams(bench, bucket, epoch_samples)


def _streams(bench: Bench, bucket: Shards, epoch_samples: int) -> None:
    kib = bucket.of.sizes_bytes[0] // KIB
    latency_ms = LATENCY_S * 1e3
    group = f"streams: samples of {kib} KiB, nginx, first byte after {latency_ms:.0f} ms"
    counter = Connections()
    with bench.nginx(bucket, latency_s=LATENCY_S) as server:

        def client(name: str, **request: object) -> Client:
            return lambda: bench.many(
                name,
                server.url,
                bucket,
                epoch_objects=epoch_samples,
                warm_up_objects=epoch_samples // 4,
                folder=str((bench.root / bucket.name).resolve()),
                **request,
            )

        def webdataset() -> Answer:
            bench.only_beside_others()
            return client(
                "shards-webdataset",
                paths=bucket.media_paths(GENERATION),
                round_samples=bucket.of.object_count,
            )()

        answers = bench.alternate(
            group,
            {
                # webdataset seeds no generators either.
                "headrace": counter.of(client("shards-stream", seed_generators=False)),
                "headrace, seeded": client("shards-stream", seed_generators=True),
                "wrk": lambda: bench.wrk(server.url, bucket, connection_count=counter.count),
                "webdataset": webdataset,
            },
            bench.effort.repetitions,
        )
    ours, raw, theirs = answers["headrace"], answers["wrk"], answers["webdataset"]
    bench.rates(group, "ShardStream, one process", ours)
    bench.rates(group, "webdataset, one process", theirs)
    bench.row(
        group,
        "ShardStream over webdataset: samples per CPU-second",
        "x",
        ratios(list(map(_cpu_of_sample, theirs)), list(map(_cpu_of_sample, ours))),
        at_least=2,
    )
    bench.row(
        group,
        "ShardStream: bytes/s of samples, of wrk's with as many connections",
        "",
        ratios(list(map(_bytes_per_s, ours)), list(map(_bytes_per_s, raw))),
        # Of small samples, a third of each shard is headers.
        at_least=0.8 if bucket is SHARDS else None,
    )
    bench.cpu(group, "ShardStream", ours)
    bench.cpu(group, "ShardStream, which seeds the generators", answers["headrace, seeded"])
    bench.cpu(group, "webdataset", theirs)


def _cpu_of_sample(answer: Answer) -> float:
    return float(answer["cpu_s"] / answer["objects"])


def _bytes_per_s(answer: Answer) -> float:
    return float(answer["bytes"] / answer["wall_s"])


GROUPS: dict[str, Callable[[Bench], None]] = {"shards": shards, "streams": streams}
