"""Checkpoints, beside torch's own files, gcsfs, dataflux, and what the servers can do at all."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench import curl
from bench.harness import Answer, Bench, Client, environment_before, ratios
from bench.objects import GIB, MIB
from testing.faultserver.client import FaultServer
from testing.servers import Certificates, DelayedServer, FakeGcsServer

BUCKET = "checkpoints"
_NAME = "checkpoint.pt"
_LATENCIES_S = (0.0, 0.020)
_MEMORY_MIB = {"save": 256.0, "load": 128.0}


def checkpoint_files(bench: Bench) -> None:
    """Files in memory, beside torch.save and torch.load."""
    for gib in bench.effort.checkpoint_repetitions:
        group = f"a checkpoint of {gib:g} GiB, files in memory"
        with tempfile.TemporaryDirectory(prefix="headrace-bench-", dir="/dev/shm") as folder:
            for what in _MEMORY_MIB:
                place = {"folder": folder, "size_bytes": int(gib * GIB)}
                clients = {by: client(bench, what, by, place) for by in ("headrace", "torch")}
                answers = _measure(bench, group, what, clients, gib)
                ours, theirs = _rates(answers["headrace"]), _rates(answers["torch"])
                bench.row(
                    group, f"{what}: headrace over torch", "x", ratios(ours, theirs), at_least=1.5
                )
                _details(bench, group, what, answers)


def checkpoint_gcs(bench: Bench) -> None:
    """fake-gcs-server: uploads in parts that are composed. dataflux cannot save there."""
    for latency_s in _LATENCIES_S:
        # Its compose holds the object several times: of 4 GiB the kernel ends it at 23 GiB.
        for gib in filter(lambda gib: gib <= 1, bench.effort.checkpoint_repetitions):
            with FakeGcsServer() as server:
                server.make_bucket(BUCKET)
                group = f"a checkpoint of {gib:g} GiB, fake-gcs-server, {latency_s * 1e3:g} ms"
                with DelayedServer(server.url, latency_s=latency_s) as delayed:
                    # nginx in between would be the slower of the two.
                    url = delayed.url if latency_s else server.url
                    peers = {"save": ("gcsfs",), "load": ("gcsfs", "dataflux")}
                    _compare_on_gcs(bench, group, url, peers, gib)


def checkpoint_xml(bench: Bench) -> None:
    """The fault server, which knows the XML API's multipart uploads, by which dataflux saves."""
    for latency_s in _LATENCIES_S:
        for gib in bench.effort.checkpoint_repetitions:
            # It sums up nothing of its own that Google would sum up by its own machines.
            with FaultServer(threads=2, md5=False) as server:
                server.bucket(BUCKET)
                server.latency(latency_s * 1e3)
                group = f"a checkpoint of {gib:g} GiB, fault server, {latency_s * 1e3:g} ms"
                peers = {"save": ("dataflux",), "load": ("dataflux",)}
                _compare_on_gcs(bench, group, server.url, peers, gib)


def checkpoint_tls(bench: Bench) -> None:
    """headrace alone: what TLS adds to a save and to a load."""
    certificates = Certificates(bench.folder / "certificates")
    settings: dict[str, dict[str, Any]] = {
        "TLS": {"tls_cert": certificates.cert_file, "tls_key": certificates.key_file},
        "plain HTTP": {},
    }
    env = {"SSL_CERT_FILE": str(certificates.ca_file)}
    before = environment_before()
    gib = min(bench.effort.checkpoint_repetitions)
    group = f"a checkpoint of {gib:g} GiB over TLS"
    with contextlib.ExitStack() as stack:
        places = {}
        for name, options in settings.items():
            server = stack.enter_context(FaultServer(threads=2, md5=False, **options))
            server.bucket(BUCKET)
            places[name] = {
                "bucket": BUCKET,
                "endpoint": server.url,
                "size_bytes": int(gib * GIB),
                "env": env,
            }
        for what in _MEMORY_MIB:
            clients = {
                name: client(bench, what, "headrace", place) for name, place in places.items()
            }
            if before is not None:
                place = {**places["TLS"], "env": {**env, **before}}
                clients["TLS, before"] = client(bench, what, "headrace", place)
            answers = _measure(bench, group, what, clients, gib)
            for name, found in answers.items():
                bench.row(group, f"{what}: {name}", "GB/s", _rates(found))
                bench.row(group, f"{what}: {name}, CPU per GiB", "s", _cpu(found))
            over = ratios(_cpu(answers["TLS"]), _cpu(answers["plain HTTP"]))
            bench.row(group, f"{what}: TLS: CPU, of plain HTTP", "", over)
            if before is not None:
                over = ratios(_cpu(answers["TLS"]), _cpu(answers["TLS, before"]))
                bench.row(group, f"{what}: TLS: CPU, over that before", "", over)


def client(bench: Bench, what: str, by: str, place: dict[str, Any]) -> Client:
    """One save or load of the checkpoint at `place`."""
    name = f"checkpoint-{what}" + ("" if by in ("headrace", "torch") else f"-{by}")
    return lambda: bench.client(name, by=by, timeout_s=300, **place)


def compare(
    bench: Bench,
    group: str,
    what: str,
    ours: Client,
    raw: Client,
    peers: Mapping[str, Mapping[str, Client]],
    gib: float,
    *,
    at_least_times: float,
    at_most_cpu: float | None = None,
) -> None:
    """We, the others and the raw client in turn.

    `peers` gives each other client its settings; the fastest of a repetition counts.
    """

    def beside() -> Answer:
        bench.only_beside_others()
        return raw()

    settings = {name: each for found in peers.values() for name, each in found.items()}
    clients = {"headrace": ours, **settings, "raw": beside}
    answers = _measure(bench, group, what, clients, gib)
    raw_answers = answers.pop("raw")
    rates = _rates(answers["headrace"])
    shares = ratios(rates, _rates(raw_answers))
    target = {} if at_most_cpu is None else {"at_least": 0.8}
    bench.row(group, f"{what}: share of the server's raw rate", "", shares, **target)
    for peer, names in peers.items():
        found = [answers[name] for name in names if answers[name]]
        best = [max(each) for each in zip(*(_rates(each) for each in found), strict=True)]
        least_cpu = [min(each) for each in zip(*(_cpu(each) for each in found), strict=True)]
        times = ratios(rates, best)
        # How far each of the two targets is reached; one of them is enough.
        reached = [max(a / at_least_times, b / 0.8) for a, b in zip(times, shares, strict=False)]
        bench.row(
            group,
            f"{what}: of {at_least_times:g} x {peer} or 0.8 of the raw rate",
            "",
            reached,
            at_least=1,
        )
        bench.row(group, f"{what}: headrace over {peer}", "x", times)
        cpu = ratios(_cpu(answers["headrace"]), least_cpu)
        bench.row(group, f"{what}: share of {peer}'s CPU", "", cpu, at_most=at_most_cpu)
    bench.row(group, f"{what}: raw", "GB/s", _rates(raw_answers))
    _details(bench, group, what, answers)


def _compare_on_gcs(
    bench: Bench,
    group: str,
    url: str,
    peers: dict[str, tuple[str, ...]],
    gib: float,
) -> None:
    """Save, then load what was saved; curl sends media, and reads ranges of what was saved."""
    size_bytes = int(gib * GIB)
    place = {"bucket": BUCKET, "endpoint": url, "size_bytes": size_bytes}
    upload = f"{url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name=raw"
    media = f"{url}/download/storage/v1/b/{BUCKET}/o/{_NAME}?alt=media"
    part_count = -(-size_bytes // curl.PART_BYTES)
    raw: dict[str, Client] = {
        "save": lambda: curl.put(
            [f"{upload}{index:04d}" for index in range(part_count)], method="POST"
        ),
        "load": lambda: curl.get(media, size_bytes=size_bytes),
    }
    for what, raw_client in raw.items():
        compare(
            bench,
            group,
            what,
            client(bench, what, "headrace", place),
            raw_client,
            {peer: {peer: client(bench, what, peer, place)} for peer in peers[what]},
            gib,
            at_least_times=4,
            at_most_cpu=0.25,
        )


def _measure(
    bench: Bench, group: str, what: str, clients: dict[str, Client], gib: float
) -> dict[str, list[Answer]]:
    repetitions = min(bench.effort.checkpoint_repetitions[gib], bench.effort.peer_repetitions)
    return bench.alternate(f"{group}, {what}", clients, repetitions)


def _details(bench: Bench, group: str, what: str, answers: dict[str, list[Answer]]) -> None:
    for name, found in answers.items():
        bench.row(group, f"{what}: {name}", "GB/s", _rates(found))
        bench.row(group, f"{what}: {name}, CPU per GiB", "s", _cpu(found))
        above = [each["above_tensors_bytes"] / MIB for each in found]
        target = {"at_most": _MEMORY_MIB.get(what)} if name == "headrace" else {}
        bench.row(group, f"{what}: {name}, memory above the tensors", "MiB", above, **target)


def _rates(answers: Sequence[Answer]) -> list[float]:
    return [each["bytes"] / each["wall_s"] / 1e9 for each in answers]


def _cpu(answers: Sequence[Answer]) -> list[float]:
    return [each["cpu_s"] / (each["bytes"] / GIB) for each in answers]


GROUPS: dict[str, Callable[[Bench], None]] = {
    "checkpoint-files": checkpoint_files,
    "checkpoint-gcs": checkpoint_gcs,
    "checkpoint-xml": checkpoint_xml,
    "checkpoint-tls": checkpoint_tls,
}
