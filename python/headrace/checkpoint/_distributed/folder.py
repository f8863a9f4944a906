"""Where a distributed checkpoint lies."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from headrace import _engine
from headrace._engine import ObjectInfo
from headrace._errors import HeadraceError, InvalidArgumentError, NotFoundError
from headrace._store import Store

__all__ = ["Folder"]


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
                entry.name[len(self.prefix) :]: entry.generation
                for entry in self.store.list(self.prefix, delimiter="/")
                if isinstance(entry, ObjectInfo)
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
