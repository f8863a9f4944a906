"""`open`: find out what kind of checkpoint an object is, and read where its tensors are."""

from __future__ import annotations

from typing import Unpack

from headrace._base.options import require_bool
from headrace._store.location import Url, object_at
from headrace._store.settings import LoadOptions
from headrace._store.store import Store
from headrace.checkpoint._archive import Archive, is_safetensors, read_ends
from headrace.checkpoint._checkpoint_reader import CheckpointReader
from headrace.checkpoint._object import stat
from headrace.checkpoint._safetensors import SafetensorsReader, find, is_safetensors_name, just

__all__ = ["open"]


def open(  # noqa: A001 - it is meant to read like open
    url: Url, *, verify: bool = True, store: Store | None = None, **options: Unpack[LoadOptions]
) -> CheckpointReader:
    """Open a checkpoint to read some of its tensors.

    This reads the directory and the pickle, as `load` does, or the header of a safetensors file,
    but no tensor.

    Examples:
        >>> reader = headrace.checkpoint.open("gs://bucket/run1/step100.pt")
        >>> weight = reader.tensor("weight")

    Args:
        url: the URL of the object; with `store`, its name there or its whole URL.
        verify: compare the checksums in the file.
        store: the store of the object. Default: a store of the URL's bucket.
        options: options of `Store`, if `store` is not given: ``endpoint=...``.

    Raises:
        NotFoundError: there is no such object.
        CorruptDataError: it is truncated or damaged.
        InvalidArgumentError: it is not a checkpoint, a key in it has more than 1,024 characters, or
            an argument is invalid.
    """
    require_bool("verify", verify)
    where, name = object_at(url, store, **options)
    if is_safetensors_name(name):
        return SafetensorsReader(find(where, name), verify)
    info = stat(where, name)
    ends = read_ends(where, info)
    if is_safetensors(ends[0][1]):
        return SafetensorsReader(just(where, info), verify)
    return CheckpointReader(Archive(where, info, ends, verify))
