"""Checkpoints of one object each, and their removal."""

from __future__ import annotations

import os
from typing import Any

from headrace import checkpoint
from headrace._checkpoint_names import METADATA_NAME
from headrace._errors import InvalidArgumentError, NotFoundError
from headrace._store import UploadWay
from headrace.checkpoint._distributed.folder import Folder

__all__ = ["at", "holds_sharded", "load", "remove", "save"]


def at(path: str | os.PathLike[str], store_options: dict[str, Any]) -> tuple[Folder, str]:
    """Return the folder that the object at `path` is in, and its name there."""
    text = os.fspath(path).rstrip("/")
    parent, _, name = text.rpartition("/")
    if not name or parent.endswith(":/"):
        raise InvalidArgumentError(f"{text!r}: no name of an object")
    if not parent:
        parent = "/" if text.startswith("/") else "."
    # Checked whole, so that the text of an error is what the caller wrote.
    Folder.at(text, store_options)
    return Folder.at(parent, store_options), name


def save(
    obj: Any,
    path: str | os.PathLike[str],
    store_options: dict[str, Any],
    upload: UploadWay = "parts",
) -> None:
    """Save `obj`, as `torch.save` would."""
    folder, name = at(path, store_options)
    checkpoint.save(obj, folder.prefix + name, store=folder.store, upload=upload)


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
    folder, name = at(path, store_options)
    try:
        return checkpoint.load(
            folder.prefix + name,
            map_location,
            weights_only=True if weights_only is None else weights_only,
            store=folder.store,
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
    folder = Folder.at(path, store_options)
    try:
        return folder.store.exists(folder.prefix + METADATA_NAME)
    except InvalidArgumentError:  # a file where the folder would be
        return False


def remove(path: str | os.PathLike[str], store_options: dict[str, Any]) -> None:
    """Delete the object at `path`, and everything below it; what is not there is fine."""
    folder, name = at(path, store_options)
    below = Folder.at(path, store_options)
    try:
        names = [info.name for info in below.store.list(below.prefix)]
    except NotFoundError:
        names = []
    except InvalidArgumentError:  # a file
        names = []
    # First what makes it a checkpoint: half of one must never look like one.
    names.sort(key=lambda each: not each.endswith(METADATA_NAME))
    for each in names:
        below.store.delete(each, missing_ok=True)
    if below.store.url.startswith("file:"):
        _remove_empty(below.url.removeprefix("file://"))
    if not names:
        folder.store.delete(folder.prefix + name, missing_ok=True)


def _remove_empty(directory: str) -> None:
    """Remove a directory that has nothing but directories in it."""
    for parent, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(parent)
        except OSError:
            return
