"""Options of a store as JSON has them, in which fsspec and zarr hand file systems on."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from typing import Any

from headrace._base import options
from headrace._base.options import require

__all__ = ["from_json", "is_secret", "to_json"]

_TAG = "headrace"
_KINDS = {
    kind.__name__: kind
    for kind in (
        options.AisOptions,
        options.AwsKeys,
        options.BearerToken,
        options.GcsOptions,
        options.ComposeOptions,
        options.ParallelOptions,
        options.RetryOptions,
        options.S3Options,
        options.TimeoutOptions,
    )
}


def to_json(value: Any) -> Any:
    """Return what JSON can have in place of an option; what it cannot have stays as it is."""
    if type(value).__name__ in _KINDS:
        fields = {
            field.name: to_json(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        }
        return {_TAG: type(value).__name__, **fields}
    if isinstance(value, bytes):
        return {_TAG: "bytes", "base64": base64.b64encode(value).decode()}
    return value


def from_json(value: Any) -> Any:
    """Return the option that `to_json` has made such a value of; all others stay as they are.

    Raises:
        InvalidArgumentError: the value names no option.
        TypeError: an option has a member that it does not take.
    """
    if not isinstance(value, Mapping) or _TAG not in value:
        return value
    fields = {name: from_json(each) for name, each in value.items() if name != _TAG}
    kind = value[_TAG]
    if kind == "bytes":
        return base64.b64decode(fields["base64"])
    known = ", ".join(_KINDS)
    require(kind in _KINDS, f"{_TAG}: {kind!r} is no kind of option; it must be one of {known}")
    return _KINDS[kind](**fields)


def is_secret(value: Any) -> bool:
    """Return whether an option holds what is never printed."""
    if isinstance(value, options.AwsKeys | options.BearerToken):
        return True
    return isinstance(value, options.S3Options) and value.customer_key is not None
