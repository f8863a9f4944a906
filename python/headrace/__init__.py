"""headrace: a fast, verified data path between object storage and PyTorch.

>>> import headrace
>>> store = headrace.Store("gs://bucket/train/")          # doctest: +SKIP
>>> samples = store.read_many(store.list())               # doctest: +SKIP
"""

from __future__ import annotations

import typing as _typing

from headrace._cleaning import Cleaned, clean
from headrace._engine import ObjectIndex, ObjectInfo, ObjectWriter, Sample
from headrace._errors import (
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
from headrace._open import ObjectReaderIO, ObjectWriterIO, open
from headrace._options import (
    BearerToken,
    EngineOptions,
    GiB,
    JoinOptions,
    KiB,
    MiB,
    RetryOptions,
    TimeoutOptions,
)
from headrace._process import Metrics, configure, metrics, shutdown
from headrace._store import ListPage, Prefix, Store

if _typing.TYPE_CHECKING:
    from headrace import checkpoint as checkpoint

__all__ = [
    "BearerToken",
    "CancelledError",
    "Cleaned",
    "CorruptDataError",
    "EngineOptions",
    "GiB",
    "HeadraceError",
    "InternalError",
    "InvalidArgumentError",
    "JoinOptions",
    "KiB",
    "ListPage",
    "Metrics",
    "MiB",
    "NotFoundError",
    "ObjectIndex",
    "ObjectInfo",
    "ObjectReaderIO",
    "ObjectWriter",
    "ObjectWriterIO",
    "PermissionDeniedError",
    "PreconditionFailedError",
    "Prefix",
    "ResourceError",
    "RetryOptions",
    "Sample",
    "Store",
    "ThrottledError",
    "TimedOutError",
    "TimeoutOptions",
    "UnavailableError",
    "clean",
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


def __getattr__(name: str) -> object:
    # It needs torch, which whoever only reads and writes objects need not wait for.
    if name == "checkpoint":
        import importlib

        return importlib.import_module("headrace.checkpoint")
    raise AttributeError(f"module 'headrace' has no attribute {name!r}")
