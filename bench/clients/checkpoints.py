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
_WIKITEXT_WORDS = 33_278


def _state(request: Answer, device: str = "cpu") -> dict[str, Any]:
    """What is saved: `layers` of Lightning's demo, or a transformer of `size_bytes`."""
    if "layers" in request:
        return _lightning_transformer(request["layers"], device)
    return _transformer(request["size_bytes"], device)


def _lightning_transformer(layers: int, device: str) -> dict[str, Any]:
    """The weights of ``lightning.pytorch.demos.LightningTransformer`` for WikiText2 with as many
    layers in its encoder and in its decoder: thirty small tensors for each."""
    import torch

    attention = {
        "in_proj_weight": (600, 200),
        "in_proj_bias": (600,),
        "out_proj.weight": (200, 200),
        "out_proj.bias": (200,),
    }
    norm = {"weight": (200,), "bias": (200,)}
    linear = {"weight": (200, 200), "bias": (200,)}
    encoder = {"self_attn": attention, "linear1": linear, "linear2": linear}
    encoder |= {"norm1": norm, "norm2": norm}
    decoder = {**encoder, "multihead_attn": attention, "norm3": norm}
    shapes: dict[str, tuple[int, ...]] = {
        "embedding.weight": (_WIKITEXT_WORDS, 200),
        "decoder.weight": (_WIKITEXT_WORDS, 200),
        "decoder.bias": (_WIKITEXT_WORDS,),
    }
    for stack, parts in (("encoder", encoder), ("decoder", decoder)):
        for layer in range(layers):
            for part, tensors in parts.items():
                for name, shape in tensors.items():
                    shapes[f"model.transformer.{stack}.layers.{layer}.{part}.{name}"] = shape
    # Copies of random numbers: to draw all of them would take longer than to save them.
    drawn = {shape: torch.rand(shape, device=device) for shape in set(shapes.values())}
    return {name: drawn[shape].clone() for name, shape in shapes.items()}


def _transformer(size_bytes: int, device: str) -> dict[str, Any]:
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


class _Limited:
    """A file to read from until `limit_s` are over; it counts what it gave, and then fails."""

    def __init__(self, file: Any, limit_s: float) -> None:
        self._file = file
        self._until_s = time.perf_counter() + limit_s
        self.got_bytes = 0
        self.is_over = False

    def read(self, size: int = -1) -> bytes:
        """As much as is asked for."""
        self._check()
        got: bytes = self._file.read(size)
        self.got_bytes += len(got)
        return got

    def readinto(self, buffer: Any) -> int:
        """The same into memory."""
        self._check()
        count: int = self._file.readinto(buffer)
        self.got_bytes += count
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def _check(self) -> None:
        if time.perf_counter() > self._until_s:
            self.is_over = True
            raise TimeoutError("the time for this measurement is over")


def _store(request: Answer) -> Any:
    """The bucket or the directory that is measured."""
    import headrace

    return headrace.Store(request["folder"]) if "folder" in request else store_of(request)


def _gcsfs(request: Answer) -> Any:
    # Else it asks Google by gRPC and TLS what kind of bucket this is, and gives up after a minute.
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    import gcsfs

    return gcsfs.GCSFileSystem(project="bench", token="anon", endpoint_url=request["endpoint"])


def _s3fs(request: Answer) -> Any:
    use_keys(request)
    import s3fs

    return s3fs.S3FileSystem(
        endpoint_url=request["endpoint"], client_kwargs={"region_name": request["region"]}
    )


# Of fsspec: torch reads and writes the files that they open.
_FILESYSTEMS = {"gcsfs": _gcsfs, "s3fs": _s3fs}


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

    state = _state(request)
    tensor_bytes = sum(tensor.nbytes for tensor in state.values())

    # Imports come before the clock starts, as that of torch.
    if request["by"] == "headrace":
        import headrace.checkpoint
    filesystem = _FILESYSTEMS[request["by"]](request) if request["by"] in _FILESYSTEMS else None
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

    def by_filesystem() -> None:
        with filesystem.open(f"{request['bucket']}/{_name(request)}", "wb") as file:
            torch.save(state, file)

    def by_dataflux() -> None:
        with checkpoint.writer("checkpoint.pt") as file:
            torch.save(state, file)

    def by_s3torchconnector() -> None:
        with checkpoint.writer(_url(request)) as file:
            torch.save(state, file)

    ways = {"headrace": by_headrace, "torch": by_torch, "dataflux": by_dataflux}
    ways |= dict.fromkeys(_FILESYSTEMS, by_filesystem)
    run = {**ways, "s3torchconnector": by_s3torchconnector}[request["by"]]
    return _measured(run, tensor_bytes, held_before=True)


def load(request: Answer) -> Answer:
    """The checkpoint back. Ours compares sums, the others compare none."""
    import torch

    # Imports come before the clock starts, as that of torch.
    if request["by"] == "headrace":
        import headrace.checkpoint
    filesystem = _FILESYSTEMS[request["by"]](request) if request["by"] in _FILESYSTEMS else None
    others = {"dataflux": _dataflux, "s3torchconnector": _s3torchconnector}
    checkpoint = others[request["by"]](request) if request["by"] in others else None

    def by_headrace() -> Any:
        return headrace.checkpoint.load(_name(request), store=_store(request))

    def by_torch() -> Any:
        return torch.load(os.path.join(request["folder"], "checkpoint.pt"), weights_only=True)

    limited: _Limited | None = None

    def by_torch_from(file: Any) -> Any:
        nonlocal limited
        if "limit_s" in request:
            file = limited = _Limited(file, request["limit_s"])
        return torch.load(file, weights_only=True)

    def by_filesystem() -> Any:
        with filesystem.open(f"{request['bucket']}/{_name(request)}", "rb") as file:
            return by_torch_from(file)

    def by_dataflux() -> Any:
        return torch.load(checkpoint.reader("checkpoint.pt"), weights_only=True)

    def by_s3torchconnector() -> Any:
        with checkpoint.reader(_url(request)) as file:
            return by_torch_from(file)

    ways = {"headrace": by_headrace, "torch": by_torch, "dataflux": by_dataflux}
    ways |= dict.fromkeys(_FILESYSTEMS, by_filesystem)
    run = {**ways, "s3torchconnector": by_s3torchconnector}[request["by"]]
    # Without bytes: the memory of a state that was there before would be used again.
    state = _state(request, "meta")
    tensor_bytes = sum(tensor.nbytes for tensor in state.values())
    shapes = {name: tensor.shape for name, tensor in state.items()}
    found: dict[str, Any] = {}

    def into_found() -> None:
        try:
            found.update(run())
        except Exception:  # torch makes others of ours
            if limited is None or not limited.is_over:
                raise

    answer = _measured(into_found, tensor_bytes, held_before=False)
    if limited is not None and limited.is_over:
        return {**answer, "bytes": limited.got_bytes, "tensor_bytes": tensor_bytes}
    if {name: tensor.shape for name, tensor in found.items()} != shapes:
        raise AssertionError("what was loaded is not what was saved")
    return {**answer, "tensor_bytes": tensor_bytes}


def save_distributed(request: Answer) -> Answer:
    """The same state by torch.distributed.checkpoint, one rank."""
    import torch.distributed.checkpoint as dcp

    state = _state(request)
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

    state = _state(request)
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
