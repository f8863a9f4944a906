#!/usr/bin/env bash
# Applies the formatters that .venv pins.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/sources.sh '*.h' '*.cc' | xargs -r -P "${JOBS:-$(nproc)}" -n 20 .venv/bin/clang-format -i
.venv/bin/ruff check --quiet --fix --select I .
.venv/bin/ruff format --quiet .
tools/sources.sh '*.ipynb' | xargs -r .venv/bin/python tools/strip_notebooks.py
