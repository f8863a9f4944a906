"""headrace: a fast, verified data path between object storage and PyTorch.

>>> import headrace
>>> store = headrace.Store("gs://bucket/train/")          # doctest: +SKIP
>>> samples = store.read_many(store.list())               # doctest: +SKIP
"""

from __future__ import annotations

import typing as _typing

from headrace._base import engine_loading  # noqa: F401  # first: it says what to do
from headrace._base.errors import (
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
from headrace._base.face import belong_to as _belong_to
from headrace._base.options import (
    AisOptions,
    AwsKeys,
    BearerToken,
    ComposeOptions,
    GcsOptions,
    GiB,
    KiB,
    MiB,
    ParallelOptions,
    RetryOptions,
    S3Options,
    TimeoutOptions,
)
from headrace._checkpoints.cleaning import Cleaned, UnfinishedUpload, clean
from headrace._engine import ObjectIndex, ObjectInfo, ObjectWriter, Sample
from headrace._files.open import open
from headrace._files.reader_io import ObjectReaderIO
from headrace._files.writer_io import ObjectWriterIO
from headrace._index.shards import index_members
from headrace._pack.pack import Packed, pack, pack_tokens
from headrace._process.process import Metrics, configure, metrics, shutdown
from headrace._process.tracing import Trace, trace
from headrace._process.verdict import Verdict
from headrace._store.store import ListPage, Prefix, Store
from headrace._version import __version__ as __version__

if _typing.TYPE_CHECKING:
    from headrace import checkpoint as checkpoint
    from headrace import compat as compat
    from headrace import demo as demo
    from headrace import fsspec as fsspec
    from headrace import huggingface as huggingface
    from headrace import lightning as lightning
    from headrace import megatron as megatron
    from headrace import ray as ray
    from headrace import torch as torch
    from headrace import torch_checkpointing as torch_checkpointing
    from headrace import types as types
    from headrace.torch import mix as mix

__all__ = [
    "AisOptions",
    "AwsKeys",
    "BearerToken",
    "CancelledError",
    "Cleaned",
    "ComposeOptions",
    "CorruptDataError",
    "GcsOptions",
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
    "ObjectWriter",
    "ObjectWriterIO",
    "Packed",
    "ParallelOptions",
    "PermissionDeniedError",
    "PreconditionFailedError",
    "Prefix",
    "ResourceError",
    "RetryOptions",
    "S3Options",
    "Sample",
    "Store",
    "ThrottledError",
    "TimedOutError",
    "TimeoutOptions",
    "Trace",
    "UnavailableError",
    "UnfinishedUpload",
    "Verdict",
    "clean",
    "configure",
    "index_members",
    "metrics",
    "open",
    "pack",
    "pack_tokens",
    "shutdown",
    "trace",
]

_belong_to(__name__, __all__, globals())


# Each loads when it is first named: most need torch, which whoever only reads and writes objects
# need not wait for, nor have.
_SUBPACKAGES = (
    "checkpoint",
    "compat",
    "demo",
    "fsspec",
    "huggingface",
    "lightning",
    "megatron",
    "ray",
    "torch",
    "torch_checkpointing",
    "types",
)
# Names whose home loads when they are first used.
_ELSEWHERE = {"mix": "headrace.torch"}


if not _typing.TYPE_CHECKING:  # to a checker, a name is there or is an error

    def __getattr__(name: str) -> object:
        import importlib

        if name in _SUBPACKAGES:
            return importlib.import_module(f"headrace.{name}")
        if name in _ELSEWHERE:
            return getattr(importlib.import_module(_ELSEWHERE[name]), name)
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(
        {
            *__all__,
            *_SUBPACKAGES,
            *_ELSEWHERE,
            *(each for each in globals() if each.startswith("__")),
        }
    )
