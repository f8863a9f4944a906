#!/usr/bin/env bash
# Runs the C++ tests of one preset. usage: tools/ctest.sh PRESET [CTEST ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
preset=$1
shift
mkdir -p build/reports
report=$PWD/build/reports/ctest-$preset.xml
rm -f "$report" "build/reports/unsteady-ctest-$preset.json"
# One line a test is for the report; here only what did not pass, and the sum.
status=0
ctest --test-dir "build/$preset" --parallel "${JOBS:-$(nproc)}" --output-on-failure \
  --no-tests=error --output-junit "$report" "$@" | tee "${report%.xml}.log" |
  grep --line-buffered -vE '^ *Start +[0-9]+: |^ *[0-9]+/[0-9]+ Test .* Passed ' || status=${PIPESTATUS[0]}
# 8: tests have failed. What failed by an assertion runs again alone.
((status != 8)) || exec python3 tools/unsteady.py ctest "$preset" "$report"
exit "$status"
