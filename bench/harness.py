"""What the groups of rows share: processes that measure, turns that alternate, and the rows."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bench import objects, wrk
from bench.comparison import Comparison
from bench.objects import MIB, Bucket
from bench.table import Row
from testing.servers import Nginx
from testing.servers.s3_client import KEY, REGION

REPOSITORY = Path(__file__).resolve().parent.parent
# Made by tools/peers.sh: what .venv has, and what only these clients need.
_ENVIRONMENTS = {
    "peers": {
        *("obstore", "obstore-into", "obstore-put", "google-cloud-storage", "gcsfs", "dataflux"),
        *("dataflux-epoch", "dataflux-epochs"),
        *("fsspec-gcsfs", "orbax-gcsfs"),
        *("checkpoint-save-gcsfs", "checkpoint-load-gcsfs"),
        *("jpeg-loader", "jpeg-memory", "list-google", "list-dataflux"),
        *("boto3", "list-boto3", "s3torchconnector", "s3dlio", "tokens-megatron"),
        *("mlperf-s3torchconnector", "mlperf-s3dlio"),
        *("checkpoint-save-s3torchconnector", "checkpoint-load-s3torchconnector"),
        *("checkpoint-dcp-save-s3torchconnector", "checkpoint-dcp-load-s3torchconnector"),
    },
    "peers-checkpoints": {
        *("checkpoint-save-dataflux", "checkpoint-load-dataflux", "orbax-dataflux"),
    },
    "peers-s3fs": {"s3fs", "fsspec-s3fs", "checkpoint-save-s3fs", "checkpoint-load-s3fs"},
    "dlio": {"dlio-train", "dlio-checkpoint"},
}
_ENVIRONMENT_OF = {client: name for name, clients in _ENVIRONMENTS.items() for client in clients}

BATCH_SIZE = 64
KEPT_OBJECTS = 4 * BATCH_SIZE  # what read_batches has at the same time: some batches
LATENCY_S = 0.030
BUDGET_BYTES = 256 * MIB

# What a client is told of a server that looks like S3 and takes any signature.
S3 = {"scheme": "s3", "region": REGION, **KEY}

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
    # Of an epoch of a dataset or a loader.
    middle_objects: int
    small_objects: int
    overhead_epochs: int
    listed_objects: int
    throttled_phase_s: float
    throttled_runs: int
    recovery_runs: int
    # headrace.compat beside dataflux.
    duel_small_objects: int
    duel_large_objects: int
    duel_warm_up_s: float
    duel_s: float
    checkpoint_repetitions: dict[float, int]  # by size in GiB
    aistore_small_objects: int
    aistore_middle_objects: int
    aistore_blog_objects: int
    # Of a client beside what others published: the longest that it reads.
    published_s: float
    published_divisor: int  # of the number of objects
    published_step: int  # takes one row of so many
    million_s: float  # of the pass over samples of 1 kB


FULL = Effort(
    repetitions=5,
    duration_s=1.5,
    warm_up_s=0.5,
    peer_repetitions=3,
    import_repetitions=15,
    idle_s=3.0,
    huge=objects.HUGE,
    middle_objects=20_000,
    small_objects=80_000,
    overhead_epochs=11,
    listed_objects=1_000_000,
    throttled_phase_s=30.0,
    throttled_runs=1,
    recovery_runs=3,
    duel_small_objects=20_000,
    duel_large_objects=2_000,
    duel_warm_up_s=1.0,
    duel_s=3.0,
    checkpoint_repetitions={1: 3, 4: 1},
    aistore_small_objects=20_000,
    aistore_middle_objects=2_000,
    aistore_blog_objects=100_000,
    published_s=5.0,
    published_divisor=1,
    published_step=1,
    million_s=1.0,
)
# As many samples as were published, once.
SOAK = replace(FULL, repetitions=1, aistore_blog_objects=1_000_000, million_s=60.0)
QUICK = Effort(
    repetitions=1,
    duration_s=1.0,
    warm_up_s=0.25,
    peer_repetitions=1,
    import_repetitions=5,
    idle_s=1.0,
    huge=objects.HUGE_QUICK,
    middle_objects=4_000,
    small_objects=16_000,
    overhead_epochs=3,
    listed_objects=100_000,
    throttled_phase_s=4.0,
    throttled_runs=1,
    recovery_runs=1,
    duel_small_objects=2_000,
    duel_large_objects=200,
    duel_warm_up_s=0.5,
    duel_s=1.0,
    checkpoint_repetitions={0.25: 1},
    aistore_small_objects=2_000,
    aistore_middle_objects=512,
    aistore_blog_objects=2_000,
    published_s=1.0,
    published_divisor=20,
    published_step=3,
    million_s=0.25,
)


class Bench:
    """One run: servers, raw measurements, rows."""

    def __init__(self, effort: Effort, folder: Path, against: Path | None = None) -> None:
        self.effort = effort
        self.folder = folder
        self.root = folder / "objects"
        # Another checkout, built: its headrace is measured beside this one's, and nothing else is.
        self.against = against
        self._checkout = REPOSITORY
        self.rows: list[Row] = []
        self.measurements: list[Answer] = []
        # Beside what others have published.
        self.comparisons: list[Comparison] = []

    # ---- measurements

    def client(self, name: str, **request: Any) -> Answer:
        """Run one measurement in a fresh process."""
        environment = {**child_environment(self._checkout), **request.pop("env", {})}
        timeout_s = request.pop("timeout_s", 90)
        python = self._python_of(name)
        command = [python, "-m", "bench.client", json.dumps({"client": name, **request})]
        done = subprocess.run(
            command,
            cwd=self._checkout,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode != 0:
            text = (done.stderr or done.stdout).strip()[-800:]
            raise RuntimeError(f"{name} ended with {done.returncode}: {text}")
        answer: Answer = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    def program(self, path: str, *arguments: str) -> Answer:
        """Run one measurement by a program of the build, whose last line is its answer."""
        command = [str(self._checkout / "build" / "release" / path), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{path} ended with {done.returncode}: {done.stderr.strip()[-800:]}")
        answer: Answer = json.loads(done.stdout.strip().splitlines()[-1])
        return answer

    def yardstick(
        self,
        name: str,
        endpoint: str,
        bucket: Bucket,
        *options: str,
        connection_count: int,
        duration_s: float | None = None,
        paths: Sequence[str] | None = None,
    ) -> Answer:
        """The least that a client has to do: `epoll`, `uring` or `h2`, with options of its own.

        `paths` stand for those of the JSON API: of the first objects, in order.
        """
        self.only_beside_others()
        paths = paths or bucket.media_paths(objects.GENERATION)
        sums = map(objects.crc32c_of, objects.listed(self.root, bucket)[: len(paths)])
        with tempfile.NamedTemporaryFile("w", suffix=".paths") as file:
            file.writelines(f"{path}\t{crc32c}\n" for path, crc32c in zip(paths, sums, strict=True))
            file.flush()
            return self.program(
                f"bench/headrace-bench-{name}",
                endpoint.rsplit(":", 1)[1],
                file.name,
                str(connection_count),
                str(duration_s or self.effort.duration_s),
                str(KEPT_OBJECTS),
                *options,
            )

    def many(self, name: str, endpoint: str, bucket: Bucket, **request: Any) -> Answer:
        """The same for clients that read many objects of a bucket."""
        request = {
            "warm_up_s": self.effort.warm_up_s,
            "duration_s": self.effort.duration_s,
            "batch_size": BATCH_SIZE,
            **request,
        }
        count = request.pop("object_count", bucket.object_count)
        with self.objects_file(bucket, count) as file:
            return self.client(
                name, endpoint=endpoint, bucket=bucket.name, objects_file=file, **request
            )

    @contextlib.contextmanager
    def objects_file(self, bucket: Bucket, count: int | None = None) -> Iterator[str]:
        """Names and CRC32Cs of the first `count` objects, for clients that do not list."""
        listed = list(objects.listed(self.root, bucket))[:count]
        names = [item["name"] for item in listed]
        sums = [objects.crc32c_of(item) for item in listed]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump((names, sums), file)
            file.flush()
            yield file.name

    def wrk(
        self,
        endpoint: str,
        bucket: Bucket,
        *,
        connection_count: int,
        generation: str | None = objects.GENERATION,
        object_count: int | None = None,
        duration_s: float | None = None,
        paths: Sequence[str] | None = None,
    ) -> Answer:
        """The yardstick: one thread of C that throws away what it reads.

        `paths` stand for those of the JSON API.
        """
        self.only_beside_others()
        paths = paths or bucket.media_paths(generation)
        return wrk.run(
            endpoint,
            paths[: object_count or bucket.object_count],
            connection_count=connection_count,
            duration_s=max(1, round(duration_s or self.effort.duration_s)),
        )

    def alternate(
        self, group: str, clients: dict[str, Client], repetitions: int
    ) -> dict[str, list[Answer]]:
        """Run the clients in turn, every second time backwards, so that noise meets all alike.

        A client that fails once is out, and its error is a row. Where two checkouts are compared,
        the rows are made here, and no answers are returned.
        """
        if self.against is not None:
            self._compare_checkouts(group, clients, self.against)
            return {name: [] for name in clients}
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

    # ---- two checkouts

    def only_beside_others(self) -> None:
        """End a client that is not headrace, where only two checkouts of it are compared."""
        if self.against is not None:
            raise _NotOursError

    def python(self) -> str:
        """The interpreter of the checkout that is being measured."""
        return str(self._checkout / ".venv" / "bin" / "python")

    def _python_of(self, client: str) -> str:
        if client in _ENVIRONMENT_OF:
            self.only_beside_others()
            return str(peers_python(_ENVIRONMENT_OF[client]))
        return self.python()

    def _compare_checkouts(self, group: str, clients: dict[str, Client], other: Path) -> None:
        """Pairs of each client, here and there in turn; the order changes from pair to pair."""
        for name, client in clients.items():
            pairs: list[tuple[Answer, Answer]] = []
            try:
                for repetition in range(self.effort.repetitions):
                    say(f"{group}: {name}, pair {repetition + 1} of {self.effort.repetitions}")
                    answers = {}
                    order = (REPOSITORY, other) if repetition % 2 == 0 else (other, REPOSITORY)
                    for checkout in order:
                        self._checkout = checkout
                        answers[checkout] = client()
                    pairs.append((answers[REPOSITORY], answers[other]))
            except _NotOursError:
                continue
            except Exception as error:
                where = "here" if self._checkout == REPOSITORY else "there"
                self.rows.append(
                    Row(group=group, name=f"{name}, {where}", unit="", error=str(error))
                )
                continue
            finally:
                self._checkout = REPOSITORY
            for repetition, (mine, its) in enumerate(pairs):
                self.measurements.append(
                    {"group": group, "client": name, "repetition": repetition}
                    | {"here": mine, "there": its}
                )
            for key, text in (("cpu_s", "client CPU"), ("wall_s", "time")):
                # A client that reads for some seconds reads more when it is faster.
                ratios = [
                    (mine[key] / mine.get("objects", 1)) / (its[key] / its.get("objects", 1))
                    for mine, its in pairs
                    if its.get(key) and its.get("objects", 1) and mine.get("objects", 1)
                ]
                self.row(group, f"{name}: {text}, here over there", "", ratios, at_most=1.03)

    # ---- rows

    def row(
        self, group: str, name: str, unit: str, values: Sequence[float], **target: float | None
    ) -> None:
        """One row; none where nothing was measured, as its error is a row already.

        `target`: ``at_most`` or ``at_least``; None: the row only informs.
        """
        if values:
            self.rows.append(Row(group=group, name=name, unit=unit, values=values, **target))

    def rates(
        self, group: str, name: str, answers: Sequence[Answer], **target: float | None
    ) -> None:
        """Objects per second."""
        self.row(group, f"{name}: objects/s", "", [rate(a) for a in answers], **target)

    def cpu(self, group: str, name: str, answers: Sequence[Answer], **target: float | None) -> None:
        """Microseconds of CPU per object."""
        self.row(group, f"{name}: client CPU per object", "us", cpu_us(answers), **target)

    # ---- servers

    def nginx(self, *buckets: Bucket, s3: bool = False, **options: Any) -> Nginx:
        """A server of these buckets, which are made if need be; with `s3` it looks like S3, too."""
        each = tuple(dict.fromkeys(buckets))
        objects.make(self.root, each)
        objects.warm(self.root, each)
        return Nginx(
            self.root,
            locations=objects.nginx_locations(self.root, each, s3=s3),
            sums=objects.sums(self.root, each) if s3 else None,
            **options,
        )


class Connections:
    """How many connections wrk is to open: as many as another client had at the last count."""

    def __init__(self) -> None:
        self.count = BATCH_SIZE

    def of(self, client: Client) -> Client:
        """The client, counted."""

        def run() -> Answer:
            answer = client()
            self.count = max(1, answer["connections"])
            return answer

        return run


class _NotOursError(Exception):
    """Another client than headrace."""


def peers_python(environment: str) -> Path:
    """The interpreter with which other clients run."""
    return REPOSITORY / ".venvs" / environment / "bin" / "python"


def child_environment(checkout: Path = REPOSITORY) -> dict[str, str]:
    """That of this process, with the checkout's `bench` importable from anywhere."""
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    others = [path for path in paths if path and Path(path) != REPOSITORY]
    return {**os.environ, "PYTHONPATH": os.pathsep.join([*others, str(checkout)])}


def environment_before() -> dict[str, str] | None:
    """Of a client that is to use another build's package: the folder that HEADRACE_BENCH_BEFORE
    names, such as ../other/build/release/python. None: it names none."""
    before = os.environ.get("HEADRACE_BENCH_BEFORE")
    if not before:
        return None
    return {"PYTHONPATH": os.pathsep.join([str(Path(before).resolve()), str(REPOSITORY)])}


def rate(answer: Answer) -> float:
    """Objects per second."""
    return float(answer["objects"] / answer["wall_s"])


def cpu_us(answers: Sequence[Answer]) -> list[float]:
    """Microseconds of CPU per object, of each answer."""
    return [a["cpu_s"] / a["objects"] * 1e6 for a in answers]


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Of each turn, how many times theirs ours is."""
    return [a / b for a, b in zip(ours, theirs, strict=False)]


def rate_ratios(ours: Sequence[Answer], theirs: Sequence[Answer]) -> list[float]:
    """Of each turn, how many times their objects per second ours are."""
    return ratios([rate(a) for a in ours], [rate(a) for a in theirs])


def say(text: str) -> None:
    """Tell what is going on, beside the result."""
    print(text, file=sys.stderr, flush=True)
