"""`save`: the tensors' own memory goes to the store, piece by piece, and is visible when all is."""

from __future__ import annotations

from typing import Any

from headrace._engine import ObjectInfo
from headrace._leftovers import tell_left_behind
from headrace._location import Url, object_at
from headrace._progress import ProgressOption, choose_progress
from headrace._store import Store, UploadWay
from headrace.checkpoint._tensor_file import DEFAULT_PROTOCOL, CheckpointFile

__all__ = ["save"]


def save(
    obj: Any,
    url: Url,
    *,
    if_generation: str | None = None,
    pickle_protocol: int = DEFAULT_PROTOCOL,
    store: Store | None = None,
    upload: UploadWay = "parts",
    progress: ProgressOption = False,
    **options: Any,
) -> ObjectInfo:
    """Save an object so that `load`, and `torch.load`, read it.

    When this returns the whole checkpoint is durable and visible, and was checked by its size and
    CRC-32C. When it raises, what was at `url` before is there still, unless the error is about the
    last step, which makes the checkpoint visible, and not a refusal of the store: then the new one
    can be there. ``docs/guide/checkpoints.md`` says which error means what.

    Tensors on the CPU are sent from where they are, without a copy of the whole; they must not
    change meanwhile. Those on another device come to the host 16 MiB at a time. Storages that
    several tensors share are saved once.

    Examples:
        >>> url = "gs://bucket/run1/step100.pt"
        >>> info = headrace.checkpoint.save(model.state_dict(), url)

    Args:
        obj: whatever `torch.save` takes; best a ``state_dict()``.
        url: of the object; with `store` its name there, or its whole URL.
        if_generation: of the object that is replaced: ``"absent"`` for none. Default: whatever is
            there is replaced.
        pickle_protocol: `load` with ``weights_only=True`` reads 2 alone.
        store: where it goes; default: a store of the URL's bucket.
        upload: how the parts of a large checkpoint come to ``gs://``, as for `Store.open_writer`:
            ``"resumable"`` for buckets with a retention policy.
        progress: show a bar (needs tqdm), or call this with ``(done_bytes, total_bytes)``.
        options: of `Store`, if `store` is not given: ``endpoint=...``.

    Returns:
        The new object, with its generation.

    Raises:
        InvalidArgumentError: a storage has no bytes, or has tensors of several types.
        PreconditionFailedError: something else than `if_generation` is there.
        CorruptDataError: the store says that it has other bytes than were sent. They are at `url`.
    """
    where, name = object_at(url, store, **options)
    # Whatever cannot be pickled is known before anything is sent.
    file = CheckpointFile(obj, pickle_protocol)
    writer = where.open_writer(
        name,
        if_generation=if_generation,
        content_type="application/octet-stream",
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
    except BaseException:
        writer.abort()
        raise
    tell_left_behind(writer, where.url_of(name), is_saved=True)
    return saved
