"""`import headrace` is cheap."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest


def test_import_brings_no_heavy_module(run_child: Callable[..., object]) -> None:
    run_child(
        """
        import sys
        before = set(sys.modules)
        import headrace
        new = set(sys.modules) - before
        heavy = {"torch", "numpy", "google", "google.auth", "requests", "ssl", "asyncio", "certifi"}
        assert not heavy & new, heavy & new
        """
    )


def test_import_starts_no_thread(run_child: Callable[..., object]) -> None:
    run_child(
        """
        import os
        import headrace
        headrace.Store("gs://bucket")
        assert len(os.listdir("/proc/self/task")) == 1
        assert headrace.metrics() == headrace.Metrics()
        """
    )


@pytest.mark.slow
def test_the_packages_that_need_torch_load_when_they_are_named(
    run_child: Callable[..., object],
) -> None:
    run_child(
        """
        import sys
        import headrace
        assert not any(name in sys.modules for name in ("torch", "headrace.torch"))
        assert headrace.torch.Loader.__module__ == "headrace.torch"
        assert headrace.checkpoint.save.__module__ == "headrace.checkpoint"
        assert headrace.compat.__name__ == "headrace.compat"
        assert not hasattr(headrace, "tensorflow")
        """
    )


@pytest.mark.slow
def test_lightning_loads_when_it_is_named(run_child: Callable[..., object]) -> None:
    pytest.importorskip("lightning")
    run_child(
        """
        import headrace
        assert headrace.lightning.CheckpointIO
        """
    )


def test_every_package_of_an_extra_is_used(repository: Path) -> None:
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    source = "\n".join(
        file.read_text() for file in (repository / "python" / "headrace").rglob("*.py")
    )
    modules = {"pillow": "PIL", "scikit-learn": "sklearn"}
    for extra, requirements in project["optional-dependencies"].items():
        for requirement in requirements if extra != "dev" else ():
            package = re.split(r"[\[<>=]", requirement)[0]
            module = modules.get(package, package)
            assert re.search(rf"(import|from) {module}\b|\"{module}", source), (extra, package)
