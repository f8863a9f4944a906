"""``python -m headrace.compat script.py [arguments]``: run a script of dataflux, or of AIStore's
plugin for PyTorch, on headrace.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys

from headrace.compat._names import install


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m headrace.compat",
        description="Run a script, or a module, whose `import dataflux_pytorch`, "
        "`import dataflux_core` and `import aistore.pytorch` find headrace's.",
    )
    parser.add_argument(
        "--force", action="store_true", help="even if the original packages are installed"
    )
    parser.add_argument("-m", dest="module", action="store_true", help="SCRIPT is a module's name")
    parser.add_argument("script", metavar="SCRIPT", help="the script's file")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the script gets")
    arguments = parser.parse_args()
    if arguments.module:
        sys.argv = [arguments.script, *arguments.arguments]
        install(force=arguments.force)
        # Python has already put the working directory in front, as it does for -m.
        runpy.run_module(arguments.script, run_name="__main__", alter_sys=True)
        return
    if not os.path.exists(arguments.script):
        parser.error(f"there is no file {arguments.script!r}")
    sys.argv = [arguments.script, *arguments.arguments]
    # As for any script, its folder takes the place of the working directory.
    sys.path[0] = os.path.dirname(os.path.realpath(arguments.script))
    install(force=arguments.force)
    runpy.run_path(arguments.script, run_name="__main__")


if __name__ == "__main__":
    main()
