"""A store's objects as fsspec's files and folders, whatever the scheme."""

from __future__ import annotations

from headrace.fsspec._many import Many
from headrace.fsspec._transaction import StoreTransaction

__all__ = ["StoreFileSystem"]


class StoreFileSystem(Many):
    """What the file systems of all schemes have in common; open one by `fsspec.filesystem`.

    Paths are ``bucket/name``, with or without the scheme. Folders are what names have in common:
    they need not be made, and an empty one does not exist. Nothing that was listed is remembered:
    each call asks the service.

    Sequences of paths and ranges are read by one batch of requests. Methods of the same names with
    an underscore are coroutines, which wait in threads; one that is cancelled, and writes or
    removes something, ends when that has ended. Instances pickle as their options, and may be used
    after a fork.

    Args:
        asynchronous: it is used by its coroutines, in the loop of whoever made it.
        loop: not used; fsspec gives it.
        batch_size: how many files `get`, `put`, `copy` and `rm` treat at a time.
        prefetch_bytes: what is fetched ahead of a file that is read sequentially, at most.
        options: of `headrace.Store`. What fsspec's convention passes to every file system does
            nothing: options of the cache of listings, ``block_size``, ``cache_type``, ``encoding``,
            and ``client_kwargs`` unless they name an endpoint, a region or keys.

    Raises:
        InvalidArgumentError: an option cannot work.
        TypeError: there is no such option; the message names the right one.

    Examples:
        >>> import fsspec
        >>> _ = headrace.fsspec.register()
        >>> fs = fsspec.filesystem("headrace+gs")
        >>> fs.cat_ranges(["bucket/notes.txt"] * 2, [0, 2], [2, 5])
        [b'no', b'tes']
        >>> with fsspec.open("headrace+gs://bucket/a.txt", "w") as file:
        ...     size = file.write("text")
    """

    mirror_sync_methods = False  # ours wait for the engine, not for a loop
    transaction_type = StoreTransaction

    @property
    def transaction(self) -> StoreTransaction:
        """A new transaction, for a ``with``: what is written in it appears at its end."""
        return StoreTransaction(self)

    def start_transaction(self) -> StoreTransaction:
        """Begin a transaction without a ``with``, and return it; `end_transaction` is its end."""
        transaction = self.transaction
        transaction.start()
        return transaction

    def end_transaction(self) -> None:
        """Make all files visible that were written since `start_transaction`, in their order.

        Raises:
            HeadraceError: one could not become visible; nor did those behind it.
        """
        transaction = self.transaction
        transaction.complete()
        while transaction.is_begun_here:
            transaction.complete()
