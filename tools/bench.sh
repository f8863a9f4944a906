#!/usr/bin/env bash
# Runs the benchmarks: bench/run.py of this checkout with the arguments given.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
tools/peers.sh
if ! { tools/apt.sh bench && tools/build.sh release headrace-bench-h2; }; then
  echo "the client of HTTP/2 could not be built: bench/groups/yardsticks.py measures without it" >&2
fi
exec env PYTHONPATH="$PWD" .venv/bin/python bench/run.py "$@"
