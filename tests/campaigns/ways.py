"""The ways to save a checkpoint that campaigns try, and how each is read back.

Everything is in miniature. On ``gs://`` parts have 64 KiB, so that a checkpoint of a few hundred of
them has what one of terabytes has, parts that are joined, and joined again. On ``s3://``, where no
part may be smaller than 5 MiB and nothing is joined, two or three of them will do. ``ais://`` has
small parts and joins nothing.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

import headrace
import headrace.checkpoint
from headrace._checkpoints.names import is_data
from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from tests.checkpoint_distributed.conftest import blank
from tests.keys import S3_KEYS

PART_BYTES = {"gs": 64 << 10, "s3": 5 << 20, "ais": 64 << 10}
"""Of checkpoints in stores of each scheme."""
# What each way of sending takes; without one, the scheme decides.
_LEAST_PART_BYTES = {
    **PART_BYTES,
    "file": 64 << 10,
    "resumable": 256 << 10,
    "multipart": 5 << 20,
}
NAME = "run/last"
FAST = headrace.RetryOptions(max_attempts=3, initial_backoff_s=0.001, max_backoff_s=0.002)
SHORT = headrace.TimeoutOptions(
    connect_s=0.5, tls_s=0.5, first_byte_s=0.15, stall_s=0.15, total_s=0.6
)


@dataclass(frozen=True)
class Place:
    """Where the checkpoint of a case goes. Pickles."""

    endpoint: str
    bucket: str
    impatient: bool = False
    """Time-outs are short."""
    scheme: str = "gs"

    @property
    def options(self) -> dict[str, Any]:
        timeout = {"timeout": SHORT} if self.impatient else {}
        keys = {"credentials": S3_KEYS} if self.scheme == "s3" else {}
        return {"endpoint": self.endpoint, "retry": FAST, **timeout, **keys}

    @property
    def store(self) -> headrace.Store:
        return headrace.Store(f"{self.scheme}://{self.bucket}", **self.options)

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.bucket}/{NAME}"

    @property
    def part_bytes(self) -> int:
        return PART_BYTES[self.scheme]

    @property
    def patient(self) -> Place:
        """The same for whoever judges."""
        return replace(self, impatient=False)


@contextlib.contextmanager
def in_miniature() -> Iterator[None]:
    """Small parts in all writers, and options for those who pass none on."""
    from headrace.compat.dataflux_pytorch import dataflux_checkpoint as compat

    open_writer = headrace.Store.open_writer

    def small(self: headrace.Store, name: str, **options: Any) -> Any:
        scheme = self.url.partition("://")[0]
        part_bytes = _LEAST_PART_BYTES[options.get("upload") or scheme]
        return open_writer(self, name, **{**options, "part_bytes": part_bytes})

    def options_of(client: Place) -> dict[str, Any]:
        return client.options

    with (
        mock.patch.object(headrace.Store, "open_writer", small),
        mock.patch.object(compat, "store_options_of", options_of),
    ):
        yield


def filled(value: int, *shape: int) -> torch.Tensor:
    """Random numbers, others for each value."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(value))


# ---- one file


def file_state(value: int, count: int, part_bytes: int) -> dict[str, Any]:
    """A state that is `count` parts long, or nearly."""
    return {
        "model": {
            "weight": filled(value, count * part_bytes // 4 - 2500),
            "bias": filled(value + 1, 7).to(torch.bfloat16),
            "empty": torch.empty(0),
        },
        "step": value,
    }


def save_stream(place: Place, state: Any, **options: Any) -> None:
    with headrace.open(NAME, "wb", store=place.store, **options) as file:
        torch.save(state, file)


def save_file(place: Place, state: Any) -> None:
    headrace.checkpoint.save(state, NAME, store=place.store)


def save_lightning(place: Place, state: Any) -> None:
    from headrace.lightning import CheckpointIO

    CheckpointIO(**place.options).save_checkpoint(state, place.url)


def save_lightning_async(place: Place, state: Any) -> None:
    from headrace.lightning import AsyncCheckpointIO

    plugin = AsyncCheckpointIO(**place.options)
    plugin.save_checkpoint(state, place.url)
    plugin.teardown()


def save_compat_stream(place: Place, state: Any) -> None:
    from headrace.compat.dataflux_pytorch.dataflux_checkpoint import DatafluxCheckpoint

    checkpoint = DatafluxCheckpoint("project", place.bucket, place)
    with checkpoint.writer(NAME) as file:
        torch.save(state, file)


def save_compat_lightning(place: Place, state: Any) -> None:
    from headrace.compat.dataflux_pytorch.lightning import DatafluxLightningCheckpoint

    DatafluxLightningCheckpoint("project", place).save_checkpoint(state, place.url)


def load_file(place: Place, value: int, parts: int) -> Any:
    """What `load` and stock torch read, which must be one."""
    ours = headrace.checkpoint.load(NAME, store=place.store)
    stock = torch.load(io.BytesIO(place.store.read(NAME).bytes()))
    require_same(ours, stock)
    return ours


# ---- a folder


def folder_state(value: int, ranks: int, part_bytes: int) -> dict[str, Any]:
    """Tensors that one rank writes, whichever, in files of one part and of several."""
    large = part_bytes * 5 // 8  # times four: two parts and a half
    sizes = [large, 3000, 3000, 3000, 3000, 3000, 3000, large]
    return {
        "model": {f"w{i}": filled(value + i, size) for i, size in enumerate(sizes)},
        "step": value,
        "worlds": [ranks],
    }


def save_folder(place: Place, state: Any, *, thread_count: int, **options: Any) -> None:
    writer = DistributedWriter(place.url, thread_count=thread_count, **place.options)
    dcp.save(state, storage_writer=writer, **options)


def save_folder_async(place: Place, state: Any, *, in_process: bool) -> None:
    from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

    kind = AsyncCheckpointerType.PROCESS if in_process else AsyncCheckpointerType.THREAD
    writer = DistributedWriter(place.url, thread_count=2, **place.options)
    dcp.async_save(state, storage_writer=writer, async_checkpointer_type=kind).result()


def load_folder(place: Place, value: int, ranks: int) -> Any:
    """What we and stock torch read, which must be one."""
    ours = blank(folder_state(value, ranks, place.part_bytes))
    dcp.load(ours, storage_reader=DistributedReader(place.url, **place.options), no_dist=True)
    stock = blank(folder_state(value, ranks, place.part_bytes))
    with tempfile.TemporaryDirectory() as folder:
        for info in place.store.list(f"{NAME}/"):
            name = info.name.rpartition("/")[2]
            Path(folder, name).write_bytes(place.store.read(info).bytes())
        if Path(folder, ".metadata").exists():
            dcp.load(stock, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
            require_same(ours, stock)
    return ours


# ---- all of them


@dataclass(frozen=True)
class Way:
    """How a checkpoint is saved and read back. Pickles, by its name."""

    name: str
    save: Callable[..., None]
    """``save(place, state)``; several ranks call it with the same state."""
    make_state: Callable[[int, int, int], Any]
    """``make_state(value, size, part_bytes)``"""
    load: Callable[[Place, int, int], Any]
    """``load(place, value, size)``; raises unless all that is there is whole."""
    size: int = 5
    """Parts of a file; ranks of a folder."""
    ranks: int = 0
    """How many processes save together; 0: the one that tries the case."""
    options: dict[str, Any] = field(default_factory=dict, hash=False)
    weight: int = 2
    """Its share in a sample."""
    has_latest: bool = True
    """Whether `latest` finds it: not without a ``.metadata`` of all ranks."""
    scheme: str = "gs"
    """Of the store that it saves to."""

    @property
    def is_folder(self) -> bool:
        return self.make_state is folder_state

    @property
    def saves_in_helper(self) -> bool:
        """Whether torch starts a process that saves."""
        return bool(self.options.get("in_process"))

    def state(self, value: int) -> Any:
        return self.make_state(value, self.size, PART_BYTES[self.scheme])

    def run(self, place: Place, value: int) -> None:
        """Save in this process, or as this rank."""
        options = dict(self.options)
        if self.ranks > 1:
            options["process_group"] = group_of(self.ranks)
        self.save(place, self.state(value), **options)

    def read(self, place: Place) -> int:
        """The value of the checkpoint that is there, whole, every bit of it; raises otherwise."""
        found = self.load(place, 0, self.size)
        value: int = found["step"]
        require_same(found, self.state(value))
        return value

    def is_needed(self, place: Place, name: str) -> bool:
        """Whether an object is one of the checkpoint that is there."""
        if not self.is_folder:
            return name == NAME
        folder, _, last = name.rpartition("/")
        if folder != NAME:
            return False
        if not is_data(last):
            return True
        reader = DistributedReader(place.url, **place.options)
        metadata = reader.read_metadata() if self.has_latest else reader.read_metadata(rank=0)
        return any(info.relative_path == last for info in metadata.storage_data.values())


def _file(name: str, save: Callable[..., None], size: int = 5, **more: Any) -> Way:
    return Way(name, save, file_state, load_file, size, **more)


def _folder(name: str, save: Callable[..., None], ranks: int = 0, **more: Any) -> Way:
    return Way(name, save, folder_state, load_folder, max(ranks, 1), ranks, **more)


_ON_GS = [
    _file("stream", save_stream, weight=4),
    _file("stream of one part", save_stream, 1),
    _file("stream, multipart", save_stream, 176, options={"upload": "multipart"}),
    _file("stream, resumable", save_stream, 20, options={"upload": "resumable"}),
    _file("save", save_file, weight=4),
    _file("save of one part", save_file, 1),
    _file("save of 40 parts", save_file, 40, weight=3),
    _file("lightning", save_lightning),
    _file("lightning, async", save_lightning_async),
    _file("compat stream", save_compat_stream, weight=1),
    _file("compat lightning", save_compat_lightning, weight=1),
    *(
        _folder(f"dcp, threads {n}", save_folder, options={"thread_count": n}, weight=1)
        for n in range(1, 9)
    ),
    _folder("dcp, no_dist", save_folder, options={"thread_count": 2, "no_dist": True}),
    _folder(
        "dcp, no collectives",
        save_folder,
        options={"thread_count": 2, "use_collectives": False},
        has_latest=False,
    ),
    _folder("dcp, async thread", save_folder_async, options={"in_process": False}),
    *(
        _folder(f"dcp, ranks {n}", save_folder, n, options={"thread_count": 2}, weight=3)
        for n in range(1, 5)
    ),
    _folder("dcp, async process", save_folder_async, 1, options={"in_process": True}),
]

# The ways that differ on s3://, and how many parts their files have. The rest differs in what is
# sent to gs:// alone: parts that are joined, and other uploads.
_ON_S3 = {
    "stream": 3,
    "stream of one part": 1,
    "save": 3,
    "save of one part": 1,
    "lightning": 2,
    "lightning, async": 2,
    "dcp, threads 1": None,
    "dcp, threads 4": None,
    "dcp, no_dist": None,
    "dcp, no collectives": None,
    "dcp, async thread": None,
    "dcp, ranks 2": None,
    "dcp, ranks 4": None,
    "dcp, async process": None,
}


# On ais:// there are no conditions, so that all that differs is how objects are sent.
_ON_AIS = dict.fromkeys(_ON_S3)


def _on(scheme: str, way: Way, parts: int | None) -> Way:
    return replace(way, name=f"{scheme}, {way.name}", scheme=scheme, size=parts or way.size)


WAYS: dict[str, Way] = {way.name: way for way in _ON_GS}
for _scheme, _names in (("s3", _ON_S3), ("ais", _ON_AIS)):
    for _name, _parts in _names.items():
        _way = _on(_scheme, WAYS[_name], _parts)
        WAYS[_way.name] = _way


def group_of(ranks: int) -> Any:
    """The process group of the first ranks of this process's world."""
    return _groups[ranks]


_groups: dict[int, Any] = {}


def make_groups() -> None:
    """Make a group of each size; called by all ranks of a world."""
    for ranks in range(1, dist.get_world_size() + 1):
        _groups[ranks] = dist.new_group(range(ranks))


def require_same(found: Any, expected: Any, place: str = "") -> None:
    """Raise unless both are the same, bit for bit."""
    if isinstance(expected, dict):
        same = isinstance(found, dict) and found.keys() == expected.keys()
        if same:
            for key, value in expected.items():
                require_same(found[key], value, f"{place}.{key}")
    elif isinstance(expected, torch.Tensor):
        same = found.dtype == expected.dtype and found.shape == expected.shape
        if same:
            same = torch.equal(*(each.reshape(-1).view(torch.uint8) for each in (found, expected)))
    else:
        same = found == expected
    if not same:
        raise AssertionError(f"{place or 'the state'} is not what was saved")
