"""headrace.torch beside what else feeds a trainer from the same servers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import objects
from bench.harness import (
    BATCH_SIZE,
    LATENCY_S,
    Bench,
    Client,
    Connections,
    cpu_us,
    rate,
    rate_ratios,
)
from bench.objects import KIB, Bucket
from testing.servers import FakeGcsServer

# Each peer at the best setting that was found for it here, without latency and with it.
OBSTORE_CONCURRENCY = {0.0: 64, LATENCY_S: 512}
GOOGLE_THREADS = 64
GCSFS_CONCURRENCY = {0.0: 64, LATENCY_S: 512}
DATAFLUX_THREADS = {0.0: 16, LATENCY_S: 32}


def _ours(bench: Bench, endpoint: str, bucket: Bucket, epoch_objects: int) -> dict[str, Client]:
    """The ways of headrace.torch."""

    def client(name: str) -> Client:
        return lambda: bench.many(
            name,
            endpoint,
            bucket,
            epoch_objects=epoch_objects,
            # Whole batches, and long enough for all connections to be open.
            warm_up_objects=epoch_objects // 4,
        )

    return {
        "MapDataset.__getitems__": client("map"),
        "MapDataset in DataLoader": client("map-dataloader"),
        "Loader": client("loader"),
    }


def _peers(
    bench: Bench,
    endpoint: str,
    bucket: Bucket,
    *,
    latency_s: float = 0.0,
    compose: bool = False,
    object_count: int | None = None,
) -> dict[str, Client]:
    """The other clients; dataflux by one thread a process, as it comes, and by its best number."""

    def client(name: str, **request: Any) -> Client:
        return lambda: bench.many(
            name, endpoint, bucket, object_count=object_count or bucket.object_count, **request
        )

    def dataflux(threads: int, num_workers: int, with_compose: bool) -> Client:
        return client(
            "dataflux",
            threads=threads,
            num_workers=num_workers,
            compose=with_compose,
            # One thread reads 27 objects a second behind 30 ms; a batch of 64 takes its time.
            warm_up_s=max(bench.effort.warm_up_s, 0.5),
        )

    clients: dict[str, Client] = {}
    for num_workers in (0, 2):
        for threads in (1, DATAFLUX_THREADS[latency_s]):
            for with_compose in (False, True) if compose else (False,):
                name = f"dataflux, {num_workers} workers, {threads} threads"
                if compose:
                    name += ", compose" if with_compose else ", no compose"
                clients[name] = dataflux(threads, num_workers, with_compose)
    clients["google-cloud-storage"] = client("google-cloud-storage", concurrency=GOOGLE_THREADS)
    clients["obstore"] = client("obstore", concurrency=OBSTORE_CONCURRENCY[latency_s])
    clients["gcsfs"] = client("gcsfs", concurrency=GCSFS_CONCURRENCY[latency_s])
    return clients


def _tensors(
    bench: Bench,
    group: str,
    endpoint: str,
    bucket: Bucket,
    *,
    epoch_objects: int,
    map_us: float | None = None,
    more_us: float | None = None,
    loader_us: float | None = None,
    object_count: int | None = None,
    generation: str | None = objects.GENERATION,
    compose: bool = False,
    repetitions: int,
) -> None:
    """Our ways and wrk in turn, then the peers in turn."""
    ours = _ours(bench, endpoint, bucket, epoch_objects)
    connections = Connections()
    ours["Loader"] = connections.of(ours["Loader"])
    ours["wrk"] = lambda: bench.wrk(
        endpoint,
        bucket,
        connection_count=connections.count,
        generation=generation,
        object_count=object_count,
    )
    answers = bench.alternate(group, ours, repetitions)
    direct, by_dataloader = (
        answers[name] for name in ("MapDataset.__getitems__", "MapDataset in DataLoader")
    )
    bench.cpu(group, "MapDataset.__getitems__", direct, at_most=map_us)
    bench.row(
        group,
        "DataLoader(num_workers=0, collate_fn=list), above that",
        "us",
        [a - b for a, b in zip(cpu_us(by_dataloader), cpu_us(direct), strict=False)],
        at_most=more_us,
    )
    bench.cpu(group, "Loader, one tensor a batch", answers["Loader"], at_most=loader_us)
    bench.cpu(group, "wrk", answers["wrk"])
    for name, found in answers.items():
        bench.rates(group, name, found)
    peers = _peers(bench, endpoint, bucket, compose=compose, object_count=object_count)
    for name, found in bench.alternate(group, peers, bench.effort.peer_repetitions).items():
        bench.cpu(group, name, found)
        bench.rates(group, name, found)


def tensors(bench: Bench) -> None:
    """Into tensors, from a server that is no bottleneck."""
    with bench.nginx(objects.MIDDLE, objects.SMALL_FEW) as server:
        _tensors(
            bench,
            "100 KiB into tensors, nginx",
            server.url,
            objects.MIDDLE,
            epoch_objects=bench.effort.middle_objects,
            map_us=45,
            more_us=5,
            loader_us=55,
            repetitions=bench.effort.repetitions,
        )
        _tensors(
            bench,
            "1 KiB into tensors, nginx",
            server.url,
            objects.SMALL_FEW,
            epoch_objects=bench.effort.small_objects,
            map_us=14,
            more_us=5,
            repetitions=bench.effort.repetitions,
        )


def tensors_fake(bench: Bench) -> None:
    """The same from fake-gcs-server, which can compose, and is the bottleneck."""
    objects.make(bench.root, (objects.MIDDLE,))
    bucket, count = objects.MIDDLE, 500
    with FakeGcsServer() as server:
        server.make_bucket(bucket.name)
        for index in range(count):
            name = bucket.object_name(index)
            server.put(bucket.name, name, (bench.root / bucket.name / name).read_bytes())
        _tensors(
            bench,
            f"{bucket.sizes_bytes[0] // KIB} KiB into tensors, fake-gcs-server",
            server.url,
            bucket,
            epoch_objects=bench.effort.middle_objects // 4,
            object_count=count,
            generation=None,  # the server gives each object its own
            compose=True,
            repetitions=bench.effort.peer_repetitions,
        )


def tensors_latency(bench: Bench) -> None:
    """Loader at its defaults where every answer takes its time, as in the cloud."""
    group = f"100 KiB into tensors, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
    epoch_objects = bench.effort.middle_objects
    with bench.nginx(objects.MIDDLE, latency_s=LATENCY_S) as server:
        ours: dict[str, Client] = {
            "Loader": lambda: bench.many(
                "loader",
                server.url,
                objects.MIDDLE,
                epoch_objects=epoch_objects,
                warm_up_objects=epoch_objects,
            ),
            "wrk": lambda: bench.wrk(server.url, objects.MIDDLE, connection_count=512),
        }
        answers = bench.alternate(group, ours, bench.effort.repetitions)
        peers = _peers(bench, server.url, objects.MIDDLE, latency_s=LATENCY_S)
        beside = bench.alternate(group, peers, bench.effort.peer_repetitions)
    bench.rates(group, "Loader", answers["Loader"], at_least=8_000)
    bench.cpu(group, "Loader", answers["Loader"])
    bench.row(group, "Loader: connections", "", [a["connections"] for a in answers["Loader"]])
    bench.rates(group, "wrk, 512 at once", answers["wrk"])
    for name, found in beside.items():
        bench.rates(group, name, found)
        bench.cpu(group, name, found)


def jpeg(bench: Bench) -> None:
    """Decoding as the bytes come, beside decoding what is in memory."""
    group = "JPEG decode (torchvision, 500 x 375), two threads on two cores, nginx"
    epoch_objects = 2 * bench.effort.middle_objects // 10
    with bench.nginx(objects.PHOTOS) as server:

        def client(name: str) -> Client:
            return lambda: bench.many(
                name,
                server.url,
                objects.PHOTOS,
                epoch_objects=epoch_objects,
                warm_up_objects=4 * BATCH_SIZE,
                distinct_objects=objects.PHOTOS.object_count,
            )

        clients = {"Loader": client("jpeg-loader"), "from memory": client("jpeg-memory")}
        answers = bench.alternate(group, clients, bench.effort.repetitions)
    loader, memory = answers["Loader"], answers["from memory"]
    shares = rate_ratios(loader, memory)
    bench.row(
        group, "Loader: images/s, share of the decode's from memory", "", shares, at_least=0.9
    )
    for name, found in answers.items():
        bench.row(group, f"{name}: images/s", "", [rate(a) for a in found])
        bench.cpu(group, name, found)


def overhead(bench: Bench) -> None:
    """What Loader does itself, beside what it lets the engine do."""
    group = "Loader's own work, files of 1 KiB in memory"
    answers = bench.alternate(
        group,
        {"Loader": lambda: bench.client("overhead", epochs=bench.effort.overhead_epochs)},
        bench.effort.repetitions,
    )["Loader"]

    for kind, text in (("collated", "one tensor a batch"), ("transformed", "a transform")):
        for way, what in (("ready", "time, all is read"), ("cpu", "CPU, above the engine's")):
            fits = [answer[f"{kind}_{way}_us"] for answer in answers]
            name = f"{text}: {what}"
            bench.row(group, f"{name}: per sample", "us", [fit[0] for fit in fits], at_most=3)
            bench.row(group, f"{name}: per batch", "us", [fit[1] for fit in fits], at_most=30)
        for size in (16, 64, 256):
            found = [answer[f"{kind}_ready_batch_of_{size}_us"] for answer in answers]
            bench.row(group, f"{text}: time, all is read: a batch of {size}", "us", found)
        fits = [answer[f"{kind}_engine_us"] for answer in answers]
        name = f"{text}: CPU of the engine alone"
        bench.row(group, f"{name}: per sample", "us", [fit[0] for fit in fits])
        bench.row(group, f"{name}: per batch", "us", [fit[1] for fit in fits])


GROUPS: dict[str, Callable[[Bench], None]] = {
    "tensors": tensors,
    "tensors-latency": tensors_latency,
    "tensors-fake": tensors_fake,
    "jpeg": jpeg,
    "overhead": overhead,
}
