"""Every public name of the installed ``aistore.pytorch``, with its parameters and defaults."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

MODULES = [
    "base_iter_dataset", "base_map_dataset", "batch_iter_dataset", "dynamic_sampler",
    "iter_dataset", "map_dataset", "multishard_dataset", "parallel_map_dataset", "shard_reader",
    "utils",
]  # fmt: skip

# What users of the original reach, in classes that they inherit from, too.
HOOKS = {
    "_create_objects_iter", "_create_objects_list", "_get_shard_objects_iterator",
    "_get_worker_iter_info", "_process_batch", "_reset_iterator", "__getitem__", "__getitems__",
    "__iter__", "__len__",
}  # fmt: skip

# Attributes that subclasses use.
ATTRIBUTES = {
    "AISMapDataset": "_ais_source_list _prefix_map _obj_list _etl_name",
    "AISIterDataset": "_ais_source_list _prefix_map _obj_iterator _etl_name _show_progress "
    "_partition_sources_by_worker",
    "AISShardReader": "_ais_source_list _prefix_map _obj_iterator _etl_name _show_progress "
    "_observed_keys",
    "AISParallelMapDataset": "_ais_source_list _prefix_map _obj_list _num_workers",
}


def module(owner: str, name: str) -> Any:
    return importlib.import_module(f"{owner}.pytorch.{name}" if name else f"{owner}.pytorch")


def public(name: str) -> dict[str, Any]:
    """What a module of the original defines itself."""
    found = vars(module("aistore", name))
    return {
        key: value
        for key, value in found.items()
        if not key.startswith("_")
        and getattr(value, "__module__", None) == f"aistore.pytorch.{name}"
    }


def parameters(thing: Any) -> list[tuple[str, Any]]:
    """Names and defaults."""
    return [(each.name, each.default) for each in inspect.signature(thing).parameters.values()]


@pytest.mark.parametrize("name", MODULES)
def test_functions_and_classes_take_the_originals_arguments(name: str) -> None:
    ours = module("headrace.compat.aistore", name)
    found = public(name)
    assert found
    for key, theirs in found.items():
        mine = getattr(ours, key)
        expected = [
            # Ours needs no SDK to say it.
            (each, None) if each == "colocation" else (each, default)
            for each, default in parameters(theirs)
        ]
        assert parameters(mine) == expected, key
        if not inspect.isclass(theirs):
            continue
        for method, function in vars(theirs).items():
            if method in HOOKS or (inspect.isfunction(function) and not method.startswith("_")):
                theirs_names = [each for each, _ in parameters(function)]
                assert [each for each, _ in parameters(getattr(mine, method))] == theirs_names


@pytest.mark.parametrize("name", MODULES)
def test_classes_have_no_public_names_that_the_originals_lack(name: str) -> None:
    ours = module("headrace.compat.aistore", name)
    for key, theirs in public(name).items():
        if inspect.isclass(theirs):
            own = {each for each in dir(getattr(ours, key)) if not each.startswith("_")}
            assert own <= {*dir(theirs)}, key


def test_the_package_exports_what_the_original_exports() -> None:
    theirs = {key for key, value in vars(module("aistore", "")).items() if inspect.isclass(value)}
    ours = module("headrace.compat.aistore", "")
    assert theirs <= {*ours.__all__}
    assert all(getattr(ours, key).__name__ == key for key in theirs)


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_datasets_have_the_attributes_that_subclasses_use(name: str, folder: Path) -> None:
    dataset = getattr(module("headrace.compat.aistore", ""), name)(folder)
    assert [each for each in ATTRIBUTES[name].split() if not hasattr(dataset, each)] == []


def test_constants_are_the_originals() -> None:
    for name, constant in (("utils", "MB_TO_B"), ("dynamic_sampler", "SATURATION_FACTOR")):
        ours = getattr(module("headrace.compat.aistore", name), constant)
        assert ours == getattr(module("aistore", name), constant)


@pytest.mark.parametrize("name", ["a.b", "d/x.seg.png", ".hidden", "d.e/none", "", "a/", "é ü.x"])
def test_helpers_give_what_the_originals_give(name: str) -> None:
    theirs, ours = module("aistore", "utils"), module("headrace.compat.aistore", "utils")
    for function in ("get_basename", "get_extension"):
        assert getattr(ours, function)(name) == getattr(theirs, function)(name)
    for url in ("ais://b/a/b.txt", "gs://b", "ais://@u#ns/b/x", "http://h:1/v1/b"):
        assert ours.parse_url(url) == theirs.parse_url(url)
    assert ours.unparse_url("ais", "b", name) == theirs.unparse_url("ais", "b", name)
    for number in (0, 1, 1.2345678, 10**6):
        assert ours.convert_mb_to_bytes(number) == theirs.convert_mb_to_bytes(number)
        assert ours.convert_bytes_to_mb(int(number)) == theirs.convert_bytes_to_mb(int(number))


def test_the_guide_tells_of_every_module(repository: Path) -> None:
    guide = (repository / "docs/guide/aistore_plugin.md").read_text()
    assert [name for name in MODULES if f"`{name}`" not in guide] == []
