#!/usr/bin/env bash
# Long campaigns; every length comes from the environment.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
tools/fuzz.sh "${SOAK_FUZZ_S:-600}"
HEADRACE_PROCESS_CYCLES=${SOAK_FORKS:-10000} \
  .venv/bin/python -m pytest tests/process --timeout=0 -m "soak or not soak" "$@"
.venv/bin/python -m pytest tests/checkpoint --timeout=0 -m soak "$@"
.venv/bin/python -m pytest tests/io/test_minio.py "$@"
