"""How many round trips a new process needs to its first batch, counted and not timed."""

from __future__ import annotations

import sys

import pytest

from testing.servers import Certificates, RoundTrips

COUNT = 64
OBJECTS = {f"{i:04d}": b"%04d" % i * 25 for i in range(COUNT)}

# Prints the sum of the first batch, which only the right bytes have.
FIRST_BATCH = """
import sys
import headrace
from headrace.torch import Loader, MapDataset

url, expected, in_flight = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
parallel = headrace.ParallelOptions(max_in_flight=in_flight)
store = headrace.Store("gs://bucket", endpoint=url, credentials="anonymous", parallel=parallel)
if expected:
    store.expect_reads(expected)
batch = next(iter(Loader(MapDataset(store), batch_size=64)))
print(sum(int(tensor.sum()) for tensor in batch), flush=True)
"""


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(autouse=True)
def _environment(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    # What sleeps in a pool of its own is at rest, but starting it takes time here.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def first_batch(server: RoundTrips, *, expected: int, in_flight: int = 512) -> None:
    command = [sys.executable, "-c", FIRST_BATCH, server.url, str(expected), str(in_flight)]
    total = sum(sum(content) for content in OBJECTS.values())
    assert int(server.serve(command)) == total
    assert sum(len(each) for each in server.requests) == 1 + COUNT


def test_the_first_batch_over_tls_takes_four_round_trips(certificates: Certificates) -> None:
    server = RoundTrips(OBJECTS, certificates=certificates)
    first_batch(server, expected=COUNT)
    # TCP, TLS, the listing, the reads.
    assert [len(each) for each in server.requests] == [0, 0, 1, COUNT]
    assert server.trips == 4
    assert server.connections == COUNT
    assert server.unused == 0


def test_it_is_as_fast_where_sessions_cannot_be_resumed(certificates: Certificates) -> None:
    server = RoundTrips(OBJECTS, certificates=certificates, has_tickets=False)
    first_batch(server, expected=COUNT)
    assert server.trips == 4


def test_without_tls_it_takes_three(certificates: Certificates) -> None:
    server = RoundTrips(OBJECTS)
    first_batch(server, expected=COUNT)
    assert server.trips == 3
    assert server.unused == 0


def test_what_is_not_expected_is_connected_to_only_when_it_is_read(
    certificates: Certificates,
) -> None:
    server = RoundTrips(OBJECTS, certificates=certificates)
    first_batch(server, expected=0)
    # The connections of the reads come after the listing. They resume its session, but for those
    # that begin before its ticket has been seen.
    assert server.trips == 6
    assert server.resumed > 0


def test_one_request_at_a_time_uses_one_connection(certificates: Certificates) -> None:
    server = RoundTrips(OBJECTS, certificates=certificates)
    first_batch(server, expected=COUNT, in_flight=1)
    assert server.connections == 1
    assert server.trips == 3 + COUNT
