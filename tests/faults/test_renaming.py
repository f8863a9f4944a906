"""Renames by a copy and a removal, when something goes wrong in between: never are both gone."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.faults.conftest import OpenStore
from tests.keys import S3_KEYS

pytestmark = pytest.mark.parametrize("scheme", ["gs", "s3"])
COPY = {"gs": "rewrite", "s3": "copy"}
DATA = bytes(i % 251 for i in range(100_000))


def counts(server: FaultServer) -> dict[str, int]:
    found: dict[str, int] = server.stats()["by_kind"]
    return {kind: found.get(kind, 0) for kind in ("get", "media", "rewrite", "copy", "delete")}


def fault(kind: str, action: Any, count: int = 1) -> list[dict[str, Any]]:
    return [{"match": {"kind": kind}, "count": count, "action": action}]


def test_it_is_a_look_a_copy_and_a_removal(
    server: FaultServer, open_store: OpenStore, scheme: str
) -> None:
    server.put("bucket", "source", DATA)
    open_store().rename("source", "target")
    assert server.names("bucket") == ["target"]
    assert server.get("bucket", "target") == DATA
    done = counts(server)
    assert (done["media"], done[COPY[scheme]], done["delete"]) == (0, 1, 1)
    # S3's copy does not describe what it has made, and its removals do not tell what was there.
    assert done["get"] == (1 if scheme == "gs" else 3)


@pytest.mark.parametrize("action", ["lost_answer", "reset", {"status": 503}], ids=str)
@pytest.mark.parametrize("step", ["get", "copy", "delete"])
@pytest.mark.parametrize("condition", [None, "absent"])
def test_whatever_fails_once_it_is_renamed(
    server: FaultServer,
    open_store: OpenStore,
    scheme: str,
    step: str,
    action: Any,
    condition: str | None,
) -> None:
    server.put("bucket", "source", DATA)
    server.faults(fault(COPY[scheme] if step == "copy" else step, action))
    store = open_store()
    moved = store.rename("source", "target", if_generation=condition)
    assert server.fault_counts()[0]["fired"] == 1
    assert server.names("bucket") == ["target"]
    assert server.get("bucket", "target") == DATA
    assert moved.generation == store.stat("target").generation


def test_a_copy_that_fails_leaves_the_source(
    server: FaultServer, open_store: OpenStore, scheme: str
) -> None:
    server.put("bucket", "source", DATA)
    server.faults(fault(COPY[scheme], {"status": 403}))
    with pytest.raises(headrace.PermissionDeniedError) as caught:
        open_store().rename("source", "target")
    assert caught.value.url == f"{scheme}://bucket/target"
    assert server.names("bucket") == ["source"]
    assert counts(server)["delete"] == 0


def test_a_removal_that_fails_leaves_both_and_says_so(
    server: FaultServer, open_store: OpenStore, scheme: str
) -> None:
    server.put("bucket", "source", DATA)
    server.faults(fault("delete", {"status": 403}))
    with pytest.raises(headrace.PermissionDeniedError, match="both are there") as caught:
        open_store().rename("source", "target")
    assert f"it was copied to {scheme}://bucket/target" in str(caught.value)
    assert caught.value.url == f"{scheme}://bucket/source"
    assert caught.value.http_status == 403
    assert server.names("bucket") == ["source", "target"]
    assert server.get("bucket", "target") == DATA


def test_a_removal_that_may_have_happened_does_not_say_that_both_are_there(
    server: FaultServer, open_store: OpenStore, scheme: str
) -> None:
    server.put("bucket", "source", DATA)
    server.faults([{"match": {"kind": "delete"}, "action": {"status": 503}}])
    with pytest.raises(headrace.UnavailableError, match="whether it was removed then is unknown"):
        open_store().rename("source", "target")
    assert server.get("bucket", "target") == DATA


def test_a_source_that_changes_after_the_copy_is_not_removed(
    server: FaultServer, open_store: OpenStore, scheme: str
) -> None:
    server.put("bucket", "source", DATA)
    # Another writer's object comes just before the removal: what the look before it answers is of
    # the old one.
    server.faults(fault("delete", {"status": 412}))
    with pytest.raises(headrace.PreconditionFailedError, match="both are there"):
        open_store().rename("source", "target")
    assert server.names("bucket") == ["source", "target"]


def test_a_source_that_another_program_has_removed_is_gone_as_it_should_be(
    server: FaultServer, open_store: OpenStore, scheme: str
) -> None:
    server.put("bucket", "source", DATA)
    # Carried out, and answered as if it had been too late.
    server.faults(fault("delete", {"status": 404, "perform": True}))
    open_store().rename("source", "target")
    assert server.names("bucket") == ["target"]


RENAME = """
import sys
import headrace

scheme, endpoint = sys.argv[1:3]
keys = {"credentials": headrace.AwsKeys(*sys.argv[3:])} if scheme == "s3" else {}
headrace.Store(f"{scheme}://bucket", endpoint=endpoint, **keys).rename("source", "target")
"""


def test_killed_between_the_copy_and_the_removal_it_leaves_both(
    server: FaultServer, open_store: OpenStore, scheme: str
) -> None:
    server.put("bucket", "source", DATA)
    server.faults(fault("delete", "stall_head"))
    command = [sys.executable, "-c", RENAME, scheme, server.url]
    with subprocess.Popen(
        [*command, S3_KEYS.access_key_id, S3_KEYS.secret_access_key], stderr=subprocess.PIPE
    ) as child:
        while not server.fault_counts()[0]["matched"] and child.poll() is None:
            pass
        child.send_signal(signal.SIGKILL)
    server.faults([])
    server.close_connections("rst")
    assert server.names("bucket") == ["source", "target"]
    assert server.get("bucket", "target") == server.get("bucket", "source") == DATA
    # And the next one ends it.
    open_store().rename("source", "target")
    assert server.names("bucket") == ["target"]
