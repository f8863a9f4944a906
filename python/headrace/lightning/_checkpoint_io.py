"""Lightning's plugins for saving and loading."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Unpack

from headrace import InvalidArgumentError, Store
from headrace._base.background import InOrder
from headrace.checkpoint._staging import copy_to_host
from headrace.fsspec import register
from headrace.lightning import _packages
from headrace.lightning._files import Files
from headrace.types import StoreOptions, Upload

__all__ = ["AsyncCheckpointIO", "CheckpointIO"]

_CheckpointIO: Any = _packages.fabric("plugins").CheckpointIO


class CheckpointIO(_CheckpointIO):  # type: ignore[misc]  # a base that is found at run time
    """Saves and loads Lightning's checkpoints at any URL.

    Examples:
        >>> trainer = Trainer(plugins=[headrace.lightning.CheckpointIO()])  # doctest: +SKIP
        >>> trainer.fit(module)  # doctest: +SKIP
        >>> trainer.save_checkpoint("gs://bucket/run1/last.ckpt")  # doctest: +SKIP
        >>> trainer.fit(module, ckpt_path="gs://bucket/run1/last.ckpt")  # doctest: +SKIP

    The files are those of ``torch.save``. Each appears whole, or not at all. Where fsspec knows
    nobody who serves ``gs://``, ``s3://`` or ``ais://``, making a plugin registers the file
    systems of `headrace.fsspec`, which ``ModelCheckpoint`` needs.

    Args:
        upload: how the parts of a large checkpoint come to ``gs://``, as for
            `headrace.Store.open_writer`: ``"resumable"`` for buckets with a retention policy.
        store: where the checkpoints are, such as ``headrace.Store("gs://bucket")``; default: the
            store of each URL. The URLs that Lightning is given lie below it.
        options: of `headrace.Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        InvalidArgumentError: there are both `store` and options.
    """

    def __init__(
        self,
        *,
        upload: Upload | None = None,
        store: Store | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        super().__init__()
        self._upload = upload
        self._files = Files(store, options)
        register()

    def __setstate__(self, state: dict[str, Any]) -> None:
        # In a process that a trainer has spawned.
        self.__dict__.update(state)
        register()

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        """Save `checkpoint` at `path`.

        Args:
            checkpoint: what Lightning has gathered.
            path: a URL or a local path.
            storage_options: options of the store for this save, over those of the plugin.

        Raises:
            InvalidArgumentError: options, and the plugin has a `store`; or no URL of an object.
            HeadraceError: the checkpoint could not be saved; see `headrace.checkpoint.save`.
        """
        self._files.with_options(storage_options).save(checkpoint, path, self._upload)

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Return the checkpoint at `path`.

        Args:
            path: a URL or a local path.
            map_location: as for ``torch.load``.
            weights_only: as for ``torch.load``; None means True.

        Raises:
            NotFoundError: there is none.
            InvalidArgumentError: it is a sharded checkpoint, or something else.
            CorruptDataError: it is damaged.
        """
        checkpoint = self._files.load(path, map_location, weights_only)
        if not isinstance(checkpoint, dict):
            raise InvalidArgumentError(
                f"{os.fspath(path)} holds {type(checkpoint).__name__}, no checkpoint of Lightning"
            )
        return checkpoint

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Delete the checkpoint at `path`, also a sharded one; none is fine, too.

        Raises:
            HeadraceError: something of it could not be deleted.
        """
        self._files.remove(path)


class AsyncCheckpointIO(_CheckpointIO):  # type: ignore[misc]
    """Saves in the background; training waits for the copy to host memory only.

    Saves and removals happen in the order in which they were asked for. The error of a save is
    raised by the next save, load or removal, and at the latest by ``teardown``, once. After an
    error nothing that was waiting behind it happens, so that no older checkpoint is removed
    because of a newer one that does not exist.

    Args:
        checkpoint_io: what saves and loads. Default: `CheckpointIO` with the other arguments.
        options: of `CheckpointIO`, if `checkpoint_io` is not given: ``store=...``, ``upload=...``,
            ``endpoint=...``.

    Raises:
        InvalidArgumentError: there are both `checkpoint_io` and options.

    Examples:
        >>> trainer = Trainer(plugins=[headrace.lightning.AsyncCheckpointIO()])  # doctest: +SKIP
    """

    def __init__(self, checkpoint_io: Any = None, **options: Unpack[StoreOptions]) -> None:
        super().__init__()
        if checkpoint_io is not None and options:
            raise InvalidArgumentError(
                f"{', '.join(f'{name}=' for name in options)}: give that to the checkpoint_io"
            )
        self._checkpoint_io = checkpoint_io or CheckpointIO(**options)
        register()
        self._saves = InOrder("headrace-lightning-save")

    def save_checkpoint(
        self,
        checkpoint: dict[str, Any],
        path: str | os.PathLike[str],
        storage_options: dict[str, Any] | None = None,
    ) -> None:
        """Copy `checkpoint` to host memory and begin to save it.

        Raises:
            Exception: `checkpoint` cannot be pickled; or the error of a save before this one.
        """
        self._saves.submit(self._staged(checkpoint, path, storage_options))

    def load_checkpoint(
        self,
        path: str | os.PathLike[str],
        map_location: Any = None,
        weights_only: bool | None = None,
    ) -> dict[str, Any]:
        """Return the checkpoint at `path`, after all saves that are under way.

        Raises:
            Exception: the error of such a save, or of the load; see `CheckpointIO`.
        """
        self._saves.wait()
        loaded: dict[str, Any] = self._checkpoint_io.load_checkpoint(
            path, map_location=map_location, weights_only=weights_only
        )
        return loaded

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Delete the checkpoint at `path`, after all saves that are under way.

        Raises:
            Exception: the error of a save before this.
        """
        remove = self._checkpoint_io.remove_checkpoint
        self._saves.submit(lambda: remove(path))

    def teardown(self) -> None:
        """Wait for all saves.

        Raises:
            Exception: the error of a save that was not raised yet.
        """
        try:
            self._saves.close()
        finally:
            self._checkpoint_io.teardown()

    def _staged(self, checkpoint: dict[str, Any], path: Any, options: Any) -> Callable[[], object]:
        save = self._checkpoint_io.save_checkpoint
        if getattr(save, "__func__", None) is CheckpointIO.save_checkpoint:
            return _stage(self._checkpoint_io, checkpoint, path, options)
        # Another plugin takes the state itself.
        staged = copy_to_host(checkpoint)
        return lambda: save(staged, path, storage_options=options)


def _stage(
    plugin: CheckpointIO, checkpoint: dict[str, Any], path: Any, options: Any
) -> Callable[[], object]:
    """Return what `plugin` would do to save `checkpoint` as it is now, although it may change."""
    files = plugin._files.with_options(options)
    return files.stage_save(checkpoint, path, plugin._upload)
