"""How many round trips a new process needs to load a checkpoint, counted and not timed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from testing.servers import Certificates, RoundTrips
from tests.checkpoint.states import file_of, filled

MIB = 1 << 20

# Prints the sum of all tensors.
LOAD = """
import sys
import headrace.checkpoint

headrace.configure(io_threads=2)
store = headrace.Store("gs://bucket", endpoint=sys.argv[1], credentials="anonymous")
state = headrace.checkpoint.load(sys.argv[2], store=store)
print(sum(int(each.sum()) for each in state.values()), flush=True)
"""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def loaded(state: dict[str, torch.Tensor], certificates: Certificates | None = None) -> RoundTrips:
    """Return the server from which another process has loaded this state, all of it."""
    server = RoundTrips({"a.pt": file_of(state)}, certificates=certificates)
    output = server.serve([sys.executable, "-c", LOAD, server.url, "a.pt"])
    assert int(output) == sum(int(each.sum()) for each in state.values())
    return server


def test_a_small_checkpoint_takes_two_requests_in_sequence() -> None:
    server = loaded({f"layer.{i}": filled(torch.uint8, 1000, seed=i) for i in range(50)})
    # The connections; where the object is; all of it.
    assert [len(each) for each in server.requests] == [0, 1, 1]
    assert server.unused == 0


def test_the_connections_of_the_storages_are_opened_while_the_ends_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificates.ca_file))
    state = {f"layer.{i}": filled(torch.uint8, 2 * MIB, seed=i) for i in range(8)}
    server = loaded(state, certificates)
    # TCP and TLS of two connections; where the object is; both of its ends, beside TCP of the other
    # connections; the first storages, beside TLS of these; the rest.
    assert [len(each) for each in server.requests] == [0, 0, 1, 2, 2, 6]
    assert server.unused == 0
