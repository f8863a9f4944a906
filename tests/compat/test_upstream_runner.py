"""The program that runs dataflux's own tests tells which of them fail, and whether they should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_PASSES = """
def test_it_is_ours():
    from dataflux_client_python.dataflux_core.tests import fake_gcs
    from dataflux_pytorch import dataflux_mapstyle_dataset
    assert fake_gcs.NAME == "fake"
    assert dataflux_mapstyle_dataset.__name__.startswith("headrace.compat")
"""
_FAILS = """
def test_single_worker():
    from dataflux_core.tests import fake_gcs
    assert fake_gcs.NAME == "real"
"""


def run(checkout: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.compat.run_upstream_tests", str(checkout)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )


def checkout_of(folder: Path, *, core_test: str) -> Path:
    core = folder / "dataflux_client_python" / "dataflux_core" / "tests"
    pytorch = folder / "dataflux_pytorch" / "tests"
    for each in (core, pytorch):
        each.mkdir(parents=True)
        (each / "__init__.py").touch()
    (core / "fake_gcs.py").write_text('NAME = "fake"')
    (core / "test_fast_list.py").write_text(core_test)
    (pytorch / "test_dataflux_mapstyle_dataset.py").write_text(_PASSES)
    return folder


def test_only_the_tests_that_the_guide_names_may_fail(tmp_path: Path) -> None:
    found = run(checkout_of(tmp_path / "as_told", core_test=_FAILS))
    assert found.returncode == 0, found.stdout
    assert "2 tests of dataflux: 1 pass, 1 fail, as" in found.stdout
    other = _FAILS.replace("single_worker", "another")
    found = run(checkout_of(tmp_path / "another_fails", core_test=other))
    assert found.returncode == 1
    assert "core.tests.test_fast_list.test_another failed" in found.stdout


def test_a_test_that_the_guide_names_and_that_passes_is_told(tmp_path: Path) -> None:
    found = run(checkout_of(tmp_path, core_test=_FAILS.replace('"real"', '"fake"')))
    assert found.returncode == 1
    assert "core.tests.test_fast_list.test_single_worker passed" in found.stdout


def test_a_clone_without_its_submodule_is_an_error(tmp_path: Path) -> None:
    found = run(tmp_path)
    assert found.returncode == 1
    assert "clone its submodule, too" in found.stderr
