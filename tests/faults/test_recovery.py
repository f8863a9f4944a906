"""Services that are away for a while: what is sent to them meanwhile, and who comes back when.

How long it takes is a row of `make bench`; on a clock of its own it is held by recovery_test.cc.
"""

from __future__ import annotations

from typing import Any

import pytest

import headrace
from testing.faultserver.client import FaultServer
from tests.faults.conftest import OpenStore

READS = 32
# Each is to wait for minutes once it has failed: none comes back in time by itself.
SLOW = headrace.RetryOptions(initial_backoff_s=120, max_backoff_s=120)


@pytest.mark.parametrize(
    "action",
    [{"status": 503}, {"status": 429}, {"refuse": True}],
    ids=["503", "429", "no-connections"],
)
def test_those_that_wait_come_back_once_the_service_answers(
    server: FaultServer, open_store: OpenStore, action: dict[str, Any]
) -> None:
    for i in range(READS):
        server.put("bucket", f"o{i}", b"data")
    parallel = headrace.ParallelOptions(initial_in_flight=READS, max_in_flight=READS)
    store = open_store(retry=SLOW, parallel=parallel)
    # All of them, and some of the requests that look whether the service is back.
    server.faults([{"count": READS + 4, "action": action}])
    got = list(store.read_many([f"o{i}" for i in range(READS)]))
    assert [bytes(each) for each in got] == [b"data"] * READS
    assert server.fault_counts()[0]["fired"] == READS + 4
    answered = [line for line in server.log() if line["status"] in (200, 206)]
    assert len(answered) == READS, "none was sent again that had been answered"
