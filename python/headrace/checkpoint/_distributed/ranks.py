"""Errors that torch sends from one rank to the others."""

from __future__ import annotations

from collections.abc import Iterator

import torch.distributed as dist

from headrace._base.contexts import context
from headrace._base.errors import portable, travels

__all__ = ["as_ranks_tell"]


@context
def as_ranks_tell() -> Iterator[None]:
    """Raise an error of the user's code so that the other ranks can be told of it.

    torch pickles it in the middle of a collective operation: the other ranks would wait forever for
    one that does not pickle, and fail at one that cannot be unpickled.
    """
    try:
        yield
    except BaseException as error:
        if dist.is_available() and dist.is_initialized() and not travels(error):
            raise portable(error) from error
        raise
