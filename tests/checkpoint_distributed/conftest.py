"""Folders on several stores, and what they hold."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from testing.faultserver.client import FaultServer
from tests.keys import S3_KEYS

# torch says so at every save and load of a single process.
pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


@dataclass(frozen=True)
class Place:
    """Where checkpoints go in a test."""

    url: str
    options: dict[str, Any]
    names: Callable[[], list[str]]
    """All objects below it, without its own prefix."""
    get: Callable[[str], bytes]
    put: Callable[[str, bytes], Any]

    def writer(self, **options: Any) -> DistributedWriter:
        return DistributedWriter(self.url, **self.options, **options)

    def reader(self, **options: Any) -> DistributedReader:
        return DistributedReader(self.url, **self.options, **options)

    def data_names(self) -> list[str]:
        return [name for name in self.names() if name.endswith(".distcp")]


def file_place(root: Path) -> Place:
    def put(name: str, data: bytes) -> None:
        root.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)

    return Place(
        f"file://{root}",
        {},
        lambda: sorted(p.name for p in root.iterdir()) if root.exists() else [],
        lambda name: (root / name).read_bytes(),
        put,
    )


def gcs_place(server: FaultServer, bucket: str, prefix: str) -> Place:
    return _place("gs", server, bucket, prefix)


def _place(scheme: str, server: FaultServer, bucket: str, prefix: str, **options: Any) -> Place:
    return Place(
        f"{scheme}://{bucket}/{prefix}",
        {"endpoint": server.url, **options},
        lambda: sorted(n.removeprefix(f"{prefix}/") for n in server.names(bucket, f"{prefix}/")),
        lambda name: server.get(bucket, f"{prefix}/{name}"),
        lambda name, data: server.put(bucket, f"{prefix}/{name}", data),
    )


@pytest.fixture
def bucket(server: FaultServer) -> str:
    name = f"bucket-{uuid.uuid4().hex}"
    server.bucket(name)
    return name


@pytest.fixture(params=["file", "gcs", "s3", "ais"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return file_place(tmp_path / "run" / "step1")
    found: Place = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def gcs(server: FaultServer, bucket: str) -> Place:
    return gcs_place(server, bucket, "run/step1")


@pytest.fixture
def s3(s3_server: FaultServer) -> Place:
    s3_server.bucket("bucket")
    return _place("s3", s3_server, "bucket", "run/step1", credentials=S3_KEYS)


@pytest.fixture
def ais(ais_server: FaultServer) -> Place:
    ais_server.bucket("bucket")
    return _place("ais", ais_server, "bucket", "run/step1")


def training_state(seed: int = 0) -> dict[str, Any]:
    """A state with the shapes, types and memory layouts that planners give to writers."""
    random = torch.Generator().manual_seed(seed)
    wide = torch.randn(40, 30, generator=random)
    return {
        "model": {
            "weight": torch.randn(300, 1000, generator=random),
            "bias": torch.randn(7, generator=random).to(torch.bfloat16),
            "transposed": wide.t(),
            "column": wide[:, 3],
            "tail_of_larger": wide[30:],
            "complex": torch.randn(3, 4, generator=random).to(torch.complex64).conj(),
            "flags": torch.tensor([True, False, True]),
            "float8": torch.randn(16, generator=random).to(torch.float8_e4m3fn),
            "empty": torch.empty(0, 5),
            "scalar": torch.tensor(2.5 + seed),
            "channels_last": torch.randn(2, 3, 4, 5, generator=random).to(
                memory_format=torch.channels_last
            ),
        },
        "step": 17 + seed,
        "names": ["a", "b"],
    }


def blank(state: dict[str, Any]) -> dict[str, Any]:
    """The same shapes with nothing in them."""
    made: dict[str, Any] = {}
    for name, value in state.items():
        if isinstance(value, dict):
            made[name] = blank(value)
        elif isinstance(value, torch.Tensor):
            made[name] = torch.zeros(value.shape, dtype=value.dtype)
        else:
            made[name] = None
    return made


def assert_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    """Bit for bit."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, dict):
            assert_same(value, right[name])
        elif isinstance(value, torch.Tensor):
            assert (value.dtype, value.shape) == (right[name].dtype, right[name].shape), name
            as_bytes = [
                t.resolve_conj().contiguous().reshape(-1).view(torch.uint8)
                for t in (value, right[name])
            ]
            assert torch.equal(*as_bytes), name
        else:
            assert value == right[name], name
