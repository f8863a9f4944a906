"""The check of what a wheel's libraries need, and that it finds what is wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import headrace._engine
from tests.packaging.wheel_symbols import Library, faults, read_library, tag_of

ROOT = Path(__file__).parents[2]

MODULE = "headrace/_engine.abi3.so"


def library(
    *versions: str, needed: frozenset[str] = frozenset({"libc.so.6"}), exported: str = ""
) -> Library:
    return Library(needed, frozenset(versions), frozenset(exported.split()))


def told(**libraries: Library) -> list[str]:
    names = {"module": MODULE, "simdjson": "headrace.libs/libsimdjson-1.so.14"}
    return list(faults({names[each]: found for each, found in libraries.items()}, "cp312-abi3"))


FINE = library("GLIBC_2.34", "GLIBC_2.4", "GCC_3.0", exported="PyInit__engine")


def test_a_module_within_the_limits_has_no_fault() -> None:
    shared = library("GLIBC_2.14", "GLIBCXX_3.4.21", needed=frozenset({"libstdc++.so.6"}))
    assert told(module=FINE, simdjson=shared) == []


def test_each_thing_that_an_older_system_lacks_is_a_fault() -> None:
    [glibc] = told(module=library("GLIBC_2.36", exported="PyInit__engine"))
    assert "needs glibc (2, 36), more than (2, 34)" in glibc
    [libstdcxx] = told(module=library("GLIBCXX_3.4", exported="PyInit__engine"))
    assert "needs libstdc++ (3, 4)" in libstdcxx
    [shared] = told(module=FINE, simdjson=library("GLIBCXX_3.4.22"))
    assert "needs libstdc++ (3, 4, 22)" in shared


def test_a_library_that_is_not_in_the_wheel_is_a_fault() -> None:
    needed = frozenset({"libc.so.6", "libssl.so.3", "libstdc++.so.6"})
    [fault] = told(module=library(needed=needed, exported="PyInit__engine"))
    assert "needs libssl.so.3, libstdc++.so.6, which is not in the wheel" in fault


def test_a_module_that_shows_more_than_its_entry_is_a_fault() -> None:
    [fault] = told(module=library(exported="PyInit__engine SSL_new"))
    assert "exports ['PyInit__engine', 'SSL_new']" in fault


def test_a_wheel_without_a_module_is_a_fault() -> None:
    assert "there are []" in told(simdjson=library())[0]


def test_a_wheel_holds_the_module_that_its_tag_promises() -> None:
    of_311, of_312 = (f"headrace/_engine.cpython-{each}-x86_64-linux-gnu.so" for each in (311, 312))
    assert list(faults({of_311: FINE}, "cp311-cp311")) == []
    for name, tag in ((of_312, "cp311-cp311"), (MODULE, "cp311-cp311"), (of_311, "cp312-abi3")):
        fault = next(faults({name: FINE}, tag))
        assert f"a wheel for {tag} has the module" in fault
        assert name in fault
    assert len(list(faults({of_311: FINE, of_312: FINE}, "cp311-cp311"))) == 1


def test_the_tag_of_a_wheel_is_in_its_name() -> None:
    wheel = Path("dist/headrace-0.1.0-cp312-abi3-manylinux_2_34_x86_64.whl")
    assert tag_of(wheel) == "cp312-abi3"


def test_another_python_than_3_11_builds_no_wheel(tmp_path: Path) -> None:
    for folder in ("tools", ".venv/bin", "dist"):
        tmp_path.joinpath(folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "wheel.sh", tmp_path / "tools")
    python = tmp_path / ".venv" / "bin" / "python"
    python.write_text("#!/bin/sh\necho 3.12\n")
    python.chmod(0o755)
    done = subprocess.run(
        [tmp_path / "tools" / "wheel.sh"], capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 1
    assert ".venv has Python 3.12" in done.stderr
    assert "HEADRACE_PYTHON=python3.11 make wheel" in done.stderr
    assert (tmp_path / "dist").exists()  # wheels of before are left alone


def test_versions_are_compared_as_numbers() -> None:
    assert library("GLIBC_2.4", "GLIBC_2.34", "GLIBC_PRIVATE").newest("GLIBC") == (2, 34)


def test_the_module_of_the_build_is_read() -> None:
    found = read_library(Path(headrace._engine.__file__).read_bytes())
    assert found.exported == {"PyInit__engine"}
    assert {"libc.so.6", "libstdc++.so.6"} <= found.needed  # the build links the system's
    assert (2, 17) <= found.newest("GLIBC") < (3,)
