"""Measures headrace on this machine, beside other clients of the same servers.

    make bench                       everything, some six minutes
    make bench BENCH=--quick         the same with less of it, to see that it works
    make bench BENCH="--only tls"    one group
    make bench BENCH="--profile 1k"  where the CPU goes, by `perf`

README.md of this folder says what each row means and gives its command line.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import objects, wrk
from bench.objects import GIB, KIB, MIB, Bucket
from bench.table import Row, tables
from testing.servers import Certificates, FakeGcsServer, Nginx

REPOSITORY = Path(__file__).resolve().parent.parent
BATCH_SIZE = 64
# What the peers' own documentation recommends is no more; more did not make them faster.
OBSTORE_CONCURRENCY = 64
OBSTORE_LATENCY_CONCURRENCY = 512
GOOGLE_THREADS = 32
LATENCY_S = 0.030
BUDGET_BYTES = 256 * MIB

Answer = dict[str, Any]
Client = Callable[[], Answer]


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much of everything a run does."""

    repetitions: int
    duration_s: float
    warm_up_s: float
    peer_repetitions: int  # where a peer only informs
    import_repetitions: int
    idle_s: float
    huge: Bucket


FULL = Effort(
    repetitions=5,
    duration_s=1.5,
    warm_up_s=0.5,
    peer_repetitions=3,
    import_repetitions=15,
    idle_s=3.0,
    huge=objects.HUGE,
)
QUICK = Effort(
    repetitions=1,
    duration_s=1.0,
    warm_up_s=0.25,
    peer_repetitions=1,
    import_repetitions=5,
    idle_s=1.0,
    huge=objects.HUGE_QUICK,
)


class Bench:
    """One run: servers, raw measurements, rows."""

    def __init__(self, effort: Effort, folder: Path) -> None:
        self.effort = effort
        self.folder = folder
        self.root = folder / "objects"
        self.rows: list[Row] = []
        self.measurements: list[Answer] = []

    # ---- pieces

    def client(self, name: str, **request: Any) -> Answer:
        """Run one measurement in a fresh process."""
        environment = {**child_environment(), **request.pop("env", {})}
        command = [sys.executable, "-m", "bench.client", json.dumps({"client": name, **request})]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=90, check=False
        )
        if done.returncode != 0:
            text = (done.stderr or done.stdout).strip()[-800:]
            raise RuntimeError(f"{name} ended with {done.returncode}: {text}")
        answer: Answer = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    def many(self, name: str, endpoint: str, bucket: Bucket, **request: Any) -> Answer:
        """The same for clients that read many objects of a bucket."""
        request = {
            "warm_up_s": self.effort.warm_up_s,
            "duration_s": self.effort.duration_s,
            "batch_size": BATCH_SIZE,
            **request,
        }
        count = request.pop("object_count", bucket.object_count)
        with tempfile.NamedTemporaryFile("w", suffix=".names") as file:
            file.write("\n".join(bucket.object_name(i) for i in range(count)))
            file.flush()
            return self.client(
                name, endpoint=endpoint, bucket=bucket.name, names_file=file.name, **request
            )

    def alternate(
        self, group: str, clients: dict[str, Client], repetitions: int
    ) -> dict[str, list[Answer]]:
        """Run the clients in turn, every second time backwards, so that noise meets all alike.

        A client that fails once is out, and its error is a row.
        """
        answers: dict[str, list[Answer]] = {name: [] for name in clients}
        failed: set[str] = set()
        for repetition in range(repetitions):
            order = list(clients)
            for name in order if repetition % 2 == 0 else reversed(order):
                if name in failed:
                    continue
                say(f"{group}: {name}, {repetition + 1} of {repetitions}")
                try:
                    answer = clients[name]()
                except Exception as error:
                    failed.add(name)
                    self.rows.append(Row(group=group, name=name, unit="", error=str(error)))
                    continue
                answers[name].append(answer)
                self.measurements.append(
                    {"group": group, "client": name, "repetition": repetition, **answer}
                )
        return {name: [] if name in failed else found for name, found in answers.items()}

    def row(
        self, group: str, name: str, unit: str, values: Sequence[float], **target: float
    ) -> None:
        if values:
            self.rows.append(Row(group=group, name=name, unit=unit, values=values, **target))

    def nginx(self, *buckets: Bucket, **options: Any) -> Nginx:
        each = tuple(dict.fromkeys(buckets))
        objects.make(self.root, each)
        objects.warm(self.root, each)
        return Nginx(self.root, locations=objects.nginx_locations(self.root, each), **options)

    def read_many(
        self,
        group: str,
        endpoint: str,
        bucket: Bucket,
        *,
        repetitions: int,
        object_count: int | None = None,
        generation: str | None = objects.GENERATION,
        at_most_us: float | None = None,
        at_least_share: float | None = None,
    ) -> None:
        """headrace, wrk, obstore and google-cloud-storage read the same objects."""
        count = object_count or bucket.object_count
        connections = BATCH_SIZE

        def ours() -> Answer:
            nonlocal connections
            answer = self.many("headrace", endpoint, bucket)
            connections = max(1, answer["connections"])
            return answer

        def wrk_alone() -> Answer:
            return wrk.run(
                endpoint,
                bucket.media_paths(generation)[:count],
                connection_count=connections,
                duration_s=max(1, round(self.effort.duration_s)),
            )

        answers = self.alternate(
            group,
            {
                "headrace": ours,
                "wrk": wrk_alone,
                "obstore": lambda: self.many(
                    "obstore",
                    endpoint,
                    bucket,
                    object_count=count,
                    concurrency=OBSTORE_CONCURRENCY,
                ),
                "google-cloud-storage": lambda: self.many(
                    "google-cloud-storage",
                    endpoint,
                    bucket,
                    object_count=count,
                    concurrency=GOOGLE_THREADS,
                ),
            },
            repetitions,
        )
        found = answers["headrace"]
        target = {} if at_most_us is None else {"at_most": at_most_us}
        self.row(group, "headrace: client CPU per object", "us", cpu_us(found), **target)
        target = {} if at_least_share is None else {"at_least": at_least_share}
        shares = [rate(a) / rate(b) for a, b in zip(found, answers["wrk"], strict=False)]
        self.row(group, "headrace: objects/s, share of wrk's", "", shares, **target)
        self.row(group, "headrace: objects/s", "", [rate(a) for a in found])
        self.row(group, "headrace: connections", "", [a["connections"] for a in found])
        for peer in ("wrk", "obstore", "google-cloud-storage"):
            self.row(group, f"{peer}: client CPU per object", "us", cpu_us(answers[peer]))
            self.row(group, f"{peer}: objects/s", "", [rate(a) for a in answers[peer]])

    # ---- groups

    def group_batches(self) -> None:
        with self.nginx(objects.MIDDLE, objects.SMALL) as server:
            self.read_many(
                "100 KiB, nginx",
                server.url,
                objects.MIDDLE,
                repetitions=self.effort.repetitions,
                at_most_us=40,
                at_least_share=0.5,
            )
            self.read_many(
                "1 KiB, nginx",
                server.url,
                objects.SMALL,
                repetitions=self.effort.repetitions,
                at_most_us=12,
                at_least_share=0.4,
            )

    def group_fake(self) -> None:
        objects.make(self.root, (objects.MIDDLE, objects.SMALL))
        with FakeGcsServer() as server:
            for bucket, count in ((objects.MIDDLE, 500), (objects.SMALL, 2000)):
                server.make_bucket(bucket.name)
                for index in range(count):
                    name = bucket.object_name(index)
                    server.put(bucket.name, name, (self.root / bucket.name / name).read_bytes())
                self.read_many(
                    f"{bucket.sizes_bytes[0] // KIB} KiB, fake-gcs-server",
                    server.url,
                    bucket,
                    repetitions=self.effort.peer_repetitions,
                    object_count=count,
                    generation=None,  # the server gives each object its own
                )

    def group_latency(self) -> None:
        group = f"100 KiB, nginx, first byte after {LATENCY_S * 1e3:.0f} ms"
        warm_up_s = 2 * self.effort.duration_s
        with self.nginx(objects.MIDDLE, latency_s=LATENCY_S) as server:
            answers = self.alternate(
                group,
                {
                    "headrace": lambda: self.many(
                        "headrace", server.url, objects.MIDDLE, warm_up_s=warm_up_s
                    ),
                    "wrk": lambda: wrk.run(
                        server.url,
                        objects.MIDDLE.media_paths(objects.GENERATION),
                        connection_count=OBSTORE_LATENCY_CONCURRENCY,
                        duration_s=max(1, round(self.effort.duration_s)),
                    ),
                    "obstore": lambda: self.many(
                        "obstore",
                        server.url,
                        objects.MIDDLE,
                        warm_up_s=warm_up_s,
                        concurrency=OBSTORE_LATENCY_CONCURRENCY,
                    ),
                },
                self.effort.repetitions,
            )
        found = answers["headrace"]
        self.row(group, "headrace: objects/s", "", [rate(a) for a in found], at_least=10_000)
        shares = [rate(a) / rate(b) for a, b in zip(found, answers["wrk"], strict=False)]
        self.row(group, "headrace: objects/s, share of wrk's", "", shares)
        self.row(group, "headrace: client CPU per object", "us", cpu_us(found))
        self.row(group, "headrace: connections", "", [a["connections"] for a in found])
        for peer in ("wrk", "obstore"):
            self.row(
                group,
                f"{peer}, {OBSTORE_LATENCY_CONCURRENCY} at once: objects/s",
                "",
                [rate(a) for a in answers[peer]],
            )
            self.row(group, f"{peer}: client CPU per object", "us", cpu_us(answers[peer]))

    def group_large(self) -> None:
        bucket = self.effort.huge
        group = f"one object of {bucket.sizes_bytes[0] / GIB:g} GiB by parallel ranges, nginx"
        with self.nginx(bucket) as server:
            ours = self.alternate(
                group,
                {"headrace": lambda: self.many("headrace-into", server.url, bucket)},
                self.effort.repetitions,
            )["headrace"]
            peer = self.alternate(
                group,
                {
                    "obstore": lambda: self.many(
                        "obstore-into", server.url, bucket, size_bytes=bucket.sizes_bytes[0]
                    )
                },
                self.effort.peer_repetitions,
            )["obstore"]
        self.row(
            group,
            "headrace: client CPU per GiB",
            "s",
            [a["cpu_s"] / (a["bytes"] / GIB) for a in ours],
            at_most=0.35,
        )
        self.row(group, "headrace: GiB/s", "", [a["bytes"] / GIB / a["wall_s"] for a in ours])
        self.row(
            group,
            "obstore: client CPU per GiB",
            "s",
            [a["cpu_s"] / (a["bytes"] / GIB) for a in peer],
        )
        self.row(group, "obstore: GiB/s", "", [a["bytes"] / GIB / a["wall_s"] for a in peer])

    def group_tls(self) -> None:
        group = "100 KiB, nginx over TLS"
        certificates = Certificates(self.folder / "certificates")
        connections = BATCH_SIZE
        with self.nginx(objects.MIDDLE, certificates=certificates) as server:

            def ours() -> Answer:
                nonlocal connections
                answer = self.many(
                    "headrace",
                    server.url,
                    objects.MIDDLE,
                    env={"SSL_CERT_FILE": str(certificates.ca_file)},
                )
                connections = max(1, answer["connections"])
                return answer

            answers = self.alternate(
                group,
                {
                    "headrace": ours,
                    "wrk": lambda: wrk.run(
                        server.url,
                        objects.MIDDLE.media_paths(objects.GENERATION),
                        connection_count=connections,
                        # Twice as long: its handshakes are in its CPU, ours are in the warm-up.
                        duration_s=max(2, round(2 * self.effort.duration_s)),
                    ),
                    "obstore": lambda: self.many(
                        "obstore", server.url, objects.MIDDLE, concurrency=OBSTORE_CONCURRENCY
                    ),
                },
                self.effort.repetitions,
            )
        ratios = [
            a / b for a, b in zip(cpu_us(answers["headrace"]), cpu_us(answers["wrk"]), strict=False)
        ]
        self.row(group, "headrace: client CPU per object, over wrk's", "", ratios, at_most=1.35)
        for name in answers:
            self.row(group, f"{name}: client CPU per object", "us", cpu_us(answers[name]))
            self.row(group, f"{name}: objects/s", "", [rate(a) for a in answers[name]])

    def group_memory(self) -> None:
        group = f"peak memory above the start, less the budget of {BUDGET_BYTES // MIB} MiB"
        workloads = {
            "1 KiB, listed": (objects.SMALL, BATCH_SIZE, False),
            "100 KiB, listed": (objects.MIDDLE, BATCH_SIZE, False),
            "0 B to 2 MiB, listed": (objects.MIXED, BATCH_SIZE, False),
            "0 B to 2 MiB, by name": (objects.MIXED, BATCH_SIZE, True),
            "64 MiB, by name": (objects.LARGE, 2, True),
        }
        with self.nginx(*(bucket for bucket, _, _ in workloads.values())) as server:

            def client(bucket: Bucket, batch_size: int, by_name: bool) -> Client:
                return lambda: self.many(
                    "headrace-memory",
                    server.url,
                    bucket,
                    duration_s=1.0,
                    budget_bytes=BUDGET_BYTES,
                    batch_size=batch_size,
                    by_name=by_name,
                )

            answers = self.alternate(
                group,
                {name: client(*workload) for name, workload in workloads.items()},
                self.effort.repetitions,
            )
        for name, found in answers.items():
            self.row(
                group,
                name,
                "MiB",
                [(a["above_start_bytes"] - BUDGET_BYTES) / MIB for a in found],
                at_most=64,
            )

    def group_import(self) -> None:
        group = "start"

        def python(code: str) -> Client:
            def run() -> Answer:
                begin_s = time.perf_counter()
                process = subprocess.Popen([sys.executable, "-c", code])
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode:
                    raise RuntimeError(f"python -c {code!r} ended with {process.returncode}")
                return {
                    "wall_s": time.perf_counter() - begin_s,
                    "cpu_s": usage.ru_utime + usage.ru_stime,
                }

            return run

        # Once before, so that neither pays for a cold disk.
        python("import headrace")()
        answers = self.alternate(
            group,
            {"pass": python("pass"), "import headrace": python("import headrace")},
            self.effort.import_repetitions,
        )
        self.row(
            group,
            "import headrace, above Python's own start",
            "ms",
            [
                (a["wall_s"] - b["wall_s"]) * 1e3
                for a, b in zip(answers["import headrace"], answers["pass"], strict=False)
            ],
            at_most=50,
        )
        # Wall time is the promise; CPU time is what is left of it on a busy machine.
        self.row(
            group,
            "import headrace, CPU above Python's own start",
            "ms",
            [
                (a["cpu_s"] - b["cpu_s"]) * 1e3
                for a, b in zip(answers["import headrace"], answers["pass"], strict=False)
            ],
        )

    def group_idle(self) -> None:
        group = "an idle engine"
        with self.nginx(objects.MIDDLE) as server:
            found = self.alternate(
                group,
                {
                    "headrace": lambda: self.many(
                        "headrace-idle",
                        server.url,
                        objects.MIDDLE,
                        duration_s=self.effort.idle_s,
                    )
                },
                self.effort.peer_repetitions,
            )["headrace"]
        self.row(group, "CPU per second", "ms", [a["cpu_s"] / a["wall_s"] * 1e3 for a in found])

    # ---- perf

    def profile(self, which: str) -> str:
        """The 25 symbols in which headrace spends most of its CPU."""
        bucket = {"1k": objects.SMALL, "100k": objects.MIDDLE}[which]
        data = self.folder / f"perf-{which}.data"
        with self.nginx(bucket) as server:
            request = {
                "client": "headrace",
                "endpoint": server.url,
                "bucket": bucket.name,
                "batch_size": BATCH_SIZE,
                "warm_up_s": 0.2,
                "duration_s": 4.0,
            }
            subprocess.run(
                [
                    "perf",
                    "record",
                    "-q",
                    "-g",
                    "-F",
                    "1999",
                    "-o",
                    str(data),
                    "--",
                    sys.executable,
                    "-m",
                    "bench.client",
                    json.dumps(request),
                ],
                env=child_environment(),
                check=True,
            )
        report = subprocess.run(
            [
                "perf",
                "report",
                "-i",
                str(data),
                "--no-children",
                "-g",
                "none",
                "--stdio",
                "--percent-limit",
                "0.2",
                "--sort",
                "symbol,dso",
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        lines = [line.rstrip() for line in report.splitlines() if re.match(r"\s+\d", line)]
        return "\n".join(lines[:25])


def child_environment() -> dict[str, str]:
    """That of this process, with `bench` importable from anywhere."""
    paths = [os.environ.get("PYTHONPATH", ""), str(REPOSITORY)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def rate(answer: Answer) -> float:
    return float(answer["objects"] / answer["wall_s"])


def cpu_us(answers: Sequence[Answer]) -> list[float]:
    return [a["cpu_s"] / a["objects"] * 1e6 for a in answers]


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def output_of(*command: str) -> str:
    """What a command prints, stripped; empty if it fails."""
    with contextlib.suppress(OSError):
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        # nginx and wrk tell their version on the other stream, wrk with a failing status.
        return (done.stdout or done.stderr).strip()
    return ""


def circumstances(arguments: Sequence[str]) -> dict[str, Any]:
    """What a reader has to know to measure the same again."""
    processor = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    memory = re.search(r"^MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text(), re.M)

    def versions() -> Iterator[tuple[str, str]]:
        for package in ("headrace", "obstore", "google-cloud-storage", "numpy"):
            with contextlib.suppress(metadata.PackageNotFoundError):
                yield package, metadata.version(package)
        yield "nginx", output_of("/usr/sbin/nginx", "-v").rsplit("/", 1)[-1]
        yield "wrk", (output_of("wrk", "-v").split("\n")[0].split() or ["", ""])[1]

    return {
        "command": " ".join(["bench/run.py", *arguments]),
        "commit": output_of("git", "rev-parse", "HEAD"),
        "changed_files": len(output_of("git", "status", "--porcelain").splitlines()),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": {
            "processor": processor.group(1) if processor else platform.processor(),
            "cores": os.cpu_count(),
            "memory_gib": round(int(memory.group(1)) / (1 << 20), 1) if memory else None,
            "kernel": platform.release(),
            "load_before": os.getloadavg(),
        },
        "versions": {"python": platform.python_version(), **dict(versions())},
    }


GROUPS: dict[str, Callable[[Bench], None]] = {
    "batches": Bench.group_batches,
    "latency": Bench.group_latency,
    "large": Bench.group_large,
    "tls": Bench.group_tls,
    "memory": Bench.group_memory,
    "import": Bench.group_import,
    "idle": Bench.group_idle,
    "fake": Bench.group_fake,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="less of everything")
    parser.add_argument(
        "--only", action="append", choices=GROUPS, default=[], help="a group; may be repeated"
    )
    parser.add_argument("--json", type=Path, help="where the result goes")
    parser.add_argument(
        "--folder",
        type=Path,
        default=REPOSITORY / "build" / "bench",
        help="where the objects are made and kept (6 GiB)",
    )
    parser.add_argument("--strict", action="store_true", help="fail if a target is missed")
    parser.add_argument("--profile", choices=("1k", "100k"), help="show where the CPU goes")
    arguments = parser.parse_args()

    arguments.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(QUICK if arguments.quick else FULL, arguments.folder.resolve())
    if arguments.profile:
        print(bench.profile(arguments.profile))
        return 0
    result = circumstances(sys.argv[1:])
    begin_s = time.perf_counter()
    for name in arguments.only or GROUPS:
        try:
            GROUPS[name](bench)
        except Exception:
            bench.rows.append(Row(group=name, name="", unit="", error=traceback.format_exc()))
    result["took_s"] = round(time.perf_counter() - begin_s, 1)
    result["rows"] = [row.to_json() for row in bench.rows]
    result["measurements"] = bench.measurements
    file = arguments.json or arguments.folder / "results.json"
    file.write_text(json.dumps(result, indent=1) + "\n")
    # Of one width wherever it goes: a terminal, a log, a page of docs/measurements.
    console = Console(width=110, highlight=False)
    for table in tables(bench.rows):
        console.print(table, "")
    verdicts = [row.verdict for row in bench.rows]
    print(
        f"\n{verdicts.count('PASS')} PASS, {verdicts.count('MISS')} MISS, "
        f"{verdicts.count('ERROR')} ERROR in {result['took_s']:.0f} s; measurements: {file}"
    )
    return 1 if "ERROR" in verdicts or (arguments.strict and "MISS" in verdicts) else 0


if __name__ == "__main__":
    sys.exit(main())
