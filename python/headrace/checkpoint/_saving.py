"""`save`: send the tensors' own memory to the store piece by piece; publish it as a whole."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, Literal, Unpack

from headrace._base.options import require, require_bool
from headrace._base.progress import ProgressOption, choose_progress, require_progress
from headrace._engine import ObjectInfo
from headrace._files.leftovers import give_up, tell_left_behind
from headrace._store.location import Url, object_at
from headrace._store.settings import StoreOptions
from headrace._store.store import Store, UploadWay
from headrace.checkpoint._safetensors import is_safetensors_name, save_tensors
from headrace.checkpoint._staging import copy_to_host
from headrace.checkpoint._tensor_file import DEFAULT_PROTOCOL, CheckpointFile

__all__ = ["FormatOption", "SaveKeywords", "save", "stage_save"]

FormatOption = Literal["torch", "safetensors"]

_PROTOCOLS = range(1, pickle.HIGHEST_PROTOCOL + 1)


class SaveKeywords(StoreOptions, total=False):
    """The keywords of `save`, but for ``store``."""

    if_generation: str | None
    pickle_protocol: int
    format: FormatOption | None
    metadata: Mapping[str, str] | None
    max_shard_bytes: int | None
    checksums: bool
    part_bytes: int | None
    upload: UploadWay | None
    progress: ProgressOption


def save(
    obj: Any,
    url: Url,
    *,
    if_generation: str | None = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    format: FormatOption | None = None,
    metadata: Mapping[str, str] | None = None,
    max_shard_bytes: int | None = None,
    checksums: bool = True,
    store: Store | None = None,
    part_bytes: int | None = None,
    upload: UploadWay | None = None,
    progress: ProgressOption = False,
    **options: Unpack[StoreOptions],
) -> ObjectInfo:
    """Save an object so that `load`, and `torch.load`, read it.

    When this returns, the whole checkpoint is durable and visible, and its size and CRC-32C have
    been verified. When it raises, the previous object at `url` is still in place, with one
    exception: if the error concerns the last step, which makes the checkpoint visible, and is not a
    refusal by the store, the new checkpoint may be in place. ``docs/guide/checkpoints.md`` explains
    the errors.

    Tensors on the CPU are sent from their own memory, without a copy of the whole; they must not
    change until this returns. Tensors on another device come to the host 16 MiB at a time. A
    storage shared by several tensors is saved once.

    A name that ends with ``.safetensors`` makes a safetensors file, as the library of that name
    does: of a flat dict of contiguous, dense tensors that share no memory.

    Examples:
        >>> url = "gs://bucket/run1/step100.pt"
        >>> info = headrace.checkpoint.save(model.state_dict(), url)

    Args:
        obj: anything that `torch.save` takes, preferably a ``state_dict()``.
        url: the URL of the object; with `store`, its name there or its whole URL.
        if_generation: the generation to replace; ``"absent"``: there must be no object. Default:
            replace any object.
        pickle_protocol: protocol of the pickle, from 1; `load` with ``weights_only=True`` reads
            only 2.
        format: ``"torch"`` or ``"safetensors"``. Default: what the name says. A name of safetensors
            is for that format alone.
        metadata: texts to keep in a safetensors file.
        max_shard_bytes: save several safetensors files of so many bytes of tensors at most (more
            only where one tensor has more), ``model-00001-of-00003.safetensors``, and, when all are
            there, their index, ``model.safetensors.index.json``, which `if_generation` is about.
            If there is such an index, the new files have other names than its own, which are
            deleted after it is replaced. One writer at a time.
        checksums: store the CRC-32C of each tensor in the metadata of a safetensors file, and
            ``format: pt`` beside it; tensors are read twice for that. False: the same bytes as
            those of the safetensors library.
        store: the store to save to. Default: a store of the URL's bucket.
        part_bytes: bytes of one part of a large checkpoint, as for `Store.open_writer`. Default:
            large enough for this one.
        upload: how the parts of a large checkpoint reach ``gs://``, as for `Store.open_writer`:
            ``"resumable"`` for buckets with a retention policy.
        progress: True shows a bar (needs tqdm); a function is called with
            ``(done_bytes, total_bytes)``.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Returns:
        The new object, with its generation; of several files, the index.

    Raises:
        InvalidArgumentError: a storage has no bytes, or is shared by tensors of several types; or
            the format cannot express `obj`, or does not know an option; or an argument is invalid;
            or the store takes no object as large as this.
        PreconditionFailedError: the object at `url` is not `if_generation`.
        CorruptDataError: the store reports other bytes than were sent. They are at `url`.
    """
    require(
        type(pickle_protocol) is int and pickle_protocol in _PROTOCOLS,
        f"pickle_protocol is {pickle_protocol!r}; it must be from {_PROTOCOLS[0]} to "
        f"{_PROTOCOLS[-1]}: torch.load reads no tensors of protocol 0",
    )
    require_bool("checksums", checksums)
    require_progress(progress)
    where, name = object_at(url, store, **options)
    if _is_safetensors(format, name):
        return save_tensors(
            obj,
            where,
            name,
            metadata=metadata,
            checksums=checksums,
            max_shard_bytes=max_shard_bytes,
            if_generation=if_generation,
            part_bytes=part_bytes,
            upload=upload,
            progress=progress,
        )
    of_safetensors = {
        "metadata": metadata is not None,
        "max_shard_bytes": max_shard_bytes is not None,
        "checksums=False": not checksums,
    }
    for option, is_given in of_safetensors.items():
        require(
            not is_given,
            f"{where.url_of(name)}: {option} is for safetensors files: let the name end with "
            ".safetensors, or pass format='safetensors'",
        )
    # Pickle first, so that errors of pickling come before anything is sent.
    file = CheckpointFile(obj, pickle_protocol)
    return _send(file, where, name, if_generation, part_bytes, upload, progress)


def stage_save(
    obj: Any,
    url: Url,
    *,
    store: Store | None,
    upload: UploadWay | None,
    **options: Unpack[StoreOptions],
) -> Callable[[], ObjectInfo]:
    """Return what saves `obj` as it is now, byte for byte as `save` would; `obj` may change then.

    Everything but the bytes of storages is pickled, and these are copied to host memory, before
    this returns. What cannot be pickled raises now.
    """
    where, name = object_at(url, store, **options)
    if _is_safetensors(None, name):
        staged = copy_to_host(obj)
        return lambda: save(staged, name, store=where, upload=upload)
    file = CheckpointFile(obj)
    file.stage()
    return lambda: _send(file, where, name, None, None, upload, False)


def _send(
    file: CheckpointFile,
    where: Store,
    name: str,
    if_generation: str | None,
    part_bytes: int | None,
    upload: UploadWay | None,
    progress: ProgressOption,
) -> ObjectInfo:
    writer = where.open_writer(
        name,
        if_generation=if_generation,
        content_type="application/octet-stream",
        part_bytes=part_bytes,
        expected_size_bytes=file.content_bytes,
        upload=upload,
    )
    try:
        with choose_progress(progress, where.url_of(name), file.content_bytes) as shown:
            for piece in file.pieces():
                if piece.is_lent:
                    writer.write_lent(piece.data)
                else:
                    writer.write(piece.data)
                shown.add(piece.content_bytes)
            saved = writer.close()
    except BaseException as error:
        give_up(writer, error)
        raise
    tell_left_behind(writer, where.url_of(name), is_saved=True)
    return saved


def _is_safetensors(format: FormatOption | None, name: str) -> bool:
    require(
        format in (None, "torch", "safetensors"),
        f"format is {format!r}; it must be 'torch', 'safetensors' or None",
    )
    is_name = is_safetensors_name(name)
    require(
        format != "torch" or not is_name,
        f"format is 'torch', and {name!r} is the name of a safetensors file, which `load` and "
        "others would take it for: choose another name, as step100.pt",
    )
    return is_name if format is None else format == "safetensors"
