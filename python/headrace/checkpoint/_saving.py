"""`save`: send the tensors' own memory to the store piece by piece; publish it as a whole."""

from __future__ import annotations

from typing import Any

from headrace._engine import ObjectInfo
from headrace._leftovers import give_up, tell_left_behind
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
    upload: UploadWay | None = None,
    progress: ProgressOption = False,
    **options: Any,
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

    Examples:
        >>> url = "gs://bucket/run1/step100.pt"
        >>> info = headrace.checkpoint.save(model.state_dict(), url)

    Args:
        obj: anything that `torch.save` takes, preferably a ``state_dict()``.
        url: the URL of the object; with `store`, its name there or its whole URL.
        if_generation: the generation to replace; ``"absent"``: there must be no object. Default:
            replace any object.
        pickle_protocol: protocol of the pickle; `load` with ``weights_only=True`` reads only 2.
        store: the store to save to. Default: a store of the URL's bucket.
        upload: how the parts of a large checkpoint reach ``gs://``, as for `Store.open_writer`:
            ``"resumable"`` for buckets with a retention policy.
        progress: True shows a bar (needs tqdm); a function is called with
            ``(done_bytes, total_bytes)``.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Returns:
        The new object, with its generation.

    Raises:
        InvalidArgumentError: a storage has no bytes, or is shared by tensors of several types.
        PreconditionFailedError: the object at `url` is not `if_generation`.
        CorruptDataError: the store reports other bytes than were sent. They are at `url`.
    """
    where, name = object_at(url, store, **options)
    # Pickle first, so that errors of pickling come before anything is sent.
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
    except BaseException as error:
        give_up(writer, error)
        raise
    tell_left_behind(writer, where.url_of(name), is_saved=True)
    return saved
