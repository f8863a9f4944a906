#!/usr/bin/env bash
# Long campaigns; every length comes from the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
export HEADRACE_SOAK_FORKS=${SOAK_FORKS:-10000}
tools/fuzz.sh "${SOAK_FUZZ_S:-600}"
.venv/bin/python -m pytest -m soak --timeout=0 "$@"
