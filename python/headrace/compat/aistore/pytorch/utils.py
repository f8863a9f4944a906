"""``aistore.pytorch.utils``: sizes, names and URLs."""

from __future__ import annotations

from math import floor
from urllib.parse import urlparse, urlunparse

__all__ = [
    "MB_TO_B",
    "convert_bytes_to_mb",
    "convert_mb_to_bytes",
    "get_basename",
    "get_extension",
    "parse_url",
    "unparse_url",
]

MB_TO_B = 1000000


def convert_mb_to_bytes(megabytes: float) -> int:
    """Return how many whole bytes so many MB (10^6 bytes) are.

    Examples:
        >>> convert_mb_to_bytes(1.5)
        1500000
    """
    return floor(megabytes * MB_TO_B)


def convert_bytes_to_mb(bytes: int) -> float:
    """Return how many MB (10^6 bytes) so many bytes are.

    Examples:
        >>> convert_bytes_to_mb(1500000)
        1.5
    """
    return bytes / MB_TO_B


def unparse_url(provider: str, bck_name: str, obj_name: str) -> str:
    """Return the URL of an object.

    Examples:
        >>> unparse_url("ais", "bucket", "train/a.jpg")
        'ais://bucket/train/a.jpg'
    """
    return urlunparse([provider, bck_name, obj_name, "", "", ""])


def parse_url(url: str) -> tuple[str, str, str]:
    """Return provider, bucket and name of an object's URL.

    Examples:
        >>> parse_url("ais://bucket/train/a.jpg")
        ('ais', 'bucket', 'train/a.jpg')
    """
    parts = urlparse(url)
    return parts.scheme, parts.netloc, parts.path.lstrip("/")


def get_basename(name: str) -> str:
    """Return the last part of a name up to its first dot.

    Examples:
        >>> get_basename("train/a.seg.png")
        'a'
    """
    return name.rpartition("/")[2].partition(".")[0]


def get_extension(name: str) -> str:
    """Return what stands behind the last dot of the last part of a name.

    Examples:
        >>> get_extension("train/a.seg.png")
        'png'
    """
    _, dot, extension = name.rpartition("/")[2].rpartition(".")
    return extension if dot else ""
