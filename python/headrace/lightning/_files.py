"""Checkpoints of one object each, sharded ones, and their removal."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace import InvalidArgumentError, NotFoundError, Store, checkpoint
from headrace._checkpoints.names import METADATA_NAME
from headrace._store.keywords import refuse_options
from headrace._store.location import directory_of, object_at, require_no_options_beside
from headrace.checkpoint._distributed import DistributedReader, DistributedWriter
from headrace.checkpoint._saving import stage_save
from headrace.types import Upload, Url

__all__ = ["Files"]


@dataclass(frozen=True)
class Files:
    """The checkpoints that a plugin or a strategy saves and loads. Pickles; opens nothing before.

    Raises:
        InvalidArgumentError: there are both a store and options of one.
        TypeError: an option is none of `Store`.
    """

    store: Store | None = None
    """Where they are; None: wherever their URLs say."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the store, if it is not given."""

    def __post_init__(self) -> None:
        require_no_options_beside(self.store, self.options)
        refuse_options("headrace.Store", self.options, Store)

    def with_options(self, options: Mapping[str, Any] | None) -> Files:
        """Return these with more options, which replace those of the same name."""
        return Files(self.store, {**self.options, **options}) if options else self

    def save(self, obj: Any, path: Url, upload: Upload | None = None) -> None:
        """Save `obj`, as `torch.save` would."""
        store, name = self._at(path)
        checkpoint.save(obj, name, store=store, upload=upload)

    def stage_save(self, obj: Any, path: Url, upload: Upload | None = None) -> Callable[[], object]:
        """Return what saves `obj` as it is now, although it may change."""
        store, name = self._at(path)
        return stage_save(obj, name, store=store, upload=upload)

    def load(self, path: Url, map_location: Any, weights_only: bool | None) -> Any:
        """Load what `save`, or `torch.save`, has saved.

        Raises:
            NotFoundError: there is no such object.
            InvalidArgumentError: there is a sharded checkpoint.
        """
        store, name = self._at(path)
        try:
            return checkpoint.load(name, map_location, weights_only, store=store)
        except (NotFoundError, InvalidArgumentError):
            if self.holds_sharded(path):
                raise InvalidArgumentError(
                    f"{os.fspath(path)} is a sharded checkpoint: load it with the strategy that "
                    "saved it, headrace.lightning.FSDPStrategy or ModelParallelStrategy, or with "
                    "headrace.checkpoint.DistributedReader"
                ) from None
            raise

    def holds_sharded(self, path: Url) -> bool:
        """Return whether a complete sharded checkpoint lies below `path`."""
        store, name = self._at(path)
        try:
            return store.exists(f"{name}/{METADATA_NAME}")
        except InvalidArgumentError:  # a file where the folder would be
            return False

    def sharded_writer(self, path: Url) -> DistributedWriter:
        """Return what saves a sharded checkpoint below `path`."""
        return DistributedWriter(path, store=self.store, **self.options)

    def sharded_reader(self, path: Url) -> DistributedReader:
        """Return what loads the sharded checkpoint below `path`."""
        return DistributedReader(path, store=self.store, **self.options)

    def remove(self, path: Url) -> None:
        """Delete the object at `path`, and everything below it; what is not there is fine."""
        store, name = self._at(path)
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
        # In a bucket, an object may have the name of the folder; a directory has none beside it.
        if directory is None or not names:
            store.delete(name, missing_ok=True)

    def _at(self, path: Url) -> tuple[Store, str]:
        # A folder is named like an object: it holds what was saved sharded under that name.
        return object_at(os.fspath(path).rstrip("/"), self.store, **self.options)


def _remove_empty(directory: str) -> None:
    """Remove a directory that has nothing but directories in it."""
    for parent, _, _ in os.walk(directory, topdown=False):
        try:
            os.rmdir(parent)
        except OSError:
            return
