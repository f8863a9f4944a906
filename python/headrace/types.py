"""The types in headrace's signatures, for annotations of your own.

| name | what it is |
| --- | --- |
| `Url` | a URL or a path |
| `StoreOptions` | the keywords of `headrace.Store`, for ``**options: Unpack[StoreOptions]`` |
| `SaveKeywords`, `LoadKeywords` | those of `headrace.checkpoint.save` and of its `load` |
| `LoaderKeywords` | those of `headrace.torch.Loader`, but for the batch's size and `collate_fn` |
| `Credentials` | what `credentials=` takes |
| `Upload` | what `upload=` takes |
| `Progress`, `Count` | what `progress=` takes: where the end is known, and where it is not |
| `OnError` | what `on_error=` takes |
| `Source`, `ShardSource`, `TokenSource` | where datasets find objects, shards and tokens |
| `Fields` | a sample or a row as a dict, where no transform makes something of it |
| `Labels` | what `labels=` takes |
| `Shuffle` | what `shuffle=` takes |
| `LoaderStats` | what `headrace.torch.Loader.stats` is |
| `Cost` | what `headrace.torch.CostBatchSampler` takes as the cost of a sample |
| `BatchSoFar` | what its `fits=` is called with |

Nothing here imports torch before it is named.

>>> from headrace.types import StoreOptions, Url
>>> def train(url: Url, **options: Unpack[StoreOptions]) -> None: ...
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace._base.on_error import OnError
    from headrace._base.progress import CountOption as Count
    from headrace._base.progress import ProgressOption as Progress
    from headrace._credentials.credentials import CredentialsOption as Credentials
    from headrace._index.shards import ShardSource
    from headrace._store.location import Url
    from headrace._store.settings import StoreOptions
    from headrace._store.store import UploadWay as Upload
    from headrace.checkpoint._loading import LoadKeywords
    from headrace.checkpoint._saving import SaveKeywords
    from headrace.torch._batch_costs import Cost
    from headrace.torch._batch_steps import BatchSoFar
    from headrace.torch._loader import LoaderStats
    from headrace.torch._objects import Labels, Source
    from headrace.torch._signatures import Fields, LoaderKeywords, Shuffle
    from headrace.torch._token_files import Tokens as TokenSource

__all__ = [
    "BatchSoFar",
    "Cost",
    "Count",
    "Credentials",
    "Fields",
    "Labels",
    "LoadKeywords",
    "LoaderKeywords",
    "LoaderStats",
    "OnError",
    "Progress",
    "SaveKeywords",
    "ShardSource",
    "Shuffle",
    "Source",
    "StoreOptions",
    "TokenSource",
    "Upload",
    "Url",
]

_HOMES = {
    "BatchSoFar": "torch._batch_steps:BatchSoFar",
    "Cost": "torch._batch_costs:Cost",
    "Count": "_base.progress:CountOption",
    "Credentials": "_credentials.credentials:CredentialsOption",
    "Fields": "torch._signatures:Fields",
    "Labels": "torch._objects:Labels",
    "LoadKeywords": "checkpoint._loading:LoadKeywords",
    "LoaderKeywords": "torch._signatures:LoaderKeywords",
    "LoaderStats": "torch._loader:LoaderStats",
    "OnError": "_base.on_error:OnError",
    "Progress": "_base.progress:ProgressOption",
    "SaveKeywords": "checkpoint._saving:SaveKeywords",
    "ShardSource": "_index.shards:ShardSource",
    "Shuffle": "torch._signatures:Shuffle",
    "Source": "torch._objects:Source",
    "StoreOptions": "_store.settings:StoreOptions",
    "TokenSource": "torch._token_files:Tokens",
    "Upload": "_store.store:UploadWay",
    "Url": "_store.location:Url",
}


if not TYPE_CHECKING:  # to a checker, a name is there or is an error

    def __getattr__(name: str) -> object:
        if name not in _HOMES:
            raise AttributeError(f"module 'headrace.types' has no attribute {name!r}")
        module, _, home_name = _HOMES[name].partition(":")
        return getattr(importlib.import_module(f"headrace.{module}"), home_name)


def __dir__() -> list[str]:
    return __all__
