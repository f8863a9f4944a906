"""What the objects of a distributed checkpoint are called. Needs no torch."""

from __future__ import annotations

import re
from uuid import uuid4

__all__ = [
    "METADATA_NAME",
    "attachment_name",
    "data_name",
    "file_id",
    "ids_in",
    "is_data",
    "is_metadata",
    "metadata_name",
    "metadata_rank",
]

# Written last by torch.distributed.checkpoint: where it is the checkpoint is complete.
METADATA_NAME = ".metadata"

_HEX = "[0-9a-f]{32}"
_OURS = re.compile(rf"__\d+_\d+-({_HEX})\.distcp|\d+\.attached-({_HEX})")
_TORCHS = re.compile(r"__\d+_\d+\.distcp")  # of torch's FileSystemWriter
_RANK_METADATA = re.compile(r"__(\d+)\.metadata")
_ID_IN_TEXT = re.compile(rf"-({_HEX})".encode())


def metadata_name(rank: int | None = None) -> str:
    """Return the name of the object that makes a checkpoint complete.

    Args:
        rank: for checkpoints without collectives, in which each rank has its own.
    """
    return METADATA_NAME if rank is None else f"__{rank}{METADATA_NAME}"


def metadata_rank(name: str) -> int | None:
    """Return the rank whose metadata is called `name`, or None."""
    match = _RANK_METADATA.fullmatch(name)
    return None if match is None else int(match[1])


def is_metadata(name: str) -> bool:
    """Return whether `name`, inside the folder, is that of any metadata."""
    return name == METADATA_NAME or metadata_rank(name) is not None


def data_name(rank: int, number: int) -> str:
    """Return a name for a data file that no save has used before, and no other will."""
    return f"__{rank}_{number}-{uuid4().hex}.distcp"


def attachment_name(number: int) -> str:
    """Return a name for an attachment that no save has used before, and no other will."""
    return f"{number}.attached-{uuid4().hex}"


def is_data(name: str) -> bool:
    """Return whether `name`, inside the folder, is that of a data file or attachment."""
    return file_id(name) is not None or _TORCHS.fullmatch(name) is not None


def file_id(name: str) -> str | None:
    """Return the id that no other file has, if the file called `name` is one of ours."""
    match = _OURS.fullmatch(name)
    return None if match is None else match[1] or match[2]


def ids_in(metadata: bytes) -> set[str]:
    """Return the ids of all files that the metadata could mean.

    It is a pickle, and nothing is executed to look into it: an id stands there as in the name.
    """
    return {each.decode() for each in _ID_IN_TEXT.findall(metadata)}
