"""The public modules, as their users see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import FunctionType
from typing import Any

__all__ = ["belong_to"]


def belong_to(face: str, names: Sequence[str], members: Mapping[str, Any]) -> None:
    """Say in messages, documentation and pickles that classes and functions are a public module's.

    Args:
        face: the public module.
        names: what it offers; names that are not there yet are passed over.
        members: what it has, by their names.
    """
    for name in names:
        if isinstance(member := members.get(name), type | FunctionType):
            member.__module__ = face
