"""Where a distributed checkpoint lies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace._base.errors import HeadraceError, InvalidArgumentError, NotFoundError
from headrace._store.location import Url, is_local, root_at
from headrace._store.store import Store

__all__ = ["Folder"]


@dataclass(frozen=True)
class Folder:
    """The objects below one URL. It pickles, and opens nothing before it is used."""

    store: Store
    """Its root is the folder."""

    @staticmethod
    def at(url: Url, options: Mapping[str, Any], store: Store | None = None) -> Folder:
        """Return the folder at `url`; with `store`, below that store and without `options`.

        Raises:
            InvalidArgumentError: it is not the URL of a store.
        """
        return Folder(root_at(url, store, **options))

    @staticmethod
    def can_be_at(url: Url) -> bool:
        """Return whether `at` would take `url`."""
        try:
            Folder.at(url, {})
        except InvalidArgumentError:
            return False
        return True

    @property
    def url(self) -> str:
        """Its URL, without a slash at the end."""
        return self.store.url

    def url_of(self, name: str) -> str:
        """Return the URL of the object called `name` inside the folder."""
        return self.store.url_of(name)

    def names(self) -> dict[str, str]:
        """Return the generations of the objects directly inside the folder, by name."""
        names: dict[str, str] = {}
        token = ""
        try:
            # By pages, which raise no error if there is nothing yet: before the first save.
            while True:
                page = self.store.list_page(delimiter="/", page_token=token)
                names.update((each.name, each.generation) for each in page.objects)
                token = page.next_page_token
                if not token:
                    return names
        except NotFoundError:
            if not is_local(self.url):
                raise
            return {}  # a directory that does not exist yet

    def delete(self, names: list[str]) -> list[HeadraceError]:
        """Delete objects, and return the errors. Objects that are gone already are no error."""
        failures = []
        for name in names:
            try:
                self.store.delete(name, missing_ok=True)
            except HeadraceError as error:
                failures.append(error)
        return failures
