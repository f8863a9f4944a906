"""The checksum behind the pickle of a ``.metadata``.

``pickle.load`` stops at the end of the pickle, so stock torch reads such a file as its own.
"""

from __future__ import annotations

import pickletools
import struct

from headrace import _engine
from headrace._base.errors import CorruptDataError

__all__ = ["require_whole", "with_sum", "without_sum"]

_TRAILER = struct.Struct("<8sI")
_MAGIC = b"hdrcCRC1"


def with_sum(pickled: bytes) -> bytes:
    """Return what goes into the object."""
    return pickled + _TRAILER.pack(_MAGIC, _engine.crc32c(pickled))


def without_sum(data: bytes, url: str) -> tuple[bytes, bool]:
    """Return the pickle in `data`, read from `url`, and whether a checksum says that it is right.

    Raises:
        CorruptDataError: it says that it is not.
    """
    if len(data) >= _TRAILER.size:
        magic, expected = _TRAILER.unpack(data[-_TRAILER.size :])
        if magic == _MAGIC:
            body = data[: -_TRAILER.size]
            if _engine.crc32c(body) != expected:
                raise CorruptDataError(
                    f"{url}: its bytes do not match its CRC-32C: load another checkpoint"
                )
            return body, True
    return data, False


def require_whole(data: bytes, url: str) -> None:
    """Raise unless `data` is a pickle from its first byte to its last. Nothing is executed.

    Raises:
        CorruptDataError: it is damaged, cut off, or something else.
    """
    body, is_right = without_sum(data, url)
    if is_right:
        return
    try:
        end = max((place or 0 for _, _, place in pickletools.genops(body)), default=0)
    except Exception as error:
        raise CorruptDataError(f"{url}: no metadata of a checkpoint: {error!r}") from error
    # Behind a damaged checksum everything would look right.
    if end + 1 != len(body):
        raise CorruptDataError(f"{url}: there are bytes after the metadata: it is damaged")
