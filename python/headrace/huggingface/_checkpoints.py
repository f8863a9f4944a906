"""Find the newest complete checkpoint below a URL, and bring it to a local folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Unpack

from headrace import (
    CorruptDataError,
    InvalidArgumentError,
    NotFoundError,
    ObjectReaderIO,
    PreconditionFailedError,
    Store,
    _engine,
)
from headrace._checkpoints.manifest import (
    MANIFEST_NAME,
    FileSum,
    read_manifest,
    require_uploaded,
    step_of,
)
from headrace._checkpoints.newest import By, Candidate, Objects, newest, numbers_in
from headrace._store.location import is_local, root_at
from headrace.huggingface._scratch import Scratch, clear
from headrace.types import StoreOptions, Url

__all__ = ["delete_checkpoint", "download", "latest", "resume", "steps"]

_log = logging.getLogger("headrace")

_COPIED_BYTES = 4 << 20
_PART_PREFIX = ".headrace-download-"


def latest(
    url: Url = "", *, by: By = "number", store: Store | None = None, **options: Unpack[StoreOptions]
) -> str | None:
    """Return the URL of the newest complete checkpoint below `url`; None if there is none.

    This is `headrace.checkpoint.latest`, with its rule, for the folders that `CheckpointUploads`
    writes at `url`, and nothing else. It needs no torch.

    Examples:
        >>> headrace.huggingface.latest("gs://bucket/run1")  # doctest: +SKIP
        'gs://bucket/run1/checkpoint-100'

    Args:
        url: the folder of a run; it need not exist. With `store`, the name of a folder there.
        by: ``"number"``: numbers in names decide before times. ``"time"``: times alone.
        store: the store to search. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such bucket.
        InvalidArgumentError: no store has such a URL, or nothing tells which of several checkpoints
            is the newest.
        HeadraceError: the store refuses to show a manifest.
    """
    objects = Objects(root_at(url, store, **options))
    candidates = []
    for info in objects.by_name.values():
        folder, _, last = info.name.rpartition("/")
        if last == MANIFEST_NAME and "/" not in folder and step_of(folder) is not None:
            candidates.append(Candidate(folder, info, folder))

    def require_whole(candidate: Candidate) -> None:
        require_uploaded(objects.root, candidate.info, objects.beside(candidate.info))

    return newest(objects.root, candidates, require_whole, by)


def download(
    url: Url,
    folder: str | os.PathLike[str],
    *,
    store: Store | None = None,
    **options: Unpack[StoreOptions],
) -> None:
    """Bring a complete checkpoint to a new local folder.

    The size and the CRC-32C of each file are compared with those of the files that were uploaded.
    The folder appears when all of them are right and durable, or not at all.

    Examples:
        >>> headrace.huggingface.download(url, "out/checkpoint-100")  # doctest: +SKIP

    Args:
        url: the checkpoint, as `latest` returns it. With `store`, its name there.
        folder: where it goes. If it exists, it is replaced.
        store: the store of the checkpoint. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no complete checkpoint.
        CorruptDataError: a file is missing, or is not the one that was uploaded.
    """
    root = root_at(url, store, **options)
    files = _files_of(root)
    if files is None:
        raise NotFoundError(f"{root.url}: it has no {MANIFEST_NAME}: it is no complete checkpoint")
    target = Path(os.path.abspath(folder))
    target.parent.mkdir(parents=True, exist_ok=True)
    clear(_PART_PREFIX, target.parent)
    part = Scratch(_PART_PREFIX, target.parent)
    try:
        for name, expected in files.items():
            _fetch(root, name, expected, part.files / name)
        for folder in {part.files / each for name in files for each in Path(name).parents}:
            _sync(folder)
        # An older one goes as a whole, so that no half of it is taken for a checkpoint.
        old = part.folder / "old"
        if os.path.lexists(target):
            target.rename(old)
        try:
            part.files.rename(target)
        except BaseException:
            if os.path.lexists(old) and not os.path.lexists(target):
                old.rename(target)
            raise
        _sync(target.parent)
    finally:
        part.close()


def resume(
    url: Url,
    output_dir: str | os.PathLike[str],
    *,
    by: By = "number",
    store: Store | None = None,
    **options: Unpack[StoreOptions],
) -> str | None:
    """Bring the newest complete checkpoint below `url` to `output_dir`, and return its path there.

    None if there is no checkpoint, so that training begins. A folder in `output_dir` that has the
    right files already is kept, and one of the same name with others is replaced. Call it in one
    of the processes that share `output_dir`, and let the others wait for it.

    Examples:
        >>> folder = headrace.huggingface.resume("gs://bucket/run1", "out")  # doctest: +SKIP
        >>> trainer.train(resume_from_checkpoint=folder)  # doctest: +SKIP

    Args:
        url: the folder of the run. With `store`, the name of a folder there.
        output_dir: the local folder of the run, such as ``TrainingArguments.output_dir``.
        by: what tells which is the newest, as in `latest`.
        store: the store of the run. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such bucket.
        CorruptDataError: a file is not the one that was uploaded.
    """
    root = root_at(url, store, **options)
    found = latest(by=by, store=root)
    if found is None:
        return None
    checkpoint = root_at(found, root)
    folder = Path(output_dir, found.rpartition("/")[2])
    if not _has_right_files(checkpoint, folder):
        download(store=checkpoint, url="", folder=folder)
    return str(folder)


def steps(root: Store) -> list[str]:
    """Return the names of folders that may be checkpoints, complete or not, the newest last."""
    names = []
    for prefix in _prefixes(root):
        name = prefix.rstrip("/")
        if step_of(name) is not None:
            names.append(name)
    return sorted(names, key=numbers_in)


def delete_checkpoint(root: Store, name: str) -> None:
    """Delete a checkpoint: first its manifest, so that no half of it is taken for the whole."""
    root.delete(f"{name}/{MANIFEST_NAME}", missing_ok=True)
    for info in list(root.list(f"{name}/")):
        root.delete(info.name, missing_ok=True)


def _prefixes(root: Store) -> Iterator[str]:
    token = ""
    try:
        while True:
            page = root.list_page(delimiter="/", page_token=token)
            yield from page.prefixes
            token = page.next_page_token
            if not token:
                return
    except NotFoundError:
        if not is_local(root.url):
            raise
        # A directory that does not exist yet.


def _files_of(checkpoint: Store) -> dict[str, FileSum] | None:
    """Return the files of a checkpoint; None if it has no manifest, or a damaged one."""
    info = checkpoint.stat(MANIFEST_NAME, missing_ok=True)
    if info is None:
        return None
    try:
        return read_manifest(checkpoint, info)
    except (CorruptDataError, InvalidArgumentError) as error:
        if error.http_status is not None:
            raise
        _log.warning("%s", error)
    except (NotFoundError, PreconditionFailedError):
        pass  # deleted or replaced since
    return None


def _fetch(root: Store, name: str, expected: FileSum, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    info = root.stat(name, missing_ok=True)
    if info is None:
        raise _corrupt(
            root.url_of(name), "it is missing, and the checkpoint has had it: resume from another"
        )
    crc = size_bytes = 0
    with ObjectReaderIO(root, info) as source, path.open("wb") as file:
        while data := source.read(_COPIED_BYTES):
            crc = _engine.crc32c(data, crc)
            size_bytes += len(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if (size_bytes, crc) != (expected.size_bytes, expected.crc32c):
        raise _corrupt(
            root.url_of(name),
            f"its {size_bytes:,} bytes have CRC-32C {crc:08x}, and the file that was uploaded has "
            f"{expected.size_bytes:,} bytes and {expected.crc32c:08x}: resume from an older "
            "checkpoint",
        )


def _corrupt(url: str, text: str) -> CorruptDataError:
    error = CorruptDataError(f"{url}: {text}")
    error.url = url
    return error


def _has_right_files(checkpoint: Store, folder: Path) -> bool:
    files = _files_of(checkpoint)
    return files is not None and all(
        _is_right(folder / name, expected) for name, expected in files.items()
    )


def _is_right(path: Path, expected: FileSum) -> bool:
    try:
        if path.stat().st_size != expected.size_bytes:
            return False
        crc = 0
        with path.open("rb") as file:
            while data := file.read(_COPIED_BYTES):
                crc = _engine.crc32c(data, crc)
    except OSError:
        return False
    return crc == expected.crc32c


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
