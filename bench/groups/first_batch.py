"""How long a new process waits for its first batch over a long line, in round trips."""

from __future__ import annotations

from collections.abc import Callable

from bench.harness import Answer, Bench, Client
from bench.objects import KIB, Bucket
from testing.servers import Certificates, FarLine

_ONE_WAY_S = 0.015
_COUNT = 64
BUCKET = Bucket(name="bench-first", object_count=_COUNT, sizes_bytes=(4 * KIB,))


def first_batch(bench: Bench) -> None:
    """nginx over TLS behind a line of 15 ms each way; tests count the round trips exactly."""
    group = f"first batch of {_COUNT}, nginx over TLS, 15 ms each way"
    certificates = Certificates(bench.folder / "certificates")
    with (
        bench.nginx(BUCKET, certificates=certificates) as server,
        FarLine(server.url, one_way_s=_ONE_WAY_S) as line,
    ):

        def client(expected: int) -> Client:
            def run() -> Answer:
                return bench.client(
                    "first-batch",
                    endpoint=line.url,
                    bucket=BUCKET.name,
                    expected=expected,
                    env={"SSL_CERT_FILE": str(certificates.ca_file)},
                )

            return run

        clients = {"expected": client(_COUNT), "not expected": client(0)}
        answers = bench.alternate(group, clients, bench.effort.repetitions)
    targets = {"expected": 5.0, "not expected": None}
    for name, found in answers.items():
        trips = [each["wall_s"] / (2 * _ONE_WAY_S) for each in found]
        bench.row(group, f"reads {name}: time over 30 ms", "", trips, at_most=targets[name])


GROUPS: dict[str, Callable[[Bench], None]] = {"first-batch": first_batch}
