"""Stores that are given side by side: one for each root."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace._base.options import require

if TYPE_CHECKING:
    from headrace._store.store import Store

__all__ = ["first_of_root"]


def first_of_root(stores: dict[str, Store], root: str, store: Store) -> Store:
    """Return the store that `stores` has for `root`; if there is none yet, that is `store`.

    Raises:
        InvalidArgumentError: the two have different settings, so that it would matter which one
            reads.
    """
    first = stores.setdefault(root, store)
    require(
        first is store or first._settings == store._settings,
        f"{store.url}: two stores of this URL have different settings; make two datasets of "
        "them, and join these (torch.utils.data.ConcatDataset)",
    )
    return first
