"""AIStore: a cluster of proxies and targets, each a process, on loopback addresses."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil

from testing.servers import minio
from testing.servers.certificates import Certificates
from testing.servers.minio import MinioServer
from testing.servers.process import REPOSITORY, Running

PUBLIC, INTRA = "127.0.0.1", "127.0.0.2"
READY_WITHIN_S = 80.0

# Of one cluster, from its first port on: public (and intra-cluster control, on the other address),
# intra-cluster data, and what control needs where all are on one address.
_DATA_OFFSET, _CONTROL_OFFSET = 100, 200
_MAX_TARGETS = 50
_PROOF = re.compile(r"(?<=[?&])(?:pid|utm)=[^&]+")  # Of having been redirected.


def binary() -> Path:
    """The server that ``make servers`` builds, or the one named by HEADRACE_AISNODE."""
    path = Path(os.environ.get("HEADRACE_AISNODE") or REPOSITORY / "build" / "servers" / "aisnode")
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: make servers")
    return path


class AistoreCluster(Running):
    """Proxies and targets without a bucket; `url` is the endpoint of the first proxy.

        with AistoreCluster(targets=3) as cluster:
            cluster.make_bucket("bucket")
            cluster.put("bucket", "name", b"bytes")

    Nodes are numbered: 0 is the proxy that is the primary at first, 1 to `targets` are the targets,
    and the other proxies come after them. They know each other as `daemon_id(k)`.

    targets:       how many
    proxies:       how many
    certificates:  speak TLS, to clients and among each other
    program:       another server than `binary()`
    cloud:         a MinIO, whose buckets it then serves as those of the provider ``aws``
    parent:        where its folder is made; default: where temporary files are

    Raises:
        RuntimeError: the nodes did not become ready; with the end of their output.
    """

    def __init__(
        self,
        *,
        targets: int = 1,
        proxies: int = 1,
        certificates: Certificates | None = None,
        program: str | os.PathLike[str] | None = None,
        cloud: MinioServer | None = None,
        parent: str | os.PathLike[str] | None = None,
    ) -> None:
        if not (targets >= 1 and proxies >= 1 and targets + proxies <= 1 + _MAX_TARGETS):
            raise ValueError(
                f"targets={targets}, proxies={proxies}: a cluster has at least one of each, and"
                f" {1 + _MAX_TARGETS} nodes at most"
            )
        self.targets = targets
        self.nodes = targets + proxies
        self._program = Path(program) if program else binary()
        self._certificates = certificates
        self._cloud = cloud
        self._context = (
            ssl.create_default_context(cafile=str(certificates.ca_file)) if certificates else None
        )
        self._scheme = "https" if certificates else "http"
        self._has_intra_address = _provide_intra_address()
        self._folder = tempfile.TemporaryDirectory(prefix="headrace-aistore-", dir=parent)
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self.port = 0
        try:
            for _ in range(5):
                if self._start(_free_ports(self.nodes, self._has_intra_address)):
                    break
                self._end_processes()
            else:
                raise RuntimeError("AIStore found all ports taken, five times in a row")
        except BaseException:
            self.stop()
            raise
        self.url = self.node_url(0)

    # Nodes.

    def _start(self, port: int) -> bool:
        """Start all nodes; False if one of their ports was taken meanwhile."""
        self.port = port
        for k in range(self.nodes):
            self._configure(k)
        # A proxy that is still starting may forget nodes that have joined it.
        self._launch(0)
        if not self._become_ready():
            return False
        for k in range(1, self.nodes):
            self._launch(k)
        return self._become_ready()

    def _become_ready(self) -> bool:
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.is_ready():
            for k, process in self._processes.items():
                if process.poll() is not None:
                    if "address already in use" in self.output(k).lower():
                        return False
                    raise RuntimeError(f"node {k} of AIStore ended: {self.output(k)[-2000:]}")
            if time.monotonic() > deadline:
                ends = [self.output(k)[-1000:] for k in self._processes]
                raise RuntimeError(f"AIStore did not become ready: {ends}")
            time.sleep(0.02)
        return True

    def _configure(self, k: int) -> None:
        """Write the two files that a node starts with."""
        root = self.folder(k)
        for name in ("conf", "log", "fs/mp1"):
            (root / name).mkdir(parents=True, exist_ok=True)
        # A node's public port is open on all addresses, unless its intra-cluster control has the
        # same port on another address.
        intra = INTRA if self._has_intra_address else ""
        control_offset = 0 if self._has_intra_address else _CONTROL_OFFSET
        primary = f"{self._scheme}://{intra or PUBLIC}:{self.port + control_offset}"
        cluster = _cluster_configuration(primary, self._certificates, self._cloud is not None)
        (root / "ais.json").write_text(json.dumps(cluster))
        node = {
            "confdir": str(root / "conf"),
            "log_dir": str(root / "log"),
            "host_net": {
                "hostname": PUBLIC,
                "hostname_intra_control": intra,
                "hostname_intra_data": intra,
                "port": str(self.port + k),
                "port_intra_control": str(self.port + k + control_offset),
                "port_intra_data": str(self.port + k + _DATA_OFFSET),
            },
            "fspaths": {},
            # Loopback addresses, and disks that nodes share, are for tests only.
            "test_fspaths": {"root": str(root / "fs"), "count": 1, "instance": 0},
        }
        (root / "ais_local.json").write_text(json.dumps(node))

    def _launch(self, k: int) -> None:
        root = self.folder(k)
        command = [
            # setpriv instead of preexec_fn, which may deadlock where threads are running.
            *("setpriv", "--pdeathsig", "TERM", str(self._program)),
            f"-role={'proxy' if self.is_proxy(k) else 'target'}",
            f"-config={root / 'ais.json'}",
            f"-local_config={root / 'ais_local.json'}",
            f"-daemon_id={self.daemon_id(k)}",
        ]
        if k == 0:
            # It does not wait for the others, which join when they are ready.
            command.append("-skip_startup=true")
        environment = {
            "PATH": "/usr/bin:/bin:/usr/sbin:/sbin",
            "HOME": str(root),
            "TMPDIR": str(root),
            # Without it the server sends StatsD datagrams.
            "AIS_PROMETHEUS": "true",
            "NO_PROXY": "*",
        }
        if self._cloud:
            environment |= {
                "S3_ENDPOINT": self._cloud.url,
                "AWS_ACCESS_KEY_ID": minio.ACCESS_KEY,
                "AWS_SECRET_ACCESS_KEY": minio.SECRET_KEY,
                "AWS_REGION": minio.REGION,
            }
        with (root / "stdout.log").open("ab") as log:
            self._processes[k] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,  # Ctrl-C in a terminal is the client's.
            )

    def is_ready(self) -> bool:
        """Whether every node that runs answers, and the map has it, and no other target."""
        running = [k for k, process in self._processes.items() if process.poll() is None]
        try:
            for k in running:
                # Not `?readiness=true`, which is so some seconds before a target takes part in all
                # that the cluster does.
                if self.request("GET", "/v1/health", node=k)[0] != 200:
                    return False
            proxies = {self.daemon_id(k) for k in running if self.is_proxy(k)}
            targets = {self.daemon_id(k) for k in running} - proxies
            told = self.map()
            return set(told["tmap"]) == targets and set(told["pmap"]) >= proxies
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def wait_until_ready(self) -> None:
        """Return when every node that runs is in the map and answers."""
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.is_ready():
            if time.monotonic() > deadline:
                raise RuntimeError(f"AIStore did not become ready: {self.output(0)[-2000:]}")
            time.sleep(0.02)

    def is_proxy(self, k: int) -> bool:
        """Whether the node is a proxy; else it is a target."""
        return k == 0 or k > self.targets

    def daemon_id(self, k: int) -> str:
        """The name of a node in the cluster's map."""
        return f"{'pro' if self.is_proxy(k) else 'tar'}{k:05d}"

    def hand_over(self, k: int) -> None:
        """Make this proxy the primary, which another one is, by asking the first proxy."""
        deadline = time.monotonic() + READY_WITHIN_S
        while (answer := self.request("PUT", f"/v1/cluster/proxy/{self.daemon_id(k)}"))[0] != 200:
            # A cluster that has just started is not ready for it.
            if answer[0] != 503 or time.monotonic() > deadline:
                raise RuntimeError(f"the primary is not handed over: {answer}")
            time.sleep(0.05)

    def node_url(self, k: int) -> str:
        """The public endpoint of a node."""
        return f"{self._scheme}://{PUBLIC}:{self.port + k}"

    def folder(self, k: int) -> Path:
        """Where a node keeps its files."""
        return Path(self._folder.name) / f"node{k}"

    def pid(self, k: int) -> int:
        """The process of a node."""
        return self._processes[k].pid

    def output(self, k: int) -> str:
        """What a node has printed so far."""
        path = self.folder(k) / "stdout.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def signal(self, k: int, number: signal.Signals) -> None:
        """Freeze (SIGSTOP), thaw (SIGCONT), or end a node: SIGTERM leaves the cluster, SIGKILL
        does not. Returns when all of a node stands still, or an ended one is gone."""
        process = self._processes[k]
        process.send_signal(number)
        if number in (signal.SIGTERM, signal.SIGKILL):
            process.wait(timeout=READY_WITHIN_S)
        elif number == signal.SIGSTOP:
            threads = Path(f"/proc/{process.pid}/task")
            while any(_state(thread) not in "T" for thread in threads.iterdir()):
                time.sleep(0.001)

    def revive(self, k: int) -> None:
        """Start a node that has ended, with the objects it had; `wait_until_ready` waits for it."""
        if self._processes[k].poll() is None:
            raise RuntimeError(f"node {k} is running")
        self._launch(k)

    def _end_processes(self) -> None:
        # Nothing of what they hold is wanted, so they need not leave the cluster in good order.
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    def stop(self) -> None:
        """End all nodes; what they held is gone."""
        self._end_processes()
        self._folder.cleanup()

    # Requests.

    def request(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        node: int = 0,
        follow: bool = True,
    ) -> tuple[int, dict[str, str], bytes]:
        """Send a request to a node, follow its redirect, return status, headers and body.

        Args:
            target: path and query, percent-encoded, sent as it is; also after a redirect, with
                what `Location` adds.
            follow: False returns the redirect itself.
        """
        address = f"{PUBLIC}:{self.port + node}"
        for _ in range(3):
            connection = self._connect(address)
            try:
                # Only the target wants the bytes of an object; the proxy would wait for them.
                is_upload = method == "PUT" and address == f"{PUBLIC}:{self.port}"
                sent = b"" if is_upload else body
                connection.putrequest(method, target, skip_accept_encoding=True)
                for name, value in (headers or {}).items():
                    connection.putheader(name, value)
                if sent is not None:
                    connection.putheader("Content-Length", str(len(sent)))
                connection.endheaders(sent)
                answer = connection.getresponse()
                told = {name.title(): value for name, value in answer.getheaders()}
                if answer.status not in (301, 307) or not follow:
                    return answer.status, told, answer.read()
            finally:
                connection.close()
            # No URL where a name has a `#`: the older servers do not encode it.
            location = told["Location"]
            address = location.partition("://")[2].partition("/")[0]
            proof = "&".join(_PROOF.findall(location))
            target += ("&" if "?" in target else "?") + proof
        raise RuntimeError(f"{method} {target}: three redirects")

    def _connect(self, address: str) -> http.client.HTTPConnection:
        if self._context:
            return http.client.HTTPSConnection(address, timeout=80.0, context=self._context)
        return http.client.HTTPConnection(address, timeout=80.0)

    def _fine(self, *arguments: Any, **named: Any) -> bytes:
        status, _, body = self.request(*arguments, **named)
        if status != 200:
            raise RuntimeError(f"{arguments[:2]}: HTTP {status}: {body.decode(errors='replace')}")
        return body

    def map(self) -> dict[str, Any]:
        """The cluster map, as the first proxy tells it."""
        found: dict[str, Any] = json.loads(self._fine("GET", "/v1/daemon?what=smap"))
        return found

    def make_bucket(self, bucket: str = "", *, namespace: str = "") -> str:
        """Create an empty bucket, by a name of its own unless one is given; return its name."""
        bucket = bucket or f"bucket-{uuid.uuid4().hex}"
        body = json.dumps({"action": "create-bck"}).encode()
        self._fine("POST", f"/v1/buckets/{bucket}?{_place(namespace)}", body)
        return bucket

    def put(self, bucket: str, name: str, data: bytes, *, namespace: str = "") -> None:
        """Store an object, replacing the one that was there."""
        self._fine("PUT", _object_target(bucket, name, namespace), data)

    def get(self, bucket: str, name: str, *, namespace: str = "") -> bytes | None:
        """The bytes of an object; None if there is none."""
        status, _, body = self.request("GET", _object_target(bucket, name, namespace))
        return body if status == 200 else None

    def delete(self, bucket: str, name: str, *, namespace: str = "") -> None:
        """Delete an object that is there."""
        self._fine("DELETE", _object_target(bucket, name, namespace))

    def names(self, bucket: str, prefix: str = "", *, namespace: str = "") -> list[str]:
        """The names in a bucket that begin with `prefix`, sorted."""
        return list(self._each_name(bucket, prefix, namespace))

    def _each_name(self, bucket: str, prefix: str, namespace: str) -> Iterator[str]:
        value = {"prefix": prefix, "props": "name", "pagesize": 0, "flags": "0"}
        while True:
            body = json.dumps({"action": "list", "value": value}).encode()
            page = json.loads(self._fine("GET", f"/v1/buckets/{bucket}?{_place(namespace)}", body))
            for entry in page["entries"] or ():
                yield entry["name"]
            if not page["continuation_token"]:
                return
            value |= {name: page[name] for name in ("uuid", "continuation_token")}

    def target_of(self, bucket: str, name: str, *, namespace: str = "") -> int:
        """The number of the target to which the proxy sends those who want an object."""
        target = _object_target(bucket, name, namespace)
        status, headers, body = self.request("HEAD", target, follow=False)
        if status != 307:
            raise RuntimeError(f"HEAD {target}: HTTP {status}: {body.decode(errors='replace')}")
        return (urllib.parse.urlsplit(headers["Location"]).port or 0) - self.port


def _state(thread: Path) -> str:
    """Return the letter of its state, as ps has it; "" if it has ended."""
    try:
        return (thread / "stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _place(namespace: str) -> str:
    query = {"provider": "ais", **({"namespace": namespace} if namespace else {})}
    return urllib.parse.urlencode(query)


def _object_target(bucket: str, name: str, namespace: str) -> str:
    return f"/v1/objects/{bucket}/{urllib.parse.quote(name)}?{_place(namespace)}"


def _provide_intra_address() -> bool:
    """Whether loopback has the address for what nodes say to each other, added if need be."""
    if any(address.address == INTRA for address in psutil.net_if_addrs()["lo"]):
        return True
    with contextlib.suppress(FileNotFoundError):
        command = ["ip", "address", "add", f"{INTRA}/32", "dev", "lo"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        # Another process may have added it in between.
        if done.returncode == 0 or "File exists" in done.stderr:
            return True
    if os.environ.get("HEADRACE_AISTORE_BIND_ANY") == "1":
        return False
    raise RuntimeError(
        f"the loopback interface lacks {INTRA}, without which AIStore would listen on all"
        f" addresses: run `ip address add {INTRA}/32 dev lo` as root, or set"
        " HEADRACE_AISTORE_BIND_ANY=1 if that is fine"
    )


def _free_ports(nodes: int, has_intra_address: bool) -> int:
    """The first of ports that are free now, below those which the kernel gives to clients."""
    first_ephemeral = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    span = _CONTROL_OFFSET + _MAX_TARGETS
    intra, control_offset = (INTRA, 0) if has_intra_address else (PUBLIC, _CONTROL_OFFSET)
    for _ in range(1000):
        first = random.SystemRandom().randrange(10_000, first_ephemeral - span)
        wanted = [
            (address, first + k + offset)
            for k in range(nodes)
            for address, offset in ((PUBLIC, 0), (intra, control_offset), (intra, _DATA_OFFSET))
        ]
        if all(_is_free(*each) for each in wanted):
            return first
    raise RuntimeError(f"no free ports for AIStore between 10000 and {first_ephemeral}")


def _is_free(address: str, port: int) -> bool:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError:
            return False
    return True


def _cluster_configuration(
    primary: str, certificates: Certificates | None, has_cloud: bool
) -> dict[str, Any]:
    """The part that all nodes share: what both generations of the server know and ask for."""
    keepalive = {"interval": "10s", "name": "heartbeat", "factor": 3}
    bundle = {"compression": "never", "bundle_multiplier": 2}
    return {
        "backend": {"aws": {}} if has_cloud else {},
        "mirror": {"copies": 2, "burst_buffer": 128, "enabled": False},
        "ec": {
            **{"objsize_limit": 262144, "data_slices": 1, "parity_slices": 1, **bundle},
            **{"enabled": False, "disk_only": False},
        },
        "log": {
            **{"level": "3", "max_size": "4mb", "max_total": "64mb"},
            **{"flush_time": "5s", "stats_time": "60s"},
        },
        "periodic": {"stats_time": "10s", "notif_time": "30s", "retry_sync_time": "2s"},
        "timeout": {
            **{"cplane_operation": "2s", "max_keepalive": "5s", "max_host_busy": "20s"},
            **{"startup_time": "30s", "join_startup_time": "3m", "send_file_time": "5m"},
        },
        "client": {"client_timeout": "10s", "client_long_timeout": "10m", "list_timeout": "1m"},
        "proxy": {
            **{"primary_url": primary, "original_url": primary, "discovery_url": ""},
            "non_electable": False,
        },
        # A disk that others have filled is not full for it.
        "space": {"cleanupwm": 99, "lowwm": 100, "highwm": 100, "out_of_space": 100},
        "lru": {"dont_evict_time": "120m", "capacity_upd_time": "10m", "enabled": False},
        "disk": {
            **{"iostat_time_long": "2s", "iostat_time_short": "100ms"},
            **{"disk_util_low_wm": 20, "disk_util_high_wm": 80, "disk_util_max_wm": 95},
        },
        "rebalance": {"dest_retry_time": "2m", "enabled": True, **bundle},
        "resilver": {"enabled": True},
        "checksum": {
            **{"type": "xxhash", "validate_cold_get": False, "validate_warm_get": False},
            **{"validate_obj_move": False, "enable_read_range": False},
        },
        "transport": {
            **{"max_header": 4096, "burst_buffer": 512, "idle_teardown": "4s"},
            **{"quiescent": "10s", "lz4_block": "256kb", "lz4_frame_checksum": False},
        },
        "memsys": {
            **{"min_free": "512mb", "default_buf": "32kb", "to_gc": "1gb", "hk_time": "90s"},
            **{"min_pct_total": 0, "min_pct_free": 0},
        },
        "versioning": {"enabled": True, "validate_warm_get": False},
        "net": {
            "l4": {"proto": "tcp", "sndrcv_buf_size": 131072},
            "http": {
                "use_https": certificates is not None,
                "server_crt": str(certificates.cert_file) if certificates else "",
                "server_key": str(certificates.key_file) if certificates else "",
                **{"domain_tls": "", "client_ca_tls": "", "client_auth_tls": 0},
                **{"write_buffer_size": 65536, "read_buffer_size": 65536},
                # Among the nodes, whose certificate is for the public address.
                **{"chunked_transfer": True, "skip_verify": certificates is not None},
            },
        },
        "fshc": {"enabled": True, "test_files": 4, "error_limit": 2},
        "auth": {"secret": "", "enabled": False},
        "keepalivetracker": {"proxy": keepalive, "target": keepalive, "retry_factor": 4},
        "downloader": {"timeout": "1h"},
        "distributed_sort": {
            **{"duplicated_records": "ignore", "missing_shards": "ignore"},
            **{"ekm_malformed_line": "abort", "ekm_missing_key": "abort"},
            **{"default_max_mem_usage": "80%", "call_timeout": "10m"},
            **{"dsorter_mem_threshold": "100GB", "compression": "never", "bundle_multiplier": 4},
        },
        "tcb": bundle,
        "write_policy": {"data": "", "md": ""},
        "features": "0",
    }
