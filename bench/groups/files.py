"""Files in the page cache into tensors, beside what one writes without headrace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bench import objects
from bench.harness import BATCH_SIZE, Answer, Bench, Client, cpu_us, rate_ratios, ratios
from bench.objects import KIB, Bucket


def files(bench: Bench) -> None:
    """Small files and smaller ones."""
    _files(bench, objects.MIDDLE, cpu_at_most=0.7, rate_at_least=1.8)
    _files(bench, objects.SMALL, cpu_at_most=0.8)


def _files(
    bench: Bench, bucket: Bucket, *, cpu_at_most: float, rate_at_least: float | None = None
) -> None:
    objects.make(bench.root, (bucket,))
    objects.warm(bench.root, (bucket,))
    size_kib = bucket.sizes_bytes[0] // KIB
    group = f"files of {size_kib} KiB in the page cache"
    folder = str((bench.root / bucket.name).resolve())

    def client(name: str, **request: Any) -> Client:
        def run() -> Answer:
            with bench.objects_file(bucket) as file:
                return bench.client(
                    name,
                    folder=folder,
                    objects_file=file,
                    batch_size=BATCH_SIZE,
                    epochs=max(1, bench.effort.middle_objects // bucket.object_count),
                    **request,
                )

        return run

    def own(name: str, **request: Any) -> Client:
        run = client(name, **request)

        def beside() -> Answer:
            bench.only_beside_others()
            return run()

        return beside

    clients = {
        "MapDataset.__getitems__": client("files-map"),
        "MapDataset.__getitems__, 2 threads": client("files-map", engine={"file_threads": 2}),
        "Loader": client("files-loader"),
        "MapDataset, DataLoader of 2 workers": client("files-workers", num_workers=2),
        "open().read()": own("files-own", way="read"),
        "readinto()": own("files-own", way="readinto"),
        "open().read(), DataLoader of 2 workers": own("files-workers", way="read", num_workers=2),
    }
    answers = bench.alternate(group, clients, bench.effort.repetitions)
    for name, found in answers.items():
        bench.cpu(group, name, found)
        bench.rates(group, name, found)

    def beside(ours: str, theirs: str, *, cpu: float | None, more: float | None) -> None:
        mine, its = answers[ours], answers[theirs]
        bench.row(
            group,
            f"{ours}: CPU, over {theirs}",
            "x",
            ratios(cpu_us(mine), cpu_us(its)),
            at_most=cpu,
        )
        bench.row(
            group,
            f"{ours}: objects/s, over {theirs}",
            "x",
            rate_ratios(mine, its),
            at_least=more,
        )

    beside("MapDataset.__getitems__", "open().read()", cpu=cpu_at_most, more=None)
    beside("MapDataset.__getitems__, 2 threads", "open().read()", cpu=None, more=rate_at_least)
    beside("MapDataset.__getitems__", "readinto()", cpu=None, more=None)
    beside("Loader", "open().read()", cpu=None, more=None)
    beside(
        "MapDataset, DataLoader of 2 workers",
        "open().read(), DataLoader of 2 workers",
        cpu=None,
        more=None,
    )


GROUPS: dict[str, Callable[[Bench], None]] = {"files": files}
