"""What messages tell users to do can be done: each option, command, name and page exists.

The texts are the string literals of the package and of the engine, without docstrings and help of
the command line. An option is looked for in what it is said of
(`S3Options(fips=...)`, ``headrace pack --transform``); one that stands alone, in the functions of
the same folder and in the public ones.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import inspect
import keyword
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("torch")

import torch
import typer.main

import headrace
from headrace._cli.app import app
from headrace._store.keywords import STORE_KEYWORDS
from tests.python.public import PACKAGES, public_callables

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "headrace"
GAP = "\0"  # in the place of what a message fills in

# Of programs and packages that are not ours.
FOREIGN_OPTIONS = {"--ultra", "--long", "--sparse", "--shm-size", "--upgrade"}
FOREIGN_COMMANDS = {"aws", "gcloud", "ulimit", "pip", "import", "python"}
FOREIGN_NAMES = {
    "Trainer", "add_safe_globals", "clone", "contiguous", "full_tensor", "indices",
    "init_process_group", "list_all_objects_iter", "perf_counter_ns", "to_dense", "values",
}  # fmt: skip
FOREIGN_KEYWORDS = {"charset", "https_proxy", "storage_reader"}
FOREIGN_VARIABLES = {
    "FULL_OBJECT", "GOOGLE_CLOUD_QUOTA_PROJECT", "RAY_ADDRESS", "TARGET_AND_SHARD_AWARE",
    "WORLD_SIZE",
}  # fmt: skip


class Text(NamedTuple):
    file: Path
    line: int
    text: str
    function: str
    """The innermost function around it, in Python."""

    @property
    def where(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.text!r}"


def texts_of_python(file: Path) -> Iterator[Text]:
    tree = ast.parse(file.read_text())
    seen: set[ast.AST] = {
        each.value for each in ast.walk(tree) if isinstance(each, ast.Expr)
    }  # docstrings

    def walk(node: ast.AST, function: str) -> Iterator[Text]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        if isinstance(node, ast.JoinedStr):
            parts = [each.value if isinstance(each, ast.Constant) else GAP for each in node.values]
            seen.update(node.values)
            yield Text(file, node.lineno, "".join(map(str, parts)), function)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in seen:
            yield Text(file, node.lineno, node.value, function)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, function)

    yield from walk(tree, "")


def texts_of_cpp(file: Path) -> Iterator[Text]:
    one = r'"(?:[^"\\\n]|\\.)*"'
    aside = rf'R"doc\(.*?\)doc"|(?m:^\s*//.*$)|nb::sig\((?:\s*{one})+\)'
    source = re.sub(
        aside, lambda found: "\n" * found[0].count("\n"), file.read_text(), flags=re.DOTALL
    )
    for found in re.finditer(rf"{one}(?:\s*{one})*", source):
        text = "".join(each[1:-1] for each in re.findall(one, found[0])).replace('\\"', '"')
        yield Text(file, source.count("\n", 0, found.start()) + 1, text, "")


@functools.cache
def texts() -> list[Text]:
    """Return all that may be a sentence."""
    found: list[Text] = []
    for file in sorted(PACKAGE.rglob("*.py")):
        found += texts_of_python(file)
    for folder in ("src", "bindings"):
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".cc", ".h") and "test" not in file.stem:
                found += texts_of_cpp(file)
    found = [each for each in found if " " in each.text or GAP in each.text]
    assert len(found) > 1000
    return found


@functools.cache
def public() -> dict[str, list[Any]]:
    """Return what users call, by its last name."""
    found: dict[str, list[Any]] = {"DataLoader": [torch.utils.data.DataLoader]}
    for each in public_callables():
        found.setdefault(each.name.rpartition(".")[2], []).append(each.thing)
    return found


def options_of(thing: Any) -> set[str] | None:
    """Return the names of its parameters; None where they are not known."""
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):  # of the engine: its docstring begins with the signature
        declared = re.match(r"\w+\((.*)\)", str(thing.__doc__ or thing.__init__.__doc__))
        return set(re.findall(r"(\w+):", declared[1])) if declared else None
    names = {each.name for each in parameters}
    if any(each.kind is each.VAR_KEYWORD and each.name != "unknown" for each in parameters):
        names |= STORE_KEYWORDS
    return names


@functools.cache
def parameters_in(folder: Path) -> set[str]:
    """Return the names of all parameters and fields in the files of a folder."""
    names: set[str] = set()
    for file in folder.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.arg):
                names.add(node.arg)
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                names.add(node.target.id)
    return names


@functools.cache
def public_parameters() -> set[str]:
    return {
        name for things in public().values() for thing in things for name in options_of(thing) or ()
    }


@functools.cache
def commands() -> dict[str, set[str]]:
    """Return the options of each command of ``headrace``."""
    group: Any = typer.main.get_command(app)
    return {
        name: {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
        for name, command in group.commands.items()
    }


def resolved(name: str) -> Any:
    """Return what ``headrace.a.b`` or ``torch.a.b`` stands for, or raise."""
    module, *rest = name.split(".")
    thing: Any = importlib.import_module(module)
    for part in rest:
        module = f"{module}.{part}"
        if not hasattr(thing, part) and inspect.ismodule(thing):
            importlib.import_module(module)
        thing = getattr(thing, part)
    return thing


def report(missing: list[str]) -> None:
    assert not missing, "\n".join(missing)


def test_names_with_dots_can_be_imported() -> None:
    missing = []
    for each in texts():
        for name in re.findall(r"(?<![\w./<-])((?:headrace|torch)(?:\.\w+)+)", each.text):
            if name.startswith("headrace._"):
                continue
            try:
                resolved(name)
            except (AttributeError, ImportError):
                missing.append(f"{name}: {each.where}")
    report(missing)


def test_keywords_in_a_call_are_of_what_is_called() -> None:
    missing = []
    for each in texts():
        for name, inside in re.findall(r"(?<![\w.])([A-Za-z_][\w.]*)\(([^()]*)\)", each.text):
            keywords = re.findall(r"(\w+)=", inside)
            if not keywords:
                continue
            last = name.rpartition(".")[2]
            is_whole = name.startswith(("headrace.", "torch."))
            things = [resolved(name)] if is_whole else public().get(last, [])
            if not things and last not in FOREIGN_NAMES:
                missing.append(f"{name}(): {each.where}")
            for word in keywords if things else ():
                options = [options_of(thing) for thing in things]
                if not any(known is None or word in known for known in options):
                    missing.append(f"{name}({word}=): {each.where}")
    report(missing)


def test_functions_with_parentheses_are_there() -> None:
    missing = []
    for each in texts():
        for name in re.findall(r"([A-Za-z_]\w*)\(\)", each.text):
            if name not in public() and name not in FOREIGN_NAMES and not hasattr(builtins, name):
                missing.append(f"{name}(): {each.where}")
    report(missing)


def test_keywords_alone_are_of_something_nearby() -> None:
    missing = []
    for each in texts():
        if each.file.suffix == ".py" and not re.search(r"[a-z]{2} |, ", each.text):
            continue  # no sentence
        if re.search("<[a-z!]", each.text):
            continue  # HTML
        outside = re.sub(r"\([^()]*=[^()]*\)", "()", each.text) if "(" in each.text else each.text
        for name, value in re.findall(r"(?<![\w.&?$<;{/:-])([a-z_]{2,})=(['\"]\w+['\"])?", outside):
            nearby = parameters_in(each.file.parent) | public_parameters()
            if name not in nearby | FOREIGN_KEYWORDS:
                missing.append(f"{name}=: {each.where}")
            elif value and not any(
                value[1:-1] == other.text for other in all_literals() if other is not each
            ):
                missing.append(f"{name}={value}: {each.where}")
    report(missing)


@functools.cache
def all_literals() -> list[Text]:
    return [each for file in PACKAGE.rglob("*.py") for each in texts_of_python(file)]


def test_commands_have_the_options_that_are_said_of_them() -> None:
    missing = []
    of_any = set().union(*commands().values()) | FOREIGN_OPTIONS
    for each in texts():
        text = each.text
        for command, rest in re.findall(r"(?<![\w.'/-])headrace ([a-z]+)([^,;`)]*)", text):
            options = re.findall(r"(?<!\w)--[a-z][a-z-]+", rest)
            if command in commands():
                missing += [
                    f"headrace {command} {option}: {each.where}"
                    for option in options
                    if option not in commands()[command]
                ]
            elif options or f"`headrace {command}" in text or f"(headrace {command}" in text:
                missing.append(f"headrace {command}: {each.where}")
        own = commands().get(each.function) if each.file.name == "app.py" else None
        missing += [
            f"{option}: {each.where}"
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)
            if option not in of_any or (own is not None and option not in own)
        ]
    report(missing)


def test_words_in_backticks_are_names_or_commands() -> None:
    missing = []
    for each in texts():
        for inside in re.findall(r"`([^`]+)`", each.text):
            word, _, rest = inside.partition(" ")
            known = (
                word in FOREIGN_COMMANDS | {"headrace"}
                if rest
                else keyword.iskeyword(word)
                or word in public()
                or word in public_parameters()
                or word in parameters_in(each.file.parent)
                or "%" in word
                or GAP in word
            )
            if not known:
                missing.append(f"`{inside}`: {each.where}")
    report(missing)


def test_variables_of_the_environment_are_on_their_page() -> None:
    page = (ROOT / "docs/reference/environment.md").read_text()
    missing = []
    for each in texts():
        for name in re.findall(r"(?<![\w<-])[A-Z][A-Z0-9]+_[A-Z0-9_]*[A-Z0-9](?!\w|-)", each.text):
            if name not in page and name not in FOREIGN_VARIABLES:
                missing.append(f"{name}: {each.where}")
    report(missing)


def test_pages_extras_and_targets_are_there() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    makefile = (ROOT / "Makefile").read_text()
    missing = []
    for each in texts():
        text = each.text
        missing += [
            f"{page}: {each.where}"
            for page in re.findall(r"docs/[\w/.-]+\.md", text)
            if not (ROOT / page).exists()
        ]
        missing += [
            f"headrace[{extra}]: {each.where}"
            for extra in re.findall(r"headrace\[(\w+)\]", text)
            if extra not in extras
        ]
        missing += [
            f"make {target}: {each.where}"
            for target in re.findall(r"run make ([\w-]+)", text)
            if f"\n{target}:" not in makefile
        ]
    report(missing)


def test_the_packages_that_are_looked_at_are_all_there_are() -> None:
    """One that could not be imported would leave its names out."""
    for name in PACKAGES:
        if name != "headrace.dlio":  # DLIO has an environment of its own
            importlib.import_module(name)
    assert headrace.Store in public()["Store"]
