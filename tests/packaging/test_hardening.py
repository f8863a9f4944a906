"""The built module checks itself at run time (HEADRACE_HARDENING in cmake/Options.cmake)."""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import cache

import headrace._engine


@cache
def readelf(*options: str) -> str:
    """What readelf, or LLVM's, says of the module that these tests import."""
    for program in ("readelf", "llvm-readelf", "llvm-readelf-19"):
        if shutil.which(program):
            path = headrace._engine.__file__
            return subprocess.run(
                [program, *options, "--wide", path], check=True, capture_output=True, text=True
            ).stdout
    raise AssertionError("these tests need readelf (Debian: binutils)")


def imported() -> set[str]:
    """The functions that the module takes from other libraries, without their versions."""
    return set(re.findall(r" UND ([^@\s]+)", readelf("--dyn-syms")))


def test_function_tables_are_resolved_at_load_and_read_only_from_then_on() -> None:
    assert re.search(r"\(FLAGS\).*\bBIND_NOW\b", readelf("--dynamic"))
    assert re.search(r"\(FLAGS_1\).*\bNOW\b", readelf("--dynamic"))
    assert re.search(r"^ *GNU_RELRO .* R +0x", readelf("--segments"), re.MULTILINE)


def test_the_stack_cannot_be_executed() -> None:
    [flags] = re.findall(
        r"^ *GNU_STACK(?: +0x[0-9a-f]+){5} +([RWE ]+?) +0", readelf("--segments"), re.MULTILINE
    )
    assert flags == "RW"


def test_stacks_buffers_and_containers_are_checked() -> None:
    names = imported()
    assert "__stack_chk_fail" in names
    assert {"__memcpy_chk", "__vsnprintf_chk"} <= names
    assert any("__glibcxx_assert_fail" in name for name in names)
