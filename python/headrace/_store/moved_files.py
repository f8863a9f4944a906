"""Files of this machine that were copied elsewhere, and go; what symbolic links lead to stays."""

from __future__ import annotations

import os
from typing import Literal

from headrace._engine import ObjectInfo
from headrace._store.location import directory_of
from headrace._store.store import Store

__all__ = ["as_it_is", "link_in", "remove_moved"]


def link_in(top: str, path: str) -> Literal["", "itself", "above"]:
    """Return whether `path` is a symbolic link, or lies behind one that is at or below `top`.

    Args:
        top: `path` itself, or a folder that it lies in; what ends with ``/`` is no link, but what
            it leads to. Links above it are how its user came there.
        path: an absolute path.
    """
    above = top[: top.rfind("/") + 1]
    path = os.path.join(os.path.realpath(above), path[len(above) :])
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != folder:
        return "above"
    return "itself" if os.path.islink(path) else ""


def as_it_is(store: Store, info: ObjectInfo) -> ObjectInfo:
    """Return a file as it is now, if nobody has written it since: one of its names may be gone."""
    now = store.stat(info.name, missing_ok=True)
    if now is None or (now.size_bytes, now.updated) != (info.size_bytes, info.updated):
        return info
    return now


def remove_moved(store: Store, name: str, generation: str) -> None:
    """Delete an object, or a file's name, unless somebody has written it since it was copied.

    Raises:
        PreconditionFailedError: somebody has.
    """
    store.delete(name, if_generation=generation or None, missing_ok=True)
    folder = directory_of(store)
    # A link to another link, which was removed before it.
    if folder is not None and os.path.islink(path := os.path.join(folder, name)):
        os.unlink(path)
