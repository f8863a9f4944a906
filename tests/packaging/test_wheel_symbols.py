"""The check of what a wheel's libraries need, and that it finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import headrace._engine
from tests.packaging.wheel_symbols import Library, faults, read_library

MODULE = "headrace/_engine.abi3.so"


def library(
    *versions: str, needed: frozenset[str] = frozenset({"libc.so.6"}), exported: str = ""
) -> Library:
    return Library(needed, frozenset(versions), frozenset(exported.split()))


def told(**libraries: Library) -> list[str]:
    names = {"module": MODULE, "simdjson": "headrace.libs/libsimdjson-1.so.14"}
    return list(faults({names[each]: found for each, found in libraries.items()}))


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
    assert "one module headrace._engine is expected" in told(simdjson=library())[0]


def test_versions_are_compared_as_numbers() -> None:
    assert library("GLIBC_2.4", "GLIBC_2.34", "GLIBC_PRIVATE").newest("GLIBC") == (2, 34)


def test_the_module_of_the_build_is_read() -> None:
    found = read_library(Path(headrace._engine.__file__).read_bytes())
    assert found.exported == {"PyInit__engine"}
    assert {"libc.so.6", "libstdc++.so.6"} <= found.needed  # the build links the system's
    assert (2, 17) <= found.newest("GLIBC") < (3,)
