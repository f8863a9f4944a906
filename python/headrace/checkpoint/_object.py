"""Look up the object of a checkpoint, and make errors that name it."""

from __future__ import annotations

from collections.abc import Iterator

from headrace._base.contexts import context
from headrace._base.errors import CorruptDataError, InvalidArgumentError, NotFoundError
from headrace._checkpoints.manifest import MANIFEST_NAME
from headrace._checkpoints.names import METADATA_NAME
from headrace._engine import ObjectInfo
from headrace._store.store import Store

__all__ = ["about", "corrupt", "pinned", "refused", "stat"]

# Checkpoints that are folders: the object that makes them one, and how to load them.
_FOLDERS = (
    (
        METADATA_NAME,
        "it is a folder of torch.distributed.checkpoint: load it by that, with "
        "storage_reader=headrace.checkpoint.DistributedReader(url)",
    ),
    (
        MANIFEST_NAME,
        "it is a folder that headrace.huggingface uploaded: bring it to a local one by "
        "headrace.huggingface.download(url, folder)",
    ),
)


def stat(store: Store, name: str) -> ObjectInfo:
    """Return the store's information on a checkpoint's object.

    Raises:
        NotFoundError: there is no such object.
        InvalidArgumentError: it is a folder of `torch.distributed.checkpoint`, or one that
            `headrace.huggingface` uploaded.
    """
    try:
        return store.stat(name)
    except NotFoundError:
        found = (text for last, text in _FOLDERS if store.exists(f"{name}/{last}"))
        text = next(found, None)
        if text is None:
            raise
    raise refused(store.url_of(name), text)


def pinned(store: Store) -> Store:
    """Return the store with reads pinned to the generation that is asked for."""
    # on_change="reread" would mix two generations here.
    return store if store._settings.on_change == "error" else store._derived(on_change="error")


def corrupt(url: str, text: str) -> CorruptDataError:
    """Return the error for an object with wrong bytes."""
    error = CorruptDataError(f"{url}: {text}")
    error.url = url
    return error


def refused(url: str, text: str) -> InvalidArgumentError:
    """Return the error for an object that is intact but of another kind than expected."""
    error = InvalidArgumentError(f"{url}: {text}")
    error.url = url
    return error


@context
def about(url: str) -> Iterator[None]:
    """Add the object's URL to errors of parsers, which know only bytes."""
    try:
        yield
    except CorruptDataError as error:
        raise corrupt(url, str(error)) from None
    except InvalidArgumentError as error:
        raise refused(url, str(error)) from None
