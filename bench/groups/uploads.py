"""One large object on its way up: by each kind of sums on `s3://`, and in each way on `gs://`."""

from __future__ import annotations

from collections.abc import Sequence

from bench.harness import LATENCY_S, Answer, Bench, ratios
from bench.objects import MIB
from testing.faultserver.client import FaultServer

_GIB = 1 << 30
_SIZE_BYTES = 256 * MIB
_COUNT = 3
# The CPU that a level may take, of that of CRC-32C. MD5 has no target: it is what it is.
_LEVELS: dict[str, float | None] = {
    "crc32c": None,
    "crc64nvme": 1.75,
    "composite": 1.25,
    "md5": None,
    "none": 1.25,
}
_WAYS = ("parts", "multipart", "resumable")


def _cpu_s_per_gib(answers: Sequence[Answer]) -> list[float]:
    return [answer["cpu_s"] / (answer["bytes"] / _GIB) for answer in answers]


def sums(bench: Bench) -> None:
    """An upload to `s3://` with the sums of each level (`S3Options(checksum=)`)."""
    group = "upload with the sums of each level"

    def client(level: str) -> Answer:
        # The server sums, too, so only the CPU of the client says what a level costs.
        with FaultServer(dialect="s3", threads=2, md5=False) as server:
            server.bucket("bucket")
            return bench.client(
                "upload",
                scheme="s3",
                endpoint=server.url,
                level=level,
                size_bytes=_SIZE_BYTES,
                count=_COUNT,
            )

    answers = bench.alternate(
        group,
        {level: lambda level=level: client(level) for level in _LEVELS},  # type: ignore[misc]
        bench.effort.repetitions,
    )
    base = _cpu_s_per_gib(answers["crc32c"])
    for level, at_most in _LEVELS.items():
        cpu = _cpu_s_per_gib(answers[level])
        bench.row(group, f"{level}: client CPU per GiB", "s", cpu)
        if at_most is not None and len(cpu) == len(base):
            bench.row(group, f"{level}: CPU, of crc32c", "", ratios(cpu, base), at_most=at_most)


def ways(bench: Bench) -> None:
    """An upload to `gs://` in each way (`upload=`), without and with latency."""
    for latency_s in (0.0, LATENCY_S):
        group = f"upload in each way, {latency_s * 1e3:.0f} ms"

        def client(way: str, latency_s: float = latency_s) -> Answer:
            with FaultServer(threads=2, md5=False) as server:
                server.bucket("bucket")
                server.latency(latency_s * 1e3)
                return bench.client(
                    "upload",
                    scheme="gs",
                    endpoint=server.url,
                    way=way,
                    size_bytes=_SIZE_BYTES,
                    count=_COUNT,
                )

        answers = bench.alternate(
            group,
            {way: lambda way=way: client(way) for way in _WAYS},  # type: ignore[misc]
            bench.effort.repetitions,
        )
        for way in _WAYS:
            rates = [answer["bytes"] / answer["wall_s"] / 1e9 for answer in answers[way]]
            bench.row(group, f"{way}: GB/s", "", rates)
            bench.row(group, f"{way}: client CPU per GiB", "s", _cpu_s_per_gib(answers[way]))


GROUPS = {"upload-sums": sums, "upload-ways": ways}
