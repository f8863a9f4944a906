"""What is public. tests/types has its types, as a user's checker sees them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headrace
from tests.python.public import public_callables


def test_the_list_is_sorted_and_complete() -> None:
    assert headrace.__all__ == sorted(headrace.__all__)
    exported = {
        name
        for name, thing in vars(headrace).items()
        if not name.startswith("_") and name != "annotations" and not isinstance(thing, ModuleType)
    }
    assert exported == set(headrace.__all__)


@pytest.mark.parametrize("name", headrace.__all__)
def test_what_is_public_says_so(name: str) -> None:
    thing = getattr(headrace, name)
    if not isinstance(thing, int):
        assert thing.__module__ == "headrace"
        assert thing.__doc__


@pytest.mark.slow
def test_classes_and_functions_are_of_the_module_that_offers_them() -> None:
    offered = {
        public.name: public.thing.__module__
        for public in public_callables()
        if public.owner is None and hasattr(public.thing, "__module__")
    }
    for name, module in offered.items():
        # Some modules offer what others have: an alias is of its home.
        assert not any(part.startswith("_") for part in module.split(".")), (name, module)


# ---- one interface

# The word on the right is ours.
OTHER_WORDS = {
    "on_progress": "progress",
    "ahead_bytes": "prefetch_bytes",
    "read_ahead_bytes": "prefetch_bytes",
    "store_options": "store, or **options",
    "user_project": "provider=GcsOptions(...)",
    "compose_small_objects": "provider=GcsOptions(...)",
    "temporary_prefix": "provider=GcsOptions(...)",
    "max_in_flight": "parallel=ParallelOptions(...)",
}
# Dataclasses of options have these by their own right.
OPTIONS = (headrace.GcsOptions, headrace.ParallelOptions, headrace.ComposeOptions)


def parameters_of(thing: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    try:
        return dict(inspect.signature(thing).parameters)
    except ValueError:  # of the bindings: the stub has it
        return {}


@pytest.mark.slow
def test_one_thing_has_one_word() -> None:
    wrong = [
        f"{name}({word}=): {OTHER_WORDS[word]}"
        for name, thing, _ in public_callables()
        if thing not in OPTIONS
        for word, parameter in parameters_of(thing).items()
        if word in OTHER_WORDS and parameter.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    assert wrong == []


# What `url` is else: the root itself, what a sample will say, a column's name.
OTHER_URLS = (
    *("headrace.Store", "headrace.Sample", "headrace.torch.MapDataset.from_table"),
    "headrace.ray.report",  # other workers have to be able to read it
)


def test_what_takes_a_url_takes_a_store_or_its_options() -> None:
    wrong = []
    for name, thing, _ in public_callables():
        parameters = parameters_of(thing)
        if "url" not in parameters or name in OTHER_URLS:
            continue
        if issubclass(thing, Exception) if inspect.isclass(thing) else False:
            continue
        kinds = {each.kind for each in parameters.values()}
        if "store" not in parameters or inspect.Parameter.VAR_KEYWORD not in kinds:
            wrong.append(name)
    assert wrong == []


def test_progress_is_a_bar_or_a_function_everywhere() -> None:
    for name, thing, _ in public_callables():
        option = parameters_of(thing).get("progress")
        if option is not None:
            assert option.default is False, name


def test_a_module_that_is_not_public_begins_with_an_underscore() -> None:
    public = {
        "headrace.checkpoint",
        "headrace.compat",
        "headrace.demo",
        "headrace.dlio",
        "headrace.fsspec",
        "headrace.huggingface",
        "headrace.lightning",
        "headrace.megatron",
        "headrace.ray",
        "headrace.torch",
        "headrace.torch_checkpointing",
        "headrace.types",
    }
    folder = Path(headrace.__file__).resolve().parent
    files = (path.relative_to(folder.parent) for path in folder.rglob("*.py"))
    # Inside a private package names need no underscore of their own. `compat` has the modules of
    # the packages that it stands in for, and `demo` is a program.
    found = {
        ".".join(parts).removesuffix(".__init__")
        for parts in (file.with_suffix("").parts for file in files)
        if not any(part.startswith("_") and part != "__init__" for part in parts)
        and parts[1:2] not in (("compat",), ("demo",))
    }
    assert found == public - {"headrace.compat", "headrace.demo"} | {"headrace"}


def test_of_a_store_the_package_uses_only_what_it_offers_its_modules() -> None:
    offered = {"_settings", "_derived", "_open", "_handle"}
    private = {name for name in vars(headrace.Store) if name.startswith("_") and name[1] != "_"}
    folder = Path(headrace.__file__).resolve().parent
    wrong = [
        f"{file.name}: store.{name}"
        for file in folder.rglob("*.py")
        if file.name != "_store.py"
        for name in private - offered
        if f"store.{name}" in file.read_text()
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("url", "takes"),
    [
        ("s3://bucket", "an s3:// store takes S3Options"),
        ("ais://bucket", "an ais:// store takes AisOptions"),
        ("ais+gs://#ns/bucket", r"an ais\+gs:// store takes AisOptions"),
    ],
)
def test_options_of_another_provider_are_refused(url: str, takes: str) -> None:
    with pytest.raises(headrace.InvalidArgumentError, match=takes):
        headrace.Store(url, provider=headrace.GcsOptions(user_project="p"))
    with pytest.raises(headrace.InvalidArgumentError, match="a gs:// store takes GcsOptions"):
        headrace.Store("gs://bucket", provider={"user_project": "p"})  # type: ignore[arg-type]
    with pytest.raises(headrace.InvalidArgumentError, match=r"must be headrace.ParallelOptions"):
        headrace.Store("gs://bucket", parallel=5)  # type: ignore[arg-type]
