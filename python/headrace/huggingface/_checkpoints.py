"""Find the newest complete checkpoint below a URL, and bring it to a local folder."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from headrace import _engine
from headrace._errors import CorruptDataError, InvalidArgumentError, NotFoundError
from headrace._location import Url, is_local, root_at
from headrace._reader_io import ObjectReaderIO
from headrace._store import Store
from headrace.huggingface._manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    FileSum,
    order_of,
    parse_manifest,
    step_of,
)

__all__ = ["delete_checkpoint", "download", "latest", "resume", "steps"]

_log = logging.getLogger("headrace")

_COPIED_BYTES = 4 << 20


def latest(url: Url = "", *, store: Store | None = None, **options: Any) -> str | None:
    """Return the URL of the newest complete checkpoint below `url`; None if there is none.

    The newest is the one whose name, such as ``checkpoint-100``, ends with the greatest number. A
    folder without a manifest, or without one of the files that it names, is passed over.

    Examples:
        >>> headrace.huggingface.latest("gs://bucket/run1")  # doctest: +SKIP
        'gs://bucket/run1/checkpoint-100'

    Args:
        url: the folder of a run; it need not exist. With `store`, the name of a folder there.
        store: the store to search. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such bucket.
        InvalidArgumentError: no store has such a URL.
    """
    root = root_at(url, store, **options)
    for name in reversed(steps(root)):
        files = _files_of(root, name)
        if files is not None and _are_there(root, name, files):
            return root.url_of(name)
    return None


def download(
    url: Url, folder: str | os.PathLike[str], *, store: Store | None = None, **options: Any
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
    files = _files_of(root, "")
    if files is None:
        raise NotFoundError(f"{root.url}: it has no {MANIFEST_NAME}: it is no complete checkpoint")
    target = Path(os.path.abspath(folder))
    target.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".headrace-download-{target.name}-", dir=target.parent))
    try:
        for name, expected in files.items():
            _fetch(root, name, expected, part / name)
        if target.exists():
            shutil.rmtree(target)
        part.chmod(0o777 & ~_umask())
        part.rename(target)
        _sync(target.parent)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def resume(
    url: Url, output_dir: str | os.PathLike[str], *, store: Store | None = None, **options: Any
) -> str | None:
    """Bring the newest complete checkpoint below `url` to `output_dir`, and return its path there.

    None if there is no checkpoint, so that training begins. A folder in `output_dir` that has the
    right files already is kept, and one of the same name with others is replaced. Call it in one
    process of a machine, and let the others wait for it.

    Examples:
        >>> folder = headrace.huggingface.resume("gs://bucket/run1", "out")  # doctest: +SKIP
        >>> trainer.train(resume_from_checkpoint=folder)  # doctest: +SKIP

    Args:
        url: the folder of the run. With `store`, the name of a folder there.
        output_dir: the local folder of the run, such as ``TrainingArguments.output_dir``.
        store: the store of the run. Default: a store at `url`.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such bucket.
        CorruptDataError: a file is not the one that was uploaded.
    """
    root = root_at(url, store, **options)
    newest = latest(store=root)
    if newest is None:
        return None
    checkpoint = root_at(newest, root)
    folder = Path(output_dir, newest.rpartition("/")[2])
    if not _has_right_files(checkpoint, folder):
        download(store=checkpoint, url="", folder=folder)
    return str(folder)


def steps(root: Store) -> list[str]:
    """Return the names of all folders that may be checkpoints, complete or not, oldest first."""
    names = []
    for prefix in _prefixes(root):
        name = prefix.rstrip("/")
        if step_of(name) is not None:
            names.append(name)
    return sorted(names, key=order_of)


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


def _files_of(root: Store, name: str) -> dict[str, FileSum] | None:
    """Return the files of the manifest in a folder; None if it has none, or a damaged one."""
    manifest = f"{name}/{MANIFEST_NAME}" if name else MANIFEST_NAME
    info = root.stat(manifest, missing_ok=True)
    if info is None:
        return None
    try:
        if info.size_bytes > MAX_MANIFEST_BYTES:
            raise CorruptDataError(f"it has {info.size_bytes:,} bytes")
        return parse_manifest(bytes(root.read(manifest)))
    except (CorruptDataError, InvalidArgumentError) as error:
        _log.warning("%s: %s", root.url_of(manifest), error)
    except NotFoundError:
        pass  # deleted since
    return None


def _are_there(root: Store, name: str, files: dict[str, FileSum]) -> bool:
    sizes = {info.name.removeprefix(f"{name}/"): info.size_bytes for info in root.list(f"{name}/")}
    wrong = [each for each, expected in files.items() if sizes.get(each) != expected.size_bytes]
    if wrong:
        _log.warning("%s: passed over, %s is not as uploaded", root.url_of(name), wrong[0])
    return not wrong


def _fetch(root: Store, name: str, expected: FileSum, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    info = root.stat(name)
    crc = size_bytes = 0
    with ObjectReaderIO(root, info) as source, path.open("wb") as file:
        while data := source.read(_COPIED_BYTES):
            crc = _engine.crc32c(data, crc)
            size_bytes += len(data)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())
    if (size_bytes, crc) != (expected.size_bytes, expected.crc32c):
        error = CorruptDataError(
            f"{root.url_of(name)}: its {size_bytes:,} bytes have CRC-32C {crc:08x}, and the file "
            f"that was uploaded has {expected.size_bytes:,} bytes and {expected.crc32c:08x}: "
            "resume from an older checkpoint"
        )
        error.url = root.url_of(name)
        raise error


def _has_right_files(checkpoint: Store, folder: Path) -> bool:
    files = _files_of(checkpoint, "")
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


def _umask() -> int:
    # There is no way to ask for it alone.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
