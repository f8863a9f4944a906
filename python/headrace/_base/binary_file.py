"""What objects that are files are to type checkers: binary files, as `open` returns them."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

__all__ = ["BinaryFile"]

if TYPE_CHECKING:
    from typing import BinaryIO

    # As io.BytesIO is declared: some methods differ between the two.
    class BinaryFile(io.BufferedIOBase, BinaryIO): ...

else:
    BinaryFile = io.BufferedIOBase
