"""Checkpoints: a transformer's state saved and loaded, by us and by others."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from bench.clients.engine import store_of
from bench.clients.measure import Answer, cpu_s, forget_peak, status_bytes
from bench.clients.s3_peers import use_keys

_WIDTH = 1024
_VOCABULARY = 32_000


def _state(size_bytes: int, device: str = "cpu") -> dict[str, Any]:
    """The weights of a transformer: layers, in turn of float32 and bfloat16, until it is full."""
    import torch

    shapes = {
        "attention.q.weight": (_WIDTH, _WIDTH),
        "attention.k.weight": (_WIDTH, _WIDTH),
        "attention.v.weight": (_WIDTH, _WIDTH),
        "attention.o.weight": (_WIDTH, _WIDTH),
        "attention.norm.weight": (_WIDTH,),
        "mlp.up.weight": (4 * _WIDTH, _WIDTH),
        "mlp.up.bias": (4 * _WIDTH,),
        "mlp.down.weight": (_WIDTH, 4 * _WIDTH),
        "mlp.norm.weight": (_WIDTH,),
    }
    state = {"embedding.weight": torch.rand(_VOCABULARY, _WIDTH, device=device)}
    left_bytes = size_bytes - state["embedding.weight"].nbytes
    layer = 0
    while left_bytes > 0:
        for name, shape in shapes.items():
            tensor = torch.rand(shape, device=device)
            if layer % 2:
                tensor = tensor.to(torch.bfloat16)
            state[f"layers.{layer}.{name}"] = tensor
            left_bytes -= tensor.nbytes
        layer += 1
    return state


def _measured(run: Callable[[], Any], tensor_bytes: int, *, held_before: bool) -> Answer:
    """`run` once: its time, its CPU, and the most memory above that of the tensors."""
    before_bytes = status_bytes("VmRSS")
    forget_peak()
    begin_cpu_s, begin_s = cpu_s(), time.perf_counter()
    kept = run()
    wall_s, used_s = time.perf_counter() - begin_s, cpu_s() - begin_cpu_s
    above_bytes = status_bytes("VmHWM") - before_bytes - (0 if held_before else tensor_bytes)
    del kept
    return {
        "objects": 1,
        "bytes": tensor_bytes,
        "wall_s": wall_s,
        "cpu_s": used_s,
        "above_tensors_bytes": above_bytes,
    }


def _store(request: Answer) -> Any:
    """The bucket or the directory that is measured."""
    import headrace

    return headrace.Store(request["folder"]) if "folder" in request else store_of(request)


def _gcsfs(request: Answer) -> Any:
    # Else it asks Google by gRPC and TLS what kind of bucket this is, and gives up after a minute.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    import gcsfs

    return gcsfs.GCSFileSystem(project="bench", token="anon", endpoint_url=request["endpoint"])


def _dataflux(request: Answer) -> Any:
    # Google's client finds emulators so.
    os.environ["STORAGE_EMULATOR_HOST"] = request["endpoint"]
    from dataflux_pytorch import dataflux_checkpoint
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(project="bench", credentials=AnonymousCredentials())
    return dataflux_checkpoint.DatafluxCheckpoint("bench", request["bucket"], client)


def _s3torchconnector_config(request: Answer) -> Any:
    use_keys(request)
    from s3torchconnector import S3ClientConfig

    return S3ClientConfig(force_path_style=True, part_size=request["part_bytes"])


def _s3torchconnector(request: Answer) -> Any:
    config = _s3torchconnector_config(request)
    from s3torchconnector import S3Checkpoint

    return S3Checkpoint(request["region"], endpoint=request["endpoint"], s3client_config=config)


def _name(request: Answer) -> str:
    """The object, or the folder: of each client its own, where they would read another's."""
    return str(request.get("saved_as", "checkpoint.pt"))


def _url(request: Answer) -> str:
    return f"s3://{request['bucket']}/{_name(request)}"


def save(request: Answer) -> Answer:
    """One checkpoint, durable and visible at the end."""
    import torch

    state = _state(request["size_bytes"])
    tensor_bytes = sum(tensor.nbytes for tensor in state.values())

    # Imports come before the clock starts, as that of torch.
    if request["by"] == "headrace":
        import headrace.checkpoint
    filesystem = _gcsfs(request) if request["by"] == "gcsfs" else None
    others = {"dataflux": _dataflux, "s3torchconnector": _s3torchconnector}
    checkpoint = others[request["by"]](request) if request["by"] in others else None

    def by_headrace() -> None:
        headrace.checkpoint.save(state, _name(request), store=_store(request))

    def by_torch() -> None:
        path = os.path.join(request["folder"], "checkpoint.pt")
        torch.save(state, path)
        # What the other does, too: who says "saved" means it.
        with open(path, "rb") as file:
            os.fsync(file.fileno())

    def by_gcsfs() -> None:
        with filesystem.open(f"{request['bucket']}/checkpoint.pt", "wb") as file:
            torch.save(state, file)

    def by_dataflux() -> None:
        with checkpoint.writer("checkpoint.pt") as file:
            torch.save(state, file)

    def by_s3torchconnector() -> None:
        with checkpoint.writer(_url(request)) as file:
            torch.save(state, file)

    ways = {"headrace": by_headrace, "torch": by_torch, "gcsfs": by_gcsfs, "dataflux": by_dataflux}
    run = {**ways, "s3torchconnector": by_s3torchconnector}[request["by"]]
    return _measured(run, tensor_bytes, held_before=True)


def load(request: Answer) -> Answer:
    """The checkpoint back. Ours compares sums, the others compare none."""
    import torch

    # Imports come before the clock starts, as that of torch.
    if request["by"] == "headrace":
        import headrace.checkpoint
    filesystem = _gcsfs(request) if request["by"] == "gcsfs" else None
    others = {"dataflux": _dataflux, "s3torchconnector": _s3torchconnector}
    checkpoint = others[request["by"]](request) if request["by"] in others else None

    def by_headrace() -> Any:
        return headrace.checkpoint.load(_name(request), store=_store(request))

    def by_torch() -> Any:
        return torch.load(os.path.join(request["folder"], "checkpoint.pt"), weights_only=True)

    def by_gcsfs() -> Any:
        with filesystem.open(f"{request['bucket']}/checkpoint.pt", "rb") as file:
            return torch.load(file, weights_only=True)

    def by_dataflux() -> Any:
        return torch.load(checkpoint.reader("checkpoint.pt"), weights_only=True)

    def by_s3torchconnector() -> Any:
        with checkpoint.reader(_url(request)) as file:
            return torch.load(file, weights_only=True)

    ways = {"headrace": by_headrace, "torch": by_torch, "gcsfs": by_gcsfs, "dataflux": by_dataflux}
    run = {**ways, "s3torchconnector": by_s3torchconnector}[request["by"]]
    # Without bytes: the memory of a state that was there before would be used again.
    state = _state(request["size_bytes"], "meta")
    tensor_bytes = sum(tensor.nbytes for tensor in state.values())
    shapes = {name: tensor.shape for name, tensor in state.items()}
    found: dict[str, Any] = {}

    def into_found() -> None:
        found.update(run())

    answer = _measured(into_found, tensor_bytes, held_before=False)
    if {name: tensor.shape for name, tensor in found.items()} != shapes:
        raise AssertionError("what was loaded is not what was saved")
    return answer


def save_distributed(request: Answer) -> Answer:
    """The same state by torch.distributed.checkpoint, one rank."""
    import torch.distributed.checkpoint as dcp

    state = _state(request["size_bytes"])
    tensor_bytes = sum(tensor.nbytes for tensor in state.values())
    # Whatever the writer imports comes before the clock starts; its connections do not.
    writer = _distributed(request, "Writer")
    return _measured(
        lambda: dcp.save(state, storage_writer=writer(), no_dist=True),
        tensor_bytes,
        held_before=True,
    )


def load_distributed(request: Answer) -> Answer:
    """It back, into a state whose memory is there, as DCP does it."""
    import torch
    import torch.distributed.checkpoint as dcp

    state = _state(request["size_bytes"])
    for tensor in state.values():
        tensor.zero_()
    tensor_bytes = sum(tensor.nbytes for tensor in state.values())
    reader = _distributed(request, "Reader")
    answer = _measured(
        lambda: dcp.load(state, storage_reader=reader(), no_dist=True),
        tensor_bytes,
        held_before=True,
    )
    # The state is of random numbers, so no tensor of it is nothing but zeros.
    if not all(torch.any(tensor) for tensor in state.values()):
        raise AssertionError("a tensor was not loaded")
    return answer


def _distributed(request: Answer, what: str) -> Callable[[], Any]:
    """What makes the `Writer` or the `Reader` of the folder."""
    if request["by"] == "headrace":
        import headrace.checkpoint

        ours = getattr(headrace.checkpoint, f"Distributed{what}")
        return lambda: ours(_name(request), store=_store(request))
    # It finds the endpoint in the environment.
    config = _s3torchconnector_config(request)
    import s3torchconnector.dcp

    theirs = getattr(s3torchconnector.dcp, f"S3Storage{what}")
    url = _url(request)
    options = {"thread_count": request["thread_count"]} if what == "Writer" else {}
    return lambda: theirs(request["region"], url, s3client_config=config, **options)
