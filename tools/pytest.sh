#!/usr/bin/env bash
# Runs the Python tests against the package in build/release/python.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
mkdir -p build/reports
exec .venv/bin/python -m pytest --junitxml=build/reports/pytest.xml "$@"
