#!/usr/bin/env bash
# Runs the benchmarks: bench/run.py of this checkout with the arguments given.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
tools/peers.sh
exec env PYTHONPATH="$PWD" .venv/bin/python bench/run.py "$@"
