"""Small objects joined on the server, beside plain parallel reads of the same objects."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness import BATCH_SIZE, LATENCY_S, Answer, Bench, Client
from bench.objects import KIB
from testing.faultserver.client import FaultServer

BUCKET = "bucket"
SIZES_BYTES = (4 * KIB, 100 * KIB)
OBJECT_COUNT = 2048


def _clients(bench: Bench, endpoint: str, latency_s: float) -> dict[str, Client]:
    def client(join: bool) -> Client:
        return lambda: bench.client(
            "headrace",
            endpoint=endpoint,
            bucket=BUCKET,
            batch_size=BATCH_SIZE,
            # With latency it takes a while until all connections are open.
            warm_up_s=2 * bench.effort.duration_s if latency_s else bench.effort.warm_up_s,
            duration_s=bench.effort.duration_s,
            join=join,
        )

    return {"one by one": client(False), "joined": client(True)}


def _rows(bench: Bench, group: str, answers: dict[str, list[Answer]]) -> None:
    for name, found in answers.items():
        bench.rates(group, name, found)
        bench.cpu(group, name, found)
        bench.row(
            group,
            f"{name}: requests per object",
            "",
            [answer["requests"] / answer["objects"] for answer in found],
        )
    bench.row(
        group,
        "joined, over one by one: objects/s",
        "",
        [
            (joined["objects"] / joined["wall_s"]) / (alone["objects"] / alone["wall_s"])
            for joined, alone in zip(answers["joined"], answers["one by one"], strict=False)
        ],
    )


def joined(bench: Bench) -> None:
    """Both ways, without latency and with it; nginx cannot compose, the fault server can."""
    for size_bytes in SIZES_BYTES:
        with FaultServer(threads=2, log_capacity=1, md5=False) as server:
            for i in range(OBJECT_COUNT):
                server.put(BUCKET, f"object-{i:06d}", i.to_bytes(4, "big") * (size_bytes // 4))
            for latency_s in (0.0, LATENCY_S):
                server.latency(latency_s * 1e3)
                group = f"{size_bytes // KIB} KiB, fault server"
                if latency_s:
                    group += f", {latency_s * 1e3:.0f} ms before each answer"
                clients = _clients(bench, server.url, latency_s)
                answers = bench.alternate(group, clients, bench.effort.peer_repetitions)
                _rows(bench, group, answers)


GROUPS: dict[str, Callable[[Bench], None]] = {"joined": joined}
