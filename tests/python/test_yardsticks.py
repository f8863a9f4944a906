"""The yardsticks of bench/ read what they are compared by: each object, in its place, whole."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import google_crc32c
import pytest

from testing.servers import Certificates, Nginx

ROOT = Path(__file__).resolve().parents[2]
# Sizes around those of the buffers, so that heads and bodies come in pieces and together.
SIZES = (0, 1, 700, 1024, 3800, 4096, 4097, 33_000, 102_400)

PROGRAMS = {
    "epoll": ("epoll",),
    "pipelined": ("epoll", "pipeline=4"),
    "pipelined by halves": ("epoll", "pipeline=8", "refill=4"),
    "one event a body": ("epoll", "wake-at-end"),
    "io_uring": ("uring",),
    "io_uring deferred": ("uring", "defer", "wait=3", "min-wait-us=50"),
    "multishot": ("uring", "defer", "multishot"),
    "multishot, tiny buffers": ("uring", "multishot", "buffer=128"),
    "TLS": ("epoll", "tls"),
    "TLS pipelined": ("epoll", "tls", "pipeline=4", "refill=2"),
    "HTTP/2": ("h2", "streams=5"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_yardstick_compares_every_object(name: str, tmp_path: Path) -> None:
    program, *options = PROGRAMS[name]
    executable = ROOT / "build" / "release" / "bench" / f"headrace-bench-{program}"
    if program == "h2" and not executable.exists():
        pytest.skip("only `make bench` builds the client of HTTP/2")
    if program == "uring":
        found = subprocess.run([executable, "--supported"], capture_output=True, text=True)
        if found.returncode == 3:
            pytest.skip(found.stderr)
    sums = []
    for index, size in enumerate(SIZES):
        body = bytes((index * 31 + at * 7) % 251 for at in range(size))
        (tmp_path / f"{index}").write_bytes(body)
        sums.append(int.from_bytes(google_crc32c.Checksum(body).digest(), "big"))
    paths = tmp_path / "paths"
    tls = "tls" in options or program == "h2"
    certificates = Certificates(tmp_path) if tls else None
    with Nginx(tmp_path, certificates=certificates, http2=program == "h2") as server:

        def read(crc32cs: list[int]) -> subprocess.CompletedProcess[str]:
            paths.write_text("".join(f"/{i}\t{crc32c}\n" for i, crc32c in enumerate(crc32cs)))
            command = [executable, server.port, paths, 3, 0.1, 5, "late-us=1", *options]
            return subprocess.run(
                [str(word) for word in command], capture_output=True, text=True, timeout=120
            )

        done = read(sums)
        assert (done.returncode, done.stderr) == (0, "")
        answer = json.loads(done.stdout)
        assert answer["objects"] > len(SIZES)
        assert answer["bytes"] > 0
        # Two objects of one size whose answers are taken for each other's.
        done = read([*sums[:3], sums[4], sums[3], *sums[5:]])
        assert done.returncode == 1
        assert "another CRC32C" in done.stderr
