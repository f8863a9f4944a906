"""Files that become visible together, by the end of a ``with fs.transaction``."""

from __future__ import annotations

from typing import Any

from fsspec.transaction import Transaction

__all__ = ["StoreTransaction"]


class StoreTransaction(Transaction):  # type: ignore[misc]  # fsspec has no types
    """A transaction that ends in any case.

    Where a file cannot become visible, that of older releases of fsspec goes on: what is written
    afterwards, by whoever shares the file system, would wait for an end that never comes.
    """

    fs: Any
    files: Any

    def complete(self, commit: bool = True) -> None:
        """Make all files visible, in their order, or none; after an error give up what is left.

        Raises:
            Exception: the first error. What became visible before it stays.
        """
        files, fs = list(self.files), self.fs
        self.files.clear()
        self.fs = None
        if fs is not None:
            fs._intrans, fs._transaction = False, None
        failed: BaseException | None = None
        for file in files:
            try:
                if commit and failed is None:
                    file.commit()
                else:
                    file.discard()
            except BaseException as error:
                failed = failed or error
        if failed is not None:
            raise failed
