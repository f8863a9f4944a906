"""What an index of many names costs beside reading them: no server takes part."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness import Answer, Bench, Client, cpu_us

OBJECT_COUNT = 1_000_000
SAMPLE_COUNT = 1_000_000_000


def index(bench: Bench) -> None:
    """Names to numbers, a table of URLs with labels to an index, sizes to batches."""
    group = f"an index of {OBJECT_COUNT:,} names"

    def client(name: str) -> Client:
        return lambda: bench.client(name, object_count=OBJECT_COUNT, sample_count=SAMPLE_COUNT)

    answers = bench.alternate(
        group,
        {
            "position": client("index-position"),
            "from_urls": client("index-from-urls"),
            "batches": client("batches-of-bytes"),
            "costs": client("batches-of-costs"),
            "weights": client("weighted-draws"),
            "orders": client("orders"),
            "resume": client("loader-resume"),
        },
        bench.effort.repetitions,
    )

    def each_us(found: list[Answer]) -> list[float]:
        return [answer["wall_s"] / answer["objects"] * 1e6 for answer in found]

    looked_up, made = answers["position"], answers["from_urls"]
    bench.row(group, "ObjectIndex.position()", "us", each_us(looked_up), at_most=1)
    # Wall time is the promise; CPU time is what is left of it on a busy machine.
    bench.row(group, "ObjectIndex.position(): CPU", "us", cpu_us(looked_up))
    bench.row(
        group,
        "ObjectIndex.position(): the first, which makes the table",
        "s",
        [answer["table_s"] for answer in looked_up],
    )
    bench.row(
        group,
        "ObjectIndex.from_urls() with a label each",
        "s",
        [answer["wall_s"] for answer in made],
        at_most=1,
    )
    bench.row(group, "the same: CPU", "s", [answer["cpu_s"] for answer in made])
    bench.row(
        group,
        "the same: bytes a URL with its label",
        "B",
        [answer["image_bytes"] / answer["objects"] for answer in made],
        at_most=25,
    )
    bench.row(
        group,
        "Loader(max_batch_bytes): an epoch in batches of at most 64 MiB",
        "s",
        [answer["wall_s"] for answer in answers["batches"]],
        at_most=0.5,
    )
    bench.row(group, "the same: CPU", "s", [answer["cpu_s"] for answer in answers["batches"]])

    def row(what: str, client_name: str, name: str, at_most: float | None = None) -> None:
        found = [answer[f"{name}_s"] for answer in answers[client_name]]
        bench.row(group, what, "s", found, at_most=at_most)

    row(
        "CostBatchSampler, by a column: an epoch in batches of 65,536 tokens", "costs", "plain", 0.5
    )
    row("the same: CPU", "costs", "plain_cpu")
    row("the same in five bands of length", "costs", "bands", 0.5)
    row("the same: CPU", "costs", "bands_cpu")
    row("the same with fits=, a function in Python", "costs", "fits")
    row(
        "CostBatchSampler in bands: resumed at 90 % of the epoch, to the first batch",
        "costs",
        "resume",
        0.1,
    )
    row("WeightedSampler: a million draws", "weights", "wall", 0.5)
    row("Loader: resumed at 90 % of the epoch, to the first batch of a file", "resume", "wall", 0.1)
    for name, what in (("global", "shuffled"), ("block", "in blocks"), ("mixture", "a mixture")):
        row(f"order of a billion samples, {what}: made", "orders", f"{name}_begin", 0.01)
        each = [answer[f"{name}_each_us"] for answer in answers["orders"]]
        bench.row(group, "the same: an entry", "us", each, at_most=1)
    for name, what in (("global", "shuffled"), ("block", "in blocks")):
        row(
            f"Loader over a billion ranges, {what}: made, resumed at 90 %, to the first request",
            "orders",
            f"{name}_start",
            0.01,
        )


GROUPS: dict[str, Callable[[Bench], None]] = {"index": index}
