"""What help() says of the engine's classes is written once: in the stub."""

from __future__ import annotations

import ast
import importlib.util
import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import headrace
from headrace import _engine

STUB = Path(headrace.__file__).with_name("_engine.pyi")
TABLE_MAKER = Path(__file__).resolve().parents[2] / "bindings" / "documentation.py"


def declared(body: list[ast.stmt], inside: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, kind and docstring of everything in the stub."""
    for each in body:
        if isinstance(each, ast.ClassDef):
            yield each.name, "class", ast.get_docstring(each) or ""
            yield from declared(each.body, f"{each.name}.")
        elif isinstance(each, ast.FunctionDef):
            marks = [ast.unparse(mark) for mark in each.decorator_list]
            if "property" in marks:
                kind = "property"
            else:
                kind = "method" if inside and "staticmethod" not in marks else "function"
            yield inside + each.name, kind, ast.get_docstring(each) or ""
        elif isinstance(each, ast.AnnAssign):
            yield inside + ast.unparse(each.target), "value", ""


def defined(of: Any, inside: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, kind and text of everything in the module that the bindings have put there."""
    kinds = {"nb_func": "function", "nb_method": "method", "property": "property", "int": "value"}
    for name, thing in vars(of).items():
        if inspect.isclass(thing):
            yield name, "class", thing.__doc__
            yield from defined(thing, f"{name}.")
        elif kind := kinds.get(type(thing).__name__):
            text = "" if kind == "value" else thing.__doc__
            if kind in ("function", "method") or text.startswith("(self)"):
                text = text.partition("\n\n")[2]  # behind the signature
            yield inside + name, kind, text


def test_the_module_has_the_names_and_the_texts_of_its_stub() -> None:
    tree = ast.parse(STUB.read_text())
    assert _engine.__doc__ == ast.get_docstring(tree)
    assert set(defined(_engine)) == set(declared(tree.body))


@pytest.mark.parametrize(
    ("thing", "signature"),
    [
        (
            headrace.Sample.text,
            'text(self, encoding: str = "utf-8", errors: str = "strict") -> str',
        ),
        (headrace.ObjectIndex.rebased, "rebased(self, url: str | os.PathLike[str]) -> ObjectIndex"),
    ],
)
def test_help_begins_with_the_signature(thing: Any, signature: str) -> None:
    assert thing.__doc__.splitlines()[0] == signature


@pytest.fixture(scope="module")
def table_maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("documentation", TABLE_MAKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_has_signatures_and_parameters_as_the_bindings_tell_them(
    table_maker: ModuleType,
) -> None:
    stub = '''
class Thing(Base):
    """What it is."""

    def __init__(self, name: str = "→") -> None: ...
    @property
    def size(self) -> int:
        """In bytes."""

    @overload
    def __getitem__(self, key: int) -> str: ...
    @overload
    def __getitem__(self, key: slice) -> list[str]: ...
    @staticmethod
    def load(
        url: str | dict[
            str, str
        ],
        *,
        store: Store | None = None,
        size_bytes: int,
        **options: Any,
    ) -> Thing:
        """First line.

        Args:
            url: where it is.
        """

def end() -> None: ...
'''
    rows = {row[0]: row[1:] for row in table_maker.rows_of(ast.parse(stub).body, stub.splitlines())}
    assert rows == {
        "Thing": ("", "", "What it is."),
        "Thing.__init__": ('def __init__(self, name: str = "→") -> None', "name=, ", ""),
        "Thing.size": ("", "", "In bytes."),
        "Thing.__getitem__": ("def __getitem__(self, key: slice) -> list[str]", "key, ", ""),
        "Thing.load": (
            "def load(url: str | dict[str, str], *, store: Store | None = None, size_bytes: int, "
            "**options: Any) -> Thing",
            "url, *, store=, size_bytes, options, ",
            "First line.\n\nArgs:\n    url: where it is.",
        ),
        "end": ("def end() -> None", "", ""),
    }
