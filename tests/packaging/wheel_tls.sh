#!/usr/bin/env bash
# Runs the Python tests of TLS with the wheel for Python 3.11, whose TLS library is not that of the build.
# usage: tests/packaging/wheel_tls.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
source tools/test_environment.sh
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
.venv/bin/python -m zipfile -e dist/headrace-*-cp311-cp311-*.whl "$folder"
export PYTHONPATH=$folder
module=$(.venv/bin/python -c 'import headrace._engine; print(headrace._engine.__file__)')
[[ $module == "$folder"/* ]] || { echo "$module is not the wheel's" >&2 && exit 1; }
.venv/bin/python -m pytest --quiet --numprocesses 2 -p no:cacheprovider \
  tests/ais/test_tls.py tests/s3/test_connections.py tests/s3/test_bad_input.py tests/process/test_fork.py
