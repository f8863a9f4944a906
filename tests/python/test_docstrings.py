"""The examples in the docstrings of `headrace.Store` run, and no method is without."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from types import FunctionType

import pytest

import headrace

METHODS = {
    name: thing
    for name, thing in vars(headrace.Store).items()
    if isinstance(thing, FunctionType) and not name.startswith("_")
}


def test_the_examples_run(tmp_path: Path) -> None:
    store = headrace.Store(tmp_path)
    for name, data in (("notes.txt", b"notes"), ("train/a.txt", b"a"), ("train/b.txt", b"b")):
        store.write(name, data)
    found = doctest.DocTestFinder().find(
        headrace.Store,
        "Store",
        module=False,  # type: ignore[arg-type]  # whatever module its functions are of
        globs={"headrace": headrace, "store": store},
    )
    examples = [test for test in found if test.examples]
    assert len(examples) > len(METHODS)  # the class has one of its own
    told: list[str] = []
    for test in examples:
        # Each begins with what the one before was given.
        for info in list(store.list()):
            if info.name not in ("notes.txt", "train/a.txt", "train/b.txt"):
                store.delete(info.name)
        doctest.DocTestRunner(verbose=False).run(test, out=told.append)
    assert told == []


@pytest.mark.parametrize("name", sorted(METHODS))
def test_each_method_has_an_example_and_says_what_it_raises(name: str) -> None:
    documented = inspect.getdoc(METHODS[name]) or ""
    assert "\nExamples:\n" in documented
    assert "\nRaises:\n" in documented or name == "url_of"  # which asks nobody
