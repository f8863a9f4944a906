"""ais:// and headrace.compat.aistore beside AIStore's own SDK, on one AIStore of one target."""

from __future__ import annotations

import contextlib
import io
import json
import math
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import google_crc32c

from bench.groups.listing import PAGE_DELAY_S, Server
from bench.harness import (
    BATCH_SIZE,
    LATENCY_S,
    Answer,
    Bench,
    Client,
    Connections,
    cpu_us,
    rate,
    rate_ratios,
    ratios,
    say,
)
from bench.objects import KIB, Bucket
from testing.faultserver.client import FaultServer
from testing.servers.aistore import AistoreCluster

UPLOADS = 8
NUM_WORKERS = (0, 2)
SHARDS, SHARD_SAMPLES = 20, 500
FIELD_BYTES = {"jpg": 1024, "cls": 1}
BLOG_NUM_WORKERS = range(5)
BLOG_BATCH_BYTES = 64_000
AIS_PAGE_OBJECTS = 10_000
SAMPLER_OBJECTS = 1_000_000
FAULT_BUCKET, FAULT_OBJECTS = "bucket", 2048
GET_BATCH_BYTES = 10 * KIB
# As many as a careful operator allows; without it, the engine hides the latency by itself.
GET_BATCH_IN_FLIGHT = 32


@dataclass(frozen=True)
class Stored:
    """A bucket of a cluster, and a file of names and CRC32Cs."""

    cluster: AistoreCluster
    bucket: Bucket
    objects_file: str

    def request(self, bench: Bench, **request: Any) -> dict[str, Any]:
        return {
            "endpoint": self.cluster.url,
            "target": self.cluster.node_url(1),  # which most connections lead to
            "bucket": self.bucket.name,
            "objects_file": self.objects_file,
            "batch_size": BATCH_SIZE,
            "duration_s": bench.effort.duel_s,
            "warm_up_s": bench.effort.warm_up_s,
            "timeout_s": 180,
            **request,
        }


def put_all(cluster: AistoreCluster, bucket: str, contents: Iterator[tuple[str, bytes]]) -> None:
    import headrace

    cluster.make_bucket(bucket)
    store = headrace.Store(f"ais://{bucket}", endpoint=cluster.url)
    with ThreadPoolExecutor(UPLOADS) as threads:
        for _ in threads.map(lambda each: store.write(*each), contents):
            pass
    headrace.shutdown()


@contextlib.contextmanager
def _file_of(names: list[str], sums: list[int]) -> Iterator[str]:
    """A file of names and CRC32Cs, for clients to which no listing tells one."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump((names, sums), file)
        file.flush()
        yield file.name


@contextlib.contextmanager
def stored_in(cluster: AistoreCluster, bucket: Bucket) -> Iterator[Stored]:
    say(f"{bucket.name}: storing {bucket.object_count} objects")
    names, sums = [], []

    def contents() -> Iterator[tuple[str, bytes]]:
        for i in range(bucket.object_count):
            content = b"".join(bucket.pieces(i))
            names.append(bucket.object_name(i))
            sums.append(int(google_crc32c.value(content)))
            yield names[-1], content

    put_all(cluster, bucket.name, contents())
    with _file_of(names, sums) as file:
        yield Stored(cluster, bucket, file)


def _times(
    bench: Bench,
    group: str,
    name: str,
    ours: list[Answer],
    theirs: list[Answer],
    *,
    at_least: float | None = None,
) -> None:
    """How many times as many objects/s, within a repetition."""
    times = rate_ratios(ours, theirs)
    bench.row(group, name, "x", times, at_least=at_least)


def _objects(bench: Bench, cluster: AistoreCluster, bucket: Bucket) -> None:
    kib = bucket.sizes_bytes[0] // KIB
    group = f"aistore: {bucket.object_count:,} objects of {kib} KiB, aisnode, batch {BATCH_SIZE}"
    with stored_in(cluster, bucket) as stored:
        connections = Connections()

        def plugin(package: str, kind: str, num_workers: int) -> Client:
            return lambda: bench.client(
                f"{package}-epoch", **stored.request(bench, kind=kind, num_workers=num_workers)
            )

        def ours(name: str) -> Client:
            epoch = max(bucket.object_count, 4 * BATCH_SIZE)
            return lambda: bench.client(
                name,
                **stored.request(
                    bench, scheme="ais", epoch_objects=epoch, warm_up_objects=epoch // 4
                ),
            )

        # Straight to the target: what the server can give.
        target = cluster.node_url(1)
        paths = [
            f"/v1/objects/{bucket.name}/{bucket.object_name(i)}?provider=ais"
            for i in range(bucket.object_count)
        ]
        clients: dict[str, Client] = {
            "headrace.torch.MapDataset": ours("map"),
            "headrace.torch.Loader": connections.of(ours("loader")),
            "wrk": lambda: bench.wrk(
                target, bucket, paths=paths, connection_count=connections.count
            ),
        }
        for kind in ("map", "iter"):
            for num_workers in NUM_WORKERS:
                settings = f"{kind}, {num_workers} workers"
                clients[f"headrace.compat, {settings}"] = plugin("compat-ais", kind, num_workers)
                clients[f"aistore, {settings}"] = plugin("aistore", kind, num_workers)
        clients["requests, one after the other"] = lambda: bench.client(
            "aistore-requests", **stored.request(bench)
        )
        answers = bench.alternate(group, clients, bench.effort.peer_repetitions)
    for kind in ("map", "iter"):
        for num_workers in NUM_WORKERS:
            settings = f"{kind}, {num_workers} workers"
            mine = answers[f"headrace.compat, {settings}"]
            _times(
                bench,
                group,
                f"{settings}: objects/s, over aistore's",
                mine,
                answers[f"aistore, {settings}"],
                at_least=10,
            )
            _times(
                bench,
                group,
                f"{settings}: objects/s, share of wrk's",
                mine,
                answers["wrk"],
                at_least=0.6 if num_workers == 0 else None,
            )
    for name in ("MapDataset", "Loader"):
        _times(
            bench,
            group,
            f"headrace.torch.{name}: objects/s, share of wrk's",
            answers[f"headrace.torch.{name}"],
            answers["wrk"],
            at_least=0.6,
        )
    for name, found in answers.items():
        bench.rates(group, name, found)
        bench.cpu(group, name, found)


def aistore(bench: Bench) -> None:
    """Small objects and middling ones, as (name, bytes) and as tensors."""
    effort = bench.effort
    with AistoreCluster() as cluster:
        for size_bytes, count in (
            (KIB, effort.aistore_small_objects),
            (100 * KIB, effort.aistore_middle_objects),
        ):
            name = f"bench-{size_bytes // KIB}k"
            _objects(
                bench, cluster, Bucket(name=name, object_count=count, sizes_bytes=(size_bytes,))
            )


def aistore_blog(bench: Bench) -> None:
    """What AIStore's blog of 2024-08-28 compares, with a tenth of its 10^6 objects of 1 kB."""
    count = bench.effort.aistore_blog_objects
    bucket = Bucket(name="blog", object_count=count, sizes_bytes=(1000,))
    group = f"aistore: {count:,} objects of 1 kB, as in the blog, aisnode"
    with AistoreCluster() as cluster, stored_in(cluster, bucket) as stored:
        put_all(cluster, "shards", ((f"shard-{i:03d}.tar", shard(i)) for i in range(SHARDS)))

        def client(name: str, num_workers: int = 0, **request: Any) -> Client:
            return lambda: bench.client(
                name, **stored.request(bench, num_workers=num_workers, **request)
            )

        clients: dict[str, Client] = {"requests, one after the other": client("aistore-requests")}
        for num_workers in BLOG_NUM_WORKERS:
            for package, prefix in (("headrace.compat", "compat-ais"), ("aistore", "aistore")):
                settings = f"{package}, {num_workers} workers"
                clients[f"AISIterDataset, {settings}"] = client(
                    f"{prefix}-epoch", num_workers, kind="iter"
                )
                clients[f"AISShardReader, {settings}"] = client(
                    f"{prefix}-shards", num_workers, bucket="shards", field_bytes=FIELD_BYTES
                )
                if num_workers == 0:
                    clients[f"AISMapDataset, DynamicBatchSampler, {settings}"] = client(
                        f"{prefix}-epoch", kind="map", max_batch_bytes=BLOG_BATCH_BYTES
                    )
        answers = bench.alternate(group, clients, 1)
    for name, found in answers.items():
        bench.rates(group, name, found)
        original = name.replace("headrace.compat", "aistore")
        if original != name:
            _times(bench, group, f"{name}: objects/s, over aistore's", found, answers[original])


def shard(number: int) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for i in range(SHARD_SAMPLES):
            for field, size_bytes in FIELD_BYTES.items():
                member = tarfile.TarInfo(f"{number:03d}{i:06d}.{field}")
                member.size = size_bytes
                tar.addfile(member, io.BytesIO(bytes([i % 256]) * size_bytes))
    return file.getvalue()


def aistore_shards(bench: Bench) -> None:
    """Tar shards of small samples."""
    group = f"aistore: {SHARDS} shards of {SHARD_SAMPLES} samples (1 KiB jpg + cls), aisnode"
    with AistoreCluster() as cluster:
        contents = ((f"shard-{i:03d}.tar", shard(i)) for i in range(SHARDS))
        put_all(cluster, "shards", contents)

        def client(package: str, num_workers: int) -> Client:
            return lambda: bench.client(
                f"{package}-shards",
                endpoint=cluster.url,
                bucket="shards",
                batch_size=BATCH_SIZE,
                duration_s=60,
                num_workers=num_workers,
                field_bytes=FIELD_BYTES,
            )

        clients = {
            f"{package}, {num_workers} workers": client(prefix, num_workers)
            for num_workers in NUM_WORKERS
            for package, prefix in (("headrace.compat", "compat-ais"), ("aistore", "aistore"))
        }
        answers = bench.alternate(group, clients, bench.effort.repetitions)
    for num_workers in NUM_WORKERS:
        settings = f"{num_workers} workers"
        _times(
            bench,
            group,
            f"{settings}: samples/s, over aistore's",
            answers[f"headrace.compat, {settings}"],
            answers[f"aistore, {settings}"],
            at_least=10,
        )
    for name, found in answers.items():
        bench.row(group, f"{name}: samples/s", "", [rate(a) for a in found])
        bench.row(
            group,
            f"{name}: client CPU per sample",
            "us",
            [a["cpu_s"] / a["objects"] * 1e6 for a in found],
        )


def aistore_sampler(bench: Bench) -> None:
    """DynamicBatchSampler over many samples: the same batches, sooner."""
    group = (
        f"aistore: DynamicBatchSampler, {SAMPLER_OBJECTS:,} samples of 1 to 101 kB, 4 MB a batch"
    )

    def client(package: str, shuffle: bool) -> Client:
        return lambda: bench.client(
            f"{package}-sampler", object_count=SAMPLER_OBJECTS, shuffle=shuffle
        )

    for shuffle in (False, True):
        order = "shuffled" if shuffle else "in order"
        clients = {
            f"{package}, {order}": client(prefix, shuffle)
            for package, prefix in (("headrace.compat", "compat-ais"), ("aistore", "aistore"))
        }
        answers = bench.alternate(group, clients, bench.effort.peer_repetitions)
        digests = {a["digest"] for found in answers.values() for a in found}
        if len(digests) > 1:
            raise AssertionError(f"the batches {order} are not the same")
        for name, found in answers.items():
            bench.row(
                group,
                f"{name}: construction and one pass",
                "s",
                [a["wall_s"] for a in found],
                at_most=0.5 if name.startswith("headrace") else None,
            )
            bench.row(group, f"{name}: CPU", "s", [a["cpu_s"] for a in found])


def aistore_listing(bench: Bench) -> None:
    """The names of a bucket."""
    count = bench.effort.aistore_small_objects
    group = f"aistore: listing {count:,} names, aisnode"
    bucket = Bucket(name="names", object_count=count, sizes_bytes=(1,))
    with AistoreCluster() as cluster, stored_in(cluster, bucket):

        def client(name: str, **request: Any) -> Client:
            return lambda: bench.client(
                name, endpoint=cluster.url, bucket=bucket.name, object_count=count, **request
            )

        clients = {
            "Store.index()": client("list-index", scheme="ais"),
            "aistore, list_all_objects_iter": client("aistore-listing"),
        }
        answers = bench.alternate(group, clients, bench.effort.repetitions)
    for name, found in answers.items():
        bench.row(group, name, "s", [a["wall_s"] for a in found])
        bench.row(
            group, f"{name}: client CPU per name", "us", [a["cpu_s"] / count * 1e6 for a in found]
        )
    _times(
        bench,
        group,
        "Store.index(): names/s, over aistore's",
        answers["Store.index()"],
        answers["aistore, list_all_objects_iter"],
    )


@contextlib.contextmanager
def _fault_servers(dialects: tuple[str, ...], size_bytes: int) -> Iterator[list[FaultServer]]:
    """Servers of the same objects."""
    with contextlib.ExitStack() as stack:
        servers = []
        for dialect in dialects:
            server = FaultServer(dialect=dialect, threads=2, log_capacity=1, md5=False)
            servers.append(stack.enter_context(server))
            for i in range(FAULT_OBJECTS):
                server.put(FAULT_BUCKET, _fault_name(i), _fault_content(i, size_bytes))
        yield servers


def _fault_name(index: int) -> str:
    return f"object-{index:06d}"


def _fault_content(index: int, size_bytes: int) -> bytes:
    return index.to_bytes(4, "big") * (size_bytes // 4)


def _sums(size_bytes: int) -> list[int]:
    return [int(google_crc32c.value(_fault_content(i, size_bytes))) for i in range(FAULT_OBJECTS)]


def _reads(bench: Bench, server: FaultServer, scheme: str, **request: Any) -> Client:
    return lambda: bench.client(
        "headrace",
        scheme=scheme,
        endpoint=server.url,
        bucket=FAULT_BUCKET,
        batch_size=BATCH_SIZE,
        # All connections are open, and the ways to read have been measured.
        warm_up_s=2 * bench.effort.duration_s,
        duration_s=bench.effort.duration_s,
        **request,
    )


def aistore_cpu(bench: Bench) -> None:
    """What a read of ais:// costs the client beside one of gs://, from servers that are alike."""
    for size_bytes in (KIB, 100 * KIB):
        group = f"aistore: {size_bytes // KIB} KiB, fault server, ais:// beside gs://"
        names = [_fault_name(i) for i in range(FAULT_OBJECTS)]
        with (
            _fault_servers(("ais", "gcs"), size_bytes) as (ais, gcs),
            _file_of(names, _sums(size_bytes)) as file,
        ):
            clients = {
                # A request for each object, as on gs://.
                "ais://": _reads(bench, ais, "ais", objects_file=file, get_batch="never"),
                "gs://": _reads(bench, gcs, "gs", objects_file=file),
            }
            answers = bench.alternate(group, clients, bench.effort.repetitions)
        times = ratios(cpu_us(answers["ais://"]), cpu_us(answers["gs://"]))
        bench.row(group, "client CPU per object, ais:// over gs://", "", times, at_most=1.2)
        for name, found in answers.items():
            bench.rates(group, name, found)
            bench.cpu(group, name, found)


def aistore_get_batch(bench: Bench) -> None:
    """One request for many objects beside one for each, behind latency and with few in flight."""
    group = (
        f"aistore: GetBatch, {GET_BATCH_BYTES // KIB} KiB, fault server, "
        f"{LATENCY_S * 1e3:.0f} ms, {GET_BATCH_IN_FLIGHT} in flight"
    )
    names = [_fault_name(i) for i in range(FAULT_OBJECTS)]
    with (
        _fault_servers(("ais",), GET_BATCH_BYTES) as (server,),
        _file_of(names, _sums(GET_BATCH_BYTES)) as file,
    ):

        def client(mode: str) -> Client:
            return _reads(
                bench,
                server,
                "ais",
                objects_file=file,
                get_batch=mode,
                parallel={
                    "max_in_flight": GET_BATCH_IN_FLIGHT,
                    "initial_in_flight": GET_BATCH_IN_FLIGHT,
                },
            )

        clients = {mode: client(mode) for mode in ("never", "auto", "always")}
        server.latency(LATENCY_S * 1e3)
        answers = bench.alternate(group, clients, bench.effort.repetitions)
        server.latency(0)
        near = bench.alternate(f"{group}, none", clients, bench.effort.peer_repetitions)
    for mode in ("auto", "always"):
        _times(
            bench,
            group,
            f'get_batch="{mode}": objects/s, over "never"',
            answers[mode],
            answers["never"],
            at_least=3,
        )
        times = ratios(cpu_us(answers[mode]), cpu_us(answers["never"]))
        bench.row(group, f'get_batch="{mode}": CPU per object, over "never"', "", times, at_most=1)
        _times(
            bench,
            group,
            f'without latency, get_batch="{mode}": objects/s, over "never"',
            near[mode],
            near["never"],
        )
    for mode, found in answers.items():
        bench.rates(group, f'get_batch="{mode}"', found)
        bench.cpu(group, f'get_batch="{mode}"', found)
        requests = [a["requests"] / a["objects"] for a in found]
        bench.row(group, f'get_batch="{mode}": requests per object', "", requests)


def aistore_index(bench: Bench) -> None:
    """A large listing, from a server that makes up names."""
    count = bench.effort.listed_objects
    group = f"aistore: listing {count:,} names, fault server, {PAGE_DELAY_S * 1e3:.0f} ms a page"
    with FaultServer(dialect="ais", threads=2) as fault_server:
        server = Server(bench, fault_server, scheme="ais")
        bucket = server.bucket("flat", count)
        clients = {"Store.index()": server.client("list-index", bucket, count)}
        found = bench.alternate(group, clients, bench.effort.repetitions)["Store.index()"]
    bench.row(group, "Store.index()", "s", [a["wall_s"] for a in found])
    bench.row(
        group, "Store.index(): client CPU per name", "us", [a["cpu_s"] / count * 1e6 for a in found]
    )
    pages = [a["pages"] for a in found]
    bench.row(
        group, "Store.index(): pages", "", pages, at_most=math.ceil(count / AIS_PAGE_OBJECTS) + 1
    )
    bench.row(
        group,
        "Store.index(): bytes a name",
        "B",
        [a["image_bytes"] / count for a in found],
        at_most=100,
    )


GROUPS: dict[str, Callable[[Bench], None]] = {
    "aistore": aistore,
    "aistore-blog": aistore_blog,
    "aistore-cpu": aistore_cpu,
    "aistore-get-batch": aistore_get_batch,
    "aistore-shards": aistore_shards,
    "aistore-sampler": aistore_sampler,
    "aistore-listing": aistore_listing,
    "aistore-index": aistore_index,
}
