"""Processes of one user on one machine tell each other how many requests they have in flight."""

from __future__ import annotations

import os
from pathlib import Path

import headrace
from testing.faultserver.client import FaultServer


def test_a_process_that_reads_from_a_host_shares_memory_with_others(server: FaultServer) -> None:
    server.synthetic("bucket", 10, 1000, shape="flat")
    store = headrace.Store("gs://bucket", endpoint=server.url, credentials="anonymous")
    assert len(list(store.read_batches([list(store.list())]))) == 1
    file = Path(f"/dev/shm/headrace-in-flight-1-{os.geteuid()}")
    assert str(file) in Path("/proc/self/maps").read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size == 32 << 10
