"""Which object of which store a URL means."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from headrace import _engine
from headrace._checkpoint_names import METADATA_NAME
from headrace._engine import ObjectInfo
from headrace._errors import CorruptDataError, InvalidArgumentError, NotFoundError
from headrace._options import require
from headrace._store import Store

__all__ = ["Url", "about", "corrupt", "locate", "pinned", "refused", "stat"]

Url = str | os.PathLike[str]


def locate(url: Url, store: Store | None) -> tuple[Store, str]:
    """Return the store of `url` and the object's name in it.

    Args:
        url: of an object; with `store` its name in that store.
        store: default: a store of the URL's bucket, with the options' defaults.

    Raises:
        InvalidArgumentError: the URL names no object.
    """
    text = name = os.fspath(url)
    require(bool(text), "the URL is empty")
    if store is None:
        scheme, bucket, name, _ = _engine.split_url(text)
        require(bool(name), f"{text}: it names a bucket, and no object in it")
    require(
        name[-1:] != "/",
        f"{text}: it names a directory, and a checkpoint is one object: leave out the / at its end",
    )
    if store is not None:
        return store, name
    if scheme == "file":
        # Files are objects of the root directory, so that all stores look alike.
        return Store("file:///"), os.path.abspath(name).lstrip("/")
    return Store(f"{scheme}://{bucket}"), name


def stat(store: Store, name: str) -> ObjectInfo:
    """Return what the store knows of a checkpoint's object.

    Raises:
        NotFoundError: there is no such object.
        InvalidArgumentError: it is a folder of `torch.distributed.checkpoint`.
    """
    try:
        return store.stat(name)
    except NotFoundError:
        if not store.exists(f"{name}/{METADATA_NAME}"):
            raise
    raise refused(
        store.url_of(name),
        "it is a folder of torch.distributed.checkpoint: load it by that, with "
        "storage_reader=headrace.checkpoint.DistributedReader(url)",
    )


def pinned(store: Store) -> Store:
    """Return the store, which reads no other generation than it is told to."""
    # "reread" would mix two of them here.
    return store if store._settings["on_change"] == "error" else store._with(on_change="error")


def corrupt(url: str, text: str) -> CorruptDataError:
    """Return the error for an object whose bytes are not right."""
    error = CorruptDataError(f"{url}: {text}")
    error.url = url
    return error


def refused(url: str, text: str) -> InvalidArgumentError:
    """Return the error for an object that is sound, but not what was asked for."""
    error = InvalidArgumentError(f"{url}: {text}")
    error.url = url
    return error


@contextmanager
def about(url: str) -> Iterator[None]:
    """Give the errors of parsers, which know only bytes, the object that they are about."""
    try:
        yield
    except CorruptDataError as error:
        raise corrupt(url, str(error)) from None
    except InvalidArgumentError as error:
        raise refused(url, str(error)) from None
