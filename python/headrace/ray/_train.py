"""Workers of Ray Train: which rank they are, and checkpoints that Ray knows of."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any, Unpack

import headrace.checkpoint
from headrace import InvalidArgumentError, ObjectInfo, PreconditionFailedError, Store
from headrace._base.options import require
from headrace._engine import crc32c
from headrace._store.location import is_local, object_at
from headrace.types import LoadKeywords, SaveKeywords, Url

__all__ = ["ranks", "report", "restore"]

_POINTER = "headrace.json"
_OF_LOAD = {"map_location", "weights_only", "verify", "progress"}
_END_BYTES = 64 << 10


def _train() -> Any:
    try:
        import ray.train
    except ImportError as error:
        raise ImportError("this needs Ray Train: pip install 'headrace[ray]'") from error
    return ray.train


def _context(function: str) -> Any:
    try:
        context = _train().get_context()
        context.get_world_rank()
    except (AttributeError, RuntimeError) as error:
        raise InvalidArgumentError(
            f"headrace.ray.{function} was called outside of a worker of Ray Train: call it in the "
            "function that the trainer is given"
        ) from error
    return context


def _version(store: Store, info: ObjectInfo) -> dict[str, Any]:
    """Return what tells this object from another at the same URL, on whatever machine.

    A file's generation is its device, inode, size and time of change, so that `chmod`, a link and
    another node's mount change it. Instead: its size and the CRC-32C of both of its ends. These
    hold the checksums of all storages, or the header of safetensors.
    """
    if not is_local(store.url):
        return {"generation": info.generation}
    size = info.size_bytes
    begin = min(_END_BYTES, size)
    ends = [(info, 0, begin), (info, max(begin, size - _END_BYTES), size)]
    sum_of_ends = 0
    for part in store.read_ranges(each for each in ends if each[1] < each[2]):
        sum_of_ends = crc32c(part, sum_of_ends)
    return {"size_bytes": size, "crc32c_of_ends": sum_of_ends}


def _require_saved(store: Store, info: ObjectInfo, pointer: dict[str, Any]) -> None:
    found = _version(store, info)
    if pointer != {"url": pointer["url"], **found}:
        saved = {name: value for name, value in pointer.items() if name != "url"}
        raise PreconditionFailedError(
            f"{pointer['url']}: was saved as {saved} and is now {found}; a later save has replaced "
            "it: give each step a URL of its own"
        )


def ranks() -> dict[str, int]:
    """Return the rank and the world size of this worker of Ray Train, as keywords of datasets.

    ``Loader`` and the other readers ask torch.distributed by themselves, which ``TorchTrainer``
    initialises. Other trainers have none: give them these.

    Returns:
        ``{"rank": ..., "world_size": ...}``

    Raises:
        InvalidArgumentError: this process is no worker of Ray Train.
        ImportError: Ray Train is not installed.

    Examples:
        >>> loader = Loader(dataset, 64, shuffle=True, **headrace.ray.ranks())  # doctest: +SKIP
    """
    context = _context("ranks")
    return {"rank": context.get_world_rank(), "world_size": context.get_world_size()}


def report(metrics: dict[str, Any], state: Any, url: Url, **options: Unpack[SaveKeywords]) -> None:
    """Save a state at a URL, and report it to Ray Train as a checkpoint.

    Every worker must call this after the same step, as ``ray.train.report``. The worker of rank 0
    saves its state, straight from the tensors to the store; the states of the others are ignored.
    Ray's own checkpoint, in its ``storage_path``, is a file of some bytes with the URL and the
    version. When Ray deletes that, by ``num_to_keep``, the state stays at its URL.

    Args:
        metrics: as for ``ray.train.report``.
        state: as for `headrace.checkpoint.save`: everything that a worker needs to continue, the
            state of a ``Loader`` included.
        url: where to save it. Give each step its own: Ray may restore an older checkpoint.
        options: as for `headrace.checkpoint.save`, without ``store``.

    Raises:
        InvalidArgumentError: this process is no worker of Ray Train, or an argument cannot work.
        HeadraceError: the state could not be saved; nothing is reported then.
        ImportError: Ray Train is not installed.

    Examples:
        >>> headrace.ray.report(                                        # doctest: +SKIP
        ...     {"loss": loss.item()},
        ...     {"model": model.state_dict(), "loader": loader.state_dict()},
        ...     f"gs://bucket/run1/step{step:05d}.pt",
        ... )
    """
    require(
        "store" not in options,
        "report takes a whole URL, which other workers can read, and no store",
    )
    context, train = _context("report"), _train()
    if context.get_world_rank() != 0:
        train.report(metrics)
        return
    saved = headrace.checkpoint.save(state, url, **options)
    with tempfile.TemporaryDirectory(prefix="headrace-ray-") as folder:
        store, name = object_at(url)  # a relative path means something else elsewhere
        pointer = {"url": store.url_of(name), **_version(store, saved)}
        Path(folder, _POINTER).write_text(json.dumps(pointer))
        # Ray uploads the folder before it returns.
        train.report(metrics, checkpoint=train.Checkpoint.from_directory(folder))


def restore(checkpoint: Any = None, **options: Unpack[LoadKeywords]) -> Any:
    """Return the state of a checkpoint that `report` has made, or None if there is none.

    In a worker, that is the newest one of the run: Ray gives it to a run that it starts again after
    a failure. Every worker may call it, also on another number of workers.

    Args:
        checkpoint: the checkpoint of a ``ray.train.Result``. Default: the one that Ray gives to
            this worker.
        options: as for `headrace.checkpoint.load`, without ``store``.

    Raises:
        InvalidArgumentError: the checkpoint is not from `report`; or there is none given, and this
            process is no worker of Ray Train.
        PreconditionFailedError: what lies at the URL is not what was saved: it was replaced, before
            or while it was loaded. A file is compared by its size and its first and last 64 KiB, so
            its mode, its links and its mount may change. Of safetensors files with an index, only
            the index is compared.
        NotFoundError: it was deleted.
        CorruptDataError: a byte of it is wrong.
        ImportError: Ray Train is not installed.

    Examples:
        >>> state = headrace.ray.restore()            # doctest: +SKIP
        >>> if state is not None:                     # doctest: +SKIP
        ...     model.load_state_dict(state["model"])
    """
    if checkpoint is None:
        _context("restore")
        checkpoint = _train().get_checkpoint()
        if checkpoint is None:
            return None
    with checkpoint.as_directory() as folder:
        file = Path(folder, _POINTER)
        if not file.exists():
            raise InvalidArgumentError(
                f"{checkpoint.path}: there is no {_POINTER}, so headrace.ray.report has not made "
                "this checkpoint: read it as it was written"
            )
        pointer = json.loads(file.read_text())
    loading: dict[str, Any] = dict(options)
    of_store = {name: loading.pop(name) for name in options.keys() - _OF_LOAD}
    store, name = object_at(pointer["url"], **of_store)
    info = store.stat(name)
    _require_saved(store, info, pointer)
    state = headrace.checkpoint.load(name, store=store, **loading)
    # `load` has looked for itself. If the object is the same before and after, that was it.
    after = store.stat(name)
    if after.generation != info.generation:
        _require_saved(store, after, pointer)
    return state
