"""AIStore's SDK, if this program uses it. Nothing here imports it unasked."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from headrace._base.imported import imported

__all__ = [
    "etl_config",
    "is_bucket",
    "is_client",
    "is_group",
    "is_object",
    "reads_by_get",
    "sdk_class",
    "sdk_error",
]


def sdk_class(module: str, name: str) -> Any:
    """Return a class of a module that is imported already, or None."""
    return imported(f"aistore.sdk.{module}", name)


def is_bucket(source: Any) -> bool:
    """Return whether `source` is a bucket of the SDK's that lists in the SDK's own way.

    A mock, whose type is another one, is not.
    """
    return _is_own(source, sdk_class("bucket", "Bucket"), "list_all_objects_iter")


def is_group(source: Any) -> bool:
    """Return whether `source` is an object group of the SDK's that lists in the SDK's own way."""
    group = sdk_class("multiobj.object_group", "ObjectGroup")
    return _is_own(source, group, "list_all_objects_iter")


def is_object(value: Any) -> bool:
    """Return whether `value` is an object of the SDK's that is read in the SDK's own way."""
    return _is_own(value, sdk_class("obj.object", "Object"), "get_reader", "get")


def is_client(value: Any) -> bool:
    """Return whether `value` is a client of the SDK's that makes batches in the SDK's own way."""
    return _is_own(value, sdk_class("client", "Client"), "batch")


def reads_by_get() -> bool:
    """Return whether the objects of the program's SDK are read by ``get`` (before 1.10)."""
    original = sdk_class("obj.object", "Object")
    return original is not None and not hasattr(original, "get_reader")


def _is_own(value: Any, original: Any, *methods: str) -> bool:
    """Return whether the type of `value` is `original` or has its `methods`."""
    if original is None or not issubclass(type(value), original):
        return False
    return all(
        getattr(type(value), each, None) is getattr(original, each, None) for each in methods
    )


def etl_config(etl_name: Any) -> Any:
    """Return the argument by which a reader of the SDK's learns of an ETL."""
    return importlib.import_module("aistore.sdk.etl").ETLConfig(etl_name)


@functools.cache
def sdk_error(name: str) -> type[Exception] | None:
    """Return an exception of the SDK's, or of requests, if it is installed."""
    module = "aistore.sdk.errors" if name.startswith(("AIS", "Err")) else "requests.exceptions"
    try:
        found: type[Exception] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return None
    return found
