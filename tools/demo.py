"""The demo in a folder, or on a fake-gcs-server that is started and stopped for it.

usage: tools/demo.py file|gs [--latency-ms 20] [options of python -m headrace.demo]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from testing.servers import DelayedServer, FakeGcsServer


def run_demo(*arguments: str, **environment: str) -> int:
    command = [sys.executable, "-m", "headrace.demo", *arguments]
    return subprocess.call(command, env={**os.environ, **environment})


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("store", choices=("file", "gs"))
    parser.add_argument("--latency-ms", type=float, default=20.0)
    arguments, rest = parser.parse_known_args()
    if arguments.store == "file":
        return run_demo(*rest)
    with FakeGcsServer() as server:
        server.make_bucket("demo")
        print(f"fake-gcs-server, {arguments.latency_ms:g} ms before every request is answered")
        with DelayedServer(server.url, latency_s=arguments.latency_ms / 1e3) as delayed:
            # What is in the bucket goes with the server.
            status = run_demo("gs://demo", "--keep", *rest, STORAGE_EMULATOR_HOST=delayed.url)
            print(f"the server has answered {len(delayed.requests()):,} requests")
        return status


if __name__ == "__main__":
    sys.exit(main())
