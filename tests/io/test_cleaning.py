"""What a killed writer leaves, and that it can be swept away."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

import headrace
from headrace.cleaning import clean
from testing.faultserver.client import FaultServer

SCRIPT = """
import os, sys
import headrace
store = headrace.Store("gs://bucket", endpoint=sys.argv[1])
with headrace.open("a", "wb", store=store, part_bytes=1 << 16, upload=sys.argv[2]) as file:
    while True:
        file.write(os.urandom(1 << 18))
        print("written", flush=True)
"""


@pytest.mark.parametrize("way", ["parts", "multipart"])
def test_what_sigkill_leaves_is_swept(gcs: headrace.Store, server: FaultServer, way: str) -> None:
    gcs.write("a", b"before")
    gcs.write("headrace-uploads/of somebody else", b"stays")
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, server.url, way], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        for _ in range(3):
            assert child.stdout.readline() == "written\n"
        child.send_signal(signal.SIGKILL)
    left = len(server.names("bucket")) - 2 + len(server.uploads()["multipart"])
    assert left >= 1
    assert len(server.uploads()["multipart"]) == (1 if way == "multipart" else 0)
    looked = clean(gcs, older_than_s=0, dry_run=True)
    assert len(looked.deleted) + len(looked.uploads) == left
    assert not clean(gcs, older_than_s=3600).deleted
    swept = clean(gcs, older_than_s=0)
    assert len(swept.deleted) + len(swept.uploads) == left
    assert server.names("bucket") == ["a", "headrace-uploads/of somebody else"]
    assert server.uploads()["multipart"] == []
    assert server.get("bucket", "a") == b"before"
