"""What single formats cost, without a server: signatures, listings, heads, checksums."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness import Answer, Bench, Client, cpu_us

SUMMED_BYTES = 102_400
SUMS = ["crc32c", "crc32", "crc64nvme", "sha1", "sha256", "md5", "xxh64"]


def formats(bench: Bench) -> None:
    """The program `headrace-bench-formats`, one measurement a process."""
    group = "formats, one thread"

    def client(name: str) -> Client:
        return lambda: bench.program("bench/headrace-bench-formats", name)

    names = ["sign", "sign-with-token", "list-s3", "list-gcs", "list-ais-json"]
    names += ["list-ais-msgpack", "owner-of-16", "head-s3", "head-gcs"]
    names += [f"sum-{kind}" for kind in SUMS]
    answers = bench.alternate(
        group, {name: client(name) for name in names}, bench.effort.repetitions
    )

    def row(text: str, name: str, at_most: float | None = None) -> None:
        bench.row(group, text, "us", cpu_us(answers[name]), at_most=at_most)

    row("SigV4: a signature", "sign", 1.2)
    row("SigV4: a signature with a session token of 800 bytes", "sign-with-token")
    row("a key of a ListObjectsV2 page", "list-s3", 1.0)
    row("a name of a page of gs://", "list-gcs")
    row("a name of a page of ais://, JSON", "list-ais-json")
    row("a name of a page of ais://, MessagePack", "list-ais-msgpack")
    row("the owner of an object among 16 targets of ais://", "owner-of-16")
    row("the head of the answer to a read from S3", "head-s3")
    row("the head of the answer to a read from gs://", "head-gcs")

    def gb_per_s(found: list[Answer]) -> list[float]:
        return [SUMMED_BYTES * a["objects"] / a["cpu_s"] / 1e9 for a in found]

    for kind in SUMS:
        bench.row(group, f"{kind} of 100 KiB", "GB/s", gb_per_s(answers[f"sum-{kind}"]))


GROUPS: dict[str, Callable[[Bench], None]] = {"formats": formats}
