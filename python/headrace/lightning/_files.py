"""Checkpoints of one object each, and their removal."""

from __future__ import annotations

import os
from typing import Any

from headrace import checkpoint
from headrace._checkpoint_names import METADATA_NAME
from headrace._errors import InvalidArgumentError, NotFoundError
from headrace._location import directory_of, object_at
from headrace._store import Store, UploadWay

__all__ = ["holds_sharded", "load", "remove", "save"]


def save(
    obj: Any,
    path: str | os.PathLike[str],
    store_options: dict[str, Any],
    upload: UploadWay = "parts",
) -> None:
    """Save `obj`, as `torch.save` would."""
    store, name = _at(path, store_options)
    checkpoint.save(obj, name, store=store, upload=upload)


def load(
    path: str | os.PathLike[str],
    map_location: Any,
    weights_only: bool | None,
    store_options: dict[str, Any],
) -> Any:
    """Load what `save`, or `torch.save`, has saved.

    Raises:
        NotFoundError: there is no such object.
        InvalidArgumentError: there is a sharded checkpoint.
    """
    store, name = _at(path, store_options)
    try:
        return checkpoint.load(
            name,
            map_location,
            weights_only=True if weights_only is None else weights_only,
            store=store,
        )
    except (NotFoundError, InvalidArgumentError):
        if holds_sharded(path, store_options):
            raise InvalidArgumentError(
                f"{os.fspath(path)} is a sharded checkpoint: load it with the strategy that saved "
                "it, headrace.lightning.FSDPStrategy or ModelParallelStrategy, or with "
                "headrace.checkpoint.DistributedReader"
            ) from None
        raise


def holds_sharded(path: str | os.PathLike[str], store_options: dict[str, Any]) -> bool:
    """Return whether a complete sharded checkpoint lies below `path`."""
    store, name = _at(path, store_options)
    try:
        return store.exists(f"{name}/{METADATA_NAME}")
    except InvalidArgumentError:  # a file where the folder would be
        return False


def remove(path: str | os.PathLike[str], store_options: dict[str, Any]) -> None:
    """Delete the object at `path`, and everything below it; what is not there is fine."""
    store, name = _at(path, store_options)
    try:
        names = [info.name for info in store.list(f"{name}/")]
    except (NotFoundError, InvalidArgumentError):  # no such directory, or a file
        names = []
    # First what makes it a checkpoint: half of one must never look like one.
    names.sort(key=lambda each: not each.endswith(METADATA_NAME))
    for each in names:
        store.delete(each, missing_ok=True)
    directory = directory_of(store)
    if directory is not None:
        _remove_empty(os.path.join(directory, name))
    if not names:
        store.delete(name, missing_ok=True)


def _at(path: str | os.PathLike[str], store_options: dict[str, Any]) -> tuple[Store, str]:
    # A folder is named like an object: it holds what the strategies have saved under that name.
    return object_at(os.fspath(path).rstrip("/"), **store_options)


def _remove_empty(directory: str) -> None:
    """Remove a directory that has nothing but directories in it."""
    for parent, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(parent)
        except OSError:
            return
