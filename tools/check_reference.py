"""Every public name is in the reference and explained. usage: tools/check_reference.py OBJECTS_INV

Public is what the `__all__` of a package lists, and the members of these classes that do not begin
with an underscore. Fields of a dataclass need no text of their own if the name says it.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import griffe

SOURCES = Path(__file__).resolve().parent.parent / "python"
# The command line has its own help; what stands in for other packages has their names, and
# docs/guide/from_dataflux.md says what differs.
NOT_IN_THE_REFERENCE = ("headrace._cli", "headrace.compat.")


def packages() -> list[str]:
    """The packages whose `__init__.py` says what is public."""
    folders = (path.parent for path in SOURCES.rglob("__init__.py"))
    names = {".".join(folder.relative_to(SOURCES).parts) for folder in folders}
    return sorted(name for name in names if not name.startswith(NOT_IN_THE_REFERENCE))


def public(thing: griffe.Object | griffe.Alias) -> Iterator[griffe.Object | griffe.Alias]:
    """Yield it and, of a class, its public members, the inherited ones of ours included."""
    yield thing
    if thing.is_class:
        for name, member in thing.all_members.items():
            if not name.startswith("_"):
                yield member


def in_inventory(file: Path) -> set[str]:
    """Return the names that the site has a place for."""
    head, _, rest = file.read_bytes().partition(b"zlib.\n")
    if not head.startswith(b"# Sphinx inventory version 2"):
        raise SystemExit(f"{file} is not an inventory of version 2")
    return {line.split(" ", 1)[0] for line in zlib.decompress(rest).decode().splitlines()}


def main() -> int:
    on_the_site = in_inventory(Path(sys.argv[1]))
    loader = griffe.GriffeLoader(search_paths=[SOURCES])
    root = loader.load("headrace")
    loader.resolve_aliases()
    faults, count = [], 0
    for package in packages():
        module = root if package == "headrace" else root[package.removeprefix("headrace.")]
        for name in sorted(str(each).strip("'\"") for each in module.exports or ()):
            for thing in public(module[name]):
                count += 1
                path = (
                    f"{package}.{name}"
                    if thing is module[name]
                    else f"{package}.{name}.{thing.name}"
                )
                if path not in on_the_site:
                    faults.append(f"{path} is on no page of docs/reference/python/")
                is_field = thing.is_attribute and "property" not in thing.labels
                if not thing.docstring and not is_field:
                    faults.append(f"{path} has no docstring")
    print("\n".join(faults) or f"{count} public names are in the reference and explained")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
