"""What type checkers see is what there is at run time; tools/typed_programs.py runs them."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
import typing
from collections.abc import Callable
from typing import Any

import pytest

import headrace
import headrace.checkpoint
import headrace.types
from headrace._store.settings import LoadOptions, StoreOptions, StoreSettings
from headrace.checkpoint._loading import LoadKeywords
from headrace.checkpoint._saving import SaveKeywords
from headrace.torch import (
    Loader,
    MapDataset,
    ParquetDataset,
    ShardDataset,
    ShardStream,
    _signatures,
)

NO_KEYWORDS = {"self", "cls", "source", "table", "dataset", "transform", "obj", "url", "more"}


def keywords_of(function: Callable[..., Any], besides: set[str] = frozenset()) -> set[str]:  # type: ignore[assignment]
    parameters = inspect.signature(function).parameters.values()
    named = {each.name for each in parameters if each.kind is not each.VAR_KEYWORD}
    return named - NO_KEYWORDS - besides


@pytest.mark.parametrize(
    ("keywords", "function", "besides"),
    [
        (_signatures.LoaderKeywords, Loader, {
            "batch_size", "max_batch_bytes", "batch_sampler", "collate_fn",
        }),
        (_signatures.MapKeywords, MapDataset, {"labels"}),
        (_signatures.FolderKeywords, MapDataset.from_folders, {"classes"}),
        (_signatures.ShardKeywords, ShardDataset, set()),
        (_signatures.StreamKeywords, ShardStream, set()),
        (_signatures.ParquetKeywords, ParquetDataset, set()),
        (SaveKeywords, headrace.checkpoint.save, {"store"}),
        (LoadKeywords, headrace.checkpoint.load, {"store"}),
    ],
    ids=lambda each: getattr(each, "__qualname__", ""),
)  # fmt: skip
def test_a_checker_sees_the_keywords_that_there_are(
    keywords: Any, function: Callable[..., Any], besides: set[str]
) -> None:
    seen = {*keywords.__annotations__}
    assert seen <= typing.get_type_hints(keywords).keys()
    options = {*StoreOptions.__annotations__}
    assert {*LoadOptions.__annotations__} == options - {"verify"}
    own = keywords_of(function, besides)
    assert seen - (options - own) == own
    assert options - own <= seen or not options & seen


def test_of_a_table_too() -> None:
    seen = {*_signatures.TableKeywords.__annotations__} - {*StoreOptions.__annotations__}
    assert seen | {"label"} == keywords_of(MapDataset.from_table) | {"url"}


def test_a_stores_options_are_its_keywords() -> None:
    names = {each.name for each in dataclasses.fields(StoreSettings)}
    assert {*StoreOptions.__annotations__} == names == keywords_of(headrace.Store, {"unknown"})


def test_every_type_can_be_imported_and_is_shown() -> None:
    for name in headrace.types.__all__:
        assert getattr(headrace.types, name) is not None
        assert f"`{name}`" in (headrace.types.__doc__ or "")
    assert dir(headrace.types) == headrace.types.__all__
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = headrace.types.Nothing


def test_names_that_load_later_are_shown_and_imports_are_not() -> None:
    program = """
import sys, headrace, headrace.types
assert {"torch", "checkpoint", "types", "ray"} <= {*dir(headrace)}, dir(headrace)
from headrace.types import StoreOptions, Url, OnError, Credentials
assert "torch" not in sys.modules
import headrace.checkpoint, headrace.huggingface, headrace.ray
assert {"DistributedWriter", "DistributedReader"} <= {*dir(headrace.checkpoint)}
assert "CheckpointCallback" in dir(headrace.huggingface)
assert dir(headrace.ray) == sorted(headrace.ray.__all__), dir(headrace.ray)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
