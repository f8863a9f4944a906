"""Samples of tar shards in random order, beside plain objects of the same size."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench import objects
from bench.harness import LATENCY_S, Answer, Bench, Client, rate
from bench.objects import KIB, Bucket

SHARD_SAMPLES = 250


@dataclass(frozen=True, kw_only=True)
class Shards(Bucket):
    """Tars of samples that have one field each, the objects of another bucket."""

    of: Bucket

    def object_name(self, index: int) -> str:
        return f"shard-{index:03d}.tar"

    def pieces(self, index: int) -> Iterator[bytes]:
        """A header and a field, again and again."""
        for i in range(index * SHARD_SAMPLES, (index + 1) * SHARD_SAMPLES):
            member = tarfile.TarInfo(f"{i:06d}.jpg")
            member.size = self.of.size_bytes(i)
            file = io.BytesIO()
            with tarfile.open(fileobj=file, mode="w", format=tarfile.USTAR_FORMAT) as archive:
                archive.addfile(member, io.BytesIO(b"".join(self.of.pieces(i))))
            # Without the blocks of zeros at the end of an archive.
            yield file.getvalue()[: 512 + (member.size + 511) // 512 * 512]
        yield bytes(1024)


SHARDS = Shards(
    name="bench-shards",
    object_count=objects.MIDDLE.object_count // SHARD_SAMPLES,
    sizes_bytes=(),
    of=objects.MIDDLE,
)


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
        [rate(a) / rate(b) for a, b in zip(packed, plain, strict=False)],
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


GROUPS: dict[str, Callable[[Bench], None]] = {"shards": shards}
