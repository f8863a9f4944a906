"""Servers that tests share. A test that changes a server's behaviour starts its own."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.servers import Certificates, FakeGcsServer

# A shell starts what runs in its background with SIGINT ignored, and children inherit that: Ctrl-C
# could not be tested there.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and a server certificate for 127.0.0.1, ::1 and localhost."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def fake_gcs() -> Iterator[FakeGcsServer]:
    """A fake-gcs-server for the whole run; take a bucket of your own from `gcs_bucket`."""
    with FakeGcsServer() as server:
        yield server


@pytest.fixture
def gcs_bucket(fake_gcs: FakeGcsServer) -> str:
    """The name of a new, empty bucket on `fake_gcs`."""
    name = f"bucket-{uuid.uuid4().hex}"
    fake_gcs.make_bucket(name)
    return name


@pytest.fixture
def repository() -> Path:
    """The root of the checkout."""
    return Path(__file__).resolve().parent.parent
