"""Indexes of shards as webdataset's package `wids` writes them: how many samples each shard has."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from headrace._base.errors import InvalidArgumentError
from headrace._base.options import require
from headrace._engine import ObjectIndex
from headrace._index.shards import shards_named
from headrace._store.location import folder_and_name, is_whole, object_at
from headrace._store.store import Store

__all__ = ["is_wids", "shards_in_wids"]

_VERSION = 1
_MOST_SAMPLES = 1 << 31


def is_wids(source: Any) -> TypeGuard[str | os.PathLike[str]]:
    """Return whether a source of shards is the URL or path of such an index."""
    return isinstance(source, str | os.PathLike) and os.fspath(source).endswith(".json")


def shards_in_wids(
    url: str | os.PathLike[str], options: Mapping[str, Any]
) -> tuple[ObjectIndex, tuple[Store, ...], list[int]]:
    """Return the shards that an index names, their stores, and the number of samples of each.

    Raises:
        NotFoundError: there is no such index, or a shard is missing.
        InvalidArgumentError: it is no such index, or a shard has another size than it says.
    """
    text = os.fspath(url)
    store, name = object_at(text, **options)
    description = _parsed(text, store.read(name).bytes())
    folder = description.get("base", folder_and_name(text)[0])
    listed = description["shardlist"]
    for each in listed:
        _require_shard(text, each)
    urls = [
        each["url"] if is_whole(each["url"]) or not folder else f"{folder}/{each['url']}"
        for each in listed
    ]
    shards, stores = shards_named(urls, options)
    for i, each in enumerate(listed):
        found, said = shards[i].size_bytes, each.get("filesize")
        require(
            said is None or said == found,
            f"{text}: it says that {shards.url(i)} has {said} bytes, and it has {found}: make the "
            "index anew",
        )
    return shards, stores, [each["nsamples"] for each in listed]


def _parsed(text: str, data: bytes) -> Mapping[str, Any]:
    try:
        description = json.loads(data)
    except ValueError as error:
        raise InvalidArgumentError(f"{text}: it is no JSON: {error}") from None
    shards = description.get("shardlist") if isinstance(description, Mapping) else None
    require(
        isinstance(shards, Sequence) and not isinstance(shards, str) and len(shards) > 0,
        f"{text}: it is no index of shards: it has no 'shardlist' with shards",
    )
    assert isinstance(description, Mapping)
    version = description.get("wids_version")
    require(
        version == _VERSION,
        f"{text}: its wids_version is {version!r}, and this headrace reads {_VERSION}",
    )
    require(
        not description.get("datasets"),
        f"{text}: it names other datasets: give the index of one of them",
    )
    require(
        isinstance(description.get("base", ""), str),
        f"{text}: its base is {description.get('base')!r}; it must be a URL",
    )
    return description


def _require_shard(text: str, shard: Any) -> None:
    good = isinstance(shard, Mapping) and isinstance(shard.get("url"), str)
    samples = shard.get("nsamples") if good else None
    good = isinstance(samples, int) and not isinstance(samples, bool)
    require(
        good and 0 <= samples < _MOST_SAMPLES,  # type: ignore[operator]
        f"{text}: it has the shard {shard!r}; each must have a 'url' and its number of samples, "
        "'nsamples'",
    )
