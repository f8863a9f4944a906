"""`pip install .` builds with whatever compiler the machine has."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def flags_of(build: Path, *defines: str) -> set[str]:
    """The flags with which the module's sources are compiled; only CMake runs."""
    subprocess.run(
        [
            *("cmake", "-S", str(REPOSITORY), "-B", str(build), "-G", "Ninja"),
            "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            f"-DPython_EXECUTABLE={sys.executable}",
            *defines,
        ],
        check=True,
        capture_output=True,
        text=True,
    )
    commands = json.loads((build / "compile_commands.json").read_text())
    ours = [each["command"] for each in commands if "/_engine.dir/" in each["command"]]
    assert ours
    return {flag for command in ours for flag in command.split()}


def test_warnings_of_a_compiler_do_not_stop_an_installation(tmp_path: Path) -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["scikit-build"]
    asked = [f"-D{name}={value}" for name, value in settings["cmake"]["define"].items()]
    assert "-DHEADRACE_BUILD_BINDINGS=ON" in asked
    # Where the distribution's static libraries are is a matter of wheels.
    asked.remove("-DHEADRACE_STATIC_DEPS=ON")
    assert "-Werror" not in flags_of(tmp_path / "pip", *asked)
    assert "-Werror" in flags_of(tmp_path / "preset", *asked, "-DHEADRACE_WERROR=ON")
