"""The keywords of `Loader` and of datasets as type checkers see them, and what the types stand for.

The signatures at run time have each keyword, with its default; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypedDict, TypeVar

import torch

from headrace._base.on_error import OnError
from headrace._base.progress import CountOption
from headrace._engine import ObjectIndex
from headrace._store.chosen import OptionalSuffix
from headrace._store.settings import StoreOptions

if TYPE_CHECKING:
    from typing import overload
else:

    def overload(function):
        """Do nothing: typing's own keeps each function, and so its whole module, for good."""
        return function


__all__ = [
    "Batch",
    "CollatedKeywords",
    "Fields",
    "FolderKeywords",
    "Item",
    "Label",
    "LabelOf",
    "LabelsOf",
    "LoaderKeywords",
    "Made",
    "MapKeywords",
    "NamedItem",
    "ParquetKeywords",
    "RankKeywords",
    "ShardKeywords",
    "Shuffle",
    "Stacked",
    "StreamKeywords",
    "TableKeywords",
    "overload",
]

Shuffle = bool | Literal["block"]

Item = TypeVar("Item", covariant=True)
"""What a dataset has at a number, or yields."""
Made = TypeVar("Made")
"""What a transform makes."""
Batch = TypeVar("Batch", covariant=True)
"""What a loader yields."""
Stacked = TypeVar("Stacked", bound="torch.Tensor")
"""What is stacked in a batch."""
LabelOf = TypeVar("LabelOf")

LabelsOf = Mapping[str, LabelOf] | Callable[[str], LabelOf] | Sequence[LabelOf]
"""Labels that say of which type they are."""
Label = int | float | str | bytes
"""A label of a column."""


if TYPE_CHECKING:

    class Fields(dict[str, Any]):
        """A sample by the names of its fields, or a row by those of its columns: a plain dict.

        mypy makes ``Any`` of what it finds for an argument whose type has an ``Any`` in it.
        """

else:
    Fields = dict


class NamedItem(Protocol):
    """A named tuple, of which a batch is a named tuple of the same class."""

    def _asdict(self) -> dict[str, Any]: ...


class RankKeywords(StoreOptions, total=False):
    rank: int | None
    world_size: int | None


class FolderKeywords(StoreOptions, total=False):
    """Those of `MapDataset.from_folders`."""

    index: ObjectIndex | None
    suffix: OptionalSuffix
    hidden: bool
    seed: int
    progress: CountOption


class MapKeywords(FolderKeywords, total=False):
    classes: bool | Sequence[str] | None


class TableKeywords(StoreOptions, total=False):
    """Those of `MapDataset.from_table`."""

    url: str
    classes: bool | Sequence[str] | None
    begin: str | None
    end: str | None
    root: Any
    check: bool
    seed: int


class ShardKeywords(StoreOptions, total=False):
    index: ObjectIndex | None
    fields: Sequence[str] | None
    hidden: bool
    on_error: OnError
    seed: int
    progress: CountOption


class StreamKeywords(RankKeywords, total=False):
    """Those of `ShardStream`."""

    shuffle: bool
    seed: int
    shuffle_window: int
    fields: Sequence[str] | None
    hidden: bool
    epoch_samples: int | None
    uneven: Literal["drop", "pad", "keep"]
    on_error: OnError
    max_skipped: int | None
    shards_ahead: int
    prefetch_bytes: int | None
    seed_generators: bool


class ParquetKeywords(RankKeywords, total=False):
    hidden: bool
    columns: Sequence[str] | None
    batch_size: int | None
    drop_last: bool
    shuffle: bool
    seed: int
    shuffle_groups: int
    uneven: Literal["drop", "pad", "keep"]
    on_error: OnError
    max_skipped: int | None
    prefetch_bytes: int | None
    seed_generators: bool


class LoaderKeywords(TypedDict, total=False):
    shuffle: Shuffle
    block_size: int | None
    shuffle_window: int | None
    seed: int
    drop_last: bool
    sampler: Iterable[int] | None
    max_wait_s: float | None
    transform_threads: int | None
    prefetch_bytes: int | None
    pin_memory: bool
    device: torch.device | str | int | None
    seed_generators: bool
    on_error: OnError
    max_skipped: int | None
    fill: Literal["repeat"] | None
    rank: int | None
    world_size: int | None


class CollatedKeywords(LoaderKeywords, total=False):
    """Those of a `Loader` that makes its batches itself."""

    max_batch_bytes: int | None
    collate_fn: None
