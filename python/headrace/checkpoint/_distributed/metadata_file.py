"""``.metadata`` as bytes: torch's pickle, followed by a checksum."""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

from headrace._base.errors import CorruptDataError
from headrace._checkpoints.checked_metadata import with_sum, without_sum

if TYPE_CHECKING:
    from torch.distributed.checkpoint.metadata import Metadata

__all__ = ["from_bytes", "storage_meta", "to_bytes"]


def storage_meta(**fields: Any) -> Any:
    """Return a ``StorageMeta`` of torch; None if this torch has no such class."""
    from torch.distributed.checkpoint import metadata

    kind = getattr(metadata, "StorageMeta", None)
    return None if kind is None else kind(**fields)


def to_bytes(metadata: Metadata) -> bytes:
    """Return the content of the object."""
    return with_sum(pickle.dumps(metadata))


def from_bytes(data: bytes, url: str) -> Metadata:
    """Return the metadata in `data`, read from `url`; headrace or stock torch wrote it.

    A pickle can run code: load checkpoints only from people whose code you would run.

    Raises:
        CorruptDataError: it is damaged, or not the metadata of a checkpoint.
    """
    from torch.distributed.checkpoint.metadata import Metadata

    body, _ = without_sum(data, url)
    stream = io.BytesIO(body)
    try:
        metadata = pickle.load(stream)
    except Exception as error:
        raise CorruptDataError(f"{url}: no metadata of a checkpoint: {error!r}") from error
    # Otherwise a damaged trailer would switch the checksum off.
    if stream.tell() != len(body):
        raise CorruptDataError(f"{url}: there are bytes after the metadata: it is damaged")
    if not isinstance(metadata, Metadata):
        raise CorruptDataError(f"{url}: it holds {type(metadata).__name__}, not metadata")
    return metadata
