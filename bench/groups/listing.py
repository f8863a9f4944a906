"""How long it takes to know a bucket, from a server that makes up names and answers late."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from bench.harness import Answer, Bench, Client
from testing.faultserver.client import FaultServer

PAGE_OBJECTS = 1000
PAGE_DELAY_S = 0.050
# Of the fault server: README.md there shows a name of each.
SHAPES = ("flat", "uuid", "deep", "one_folder", "skewed", "long_prefix", "all_unicode", "last_byte")
# Among these is the best that a user could have set by hand.
PAGES_IN_FLIGHT = (32, 64, 128)
DATAFLUX_PROCESSES = 8


class Server:
    """A fault server with computed buckets; counts the pages that a client asks for.

    `request` is what clients are told besides.
    """

    def __init__(self, bench: Bench, server: FaultServer, **request: Any) -> None:
        self._bench = bench
        self._server = server
        self._request = request

    def bucket(self, shape: str, object_count: int) -> str:
        """Make a bucket, which has this name."""
        name = f"{shape.replace('_', '-')}-{object_count}"
        self._server.synthetic(
            name,
            object_count,
            1024,
            shape=shape,
            list_delay_ms=round(PAGE_DELAY_S * 1e3),
        )
        return name

    def client(self, name: str, bucket: str, object_count: int, **request: Any) -> Client:
        """A measurement, with the number of pages that were asked for."""

        def run() -> Answer:
            before = self._lists()
            answer = self._bench.client(
                name,
                endpoint=self._server.url,
                bucket=bucket,
                object_count=object_count,
                timeout_s=240,
                **self._request,
                **request,
            )
            return {**answer, "pages": self._lists() - before}

        return run

    def _lists(self) -> int:
        return int(self._server.stats()["by_kind"].get("list", 0))


def _seconds(answers: list[Answer]) -> list[float]:
    return [answer["wall_s"] for answer in answers]


def _shape(bench: Bench, server: Server, shape: str, *, peers: bool) -> None:
    count = bench.effort.listed_objects
    group = f"listing {count:,} names, {shape}, {PAGE_DELAY_S * 1e3:.0f} ms a page"
    bucket = server.bucket(shape, count)
    ours: dict[str, Client] = {
        "defaults": server.client("list-index", bucket, count),
        "first": server.client("list-first", bucket, count),
    }
    for pages in PAGES_IN_FLIGHT:
        ours[f"{pages} pages in flight"] = server.client(
            "list-index", bucket, count, pages_in_flight=pages
        )
    answers = bench.alternate(group, ours, bench.effort.peer_repetitions)
    whole = answers["defaults"]
    index_rows(bench, group, whole, count, at_most_s=5)
    by_hand = [_seconds(answers[f"{pages} pages in flight"]) for pages in PAGES_IN_FLIGHT]
    bench.row(
        group,
        "Store.index(), over the best number of pages in flight",
        "",
        [mine / min(others) for mine, *others in zip(_seconds(whole), *by_hand, strict=False)],
        at_most=1.5,
    )
    bench.row(
        group, "Store.list(): the first 10,000 names", "s", _seconds(answers["first"]), at_most=0.5
    )
    if peers:
        # A minute each: once.
        _peers(bench, server, group, bucket, count)


def index_rows(
    bench: Bench, group: str, found: list[Answer], count: int, *, at_most_s: float
) -> None:
    """How long `Store.index()` took, and what it asked for."""
    bench.row(group, "Store.index()", "s", _seconds(found), at_most=at_most_s)
    sequential_pages = math.ceil(count / PAGE_OBJECTS)
    bench.row(
        group,
        "Store.index(): pages, over page after page",
        "",
        [answer["pages"] / sequential_pages for answer in found],
        at_most=1.3,
    )
    bench.row(
        group, "Store.index(): client CPU per name", "us", [a["cpu_s"] / count * 1e6 for a in found]
    )


def _peers(bench: Bench, server: Server, group: str, bucket: str, count: int) -> None:
    clients = {
        "google-cloud-storage, page after page": server.client("list-google", bucket, count),
        f"dataflux_core, {DATAFLUX_PROCESSES} processes": server.client(
            "list-dataflux", bucket, count, processes=DATAFLUX_PROCESSES
        ),
    }
    for name, found in bench.alternate(group, clients, 1).items():
        bench.row(group, name, "s", _seconds(found))
        bench.row(group, f"{name}: pages", "", [answer["pages"] for answer in found])


def listing(bench: Bench) -> None:
    """Every shape of a large bucket; a middling one and a tiny one of flat names."""
    with FaultServer(threads=2) as fault_server:
        server = Server(bench, fault_server)
        for shape in SHAPES:
            _shape(bench, server, shape, peers=shape == "flat")
        for count, at_most in ((100_000, 1.0), (10, 0.1)):
            group = f"listing {count:,} names, flat, {PAGE_DELAY_S * 1e3:.0f} ms a page"
            bucket = server.bucket("flat", count)
            answers = bench.alternate(
                group,
                {"Store.index()": server.client("list-index", bucket, count)},
                bench.effort.repetitions,
            )
            found = answers["Store.index()"]
            bench.row(group, "Store.index()", "s", _seconds(found), at_most=at_most)
            _peers(bench, server, group, bucket, count)


GROUPS: dict[str, Callable[[Bench], None]] = {"listing": listing}
