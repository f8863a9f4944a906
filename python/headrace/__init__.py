"""headrace: a fast, verified data path between object storage and PyTorch.

>>> import headrace
>>> store = headrace.Store("gs://bucket/train/")          # doctest: +SKIP
>>> samples = store.read_many(store.list())               # doctest: +SKIP
"""

from __future__ import annotations

from headrace._engine import ObjectIndex, ObjectInfo, Sample
from headrace.errors import (
    CancelledError,
    CorruptDataError,
    HeadraceError,
    InternalError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionFailedError,
    ResourceError,
    ThrottledError,
    TimedOutError,
    UnavailableError,
)
from headrace.io import ObjectReaderIO, ObjectWriterIO, open
from headrace.options import (
    BearerToken,
    EngineOptions,
    GiB,
    KiB,
    MiB,
    RetryOptions,
    TimeoutOptions,
)
from headrace.process import Metrics, configure, metrics, shutdown
from headrace.store import ListPage, Store

__all__ = [
    "BearerToken",
    "CancelledError",
    "CorruptDataError",
    "EngineOptions",
    "GiB",
    "HeadraceError",
    "InternalError",
    "InvalidArgumentError",
    "KiB",
    "ListPage",
    "Metrics",
    "MiB",
    "NotFoundError",
    "ObjectIndex",
    "ObjectInfo",
    "ObjectReaderIO",
    "ObjectWriterIO",
    "PermissionDeniedError",
    "PreconditionFailedError",
    "ResourceError",
    "RetryOptions",
    "Sample",
    "Store",
    "ThrottledError",
    "TimedOutError",
    "TimeoutOptions",
    "UnavailableError",
    "configure",
    "metrics",
    "open",
    "shutdown",
]

__version__ = "0.1.0"

# The public module, in messages, in documentation and in pickles.
for _name in __all__:
    if isinstance(globals()[_name], type | type(configure)):
        globals()[_name].__module__ = "headrace"
del _name
