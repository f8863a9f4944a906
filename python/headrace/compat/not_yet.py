"""Names that headrace does not stand in for yet."""

from __future__ import annotations

from typing import NoReturn

__all__ = ["refuse"]


def refuse(module: str) -> NoReturn:
    """Say that `module` is missing on purpose.

    Raises:
        ImportError: always.
    """
    raise ImportError(
        f"headrace.compat has no {module} yet: it has the datasets and dataflux_core; the names of "
        "checkpoints, Lightning and multipart uploads come in a later version of headrace. Until "
        "then use gcs-torch-dataflux's in a program without headrace.compat.install()",
        name=module,
    )
