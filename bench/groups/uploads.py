"""One large object on its way up: by each kind of sums on `s3://`, and in each way on `gs://`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bench.harness import LATENCY_S, Answer, Bench, Client, environment_before, ratios
from bench.objects import MIB
from testing.faultserver.client import FaultServer
from testing.servers import Certificates

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


def _alternate(
    bench: Bench,
    group: str,
    dialect: str,
    requests: dict[str, dict[str, str]],
    latency_s: float = 0,
    certificates: Mapping[str, Certificates] = MappingProxyType({}),
    environments: Mapping[str, dict[str, str]] = MappingProxyType({}),
) -> dict[str, list[Answer]]:
    """Upload in turn with what each of `requests` asks for, each time to a new server.

    The server sums, too, so only the CPU of the client says what an upload costs. Those that
    `certificates` names go to a server that speaks TLS.
    """

    def client(name: str, request: dict[str, str]) -> Client:
        made = certificates.get(name)
        tls = {"tls_cert": made.cert_file, "tls_key": made.key_file} if made else {}
        env = {"AWS_CA_BUNDLE": str(made.ca_file)} if made else {}
        env |= environments.get(name, {})

        def run() -> Answer:
            with FaultServer(dialect=dialect, threads=2, md5=False, **tls) as server:
                server.bucket("bucket")
                server.latency(latency_s * 1e3)
                return bench.client(
                    "upload",
                    endpoint=server.url,
                    size_bytes=_SIZE_BYTES,
                    count=_COUNT,
                    env=env,
                    **request,
                )

        return run

    clients = {name: client(name, request) for name, request in requests.items()}
    return bench.alternate(group, clients, bench.effort.repetitions)


def _cpu_s_per_gib(answers: Sequence[Answer]) -> list[float]:
    return [answer["cpu_s"] / (answer["bytes"] / _GIB) for answer in answers]


def sums(bench: Bench) -> None:
    """An upload to `s3://` with the sums of each level (`S3Options(checksum=)`)."""
    group = "upload with the sums of each level"
    answers = _alternate(
        bench, group, "s3", {level: {"scheme": "s3", "level": level} for level in _LEVELS}
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
        answers = _alternate(
            bench, group, "gcs", {way: {"scheme": "gs", "way": way} for way in _WAYS}, latency_s
        )
        for way, found in answers.items():
            rates = [answer["bytes"] / answer["wall_s"] / 1e9 for answer in found]
            bench.row(group, f"{way}: GB/s", "", rates)
            bench.row(group, f"{way}: client CPU per GiB", "s", _cpu_s_per_gib(found))


def tls(bench: Bench) -> None:
    """What an upload in parts costs over TLS."""
    group = "upload over TLS"
    made = Certificates(bench.folder / "certificates")
    request = {"scheme": "s3", "level": "crc32c"}
    requests = {"TLS": request, "plain HTTP": request}
    before = environment_before()
    if before is not None:
        requests["TLS, before"] = request
    answers = _alternate(
        bench,
        group,
        "s3",
        requests,
        certificates={"TLS": made, "TLS, before": made},
        environments={} if before is None else {"TLS, before": before},
    )
    for name, found in answers.items():
        bench.row(group, f"{name}: client CPU per GiB", "s", _cpu_s_per_gib(found))
    over = ratios(_cpu_s_per_gib(answers["TLS"]), _cpu_s_per_gib(answers["plain HTTP"]))
    bench.row(group, "TLS: CPU, of plain HTTP", "", over)
    if before is not None:
        over = ratios(_cpu_s_per_gib(answers["TLS"]), _cpu_s_per_gib(answers["TLS, before"]))
        bench.row(group, "TLS: CPU, over that before", "", over)


GROUPS = {"upload-sums": sums, "upload-ways": ways, "upload-tls": tls}
