"""The shape of Orbax' benchmark of torch.distributed.checkpoint: Llama, sharded over ranks.

Orbax runs it on GPUs and a bucket, with gcsfs by torch's own writer, and with gcs-torch-dataflux
after a patch: since torch closes the file, dataflux uploads one that is closed.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.clients.engine import store_of
from bench.clients.measure import Answer

RANKS = 4
# Llama 3.1's 8B with each width a seventh of it, so that the weights are a fiftieth.
_LAYERS, _WIDTH, _KEYS, _INNER, _WORDS = 32, 576, 144, 2016, 18_048
_THREADS = 16


def _shapes() -> dict[str, tuple[int, ...]]:
    attention = {"q": (_WIDTH, _WIDTH), "k": (_KEYS, _WIDTH), "v": (_KEYS, _WIDTH)}
    attention |= {"o": (_WIDTH, _WIDTH)}
    inner = {"gate": (_INNER, _WIDTH), "up": (_INNER, _WIDTH), "down": (_WIDTH, _INNER)}
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (_WORDS, _WIDTH),
        "lm_head.weight": (_WORDS, _WIDTH),
        "model.norm.weight": (_WIDTH,),
    }
    for layer in range(_LAYERS):
        name = f"model.layers.{layer}"
        shapes |= {f"{name}.self_attn.{key}_proj.weight": each for key, each in attention.items()}
        shapes |= {f"{name}.mlp.{key}_proj.weight": each for key, each in inner.items()}
        shapes |= {f"{name}.{key}_layernorm.weight": (_WIDTH,) for key in ("input", "post")}
    return shapes


def _state(fill: float) -> dict[str, Any]:
    """Shards in bfloat16 of all weights, split over the ranks by their rows."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    return {
        name: DTensor.from_local(
            torch.full((rows // RANKS, *rest), fill, dtype=torch.bfloat16), mesh, [Shard(0)]
        )
        for name, (rows, *rest) in _shapes().items()
    }


class _Kept(io.BytesIO):
    """A file that torch cannot close."""

    def close(self) -> None:
        """Leave it as it is."""


def _patched(made: Any, load: Callable[[str], bytes], save: Callable[[str, _Kept], Any]) -> Any:
    """A reader or a writer whose files are in memory, as in Orbax' benchmark."""

    @contextlib.contextmanager
    def create_stream(path: Any, mode: str) -> Iterator[Any]:
        stream = _Kept(load(str(path)) if mode == "rb" else b"")
        yield stream
        if mode == "wb":
            stream.seek(0)
            save(str(path), stream)

    made.fs.create_stream = create_stream
    return made


def _gcsfs(request: Answer) -> tuple[Any, Any]:
    os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter

    url = f"gs://{request['bucket']}/gcsfs"
    options = {"project": "bench", "token": "anon", "endpoint_url": request["endpoint"]}
    writer = FsspecWriter(url, single_file_per_rank=False, thread_count=_THREADS, **options)
    files = writer.fs.fs

    def save(path: str, stream: _Kept) -> None:
        with files.open(path, "wb") as file:
            file.write(stream.getbuffer())

    def rename(old: str, new: str) -> None:
        # gcsfs asks for moveTo, which the fault server has not.
        save(new, _Kept(files.cat_file(old)))
        files.rm(old)

    writer.fs.rename = rename
    return _patched(writer, files.cat_file, save), lambda: _patched(
        FsspecReader(url, **options), files.cat_file, save
    )


def _dataflux(request: Answer) -> tuple[Any, Any]:
    # Google's client finds emulators so.
    os.environ["STORAGE_EMULATOR_HOST"] = request["endpoint"]
    from dataflux_pytorch.lightning.gcs_filesystem import GCSDistributedReader, GCSDistributedWriter
    from dataflux_pytorch.multipart_upload import multipart
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    client = storage.Client(project="bench", credentials=AnonymousCredentials())
    url = f"gs://{request['bucket']}/dataflux"

    def blob(path: str) -> Any:
        # torch makes paths of files of some URLs, with one slash.
        bucket, _, name = path.removeprefix("gs:").lstrip("/").partition("/")
        return client.bucket(bucket).blob(name)

    def load(path: str) -> bytes:
        content: bytes = blob(path).download_as_bytes()
        return content

    def save(path: str, stream: _Kept) -> None:
        multipart.upload_chunks_concurrently_from_bytesio(stream, blob(path))

    options = {"single_file_per_rank": False, "thread_count": _THREADS}
    writer = GCSDistributedWriter(url, "bench", client, **options)
    writer.fs.ls = lambda _: []
    return _patched(writer, load, save), lambda: _patched(
        GCSDistributedReader(url, "bench", client), load, save
    )


def _headrace(request: Answer) -> tuple[Any, Any]:
    from headrace.checkpoint import DistributedReader, DistributedWriter

    store = store_of(request)
    return DistributedWriter("headrace", store=store), lambda: DistributedReader(
        "headrace", store=store
    )


def _rank(rank: int, folder: str, request: Answer) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/ranks", rank=rank, world_size=RANKS
    )
    state = _state(0.5)
    ways = {"gcsfs": _gcsfs, "dataflux": _dataflux, "headrace": _headrace}
    writer, reader = ways[request["by"]](request)
    dist.barrier()
    begin_s = time.perf_counter()
    saving = dcp.async_save(
        state,
        storage_writer=writer,
        planner=dcp.DefaultSavePlanner(enable_plan_caching=True),
        async_checkpointer_type=AsyncCheckpointerType.THREAD,
    )
    blocking_s = time.perf_counter() - begin_s
    saving.result()
    dist.barrier()
    save_s = time.perf_counter() - begin_s
    state = _state(0.0)
    dist.barrier()
    begin_s = time.perf_counter()
    dcp.load(state, storage_reader=reader())
    dist.barrier()
    load_s = time.perf_counter() - begin_s
    if not all(bool((each.to_local() == 0.5).all()) for each in state.values()):
        raise AssertionError("what was loaded is not what was saved")
    size_bytes = RANKS * sum(each.to_local().nbytes for each in state.values())
    if rank == 0:
        found = {"blocking_s": blocking_s, "save_s": save_s, "load_s": load_s, "bytes": size_bytes}
        Path(folder, "found").write_text(json.dumps(found))
    dist.destroy_process_group()


def save_and_load(request: Answer) -> Answer:
    """An asynchronous save of four ranks, and a load; `blocking_s` is how long training waits."""
    import torch.multiprocessing

    with tempfile.TemporaryDirectory(prefix="headrace-orbax-") as folder:
        torch.multiprocessing.spawn(_rank, (folder, request), nprocs=RANKS)
        found: Answer = json.loads(Path(folder, "found").read_text())
    return {"objects": 1, "wall_s": found["save_s"], **found}
