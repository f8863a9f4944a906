"""torch.save and torch.load over our files."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.utils import _create_file_view

import headrace
from headrace import MiB
from testing.faultserver.client import FaultServer

PART = 64 << 10


def state(seed: int = 0) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    tensors = {f"w{i}": torch.randn(100, 37 * i, generator=generator) for i in range(12)}
    return {"model": tensors, "step": 7, "names": ["a", "b"]}


def equal(left: dict[str, Any], right: dict[str, Any]) -> bool:
    return left["step"] == right["step"] and all(
        torch.equal(left["model"][name], right["model"][name]) for name in left["model"]
    )


@pytest.mark.parametrize("zip_format", [True, False])
def test_save_and_load(store: headrace.Store, zip_format: bool) -> None:
    with headrace.open("a.pt", "wb", store=store, part_bytes=PART) as file:
        torch.save(state(), file, _use_new_zipfile_serialization=zip_format)
    with headrace.open("a.pt", store=store) as file:
        assert equal(torch.load(file), state())


def test_the_bytes_are_those_that_torch_writes_to_a_file(
    store: headrace.Store, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("torch") / "archive"
    with open(path, "wb") as local:
        torch.save(state(), local)
    with headrace.open("a.pt", "wb", store=store, part_bytes=PART) as file:
        torch.save(state(), file)
    assert store.read("a.pt").bytes() == path.read_bytes()


def test_a_failure_in_mid_save_shows_its_cause_and_leaves_the_old_one(
    gcs: headrace.Store, server: FaultServer
) -> None:
    with headrace.open("a.pt", "wb", store=gcs) as file:
        torch.save(state(1), file)
    server.faults([{"match": {"kind": "upload"}, "from": 2, "action": {"status": 403}}])
    with (
        pytest.raises(headrace.PermissionDeniedError, match=r"gs://bucket/a\.pt: its part"),
        headrace.open("a.pt", "wb", store=gcs, part_bytes=PART, max_parts_in_flight=1) as file,
    ):
        torch.save(state(2), file)
    server.faults([])
    assert server.names("bucket") == ["a.pt"]
    with headrace.open("a.pt", store=gcs) as file:
        assert equal(torch.load(file), state(1))


def test_a_load_asks_twice_before_it_fetches_ahead(
    gcs: headrace.Store, server: FaultServer
) -> None:
    tensors = [torch.full((MiB // 2,), float(i)) for i in range(16)]  # 2 MiB each
    with headrace.open("a.pt", "wb", store=gcs) as file:
        torch.save(tensors, file)
    size_bytes = gcs.stat("a.pt").size_bytes
    before = len(server.log())
    with headrace.open("a.pt", store=gcs) as file:
        loaded = torch.load(file)
    assert all(torch.equal(a, b) for a, b in zip(loaded, tensors, strict=True))
    requests = [entry for entry in server.log()[before:] if entry["kind"] in ("get", "media")]
    # What it is and its beginning, at once; its end with the directory; then the storages.
    assert [entry["kind"] for entry in requests[:2]].count("get") == 1
    assert requests[2]["kind"] == "media"
    assert requests[2]["headers"]["range"] == f"bytes={size_bytes - (256 << 10)}-{size_bytes - 1}"
    assert sum(entry["bytes_sent"] for entry in requests) <= size_bytes + 3 * MiB
    assert len(requests) <= 3 + 2 * len(tensors)


def test_dcp_slices(store: headrace.Store) -> None:
    # What torch's FileSystemWriter does to its stream.
    with headrace.open("shard", "wb", store=store, part_bytes=PART) as stream:
        places = []
        for tensor in state()["model"].values():
            begin = stream.tell()
            torch.save(tensor, stream)
            places.append((begin, stream.tell() - begin))
        stream.flush()
        with pytest.raises(OSError, match="fileno"):
            os.fsync(stream.fileno())
    with headrace.open("shard", store=store) as stream:
        for (begin, length), tensor in zip(places, state()["model"].values(), strict=True):
            stream.seek(begin)
            assert len(stream.read(length)) == length
            loaded = torch.load(_create_file_view(stream, begin, length))  # type: ignore[arg-type]
            assert torch.equal(loaded, tensor)
