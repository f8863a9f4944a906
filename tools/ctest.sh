#!/usr/bin/env bash
# Runs the C++ tests of one preset. usage: tools/ctest.sh PRESET [CTEST ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
preset=$1
shift
mkdir -p build/reports
# One line a test is for the report; here only what did not pass, and the sum.
ctest --test-dir "build/$preset" --parallel "${JOBS:-$(nproc)}" --output-on-failure \
  --no-tests=error --output-junit "$PWD/build/reports/ctest-$preset.xml" "$@" |
  grep --line-buffered -vE '^ *Start +[0-9]+: |^ *[0-9]+/[0-9]+ Test .* Passed '
