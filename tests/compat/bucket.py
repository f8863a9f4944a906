"""The bucket of these tests, and what was asked of it."""

from __future__ import annotations

from testing.faultserver.client import FaultServer

BUCKET = "bucket"


def written(server: FaultServer) -> list[dict[str, object]]:
    """The requests that change a bucket, or that ask whether one may."""
    reading = {"list", "media", "get", "bucket_get"}
    return [request for request in server.log() if request["kind"] not in reading]


def count(server: FaultServer, kind: str) -> int:
    """How many requests of a kind there were."""
    return sum(request["kind"] == kind for request in server.log())
