"""clang-tidy over the engine and the bindings (tests and fuzzers are left to the compiler).

It checks what the release build compiles: several files at a time, since most of its work is to
read headers. What passed is not checked again, in this checkout or, as with ccache, in another one
of this user, until a file or a header of ours in it or a setting changes.

    tools/tidy.py [FILE...]     those units that hold one of these files
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATABASE = ROOT / "build" / "release"
CHECKER = ROOT / ".venv" / "bin" / "clang-tidy"
KEPT_S = 30 * 24 * 3600

_OURS = ("src/headrace/", "bindings/")
_TEST = re.compile(r"_test(_[a-z]+)?\.cc$")
_NOISE = re.compile(r"^(\d+ warnings? |Suppressed|Use -header-filter)")


@dataclass(frozen=True)
class Unit:
    """One call of the compiler."""

    file: Path
    command: str
    sources: tuple[str, ...]
    """Ours that it is made of, relative to the root."""
    included: tuple[str, ...]
    """These and our headers; empty if it has not been built."""

    @property
    def name(self) -> str:
        """Its files, for people."""
        return " ".join(self.sources)


def said_by(*command: str | Path) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def relative(path: str) -> str:
    """A path of the database, from the root on; one that is elsewhere as it is."""
    full = os.path.normpath(DATABASE / path)
    return os.path.relpath(full, ROOT) if full.startswith(f"{ROOT}/") else full


def read_units() -> list[Unit]:
    """Return what the build compiles of the engine and the bindings."""
    included: dict[str, list[str]] = {}
    for line in said_by("ninja", "-C", DATABASE, "-t", "deps").splitlines():
        if ": #deps " in line:
            of_object = included.setdefault(line.partition(":")[0], [])
        elif line.startswith("    "):
            of_object.append(relative(line.strip()))
    units = []
    for entry in json.loads((DATABASE / "compile_commands.json").read_text()):
        file = Path(entry["file"])
        sources = [relative(str(file))]
        if file.parent.name == "Unity":
            sources = [relative(each) for each in re.findall(r'#include "(.*)"', file.read_text())]
        # Beside what CMake makes of our headers.
        sources = [each for each in sources if Path(each).name != "headers_alone.cc"] or sources
        if not all(each.startswith(_OURS) and not _TEST.search(each) for each in sources):
            continue
        (output,) = re.findall(r" -o (\S+)", entry["command"])
        found = included.get(output, [])
        ours = sorted({each for each in found if each.startswith(_OURS)})
        units.append(Unit(file, entry["command"], tuple(sources), tuple(ours)))
    return units


def common_key() -> str:
    """Return what every check depends on."""
    parts = [said_by(CHECKER, "--version")]
    parts += [said_by("dpkg-query", "-W", "-f", "${Package} ${Version}\n", "lib*-dev")]
    parts += [(ROOT / each).read_text() for each in (".clang-tidy", "constraints/python.txt")]
    parts += [Path(__file__).read_text()]
    return hashlib.sha256("".join(parts).encode()).hexdigest()


def key_of(unit: Unit, common: str) -> str:
    """Return all that the check of a unit depends on; empty if that is not known."""
    if not unit.included:
        return ""
    key = hashlib.sha256(common.encode())
    key.update(unit.command.replace(str(ROOT), ".").encode())
    for each in (*unit.sources, *unit.included):
        key.update(each.encode())
        key.update((ROOT / each).read_bytes())
    return key.hexdigest()


def main(names: list[str]) -> int:
    """Check what has not passed before; 1 if anything is wrong."""
    if not (DATABASE / "compile_commands.json").exists():
        print(f"no {DATABASE}/compile_commands.json: make build", file=sys.stderr)
        return 1
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "headrace" / "tidy"
    cache.mkdir(parents=True, exist_ok=True)
    for each in cache.iterdir():
        if time.time() - each.stat().st_mtime > KEPT_S:
            each.unlink(missing_ok=True)
    common = common_key()
    units = [unit for unit in read_units() if not names or {*unit.sources} & {*names}]
    if not units:
        print(f"nothing to check: the build compiles none of {names}", file=sys.stderr)
        return 1
    todo = [
        unit for unit in units if not (key := key_of(unit, common)) or not (cache / key).exists()
    ]
    print(f"{len(todo)} of {len(units)} units to check", flush=True)
    # The checker comes without builtin headers; it takes those of its own version of the compiler.
    resources = said_by("clang-19", "-print-resource-dir").strip()
    options = ["--quiet", "-p", str(DATABASE), f"--extra-arg=-resource-dir={resources}"]
    options += ["--extra-arg=-Wno-unknown-warning-option"]

    def passes(unit: Unit) -> bool:
        # Of what it reads now: it may be edited meanwhile.
        key = key_of(unit, common)
        done = subprocess.run(
            [CHECKER, *options, unit.file],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            told = [line for line in done.stdout.splitlines() if not _NOISE.match(line)]
            print("\n".join([f"in {unit.name}", *told]), flush=True)
            return False
        if key and key == key_of(unit, common):
            (cache / key).touch()
        return True

    workers = int(os.environ.get("JOBS") or os.cpu_count() or 1)
    # The longest first, so that none of them is left for the end.
    todo.sort(key=lambda unit: -sum((ROOT / each).stat().st_size for each in unit.included))
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        return 0 if all(list(pool.map(passes, todo))) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
