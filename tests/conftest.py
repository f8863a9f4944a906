"""Servers and stores that tests share, and which stores a test runs on.

Each process of pytest has a fault server and a fake-gcs-server of its own.
Conformance tests (tests/conformance) run on every store. Others that take `store`, or the `place`
of their folder, run on a folder and on gs://; those marked ``every_store`` on the stores of
`OTHER_STORES`, too, but for those that the nearest mark names:
``every_store(without=["fake-gcs-server"])``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

import headrace
from testing.faultserver.client import FaultServer
from testing.servers import AistoreCluster, Certificates, FakeGcsServer, MinioServer
from tests.keys import S3_KEYS

# Tests count requests, and a busy machine makes some of them late. Those about hedges ask for them
# by `ParallelOptions(hedge=True)`.
os.environ["HEADRACE_HEDGE"] = "0"
# Children that import headrace say at their end which objects nobody has freed.
os.environ["HEADRACE_REPORT_LEAKS"] = "1"

# Whoever runs the tests may have an account of AWS's, which is not for them.
for name in [each for each in os.environ if each.startswith("AWS_")]:
    del os.environ[name]
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = os.devnull

# A shell starts what runs in its background with SIGINT ignored, and children inherit that: Ctrl-C
# could not be tested there.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# The machine that runs the tests may be slow; what is searched for does not depend on that. `make
# test` tries the same examples each time, so that what passed once passes again; `make soak` looks
# for new ones, as many as this says, or the test itself.
SEARCHED = int(os.environ.get("HEADRACE_EXAMPLES") or 0)
hypothesis.settings.register_profile(
    "headrace", deadline=None, max_examples=SEARCHED or 50, derandomize=not SEARCHED
)
hypothesis.settings.load_profile("headrace")
if not SEARCHED:
    # It also tries constants of modules that are imported by now: which ones depends on the tests
    # that the process has run before.
    providers._get_local_constants = lambda: providers._local_constants

STORES = ["file", "gcs"]
OTHER_STORES = ["fake-gcs-server", "s3", "ais"]
"""Fixtures of this name, dashes for underscores, make an empty store."""

# `make quick` runs the tests of these folders, but for the slow ones.
QUICK = {"conformance", "faults", "io", "joining", "listing", "python", "tools"}

# `make quick` sets this to 0, builds no server with Go, and skips what needs one.
HAS_GO_SERVERS = os.environ.get("HEADRACE_TEST_GO_SERVERS") != "0"

Child = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is quick by its folder; leave out the stores that a test is not marked for."""
    tests = Path(__file__).resolve().parent
    left_out = []
    for item in items:
        if item.path.is_relative_to(tests) and item.path.relative_to(tests).parts[0] in QUICK:
            item.add_marker(pytest.mark.quick)
        callspec = getattr(item, "callspec", None)  # there for whatever has parameters
        parameters = {} if callspec is None else callspec.params
        kind = parameters.get("store") or parameters.get("place")
        if kind in OTHER_STORES:
            marker = item.get_closest_marker("every_store")
            if marker is None or kind in marker.kwargs.get("without", ()):
                left_out.append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@pytest.fixture
def own_forkserver() -> Iterator[None]:
    """A forkserver that gets the environment of this test, and hands it to no later one."""
    kept: Any = forkserver._forkserver  # type: ignore[attr-defined]
    kept._stop()
    yield
    kept._stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """A CA and a server certificate for 127.0.0.1, ::1 and localhost."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def fault_server() -> Iterator[FaultServer]:
    """The fault server of the whole run, as the test before has left it; see `server`."""
    with FaultServer() as server:
        yield server


@pytest.fixture
def server(fault_server: FaultServer) -> FaultServer:
    """The fault server, empty and well-behaved; folders put into it what their tests need."""
    # What the test before has not waited for is no request of this one, and its connections, which
    # may be in the midst of something, are closed.
    headrace.shutdown()
    fault_server.reset()
    return fault_server


@pytest.fixture(scope="session")
def s3_fault_server() -> Iterator[FaultServer]:
    """The fault server that speaks S3, as the test before has left it; see `s3_server`."""
    with FaultServer(dialect="s3") as server:
        yield server


@pytest.fixture
def s3_server(s3_fault_server: FaultServer) -> FaultServer:
    """The fault server that speaks S3, empty and well-behaved; it checks the signatures of
    `S3_KEYS`."""
    headrace.shutdown()
    s3_fault_server.reset()
    s3_fault_server.keys(
        {"access_key": S3_KEYS.access_key_id, "secret_key": S3_KEYS.secret_access_key}
    )
    return s3_fault_server


@pytest.fixture(scope="session")
def ais_fault_server() -> Iterator[FaultServer]:
    """The fault server that plays a cluster of AIStore, as the test before has left it; see
    `ais_server`."""
    with FaultServer(dialect="ais", targets=3) as server:
        yield server


@pytest.fixture
def ais_server(ais_fault_server: FaultServer) -> FaultServer:
    """The fault server that plays an AIStore of three targets, empty and well-behaved."""
    headrace.shutdown()
    ais_fault_server.reset()
    return ais_fault_server


@pytest.fixture(scope="session")
def go_servers() -> None:
    """What a server that Go builds needs: that there are any in this run."""
    if not HAS_GO_SERVERS:
        pytest.skip("needs a server built with Go, and `make quick` has none")


@pytest.fixture(scope="session")
def minio(go_servers: None) -> Iterator[MinioServer]:
    """A MinIO for the whole run; take a bucket of your own from `minio_bucket`."""
    with MinioServer(buckets=()) as server:
        yield server


@pytest.fixture
def minio_bucket(minio: MinioServer) -> str:
    """The name of a new, empty bucket on `minio`."""
    name = f"bucket-{uuid.uuid4().hex}"
    status, *_ = minio.request("PUT", f"/{name}")
    assert status == 200
    return name


@pytest.fixture(scope="session")
def ais_cluster(go_servers: None) -> Iterator[AistoreCluster]:
    """An AIStore with one target for the whole run; take a bucket of your own from `ais_bucket`."""
    with AistoreCluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def ais_cluster_of_three(go_servers: None) -> Iterator[AistoreCluster]:
    """An AIStore with three targets for the whole run, all up; for buckets of your own."""
    with AistoreCluster(targets=3) as cluster:
        yield cluster


@pytest.fixture
def ais_bucket(ais_cluster: AistoreCluster) -> str:
    """The name of a new, empty bucket on `ais_cluster`."""
    return ais_cluster.make_bucket()


@pytest.fixture
def ais_bucket_of_three(ais_cluster_of_three: AistoreCluster) -> str:
    """The name of a new, empty bucket on `ais_cluster_of_three`."""
    return ais_cluster_of_three.make_bucket()


@pytest.fixture(scope="session")
def fake_gcs(go_servers: None) -> Iterator[FakeGcsServer]:
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


@pytest.fixture
def gcs(server: FaultServer) -> headrace.Store:
    """An empty store on the fault server."""
    server.bucket("bucket")
    return headrace.Store("gs://bucket", endpoint=server.url)


@pytest.fixture
def s3(s3_server: FaultServer) -> headrace.Store:
    """An empty store on the fault server that speaks S3."""
    s3_server.bucket("bucket")
    return headrace.Store("s3://bucket", endpoint=s3_server.url, credentials=S3_KEYS)


@pytest.fixture
def ais(ais_server: FaultServer) -> headrace.Store:
    """An empty store on the fault server that plays an AIStore."""
    ais_server.bucket("bucket")
    return headrace.Store("ais://bucket", endpoint=ais_server.url)


@pytest.fixture
def file(tmp_path: Path) -> headrace.Store:
    """An empty folder."""
    return headrace.Store(tmp_path)


@pytest.fixture
def fake_gcs_server(fake_gcs: FakeGcsServer, gcs_bucket: str) -> headrace.Store:
    """An empty store on fake-gcs-server."""
    return headrace.Store(f"gs://{gcs_bucket}", endpoint=fake_gcs.url)


@pytest.fixture(params=[*STORES, *OTHER_STORES])
def store(request: pytest.FixtureRequest) -> headrace.Store:
    """An empty store of each kind that the test is to run on."""
    made: headrace.Store = request.getfixturevalue(request.param.replace("-", "_"))
    return made


@pytest.fixture
def run_child() -> Child:
    """Run a script in a fresh interpreter, with more of the environment if need be."""

    def run(script: str, *arguments: str, expect_code: int = 0, **environment: str) -> object:
        done = subprocess.run(
            [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(script), *arguments],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == expect_code, (
            f"code {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        assert "nanobind" not in done.stderr, done.stderr  # it reports leaks there
        return done

    return run  # type: ignore[return-value]
