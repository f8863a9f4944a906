"""Type checkers find each mistake in the programs of tests/types, and nothing else.

A line that ends with ``# wrong`` must be an error of mypy --strict and of pyright in its strict
mode, and no other line may be. usage: tools/typed_programs.py PYRIGHT
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "types" / "programs"

# (file, line): what is said of it
Found = dict[tuple[str, int], str]


def wrong_lines() -> set[tuple[str, int]]:
    return {
        (path.name, number)
        for path in sorted(PROGRAMS.glob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith("# wrong")
    }


def by_mypy() -> Found:
    cache = ROOT / "build" / "types" / "mypy"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", f"--cache-dir={cache}"]
    # Of a configuration of its own, as a user has none of ours.
    done = subprocess.run(
        [*command, "--config-file=", *map(str, sorted(PROGRAMS.glob("*.py")))],
        cwd=PROGRAMS,
        env={"MYPYPATH": str(ROOT / "python"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout + done.stderr)
    found: Found = {}
    for line in done.stdout.splitlines():
        match = re.match(r"(\w+\.py):(\d+): error: (.*)", line)  # of a program
        if match is not None:
            found.setdefault((match[1], int(match[2])), match[3])
    return found


def by_pyright(command: str) -> Found:
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "include": [str(PROGRAMS)],
        "extraPaths": [str(ROOT / "python")],
        "venvPath": str(ROOT),
        "venv": ".venv",
    }
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(settings, file)
        file.flush()
        done = subprocess.run(
            [command, "--outputjson", "-p", file.name], capture_output=True, text=True, check=False
        )
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout + done.stderr)
    found: Found = {}
    for each in json.loads(done.stdout)["generalDiagnostics"]:
        place = Path(each["file"]).name, each["range"]["start"]["line"] + 1
        found.setdefault(place, each["message"].splitlines()[0])
    return found


def main() -> int:
    wrong = wrong_lines()
    if not wrong:
        raise SystemExit(f"{PROGRAMS} has no line that is wrong")
    faults = []
    for name, found in (("mypy", by_mypy()), ("pyright", by_pyright(sys.argv[1]))):
        faults += [
            f"{file}:{line}: {name} finds nothing wrong" for file, line in sorted(wrong - {*found})
        ]
        faults += [
            f"{file}:{line}: {name}: {found[file, line]}" for file, line in sorted({*found} - wrong)
        ]
    print("\n".join(faults) or f"{len(wrong)} mistakes are found by mypy and by pyright")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
