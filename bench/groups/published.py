"""What others have published, measured again beside headrace: the rows, and what each is beside.

Each row has a baseline, the peer whose speed-up over it was published, and headrace, by the same
script in one run. README.md says how each is scaled to a small machine.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import google_crc32c

from bench.comparison import Comparison, Table
from bench.groups import aistore, checkpoints
from bench.harness import LATENCY_S, S3, Answer, Bench, Client, rate, say
from bench.objects import KIB, MIB, Bucket
from testing.faultserver.client import FaultServer
from testing.servers import DelayedServer, MinioServer, minio
from testing.servers.aistore import AistoreCluster

_TIMES_SMALL = 2.0  # of the published speed-up, where objects are small
_LARGE_OBJECT_BYTES = 1 * MIB
_LATENCY = f"{LATENCY_S * 1e3:.0f} ms"
_EPOCHS = 5
# Of a load that waits for each tensor.
_LIMIT_S = 6.0
_BY_TENSOR = ("gcsfs", "s3fs")


# ---- Google's tables of data


@dataclass(frozen=True, kw_only=True)
class _Data:
    """Objects of one size, and the seconds of five epochs that Google's README gives for them."""

    size: str
    size_bytes: int
    count: int
    published_count: str
    batch_size: int
    # Kind of the dataset -> direct calls of the API, Dataflux.
    published: dict[str, tuple[float, float]]


_DATA = [
    _Data(
        size="100 KiB",
        size_bytes=100 * KIB,
        count=500,
        published_count="500,000",
        batch_size=100,
        published={"map": (1299, 515), "iterable": (1145, 611)},
    ),
    _Data(
        size="500 KiB",
        size_bytes=500 * KIB,
        count=2200,
        published_count="2,200,000",
        batch_size=100,
        published={"map": (6499, 2058), "iterable": (5174, 2503)},
    ),
    _Data(
        size="3 MiB",
        size_bytes=3 * MIB,
        count=100,
        published_count="50,000",
        batch_size=20,
        published={"map": (399, 277), "iterable": (413, 384)},
    ),
    _Data(
        size="150 MiB",
        size_bytes=150 * MIB,
        count=10,
        published_count="5,000",
        batch_size=1,
        published={"map": (1396, 1173), "iterable": (1225, 1143)},
    ),
]

DATA = Table(
    title="Dataflux: five epochs of a dataset",
    baseline="the same dataset with one request after the other, as Google's script has it",
    peer="gcs-torch-dataflux, which composes",
    ours="headrace.compat, the same script",
    text=(
        "The README of gcs-torch-dataflux. 500,000 objects of 100 KiB, 2,200,000 of 500 KiB, "
        "50,000 of 3 MiB and 5,000 of 150 MiB are 500, 2,200, 100 and 10 here, on the fault "
        f"server, which waits {_LATENCY} before each answer; batches of 100, 100, 20 and 1, one "
        "process, no workers, and nothing computes. Map-style is shuffled. Who needs longer than "
        "5 s is stopped there, and its five epochs are reckoned from what it has read until then."
    ),
)


@contextlib.contextmanager
def _stored(bucket: Bucket) -> Iterator[tuple[str, str]]:
    """A fault server with a bucket, and latency: its URL, and a file of the objects."""
    import headrace

    say(f"{bucket.name}: storing {bucket.object_count} objects")
    # It sums up nothing of its own that Google would sum up by its own machines.
    with (
        FaultServer(threads=2, md5=False, log_capacity=1) as server,
        tempfile.NamedTemporaryFile("w", suffix=".json") as file,
    ):
        server.bucket(bucket.name)
        names = [bucket.object_name(i) for i in range(bucket.object_count)]
        sums = []
        store = headrace.Store(f"gs://{bucket.name}", endpoint=server.url)
        for i, name in enumerate(names):
            content = b"".join(bucket.pieces(i))
            sums.append(int(google_crc32c.value(content)))
            store.write(name, content)
        headrace.shutdown()
        json.dump((names, sums), file)
        file.flush()
        server.latency(LATENCY_S * 1e3)
        yield server.url, file.name


def _seconds_for_all(answers: Sequence[Answer]) -> list[float]:
    return [a["wall_s"] * a["asked"] / a["objects"] for a in answers]


def data(bench: Bench) -> None:
    """Eight rows: four sizes, map-style and iterable."""
    for each in _DATA[:: bench.effort.published_step]:
        count = max(2, each.count // bench.effort.published_divisor)
        bucket = Bucket(
            name=f"published-{each.size_bytes // KIB}k",
            object_count=count,
            sizes_bytes=(each.size_bytes,),
        )
        with _stored(bucket) as (url, objects_file):

            def client(
                name: str,
                kind: str,
                compose: bool,
                bucket: str = bucket.name,
                batch_size: int = each.batch_size,
                url: str = url,
                objects_file: str = objects_file,
            ) -> Client:
                return lambda: bench.client(
                    name,
                    kind=kind,
                    compose=compose,
                    endpoint=url,
                    bucket=bucket,
                    objects_file=objects_file,
                    batch_size=batch_size,
                    threads=1,
                    epochs=_EPOCHS,
                    limit_s=bench.effort.published_s,
                    timeout_s=300,
                )

            for kind, published in each.published.items():
                answers = bench.alternate(
                    f"published: dataflux, {count} objects of {each.size}, {kind}",
                    {
                        "baseline": client("dataflux-epochs", kind, False),
                        "peer": client("dataflux-epochs", kind, True),
                        "ours": client("compat-epochs", kind, False),
                    },
                    1,
                )
                _compare(
                    bench,
                    DATA,
                    f"{each.size}, {kind}",
                    "s",
                    {name: _seconds_for_all(found) for name, found in answers.items()},
                    published=published,
                    published_unit="s",
                    factor=_TIMES_SMALL if each.size_bytes < _LARGE_OBJECT_BYTES else 1.0,
                )


# ---- Google's tables of checkpoints


@dataclass(frozen=True, kw_only=True)
class _Checkpoint:
    """Lightning's demo with so many layers, and what Google's README gives for it."""

    size: str
    layers: int
    # Seconds without the connector, and with it.
    save: tuple[float, float]
    load: tuple[float, float]


_CHECKPOINTS = [
    _Checkpoint(size="75.6 MB", layers=10, save=(0.81, 0.56), load=(2.38, 0.51)),
    _Checkpoint(size="298 MB", layers=100, save=(2.87, 1.03), load=(1.69, 1.03)),
    _Checkpoint(size="2.5 GB", layers=1000, save=(25.61, 6.25), load=(186.57, 14.77)),
]
# A quarter of the layers.
_LARGEST = _Checkpoint(
    size="24.2 GB, 1:4", layers=2500, save=(757.10, 64.50), load=(2093.52, 113.14)
)

CHECKPOINTS = Table(
    title="Dataflux: checkpoints",
    baseline="torch.save and torch.load of a file of gcsfs",
    peer="gcs-torch-dataflux",
    ours="headrace.checkpoint",
    text=(
        "The README of gcs-torch-dataflux: Lightning's demo transformer, of 10, 100 and 1,000 "
        "layers (thirty small tensors each), in full. The fault server, which waits "
        f"{_LATENCY} before each answer. headrace compares every sum. A load by torch from gcsfs "
        "waits for each tensor; it is stopped after 6 s, and its time reckoned from the bytes "
        "that it has read until then."
    ),
)
LARGEST = Table(
    title="The largest of these at 1:4, in files and on s3://",
    baseline="torch.save and torch.load of a file; on s3://, of a file of s3fs",
    peer="in files, none; on s3://, s3torchconnector",
    ours="headrace.checkpoint",
    text=(
        "24.2 GB are 2,500 layers here instead of 10,000: 6.5 GB, 75,000 tensors. In files (fsync "
        "at the end, by both; loaded from the page cache), and on MinIO, whose files lie on the "
        f"same disk, with {_LATENCY} in front. Nothing was published of files; the published ratio "
        "is that of gs://, over gcsfs. "
        "A load by torch from s3fs is stopped as above."
    ),
)


def _saved_and_loaded(bench: Bench, by: str, place: dict[str, Any]) -> Client:
    """A save, then a load of what was saved, each in a process of its own."""

    def run() -> Answer:
        saved = checkpoints.client(bench, "save", by, place)()
        limited = {"limit_s": _LIMIT_S} if by in _BY_TENSOR else {}
        return {"save": saved, "load": checkpoints.client(bench, "load", by, place | limited)()}

    return run


def _seconds_for_whole(answers: Sequence[Answer], what: str) -> list[float]:
    each = [a[what] for a in answers]
    return [a["wall_s"] * a.get("tensor_bytes", a["bytes"]) / a["bytes"] for a in each]


def _checkpoint_rows(
    bench: Bench, table: Table, each: _Checkpoint | None, name: str, clients: dict[str, Client]
) -> None:
    answers = bench.alternate(f"published: a checkpoint of {name}", clients, 1)
    for what in ("save", "load"):
        _compare(
            bench,
            table,
            f"{name}, {what}",
            "s",
            {way: _seconds_for_whole(found, what) for way, found in answers.items()},
            published=getattr(each, what) if each else None,
            published_unit="s",
        )


def small_checkpoints(bench: Bench) -> None:
    """Up to 2.5 GB, on a server that has what all three need."""
    for each in _CHECKPOINTS[:: bench.effort.published_step]:
        with FaultServer(threads=2, md5=False, log_capacity=1) as server:
            server.bucket(checkpoints.BUCKET)
            server.latency(LATENCY_S * 1e3)
            layers = max(1, each.layers // bench.effort.published_divisor)
            place = {"bucket": checkpoints.BUCKET, "endpoint": server.url, "layers": layers}
            ways = {"baseline": "gcsfs", "peer": "dataflux", "ours": "headrace"}
            clients = {way: _saved_and_loaded(bench, by, place) for way, by in ways.items()}
            _checkpoint_rows(bench, CHECKPOINTS, each, each.size, clients)


def largest_checkpoint(bench: Bench) -> None:
    """24.2 GB at 1:4."""
    layers = max(1, _LARGEST.layers // bench.effort.published_divisor)
    with tempfile.TemporaryDirectory(prefix="published-", dir=bench.folder) as folder:
        clients = {
            way: _saved_and_loaded(bench, by, {"folder": folder, "layers": layers})
            for way, by in (("baseline", "torch"), ("ours", "headrace"))
        }
        _checkpoint_rows(bench, LARGEST, None, f"{_LARGEST.size}, files", clients)
    with (
        tempfile.TemporaryDirectory(prefix="published-", dir=bench.folder) as folder,
        MinioServer(buckets=(checkpoints.BUCKET,), parent=folder) as server,
        DelayedServer(server.url, latency_s=LATENCY_S, keeps_host=True) as delayed,
    ):
        place = {
            **S3,
            "bucket": checkpoints.BUCKET,
            "endpoint": delayed.url,
            "region": minio.REGION,
            "access_key": minio.ACCESS_KEY,
            "secret_key": minio.SECRET_KEY,
            "layers": layers,
            "part_bytes": 32 * MIB,
        }
        ways = {"baseline": "s3fs", "peer": "s3torchconnector", "ours": "headrace"}
        clients = {way: _saved_and_loaded(bench, by, place) for way, by in ways.items()}
        _checkpoint_rows(bench, LARGEST, _LARGEST, f"{_LARGEST.size}, s3://", clients)


# ---- AIStore's blog


_HTTP_MINUTES = 35.55
_BLOG_SHARDS_OF = 500  # samples
_SAMPLER_BATCH_BYTES = 50_000
_SAMPLER_LISTED = 100_000  # aistore takes minutes to list a million
# Objects, and the seconds that the blog gives.
_SAMPLER = {1_000: 0.0236, 10_000: 0.3045, 100_000: 3.0336, 1_000_000: 30.135}

MILLION = Table(
    title="AIStore: a million samples of 1 kB",
    baseline="a loop of GETs by requests",
    peer="aistore 2.0, in torch's DataLoader",
    ours="headrace.compat, the same script",
    text=(
        "AIStore's blog of 2024-08-28: minutes for 1,000,000 samples in batches of 1, on a machine "
        "of 16 cores. Here 100,000, in objects and in tars of 500, on one aisnode; five rounds in "
        "turn, each client for a second of its pass, reckoned for a million. 4 workers stand for "
        "16, as there are two cores; with one sample a batch, torch's pipe is most of their work. "
        "The group aistore-blog has 0 to 4 workers with batches of 64."
    ),
)
SAMPLER = Table(
    title="AIStore: DynamicBatchSampler",
    baseline="that of aistore 2.0",
    peer="none",
    ours="headrace.compat, the same script",
    text=(
        "The same blog: objects of 1 kB in batches of at most 50 kB, from the sampler's "
        "construction to its last batch; five times. Of AISMapDataset, which has listed up "
        "to 100,000, and of a dataset of one's own, which has objects with a size in a list."
    ),
)


def million(bench: Bench) -> None:
    """Samples of 1 kB, by the ways of the blog's picture."""
    count = bench.effort.aistore_blog_objects
    bucket = Bucket(name="blog", object_count=count, sizes_bytes=(1000,))
    shards = (aistore.shard(i) for i in range(max(8, count // _BLOG_SHARDS_OF)))
    with AistoreCluster() as cluster, aistore.stored_in(cluster, bucket) as stored:
        aistore.put_all(
            cluster, "shards", ((f"shard-{i:04d}.tar", each) for i, each in enumerate(shards))
        )

        def client(name: str, num_workers: int = 0, **request: Any) -> Client:
            limit_s = bench.effort.million_s
            request |= {"duration_s": limit_s, "batch_size": 1, "timeout_s": 180 + 5 * limit_s}
            return lambda: bench.client(
                name, **stored.request(bench, num_workers=num_workers, **request)
            )

        clients: dict[str, Client] = {"baseline": client("aistore-requests")}
        shards_request = {"bucket": "shards", "field_bytes": aistore.FIELD_BYTES}
        for package, prefix in (("peer", "aistore"), ("ours", "compat-ais")):
            for workers in (0, 4):
                clients[f"iter, {workers}, {package}"] = client(
                    f"{prefix}-epoch", workers, kind="iter"
                )
            clients[f"shards, 4, {package}"] = client(f"{prefix}-shards", 4, **shards_request)
        answers = bench.alternate(
            "published: a million samples of 1 kB", clients, bench.effort.repetitions
        )
    minutes = {name: [1e6 / rate(each) / 60 for each in found] for name, found in answers.items()}
    for row, key, published_minutes in (
        ("AISIterDataset, no workers", "iter, 0", 35.24),
        ("AISIterDataset, 4 workers (16)", "iter, 4", 4.33),
        ("AISShardReader, 4 workers (16)", "shards, 4", 4.13),
    ):
        values = {"baseline": minutes["baseline"]}
        values |= {package: minutes[f"{key}, {package}"] for package in ("peer", "ours")}
        _compare(
            bench,
            MILLION,
            row,
            "min",
            values,
            published=(_HTTP_MINUTES, published_minutes),
            published_unit="min",
            factor=_TIMES_SMALL,
        )


def sampler(bench: Bench) -> None:
    """Samplers over as many objects as in the blog's table."""
    counts = list(_SAMPLER)[:: bench.effort.published_step]
    counts = [count for count in counts if count <= bench.effort.listed_objects]
    with FaultServer(dialect="ais", threads=2, log_capacity=1) as server:
        for count in counts:
            server.synthetic(f"names-{count}", count, 1000)
            kinds = {"map": "AISMapDataset", "own": "a list"}
            if count > _SAMPLER_LISTED:
                del kinds["map"]
            for kind, what in kinds.items():

                def client(name: str, kind: str = kind, count: int = count) -> Client:
                    return lambda: bench.client(
                        name,
                        endpoint=server.url,
                        bucket=f"names-{count}",
                        object_count=count,
                        size_bytes=1000,
                        max_batch_bytes=_SAMPLER_BATCH_BYTES,
                        kind=kind,
                        repetitions=5,
                        timeout_s=300,
                    )

                clients = {
                    "baseline": client("aistore-sampler-again"),
                    "ours": client("compat-ais-sampler-again"),
                }
                answers = bench.alternate(f"published: sampler, {count:,}, {what}", clients, 1)
                found = [a for each in answers.values() for a in each]
                if len({a["digest"] for a in found}) > 1:
                    raise AssertionError(f"the batches of {count} samples are not the same")
                _compare(
                    bench,
                    SAMPLER,
                    f"{count:,}, {what} (published: {_SAMPLER[count]:.3g} s)",
                    "ms",
                    {
                        way: [s * 1e3 for a in each for s in a["each_s"]]
                        for way, each in answers.items()
                    },
                )


# ---- Orbax' benchmark of DCP

ORBAX = Table(
    title="Orbax' benchmark of torch.distributed.checkpoint",
    baseline="torch's FsspecWriter and FsspecReader with gcsfs",
    peer="gcs-torch-dataflux as Orbax patches it",
    ours="headrace.checkpoint.DistributedWriter and DistributedReader",
    text=(
        "Orbax publishes the program, and no figures. Llama 3.1's 8B with widths of a seventh (a "
        "fiftieth of the weights, 320 MB in bfloat16) as DTensors over four ranks of gloo, an "
        "asynchronous save with 16 threads a rank, then a load. dataflux does not run with this "
        "torch without the patch: torch closes the file before it is uploaded. The fault server, "
        f"which waits {_LATENCY} before each answer. The target is the peer's."
    ),
)


def orbax(bench: Bench) -> None:
    """Blocking time, save and load of four ranks."""
    with FaultServer(threads=2, md5=False, log_capacity=1) as server:
        server.bucket(checkpoints.BUCKET)
        server.latency(LATENCY_S * 1e3)

        def client(name: str, by: str) -> Client:
            place = {"bucket": checkpoints.BUCKET, "endpoint": server.url}
            return lambda: bench.client(name, by=by, timeout_s=300, **place)

        clients = {
            "baseline": client("orbax-gcsfs", "gcsfs"),
            "peer": client("orbax-dataflux", "dataflux"),
            "ours": client("orbax", "headrace"),
        }
        answers = bench.alternate("published: Orbax' benchmark", clients, 1)
    for what in ("blocking", "save", "load"):
        values = {way: [a[f"{what}_s"] for a in found] for way, found in answers.items()}
        _compare(bench, ORBAX, what, "s", values)


# ---- gcsfs' reads


@dataclass(frozen=True, kw_only=True)
class _Reads:
    """Reads of one size, and the MB/s that gcsfs' documentation gives by pattern: with its older
    cache, and with prefetching and four requests at a time, which is its default by now."""

    size: str
    io_bytes: int
    published: dict[str, tuple[float, float]]


_READS = [
    _Reads(
        size="64 KiB", io_bytes=64 * KIB, published={"seq": (78.16, 523.89), "rand": (0.91, 0.93)}
    ),
    _Reads(size="1 MiB", io_bytes=MIB, published={"seq": (100.23, 758.56), "rand": (13.76, 16.12)}),
    _Reads(
        size="16 MiB",
        io_bytes=16 * MIB,
        published={"seq": (139.03, 586.25), "rand": (115.72, 166.08)},
    ),
    _Reads(
        size="100 MB",
        io_bytes=100_000_000,
        published={"seq": (190.21, 177.71), "rand": (201.14, 344.58)},
    ),
]
_READ_OBJECT = Bucket(name="published-1g", object_count=1, sizes_bytes=(1 << 30,))

READS = Table(
    title="gcsfs: reads of one object",
    baseline='gcsfs with cache_type="readahead", one request at a time',
    peer="gcsfs by default: it prefetches, four requests at a time",
    ours="headrace.fsspec by default",
    text=(
        "The documentation of gcsfs (prefetcher.rst), one process. An object of 1 GiB on nginx, "
        f"which waits {_LATENCY} before each answer; reads one after the other, and anywhere. "
        "headrace compares what it reads to the end with the object's checksum."
    ),
)


def reads(bench: Bench) -> None:
    """Sequential and random reads of four sizes."""
    bucket = _READ_OBJECT
    older = {"open": {"cache_type": "readahead", "concurrency": 1}}
    with bench.nginx(bucket, latency_s=LATENCY_S) as server:
        for each in _READS[:: bench.effort.published_step]:
            for pattern, published in each.published.items():

                def client(
                    name: str, is_random: bool = pattern == "rand", each: _Reads = each, **more: Any
                ) -> Client:
                    return lambda: bench.many(
                        name,
                        server.url,
                        bucket,
                        way="stream",
                        random=is_random,
                        io_bytes=each.io_bytes,
                        size_bytes=bucket.sizes_bytes[0],
                        file=str(bench.root / bucket.name / bucket.object_name(0)),
                        limit_s=bench.effort.published_s / 4,
                        **more,
                    )

                answers = bench.alternate(
                    f"published: gcsfs, {pattern}, {each.size}",
                    {
                        "baseline": client("fsspec-gcsfs", **older),
                        "peer": client("fsspec-gcsfs"),
                        "ours": client("fsspec"),
                    },
                    1,
                )
                _compare(
                    bench,
                    READS,
                    f"{pattern}, {each.size}",
                    "MB/s",
                    {
                        way: [a["bytes"] / a["wall_s"] / 1e6 for a in found]
                        for way, found in answers.items()
                    },
                    published=published,
                    published_unit="MB/s",
                )


# ---- loading beside computing

OVERLAP = Table(
    title="Loading beside computing",
    baseline="torch's DataLoader without workers",
    peer="DataLoader(num_workers=2)",
    ours="headrace.torch.Loader with two transform threads",
    text=(
        "The advice of every guide: give the DataLoader workers. Loading a batch sleeps for 8 ms, "
        "computing for 16 ms, so that 24 ms are 16 ms at best; without computing, two that load "
        "are 8 ms at best 4 ms. Nothing was published; the target is 0.95 of what workers bring."
    ),
)


def beside_computing(bench: Bench) -> None:
    """A step with both, and loading alone."""
    steps = max(50, bench.effort.middle_objects // 330)
    with tempfile.TemporaryDirectory(prefix="headrace-overlap-") as folder:

        def client(way: str) -> Client:
            return lambda: bench.client("overlap", way=way, threads=2, steps=steps, folder=folder)

        clients = {"baseline": "in turn", "peer": "workers", "ours": "loader"}
        answers = bench.alternate(
            "published: loading beside computing",
            {name: client(way) for name, way in clients.items()},
            bench.effort.peer_repetitions,
        )
    for name, part in (
        ("a step that loads 8 ms and computes 16 ms", "step_s"),
        ("loading alone", "loading_s"),
    ):
        _compare(
            bench,
            OVERLAP,
            name,
            "ms",
            {way: [a[part] * 1e3 for a in found] for way, found in answers.items()},
            factor=0.95,
        )


# ---- rows


def _compare(
    bench: Bench,
    table: Table,
    name: str,
    unit: str,
    values: dict[str, list[float]],
    *,
    published: tuple[float, float] | None = None,
    published_unit: str = "",
    factor: float = 1.0,
) -> None:
    """One row of the page, and rows of what it is made of."""
    if not values["baseline"] or not values["ours"]:
        return  # who failed is a row already
    row = Comparison(
        table=table.title,
        name=name,
        unit=unit,
        less_is_better=unit in ("s", "ms", "min"),
        published=published,
        published_unit=published_unit,
        baseline=values["baseline"],
        peer=values.get("peer", []),
        ours=values["ours"],
        factor=factor,
    )
    bench.comparisons.append(row)
    group = f"published: {table.title}"
    if row.published_times is not None:
        bench.row(group, f"{name}: published", "x", [row.published_times])
    bench.row(group, f"{name}: the same here", "x", row.peer_times)
    bench.row(group, f"{name}: headrace", "x", row.our_times, at_least=row.target)


TABLES = [DATA, CHECKPOINTS, LARGEST, ORBAX, MILLION, SAMPLER, READS, OVERLAP]

GROUPS: dict[str, Callable[[Bench], None]] = {
    "published-data": data,
    "published-checkpoints": small_checkpoints,
    "published-largest": largest_checkpoint,
    "published-orbax": orbax,
    "published-million": million,
    "published-sampler": sampler,
    "published-reads": reads,
    "published-overlap": beside_computing,
}
