"""Stores for checkpoints: a directory, and the fault server."""

from __future__ import annotations

import hypothesis
import pytest

pytest.importorskip("torch")

from collections.abc import Iterator

from testing.faultserver.client import FaultServer

# The machine that runs the tests may be slow; what is searched for does not depend on that.
hypothesis.settings.register_profile("headrace", deadline=None, max_examples=50)
hypothesis.settings.load_profile("headrace")


@pytest.fixture(scope="session")
def _checkpoint_server() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture
def server(_checkpoint_server: FaultServer) -> FaultServer:
    """The fault server, empty and well-behaved."""
    _checkpoint_server.reset()
    return _checkpoint_server
