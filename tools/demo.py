"""The demo in a folder, or on a fake-gcs-server or a MinIO that is started and stopped for it.

usage: tools/demo.py file|gs|s3 [--latency-ms 20] [options of python -m headrace.demo]

It must leave nothing when it is through and `headrace clean` has been there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from testing.servers import DelayedServer


def run(*arguments: str, **environment: str) -> int:
    command = [sys.executable, "-m", *arguments]
    return subprocess.call(command, env={**os.environ, **environment})


def run_in_folder(options: list[str]) -> int:
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        status = run("headrace.demo", folder, *options)
        cleaned = clean(folder)
        left = [str(path) for path in Path(folder).rglob("*") if path.is_file()]
    return status or cleaned or tell(left)


# The servers are imported where they are needed: the demo in a folder has no package of the tests.
def run_on_gcs(latency_s: float, options: list[str]) -> int:
    from testing.servers import DelayedServer, FakeGcsServer

    with FakeGcsServer() as server:
        server.make_bucket("demo")
        print(f"fake-gcs-server, {latency_s * 1e3:g} ms before every request is answered")
        with DelayedServer(server.url, latency_s=latency_s) as delayed:
            environment = {"STORAGE_EMULATOR_HOST": delayed.url}
            return run_behind(
                delayed, "gs://demo", environment, lambda: server.names("demo"), options
            )


def run_on_s3(latency_s: float, options: list[str]) -> int:
    from testing.servers import DelayedServer, MinioServer
    from testing.servers import minio as minio_module

    with MinioServer() as server:
        print(f"MinIO, {latency_s * 1e3:g} ms before every request is answered")
        with DelayedServer(server.url, latency_s=latency_s, keeps_host=True) as delayed:
            environment = {
                "AWS_ENDPOINT_URL": delayed.url,
                "AWS_ACCESS_KEY_ID": minio_module.ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": minio_module.SECRET_KEY,
            }
            return run_behind(delayed, "s3://bucket", environment, server.names, options)


def run_behind(
    delayed: DelayedServer,
    bucket: str,
    environment: dict[str, str],
    names: Callable[[], list[str]],
    options: list[str],
) -> int:
    """Run it in an empty bucket, which must be empty again afterwards."""
    status = run("headrace.demo", f"{bucket}/digits", *options, **environment)
    cleaned = clean(bucket, **environment)
    left = unfinished(bucket, **environment)
    print(f"the server has answered {len(delayed.requests()):,} requests")
    return status or cleaned or tell(names() + left)


def clean(url: str, **environment: str) -> int:
    command = ["clean", "--older-than=0", url]
    if url.startswith("s3://"):  # where nobody else knows whose an unfinished upload is
        command.append("--uploads")
    print("headrace", *command, flush=True)
    return run("headrace", *command, **environment)


def unfinished(bucket: str, **environment: str) -> list[str]:
    """What `headrace clean` would still abort or leave alone."""
    command = [sys.executable, "-m", "headrace", "clean", "--older-than=0", "--dry-run", "--json"]
    told = subprocess.check_output([*command, bucket], env={**os.environ, **environment})
    found = [json.loads(line) for line in told.splitlines()]
    return [f"an upload of {each['name']}" for each in found if each["type"] == "unfinished_upload"]


def tell(left: list[str]) -> int:
    for name in left:
        print(f"this was left: {name}", file=sys.stderr)
    return 1 if left else 0


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("store", choices=("file", "gs", "s3"))
    parser.add_argument("--latency-ms", type=float, default=20.0)
    arguments, options = parser.parse_known_args()
    if arguments.store == "file":
        return run_in_folder(options)
    run_on = {"gs": run_on_gcs, "s3": run_on_s3}[arguments.store]
    return run_on(arguments.latency_ms / 1e3, options)


if __name__ == "__main__":
    sys.exit(main())
