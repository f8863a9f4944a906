"""Ray Data from files in the page cache, beside Ray's own reader."""

from __future__ import annotations

from bench import objects
from bench.harness import Answer, Bench, Client, cpu_us, ratios
from bench.objects import KIB


def ray_data(bench: Bench) -> None:
    """Objects of 100 KiB; the CPU is that of all processes of the cluster."""
    bucket = objects.MIDDLE
    objects.make(bench.root, (bucket,))
    objects.warm(bench.root, (bucket,))
    group = f"Ray Data: files of {bucket.sizes_bytes[0] // KIB} KiB in the page cache"
    folder = str((bench.root / bucket.name).resolve())

    def client(way: str) -> Client:
        def run() -> Answer:
            with bench.objects_file(bucket) as file:
                return bench.client(
                    "ray-data", way=way, folder=folder, objects_file=file, times=8, timeout_s=300
                )

        return run

    clients = {
        "headrace.ray.read_objects": client("headrace"),
        "ray.data.read_binary_files": client("ray"),
    }
    answers = bench.alternate(group, clients, bench.effort.peer_repetitions)
    for name, found in answers.items():
        bench.cpu(group, name, found)
        bench.rates(group, name, found)
    ours, theirs = answers.values()
    bench.row(
        group,
        "objects per CPU-second, over read_binary_files",
        "x",
        ratios(cpu_us(theirs), cpu_us(ours)),
        at_least=3,
    )


GROUPS = {"ray-data": ray_data}
