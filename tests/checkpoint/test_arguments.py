"""Arguments that mean nothing are refused before anything is read, and never taken as consent."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headrace
import headrace.checkpoint
from headrace import InvalidArgumentError
from headrace.compat.dataflux_pytorch.lightning import DatafluxLightningCheckpoint
from headrace.lightning import CheckpointIO
from headrace.lightning._strategies import _AtAnyUrl
from headrace.ray._train import _version, restore
from tests.checkpoint.states import stock_file_of

EXECUTED: list[int] = []


class Shouts:
    """Something is executed where it is read."""

    def __reduce__(self) -> Any:
        return _execute, ()


def _execute() -> dict[str, Any]:
    EXECUTED.append(1)
    return {}


def by_load(path: Path, **options: Any) -> Any:
    return headrace.checkpoint.load(path, **options)


def by_lightning(path: Path, **options: Any) -> Any:
    return CheckpointIO().load_checkpoint(path, **options)


def by_a_sharded_strategy(path: Path, **options: Any) -> Any:
    """What is beside the shards."""

    class Files:
        def holds_sharded(self, _: str) -> bool:
            return True

        def sharded_reader(self, _: str) -> Files:
            return self

        def attachment(self, _: str) -> bytes:
            return path.read_bytes()

    strategy: Any = object.__new__(_AtAnyUrl)
    strategy._files = Files()
    strategy.broadcast = lambda each: each
    strategy._finish_saves = lambda: None
    strategy._load_sharded = lambda _: None
    return strategy.load_checkpoint(str(path), **options)


def by_ray(path: Path, **options: Any) -> Any:
    class Checkpoint:
        path = "here"

        @contextmanager
        def as_directory(self) -> Iterator[Path]:
            yield path.parent

    store = headrace.Store(path.parent)
    pointer = {"url": store.url_of(path.name), **_version(store, store.stat(path.name))}
    (path.parent / "headrace.json").write_text(json.dumps(pointer))
    return restore(Checkpoint(), **options)


def by_a_client(path: Path, **options: Any) -> Any:
    class Client:
        """Not Google's, so the engine does not take its place."""

        def bucket(self, _: str) -> Client:
            return self

        def blob(self, _: str) -> Client:
            return self

        def download_as_bytes(self) -> bytes:
            return path.read_bytes()

    plugin = DatafluxLightningCheckpoint("project", Client())
    return plugin.load_checkpoint("gs://bucket/a.pt", None, options.get("weights_only"))


WAYS = [by_load, by_lightning, by_a_sharded_strategy, by_ray, by_a_client]

# Functions with the argument, and the way above that ends in them, or what they hand it on to.
TAKERS = {
    "checkpoint/_loading.py": by_load,
    "lightning/_checkpoint_io.py": by_lightning,
    "lightning/_files.py": by_lightning,
    "lightning/_strategies.py": by_a_sharded_strategy,
    "compat/dataflux_pytorch/lightning/dataflux_fsdp_strategy.py": by_a_sharded_strategy,
    "compat/dataflux_pytorch/lightning/dataflux_lightning_checkpoint.py": by_a_client,
}

PACKAGE = Path(headrace.checkpoint.__file__).resolve().parent.parent


def _trees(text: str) -> Iterator[tuple[Path, ast.Module]]:
    """The modules of the package that contain this text."""
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text()
        if text in source:
            yield path, ast.parse(source)


@pytest.fixture(params=[True, False], ids=["zip", "legacy"])
def evil(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file whose pickle executes something, in each of torch's formats."""
    data = stock_file_of({"x": Shouts()}, _use_new_zipfile_serialization=request.param)
    (tmp_path / "a.pt").write_bytes(data)
    EXECUTED.clear()
    return tmp_path / "a.pt"


@pytest.mark.parametrize("way", WAYS)
def test_only_false_lets_a_pickle_execute_anything(
    way: Callable[..., Any], evil: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_consent = [0, 0.0, "", "no", [], b"", 1, "True", np.False_, np.True_, torch.tensor(False)]
    for value in no_consent:
        with pytest.raises(InvalidArgumentError, match="weights_only is"):
            way(evil, weights_only=value)
    for options in ({}, {"weights_only": None}, {"weights_only": True}):
        with pytest.raises(Exception, match=r"weights_only=True refuses|Weights only load failed"):
            way(evil, **options)
    monkeypatch.setenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1")
    with pytest.raises(Exception, match=r"WEIGHTS_ONLY_LOAD|Weights only load failed"):
        way(evil, weights_only=False)
    monkeypatch.delenv("TORCH_FORCE_WEIGHTS_ONLY_LOAD")
    assert EXECUTED == []
    way(evil, weights_only=False)
    assert EXECUTED


def test_every_function_that_takes_weights_only_is_tested_here() -> None:
    takers = set()
    for path, tree in _trees("weights_only"):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                names = [each.arg for each in [*node.args.args, *node.args.kwonlyargs]]
                if "weights_only" in names:
                    takers.add(str(path.relative_to(PACKAGE)))
    assert takers == set(TAKERS)


def test_every_call_of_torch_load_is_safe_or_has_asked_what_weights_only_means() -> None:
    for path, tree in _trees("torch.load"):
        if path.match("checkpoint/_loading.py"):
            continue  # `load` itself
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
                said = {each.arg: ast.unparse(each.value) for each in node.keywords}
                allowed = ("True", "is_weights_only(weights_only)")
                assert said["weights_only"] in allowed, f"{path}:{node.lineno}"


ANYTHING = {"save": {"obj": {"w": torch.ones(2)}}}


@pytest.mark.parametrize("function", ["load", "open", "save", "latest", "DistributedReader"])
def test_arguments_that_mean_nothing_are_refused(function: str, tmp_path: Path) -> None:
    called = getattr(headrace.checkpoint, function)
    url = tmp_path / "no" / "such" / "object.pt"
    for name, parameter in inspect.signature(called).parameters.items():
        if name in ("obj", "url") or parameter.kind is parameter.VAR_KEYWORD:
            continue
        nothing: list[Any] = [object()]
        if isinstance(parameter.default, bool):
            nothing += ["no", 0, 1, [], None, np.True_]
        for value in nothing:
            given = {"url": url, name: value, **ANYTHING.get(function, {})}
            with pytest.raises(InvalidArgumentError, match=rf"\b{name} is"):
                called(**given)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("protocol", [0, 6, -1, True, "2", 2.0, None])
def test_a_protocol_that_torch_cannot_read_is_refused(protocol: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="pickle_protocol is"):
        headrace.checkpoint.save({}, tmp_path / "a.pt", pickle_protocol=protocol)


def test_what_only_safetensors_files_have_is_refused_for_others(tmp_path: Path) -> None:
    options: list[dict[str, Any]]
    options = [{"metadata": {"a": "b"}}, {"max_shard_bytes": 5}, {"checksums": False}]
    for each in options:
        with pytest.raises(InvalidArgumentError, match=f"{next(iter(each))}.* is for safetensors"):
            headrace.checkpoint.save({"w": torch.ones(2)}, tmp_path / "a.pt", **each)


@pytest.mark.parametrize("location", [{"cpu": 5}, {"cpu": torch.device("cpu")}, {1: "cpu"}])
def test_a_dict_of_devices_has_their_names(location: Any, tmp_path: Path) -> None:
    headrace.checkpoint.save({"w": torch.ones(2)}, tmp_path / "a.pt")
    with pytest.raises(InvalidArgumentError, match=r"map_location is .*a dict of names"):
        headrace.checkpoint.load(tmp_path / "a.pt", location)
