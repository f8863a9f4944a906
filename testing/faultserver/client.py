"""Start and steer `headrace-faultserver` from Python tests; nothing but the standard library.

with FaultServer() as server:
    server.put("bucket", "a/b.bin", b"bytes")
    server.faults([{"match": {"kind": "media"}, "count": 2, "action": {"status": 503}}])
    ...  # run a client against server.url
    assert server.stats()["by_status"]["503"] == 2
"""

from __future__ import annotations

import glob
import http.client
import json
import os
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

_ROOT = Path(__file__).resolve().parents[2]


def find_binary() -> str:
    """`HEADRACE_FAULTSERVER`, or the newest one built under build/."""
    named = os.environ.get("HEADRACE_FAULTSERVER")
    if named:
        return named
    patterns = ["build/*/testing/faultserver/headrace-faultserver"]
    patterns.append("build/testing/faultserver/headrace-faultserver")
    found = [path for pattern in patterns for path in glob.glob(str(_ROOT / pattern))]
    if not found:
        raise FileNotFoundError(
            "headrace-faultserver is not built: configure with -DHEADRACE_BUILD_FAULTSERVER=ON,"
            " or set HEADRACE_FAULTSERVER to its path"
        )
    return max(found, key=os.path.getmtime)


class FaultServer:
    """One running server; a context manager that stops it.

    `dialect` is "gcs", "s3" or "ais"; `domains` are the hosts below which an S3 bucket's name may
    stand ("bucket.localhost" works unless others are given). With `like` an S3 server has the
    manners of some services: one or several of the names in README.md, "crc64-only" for one. A
    server of AIStore is a cluster: a
    proxy, at `url`, `targets` targets, and the other ones of `proxies`, numbered in this order,
    each at a port of its own; by `personality` it answers as 3.23 ("A") or as 5.0 ("B") does.

    Control requests go over one connection that is opened at the start, so that they neither
    count nor suffer under rules about connections. Any thread may call the methods.
    """

    def __init__(
        self,
        *,
        dialect: str = "gcs",
        domains: Iterable[str] = (),
        like: str | Iterable[str] = (),
        targets: int | None = None,
        proxies: int | None = None,
        personality: str | None = None,
        threads: int = 1,
        bind: str = "127.0.0.1",
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        log_capacity: int | None = None,
        md5: bool = True,
        binary: str | None = None,
    ) -> None:
        self._command = [binary or find_binary(), "--stop-with-stdin"]
        self._command += ["--dialect", dialect, "--threads", str(threads), "--bind", bind]
        if targets is not None:
            self._command += ["--targets", str(targets)]
        if proxies is not None:
            self._command += ["--proxies", str(proxies)]
        if personality is not None:
            self._command += ["--personality", personality]
        for name in (like,) if isinstance(like, str) else like:
            self._command += ["--like", name]
        for domain in domains:
            self._command += ["--domain", domain]
        if tls_cert is not None and tls_key is not None:
            self._command += ["--tls-cert", str(tls_cert), "--tls-key", str(tls_key)]
        if log_capacity is not None:
            self._command += ["--log-capacity", str(log_capacity)]
        if not md5:
            self._command.append("--no-md5")
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None
        self._connection: http.client.HTTPConnection | None = None
        self.url = ""
        self.host = ""
        self.port = 0

    def __enter__(self) -> FaultServer:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> FaultServer:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.startswith("listening on "):
            raise RuntimeError(f"headrace-faultserver did not start: {line!r}")
        self.url = line.removeprefix("listening on ").strip()
        parts = urlsplit(self.url)
        self.host, self.port = parts.hostname or "", parts.port or 0
        if parts.scheme == "https":
            # The control connection trusts the process that it has just started.
            context = ssl._create_unverified_context()
            self._connection = http.client.HTTPSConnection(
                self.host, self.port, context=context, timeout=240
            )
        else:
            self._connection = http.client.HTTPConnection(self.host, self.port, timeout=240)
        self._connection.connect()
        return self

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            # It ends with its standard input, which a forked process may still hold open.
            self._process.terminate()
            process, self._process = self._process, None
            status = process.wait(timeout=120)
            if process.stdout is not None:
                process.stdout.close()
            # A crash, or what a sanitizer found, must not pass unseen.
            if status != 0:
                raise RuntimeError(f"headrace-faultserver ended with status {status}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    # Steering.

    def reset(self, *, keep_buckets: bool = False) -> None:
        """Forget rules, limits, latency, tokens, the log, and (unless kept) all buckets."""
        self._post("reset", {"keep_buckets": keep_buckets})
        self.url = self.nodes()[0]["url"]

    def faults(self, rules: Iterable[Mapping[str, Any]]) -> None:
        """Replace all rules; README.md has the table."""
        self._post("faults", {"rules": list(rules)})

    def fault_counts(self) -> list[dict[str, int]]:
        """For each rule how often it matched and how often it fired."""
        found: list[dict[str, int]] = self._json("GET", "faults")
        return found

    def limit(self, **spec: Any) -> None:
        """requests_per_s, burst, in_flight, status, retry_after, bytes_per_s; none: no limit.

        `prefixes` is a list of {bucket, prefix, requests_per_s, burst}: caps for those objects.
        """
        self._post("limit", spec)

    def latency(
        self,
        first_byte_ms: float = 0,
        *,
        tail_fraction: float = 0,
        tail_ms: float = 0,
        seed: int = 1,
    ) -> None:
        """Delay every answer; with `tail_fraction`, that share of them by `tail_ms` instead."""
        self._post(
            "latency",
            {
                "first_byte_ms": first_byte_ms,
                "tail_fraction": tail_fraction,
                "tail_ms": tail_ms,
                "seed": seed,
            },
        )

    def release(self) -> None:
        """End all stalled answers by a reset."""
        self._post("release", {})
        self._settle()

    def close_connections(self, mode: str = "fin") -> None:
        """Close every connection but the control ones, by "fin" or "rst"."""
        self._post("close_connections", {"mode": mode})
        self._settle()

    def auth(self, tokens: Iterable[str]) -> None:
        """Only answer requests that carry one of these bearer tokens; none: all."""
        self._post("auth", {"tokens": list(tokens)})

    def keys(self, *keys: Mapping[str, Any]) -> None:
        """S3: only answer requests signed by one of these; none: all requests.

        Each is {access_key, secret_key}, and if need be session_token, and expired.
        """
        self._post("keys", {"keys": list(keys)})

    def idle(self, close_s: float) -> None:
        """Close connections on which no request came for so long; 0: never."""
        self._post("idle", {"close_s": close_s})

    # The nodes of a cluster, of which the proxy is 0.

    def nodes(self) -> list[dict[str, Any]]:
        """Of each node: id, url, up, in_map, map_flags."""
        found: list[dict[str, Any]] = self._json("GET", "nodes")
        return found

    def node(self, k: int, **spec: Any) -> None:
        """Change a node: up (False: connections are refused and reset), in_map, map_flags,
        primary=True, and move=True, which changes its port."""
        self._post("node", {"node": k, **spec})
        self._settle()
        self.url = self.nodes()[0]["url"]

    def cluster(self, **spec: Any) -> None:
        """Change the cluster: personality, signed_redirects, refuses_direct, rebalance, moss, ...;
        README.md has the table."""
        self._post("cluster", spec)

    def clock(self, offset_s: float) -> None:
        """Let the server's clock be off by so much."""
        self._post("clock", {"offset_s": offset_s})

    def connect_map(self, targets: Mapping[str, str]) -> None:
        """Where CONNECT goes: {"host:port": "127.0.0.1:port"}."""
        self._post("connect", {"map": dict(targets)})

    def min_part_bytes(self, size: int) -> None:
        """The least size of a part of a multipart upload (but the last); 5 MiB at the services."""
        self.uploads_config(min_part_bytes=size)

    def uploads_config(self, **spec: Any) -> None:
        """What multipart uploads must be like: min_part_bytes, max_parts, equal_parts."""
        self._post("uploads_config", spec)

    def like(self, *names: str, **members: Any) -> None:
        """Give all S3 buckets, and those made later, the manners of these services.

        `names` and the `members` of buckets are those of README.md. They come on top of what was
        there; a reset returns to those of the start.
        """
        self._post("like", {"names": list(names), **members})

    # Buckets and objects, past all faults and unrecorded.

    def bucket(self, name: str, **spec: Any) -> None:
        """Create or change a bucket; README.md has the members."""
        self._post("bucket", {"name": name, **spec})

    def synthetic(self, bucket: str, count: int, size_bytes: int | list[int], **spec: Any) -> Any:
        """name_pattern or shape, prefix, per_shard, seed, list_delay_ms."""
        return self._post(
            "synthetic", {"bucket": bucket, "count": count, "size_bytes": size_bytes, **spec}
        )

    def put(self, bucket: str, name: str, data: bytes, **meta: Any) -> dict[str, Any]:
        """Store an object; `meta` as in GCS's JSON API (contentType, ...), and ageSeconds.

        S3: checksumAlgorithm ("none": without), partBytes, and checksumType of such parts.
        """
        query = {"bucket": bucket, "name": name, "meta": json.dumps(meta)}
        path = "object?" + urlencode(query, quote_via=quote)
        stored: dict[str, Any] = json.loads(self._request("PUT", path, data))
        return stored

    def get(self, bucket: str, name: str) -> bytes:
        query = urlencode({"bucket": bucket, "name": name}, quote_via=quote)
        return self._request("GET", "object?" + query)

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        query = urlencode({"bucket": bucket, "prefix": prefix}, quote_via=quote)
        found: list[str] = self._json("GET", "names?" + query)
        return found

    def age_uploads(self, seconds: float) -> None:
        """Let all unfinished multipart uploads be older by so much."""
        self._post("age_uploads", {"seconds": int(seconds)})

    def uploads(self) -> dict[str, list[dict[str, Any]]]:
        """The unfinished uploads: {"resumable": [...], "multipart": [...]}."""
        found: dict[str, list[dict[str, Any]]] = self._json("GET", "uploads")
        return found

    # What happened.

    def carried_out(self, kind: str) -> int:
        """Return how many requests of a kind the log has that were not sent on to another node."""
        return sum(
            request["kind"] == kind and request["status"] not in (301, 307)
            for request in self.log()
        )

    def log(self, since: int = 0, limit: int | None = None) -> list[dict[str, Any]]:
        query = f"log?since={since}" + ("" if limit is None else f"&limit={limit}")
        found: list[dict[str, Any]] = self._json("GET", query)
        return found

    def stats(self) -> dict[str, Any]:
        found: dict[str, Any] = self._json("GET", "stats")
        return found

    def _settle(self) -> None:
        while not self._json("GET", "settled"):
            time.sleep(0.001)  # its threads need the processor

    def _post(self, path: str, body: Any) -> Any:
        return json.loads(self._request("POST", path, json.dumps(body).encode()))

    def _json(self, method: str, path: str) -> Any:
        return json.loads(self._request(method, path))

    def _request(self, method: str, path: str, body: bytes | None = None) -> bytes:
        with self._lock:
            assert self._connection is not None, "the server is not running"
            self._connection.request(method, "/_control/" + path, body)
            answer = self._connection.getresponse()
            data = answer.read()
        if answer.status == 404 and path.startswith("object"):
            raise KeyError(path)
        if answer.status != 200:
            raise ValueError(f"{path}: HTTP {answer.status}: {data.decode(errors='replace')}")
        return data


def main() -> int:
    """Run a server until the standard input closes: python client.py [--threads N]."""
    return subprocess.call([find_binary(), *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
