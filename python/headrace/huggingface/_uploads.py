"""Upload folders in the background, one after the other, each complete before it is named so."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Unpack

from headrace import InvalidArgumentError, Store
from headrace._base.background import InOrder
from headrace._base.errors import add_note, text_of
from headrace._base.options import require, require_count
from headrace._checkpoints.manifest import (
    MANIFEST_NAME,
    FileSum,
    manifest_of,
    step_of,
)
from headrace._checkpoints.newest import group_of, numbers_in
from headrace._files.leftovers import give_up, tell_left_behind
from headrace._files.writer_io import write_file
from headrace._store.location import root_at
from headrace.huggingface._checkpoints import delete_checkpoint, steps
from headrace.huggingface._scratch import Scratch, clear
from headrace.types import StoreOptions, Url

__all__ = ["STAGED_PREFIX", "CheckpointUploads"]

STAGED_PREFIX = ".headrace-upload-"
"""Local folders of this name hold links to the files that are being uploaded."""


FileState = tuple[int, int]
"""The time of a file's last change, in ns, and its size in bytes."""


class CheckpointUploads:
    """Uploads folders of checkpoints below one URL, in the background and in order.

    A checkpoint is complete when its manifest is there, which is written when all files are
    durable. The error of an upload is raised by the next call, once; what was waiting behind it is
    not uploaded, and no older checkpoint is deleted because of it. One process uploads.

    Examples:
        >>> with CheckpointUploads("gs://bucket/run1", keep=2) as uploads:  # doctest: +SKIP
        ...     for step in range(1000):
        ...         train()
        ...         if step % 100 == 99:
        ...             accelerator.save_state(f"out/checkpoint-{step + 1}")
        ...             uploads.submit(f"out/checkpoint-{step + 1}")

    Args:
        url: the folder of the run. With `store`, the name of a folder there.
        keep: delete older checkpoints when so many newer ones are complete: those whose names have
            smaller numbers and are else the same. Default: keep all.
        store: the store to upload to. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        InvalidArgumentError: no store has such a URL, or `keep` is less than 1.
    """

    def __init__(
        self,
        url: Url = "",
        *,
        keep: int | None = None,
        store: Store | None = None,
        **options: Unpack[StoreOptions],
    ) -> None:
        if keep is not None:
            keep = require_count("keep", keep, minimum=1)
        self._root = root_at(url, store, **options)
        self._keep = keep
        self._work = InOrder("headrace-huggingface-upload")
        self._staged: set[Scratch] = set()

    def __enter__(self) -> CheckpointUploads:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except Exception as another:
            add_note(error, f"An upload of a checkpoint failed, too: {text_of(another)}")

    def submit(self, folder: str | os.PathLike[str]) -> None:
        """Begin to upload a local folder, such as ``out/checkpoint-100``, under its own name.

        The folder may be deleted at once: what is uploaded are links to its files. If one of them
        is written again before its upload has ended, the upload fails. A checkpoint of this name
        that is there already is replaced, and is none until the new one is complete.

        Raises:
            InvalidArgumentError: there is no such folder, it has no files, or its name ends with no
                number.
            Exception: the error of an upload before this one.

        Examples:
            >>> uploads.submit("out/checkpoint-100")  # doctest: +SKIP
        """
        source = Path(os.path.abspath(folder))
        require(source.is_dir(), f"{source} is no folder")
        require(
            step_of(source.name) is not None,
            f"{source}: the name of a checkpoint must end with the number of its step, as "
            "checkpoint-100, so that the newest can be found",
        )
        clear(STAGED_PREFIX, source.parent)
        staged = Scratch(STAGED_PREFIX, source.parent)
        self._staged.add(staged)
        try:
            # Links, since the trainer may delete the folder while it is being uploaded.
            shutil.copytree(source, staged.files, copy_function=_link, dirs_exist_ok=True)
            # What is there now, whatever becomes of the links: a file that is missing is an error,
            # and so is one that is written again.
            files = {
                name: _state((staged.files / name).stat()) for name in _files_below(staged.files)
            }
            require(bool(files), f"{source} has no files, so it is no checkpoint")
            require(
                MANIFEST_NAME not in files,
                f"{source} has a {MANIFEST_NAME}, which is headrace's own file: delete it",
            )
            self._work.submit(lambda: self._upload(source.name, staged, files))
        except BaseException:
            self._drop(staged)
            raise

    def wait(self) -> None:
        """Wait until all uploads are complete.

        Raises:
            Exception: the first error of an upload, once.

        Examples:
            >>> uploads.wait()  # doctest: +SKIP
        """
        self._work.wait()

    def close(self) -> None:
        """Wait until all uploads are complete, and end the thread.

        Raises:
            Exception: the first error of an upload, once.

        Examples:
            >>> uploads.close()  # doctest: +SKIP
        """
        try:
            self._work.close()
        finally:
            for staged in list(self._staged):  # of what was not uploaded after an error
                self._drop(staged)

    def _drop(self, staged: Scratch) -> None:
        staged.close()
        self._staged.discard(staged)

    def _upload(self, name: str, staged: Scratch, files: Mapping[str, FileState]) -> None:
        try:
            manifest = f"{name}/{MANIFEST_NAME}"
            self._root.delete(manifest, missing_ok=True)
            sums = {
                each: _put(self._root, f"{name}/{each}", staged.files / each, state)
                for each, state in files.items()
            }
            self._root.write(manifest, manifest_of(sums), content_type="application/json")
        finally:
            self._drop(staged)
        if self._keep is not None:
            self._delete_older(name)

    def _delete_older(self, newest: str) -> None:
        assert self._keep is not None
        complete = [
            name
            for name in steps(self._root)
            if group_of(name) == group_of(newest)
            and numbers_in(name) <= numbers_in(newest)
            and self._root.exists(f"{name}/{MANIFEST_NAME}")
        ]
        for name in complete[: -self._keep]:
            delete_checkpoint(self._root, name)


def _files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def _state(found: os.stat_result) -> FileState:
    """Return what tells whether a file was written again."""
    return found.st_mtime_ns, found.st_size


def _link(source: str, target: str) -> None:
    try:
        # To the file itself: a link to a symbolic link would lead nowhere once the file is deleted.
        os.link(os.path.realpath(source), target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)


def _put(root: Store, name: str, path: Path, expected: FileState) -> FileSum:
    """Upload one file, which still is as `expected`, and return what was sent."""
    writer = root.open_writer(name, expected_size_bytes=path.stat().st_size)
    try:
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            size_bytes = sum(write_file(writer, file))
            after = os.fstat(file.fileno())
        if not expected == _state(before) == (after.st_mtime_ns, size_bytes):
            raise InvalidArgumentError(
                f"{path.name} was written while it was uploaded to {root.url_of(name)}, or waited "
                "for that: save each checkpoint to a folder of its own"
            )
        writer.close()
    except BaseException as error:
        give_up(writer, error)
        raise
    tell_left_behind(writer, root.url_of(name), is_saved=True)
    return FileSum(size_bytes, writer.crc32c)
