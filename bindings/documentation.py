"""Writes the signatures and docstrings of a stub as a table in C++ (documented.h).

usage: documentation.py STUB OUT.cc. The build runs it with a Python that may have no packages.
"""

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path


def text_of(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> str:
    """The docstring without its indentation; empty if there is none."""
    return inspect.cleandoc(ast.get_docstring(node, clean=False) or "")


def signature_of(function: ast.FunctionDef, lines: list[str]) -> str:
    """``def name(...) -> type`` as it is written, in one line."""
    body = function.body[0]
    before = lines[body.lineno - 1].encode()[: body.col_offset].decode()
    source = [*lines[function.lineno - 1 : body.lineno - 1], before]
    source[0] = source[0][function.col_offset :]
    text = " ".join(" ".join(source).split()).removesuffix(":")
    return re.sub(r",? ([)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", text))


def parameters_of(function: ast.FunctionDef) -> str:
    """The parameters as parameters_of() in documented.h writes them."""
    of = function.args
    positional = [each.arg for each in of.args]
    for i in range(len(positional) - len(of.defaults), len(positional)):
        positional[i] += "="
    named = [
        each.arg + ("=" if default else "")
        for each, default in zip(of.kwonlyargs, of.kw_defaults, strict=True)
    ]
    every = positional + (["*"] if named else []) + named + ([of.kwarg.arg] if of.kwarg else [])
    return "".join(f"{each}, " for each in every if each != "self")


def rows_of(body: list[ast.stmt], lines: list[str], inside: str = "") -> Iterator[tuple[str, ...]]:
    """Name, signature, parameters and text of each class, function, method and property.

    An overloaded function has several rows; the last one counts.
    """
    for each in body:
        if isinstance(each, ast.ClassDef):
            yield each.name, "", "", text_of(each)
            yield from rows_of(each.body, lines, f"{each.name}.")
        elif isinstance(each, ast.FunctionDef):
            is_property = "property" in map(ast.unparse, each.decorator_list)
            facts = ("", "") if is_property else (signature_of(each, lines), parameters_of(each))
            yield inside + each.name, *facts, text_of(each)


def main() -> None:
    stub, out = map(Path, sys.argv[1:])
    source = stub.read_text(encoding="utf-8")
    tree = ast.parse(source, stub)
    rows = {row[0]: row for row in rows_of(tree.body, source.splitlines())}
    table = "".join(
        f"    {{{', '.join(json.dumps(field, ensure_ascii=False) for field in row)}}},\n"
        for row in [("", "", "", text_of(tree)), *sorted(rows.values())]
    )
    out.write_text(
        f"""// Made from {stub.name} by documentation.py.
#include "documented.h"

namespace headrace::python {{

std::span<const Documentation> all_documentation() {{
  static constexpr Documentation kAll[] = {{
{table}  }};
  return kAll;
}}

}}  // namespace headrace::python
""",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
