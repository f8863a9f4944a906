#!/usr/bin/env bash
# Type checkers: mypy on the package, mypy and pyright on the programs of tests/types.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/venv.sh build/types constraints/types.txt
.venv/bin/python -m mypy
.venv/bin/python tools/typed_programs.py build/types/bin/basedpyright
