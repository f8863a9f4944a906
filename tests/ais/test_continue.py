"""Bodies that wait until the server asks for them, at servers that do not ask."""

from __future__ import annotations

from typing import Any

import headrace
from testing.faultserver.client import FaultServer
from tests.ais.conftest import Open

DATA = bytes(range(256)) * 16
SILENT = {"match": {"method": "PUT"}, "action": {"no_continue": True}}
KNOWS_NO_EXPECT = {
    "match": {"header": {"name": "expect", "contains": "100"}},
    "action": {"status": 417, "early": True},
}


def puts(server: FaultServer) -> list[dict[str, Any]]:
    return [line for line in server.log() if line["method"] == "PUT" and line["status"] < 300]


def waited(line: dict[str, Any]) -> bool:
    return any(name.lower() == "expect" for name in dict(line["headers"]))


def test_a_server_that_never_asks_gets_the_body_and_is_not_waited_for_again(
    ais_server: FaultServer, open_store: Open
) -> None:
    store = open_store(direct=False, retry=headrace.RetryOptions(max_attempts=1))
    ais_server.faults([SILENT])
    for i in range(5):
        store.write(f"o{i}", DATA)
    assert [ais_server.get("bucket", f"o{i}") for i in range(5)] == [DATA] * 5
    assert len(puts(ais_server)) == 5, "none was sent twice"
    sent = [line for line in ais_server.log() if line["method"] == "PUT"]
    assert sum(map(waited, sent)) == 1, "the first, at the proxy"


def test_a_server_that_refuses_to_be_waited_for_gets_the_same_without(
    ais_server: FaultServer, open_store: Open
) -> None:
    store = open_store(direct=False, retry=headrace.RetryOptions(max_attempts=1))
    ais_server.faults([KNOWS_NO_EXPECT])
    for i in range(5):
        store.write(f"o{i}", DATA)
    assert len(puts(ais_server)) == 5
    refused = [line for line in ais_server.log() if line["status"] == 417]
    assert len(refused) == 1


def test_a_server_that_asks_is_waited_for_each_time(
    ais_server: FaultServer, open_store: Open
) -> None:
    store = open_store(direct=False)
    for i in range(3):
        store.write(f"o{i}", DATA)
    assert all(waited(line) for line in ais_server.log() if line["status"] == 307)
