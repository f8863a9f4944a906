"""pyarrow, which nothing but Parquet needs."""

from __future__ import annotations

from typing import Any

from headrace._base.errors import HeadraceError

__all__ = ["pyarrow_for"]


def pyarrow_for(what: str) -> tuple[Any, Any]:
    """Return the modules ``pyarrow`` and ``pyarrow.parquet``.

    Raises:
        HeadraceError: they are not installed, and `what` needs them.
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise HeadraceError(f"{what} needs pyarrow: pip install 'headrace[parquet]'") from error
    return pyarrow, parquet
