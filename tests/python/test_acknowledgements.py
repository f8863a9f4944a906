"""Servers that keep the end of a body back until what came before is acknowledged."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

_REQUESTS = 60

# In a network of its own, whose counters nobody else moves.
_PROGRAM = """
import fcntl, json, socket, struct, sys, threading
import headrace

with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    up = struct.pack("16sh14x", b"lo", 0x1)  # IFF_UP
    fcntl.ioctl(control, 0x8914, up)  # SIOCSIFFLAGS

BODY = bytes(int(sys.argv[2]))
HEAD = (
    "HTTP/1.1 200 OK\\r\\nx-goog-generation: 1\\r\\n"
    f"Content-Length: {len(BODY)}\\r\\n\\r\\n"
).encode()
listener = socket.create_server(("127.0.0.1", 0))

def serve(connection):
    # Nagle's algorithm is on, as it is unless a server turns it off.
    reader = connection.makefile("rb")
    while True:
        line = reader.readline()
        if not line:
            return
        while reader.readline().strip():
            pass
        connection.sendall(HEAD + BODY[:-100])
        connection.sendall(BODY[-100:])  # waits for the other side

def accept():
    while True:
        threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

threading.Thread(target=accept, daemon=True).start()

def delayed():
    names, values = [
        line.split() for line in open("/proc/net/netstat") if line.startswith("TcpExt:")
    ]
    return int(dict(zip(names, values))["DelayedACKs"])

store = headrace.Store(
    "gs://bucket", endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", credentials="anonymous"
)
before = delayed()
for _ in range(int(sys.argv[1])):
    assert len(store.read("name")) == len(BODY)
print(json.dumps(delayed() - before))
"""


@pytest.mark.parametrize("size_bytes", [20_000, 50_000, 140_000, 600_000])
def test_the_end_of_a_body_does_not_wait_for_a_delayed_acknowledgement(size_bytes: int) -> None:
    unshare = shutil.which("unshare")
    if os.geteuid() != 0 or unshare is None:
        pytest.skip("needs a network of its own, which root can make with unshare")
    done = subprocess.run(
        [unshare, "--net", sys.executable, "-c", _PROGRAM, str(_REQUESTS), str(size_bytes)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if "unshare failed" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    # The kernel delays none at first, on any connection.
    assert json.loads(done.stdout) <= _REQUESTS // 6
