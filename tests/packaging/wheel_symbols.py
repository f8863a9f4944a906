"""What the libraries of a wheel need of the system, and what they show to it.

usage: wheel_symbols.py WHEEL...   (exit code 1, and a line for each thing that is wrong)
"""

from __future__ import annotations

import io
import re
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

# manylinux_2_34: Ubuntu 22.04, RHEL 9, and everything newer.
NEWEST_GLIBC = (2, 34)
# The module has libstdc++ in itself. simdjson is Debian's shared library, which needs one of 2015.
NEWEST_GLIBCXX = (3, 4, 21)
SYSTEM_LIBRARIES = {
    "ld-linux-x86-64.so.2",
    "libc.so.6",
    "libgcc_s.so.1",
    "libm.so.6",
}
# The ABI of a wheel's tag, and the module that an interpreter of that ABI looks for.
MODULES = {
    "abi3": "headrace/_engine.abi3.so",
    "cp311": "headrace/_engine.cpython-311-x86_64-linux-gnu.so",
}


@dataclass(frozen=True)
class Library:
    """One ELF file: the libraries it needs, their versions of symbols, and the names it defines."""

    needed: frozenset[str]
    versions: frozenset[str]
    exported: frozenset[str]

    def newest(self, prefix: str) -> tuple[int, ...]:
        """The newest version of `prefix` (GLIBC, GLIBCXX) that it needs; () if none."""
        found = [re.fullmatch(rf"{prefix}_(\d+(?:\.\d+)*)", each) for each in self.versions]
        return max((tuple(map(int, each[1].split("."))) for each in found if each), default=())


def read_library(data: bytes) -> Library:
    """Read what the dynamic sections of an ELF file say."""
    elf = ELFFile(io.BytesIO(data))
    needed, versions, exported = set(), set(), set()
    for section in elf.iter_sections():
        if isinstance(section, DynamicSection):
            needed |= {tag.needed for tag in section.iter_tags("DT_NEEDED")}
        elif isinstance(section, GNUVerNeedSection):
            versions |= {each.name for _, all_of in section.iter_versions() for each in all_of}
        elif section.name == ".dynsym":
            exported |= {each.name for each in section.iter_symbols() if _is_defined(each)}
    return Library(frozenset(needed), frozenset(versions), frozenset(exported))


def _is_defined(symbol: object) -> bool:
    entry = symbol.entry  # type: ignore[attr-defined]
    return entry["st_shndx"] != "SHN_UNDEF" and entry["st_info"]["bind"] != "STB_LOCAL"


def libraries(wheel: Path) -> dict[str, Library]:
    """All ELF files of a wheel, by their names in it."""
    with zipfile.ZipFile(wheel) as archive:
        return {
            name: read_library(archive.read(name))
            for name in archive.namelist()
            if re.search(r"\.so(\.\d+)*$", name)
        }


def tag_of(wheel: Path) -> str:
    """The Python and the ABI that a wheel is for, by its name: ``"cp312-abi3"``."""
    return "-".join(wheel.stem.split("-")[-3:-1])


def faults(found: dict[str, Library], tag: str) -> Iterator[str]:
    """What would keep these libraries from being loaded somewhere, or could disturb others."""
    modules = [name for name in found if name.startswith("headrace/_engine.")]
    expected = MODULES.get(tag.partition("-")[2])
    if modules != [expected]:
        yield f"a wheel for {tag} has the module {expected}, but there are {modules}"
    own = {Path(name).name for name in found}
    for name, library in found.items():
        is_module = name in modules
        if library.newest("GLIBC") > NEWEST_GLIBC:
            yield f"{name} needs glibc {library.newest('GLIBC')}, more than {NEWEST_GLIBC}"
        newest = library.newest("GLIBCXX")
        if newest > (() if is_module else NEWEST_GLIBCXX):
            yield f"{name} needs libstdc++ {newest}"
        allowed = SYSTEM_LIBRARIES | own | (set() if is_module else {"libstdc++.so.6"})
        if unknown := library.needed - allowed:
            yield f"{name} needs {', '.join(sorted(unknown))}, which is not in the wheel"
        # Another OpenSSL, zlib or libstdc++ in the process stays its own.
        if is_module and library.exported != {"PyInit__engine"}:
            some = sorted(library.exported)[:20]
            yield f"{name} exports {some}; it must be PyInit__engine alone"


def main() -> int:
    """Print what is wrong; 1 if there is anything."""
    status = 0
    for wheel in sys.argv[1:]:
        for fault in faults(libraries(Path(wheel)), tag_of(Path(wheel))):
            print(f"{wheel}: {fault}", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
