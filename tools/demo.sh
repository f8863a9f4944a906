#!/usr/bin/env bash
# The main job: python -m headrace.demo in a folder, or on a fake-gcs-server or a MinIO of its own.
# usage: tools/demo.sh file|gs|s3 [OPTION...]   (see tools/demo.py)
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
exec env PYTHONPATH="$PWD" .venv/bin/python tools/demo.py "$@"
