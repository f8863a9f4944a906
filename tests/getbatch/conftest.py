"""A cluster of AIStore that is a fault server, a store on it, and what it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import pytest

import headrace
from headrace import AisOptions, Sample
from testing.faultserver.client import FaultServer
from tests.faults.conftest import FAST

# For answers that never come, with `OFTEN`. No other test has time-outs that a busy machine could
# run into.
SHORT = headrace.TimeoutOptions(first_byte_s=0.25, stall_s=0.25)
COUNT = 40
Mode = Literal["auto", "always", "never"]


@pytest.fixture(scope="session")
def ais_cluster() -> Iterator[FaultServer]:
    """A proxy and three targets, as the test before has left them; see `server`."""
    with FaultServer(dialect="ais", targets=3) as server:
        yield server


@pytest.fixture
def server(ais_cluster: FaultServer) -> FaultServer:
    """The cluster, well-behaved, with an empty bucket."""
    headrace.shutdown()
    ais_cluster.reset()
    ais_cluster.bucket("bucket")
    return ais_cluster


def content(i: int) -> bytes:
    """What the object with this number holds."""
    return b"%04d." % i * (37 * i % 900)


@pytest.fixture
def objects(server: FaultServer) -> dict[str, bytes]:
    contents = {f"data/{i:03d}": content(i) for i in range(COUNT)}
    for name, data in contents.items():
        server.put("bucket", name, data)
    return contents


def open_store(server: FaultServer, mode: Mode = "always", **options: Any) -> headrace.Store:
    """The bucket; without retries that take time."""
    settings = {"endpoint": server.url, "retry": FAST, **options}
    return headrace.Store("ais://bucket", provider=AisOptions(get_batch=mode), **settings)


def outcomes(samples: list[Any]) -> list[bytes | tuple[type, str]]:
    """The bytes of each, or the class of its error and what it is about."""
    return [
        each.bytes() if isinstance(each, Sample) else (type(each), each.url) for each in samples
    ]


def read_both_ways(
    server: FaultServer, infos: list[Any], **options: Any
) -> list[bytes | tuple[type, str]]:
    """What `infos` read together give, which is what they give alone."""
    together = outcomes(open_store(server, **options).read_many(infos, on_error="return"))
    since = server.log()[-1]["n"]
    alone = outcomes(open_store(server, "never", **options).read_many(infos, on_error="return"))
    assert together == alone
    assert not [each for each in server.log(since=since) if each["kind"] == "moss"]
    return together


def batches(server: FaultServer) -> int:
    """How many requests for many objects came to a target."""
    return sum(each["kind"] == "moss" and "/gbt-" in each["target"] for each in server.log())


def asked_for_batches(server: FaultServer) -> int:
    """How many came to the proxy."""
    return sum(each["kind"] == "moss" and "/gbt-" not in each["target"] for each in server.log())


def read_alone(server: FaultServer) -> set[str]:
    """Of which objects a request of its own was sent."""
    prefix = "/v1/objects/bucket/"
    paths = {urlsplit(each["target"]).path for each in server.log() if each["kind"] == "media"}
    assert all(path.startswith(prefix) for path in paths)
    return {unquote(path.removeprefix(prefix)) for path in paths}


def at_target(action: Any, **more: Any) -> dict[str, Any]:
    """A rule for requests for many objects where they are carried out."""
    return {"match": {"kind": "moss", "path_contains": "/gbt-"}, "action": action, **more}
