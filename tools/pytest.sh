#!/usr/bin/env bash
# Runs the Python tests against the package in build/release/python.
# usage: tools/pytest.sh [ARGUMENT...]          in this process, what pytest is told to
#        tools/pytest.sh --all [ARGUMENT...]    all but campaigns, in two processes, each with servers of its own;
#                                               then, alone, what is marked `serial`
#        tools/pytest.sh --quick [ARGUMENT...]  what is marked `quick` and is neither slow nor serial, in two processes
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
mkdir -p build/reports
case ${1:-} in
  --all) chosen="not soak" ;;
  --quick) chosen="quick and not slow and not soak" ;;
  *) exec .venv/bin/python -m pytest --junitxml=build/reports/pytest.xml "$@" ;;
esac
kind=$1
shift
# Both processes must draw the same sample, also around midnight.
export HEADRACE_CAMPAIGN_SEED=${HEADRACE_CAMPAIGN_SEED:-$(date -u +%Y%m%d)}
status=0
.venv/bin/python -m pytest --junitxml=build/reports/pytest.xml --quiet --durations=30 \
  --numprocesses "${TEST_PROCESSES:-2}" --dist loadfile -m "($chosen) and not serial" "$@" || status=$?
[[ $kind == --all ]] || exit "$status"
status_alone=0
.venv/bin/python -m pytest --junitxml=build/reports/pytest-serial.xml --quiet \
  -m "($chosen) and serial" "$@" || status_alone=$?
# 5: no test is of that kind, as where the arguments narrow.
for each in "$status" "$status_alone"; do
  ((each == 0 || each == 5)) || exit "$each"
done
((status == 0 || status_alone == 0)) || exit 5
