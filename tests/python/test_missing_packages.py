"""What an import says where something that it needs is missing or too old."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headrace._base import torch_package
from headrace._base.engine_loading import _advice

# Makes the import of one module fail, as a missing package or an old C library does.
REFUSE = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise {error}

sys.meta_path.insert(0, Refuse())
import {imported}
"""


def says(module: str, error: str, imported: str) -> str:
    """The error with which the import of `imported` ends if that of `module` fails with `error`."""
    code = REFUSE.format(module=module, error=error, imported=imported)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1, done
    return done.stderr


@pytest.mark.parametrize("imported", ["headrace.torch", "headrace.checkpoint"])
def test_without_torch_the_import_says_what_to_install(imported: str) -> None:
    missing = "ModuleNotFoundError(\"No module named 'torch'\", name='torch')"
    said = says("torch", missing, imported)
    assert "need torch, which is not installed: pip install --upgrade 'headrace[torch]'" in said


def test_a_torch_that_is_too_old_is_refused_with_the_oldest_that_works() -> None:
    for version in ("2.3.0", "2.15.0+cu132", "3.0", "built-here"):
        torch_package.require_new_enough(version)
    for version in ("2.2.2+cu118", "1.13.1"):
        with pytest.raises(ImportError, match=r"torch 2\.3 or newer, and .* is installed: pip"):
            torch_package.require_new_enough(version)


def test_an_old_c_library_is_told_with_the_systems_that_work() -> None:
    old = 'ImportError("libc.so.6: version `GLIBC_2.34\' not found (required by _engine.so)")'
    said = says("headrace._engine", old, "headrace")
    assert "headrace's wheels need glibc 2.34" in said
    assert "Ubuntu 22.04" in said


def test_an_engine_for_another_python_is_told_with_the_command_that_installs_it() -> None:
    missing = "ModuleNotFoundError(\"No module named 'headrace._engine'\")"
    said = says("headrace._engine", missing, "headrace")
    assert f"{sys.executable} -m pip install headrace" in said


def test_any_other_failure_keeps_its_text_and_says_to_reinstall() -> None:
    assert "reinstall headrace" in _advice(ImportError("undefined symbol: x"))
