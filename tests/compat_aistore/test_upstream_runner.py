"""The program that runs the plugin's own tests tells which fail, and whether they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PASSES = """
import unittest


class TestNames(unittest.TestCase):
    def test_it_is_ours(self):
        import aistore.pytorch
        from aistore.pytorch import AISMapDataset
        self.assertEqual(aistore.pytorch.__name__, "headrace.compat.aistore.pytorch")
        self.assertIn("headrace", AISMapDataset.__module__)
"""
_FAILS = """

    def test_it_fails(self):
        self.fail()
"""


def repository_of(folder: Path, test: str) -> Path:
    tests = folder / "python" / "tests" / "unit" / "pytorch"
    tests.mkdir(parents=True)
    for each in (tests, tests.parent, tests.parent.parent):
        (each / "__init__.py").touch()
    (tests / "test_names.py").write_text(test)
    for command in (
        ["init", "-q"],
        ["add", "."],
        ["-c", "user.name=x", "-c", "user.email=x@example.com", "commit", "-q", "-m", "tests"],
        ["tag", "v1.5.0"],
    ):
        subprocess.run(["git", "-C", folder, *command], check=True)
    return folder


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.compat_aistore.run_upstream_tests", *map(str, arguments)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def test_all_tests_have_to_pass(tmp_path: Path) -> None:
    done = run(repository_of(tmp_path, _PASSES))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 tests of aistore.pytorch: 1 pass, 0 fail, as docs/guide" in done.stdout


def test_a_test_that_fails_is_named(tmp_path: Path) -> None:
    done = run(repository_of(tmp_path, _PASSES + _FAILS))
    assert done.returncode == 1
    assert "2 tests of aistore.pytorch: 1 pass, 1 fail. Not as the guide says:" in done.stdout
    assert "TestNames.test_it_fails failed" in done.stdout


def test_a_revision_without_tests_is_an_error(tmp_path: Path) -> None:
    done = run(repository_of(tmp_path, _PASSES), "--revision", "v0")
    assert done.returncode == 1
    assert "has no python/tests in v0" in done.stderr
