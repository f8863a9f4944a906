"""Where a distributed checkpoint lies, and what its objects are called."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from headrace import _engine
from headrace._errors import HeadraceError, InvalidArgumentError, NotFoundError
from headrace._store import Store
from headrace.checkpoint._object import METADATA_NAME

__all__ = ["METADATA_NAME", "Folder", "attachment_name", "data_name", "is_data", "metadata_name"]

_HEX = "[0-9a-f]{32}"
# Ours, and those of torch's FileSystemWriter.
_DATA = re.compile(rf"__\d+_\d+(-{_HEX})?\.distcp|\d+\.attached-{_HEX}")
_RANK_METADATA = re.compile(r"__(\d+)\.metadata")


def metadata_name(rank: int | None = None) -> str:
    """Return the name of the object that makes a checkpoint complete.

    Args:
        rank: for checkpoints without collectives, in which each rank has its own.
    """
    return METADATA_NAME if rank is None else f"__{rank}{METADATA_NAME}"


def data_name(rank: int, number: int) -> str:
    """Return a name for a data file that no save has used before, and no other will."""
    return f"__{rank}_{number}-{uuid4().hex}.distcp"


def attachment_name(number: int) -> str:
    """Return a name for an attachment that no save has used before, and no other will."""
    return f"{number}.attached-{uuid4().hex}"


def is_data(name: str) -> bool:
    """Return whether `name`, inside the folder, is that of a data file or attachment."""
    return _DATA.fullmatch(name) is not None


def metadata_rank(name: str) -> int | None:
    """Return the rank whose metadata is called `name`, or None."""
    match = _RANK_METADATA.fullmatch(name)
    return None if match is None else int(match[1])


@dataclass(frozen=True)
class Folder:
    """The objects below one URL. Pickles; opens nothing before it is used."""

    url: str
    """Without a slash at the end."""
    store: Store
    prefix: str
    """What comes before the names in the store: "" or ends with a slash."""

    @staticmethod
    def at(url: str | os.PathLike[str], store_options: dict[str, Any]) -> Folder:
        """Return the folder at `url`.

        Raises:
            InvalidArgumentError: it is no URL of a store.
        """
        text = os.fspath(url)
        scheme, bucket, name, normal = _engine.split_url(text)
        normal = normal.rstrip("/")
        if scheme == "file":
            return Folder(normal, Store(text, **store_options), "")
        prefix = name.rstrip("/")
        return Folder(
            normal, Store(f"{scheme}://{bucket}", **store_options), f"{prefix}/" if prefix else ""
        )

    @staticmethod
    def can_be_at(url: str | os.PathLike[str]) -> bool:
        """Return whether `at` would take `url`."""
        try:
            Folder.at(url, {})
        except InvalidArgumentError:
            return False
        return True

    def url_of(self, name: str) -> str:
        """Return the URL of the object called `name` inside the folder."""
        return f"{self.url}/{name}"

    def names(self) -> dict[str, str]:
        """Return the generations of the objects directly inside the folder, by name."""
        try:
            return {
                info.name[len(self.prefix) :]: info.generation
                for info in self.store.list(self.prefix, delimiter="/")
            }
        except NotFoundError:  # a directory that is not there yet
            if self.prefix:
                raise
            return {}

    def delete(self, names: list[str]) -> list[HeadraceError]:
        """Delete objects; what is gone already is fine. Returns what went wrong."""
        failures = []
        for name in names:
            try:
                self.store.delete(self.prefix + name, missing_ok=True)
            except HeadraceError as error:
                failures.append(error)
        return failures
