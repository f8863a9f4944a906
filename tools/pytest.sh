#!/usr/bin/env bash
# Runs the Python tests against the package in build/release/python.
# usage: tools/pytest.sh [ARGUMENT...]          in this process, what pytest is told to
#        tools/pytest.sh --all [ARGUMENT...]    all but campaigns, in three processes, each with servers of its own;
#                                               then, alone, what is marked `serial`
#        tools/pytest.sh --quick [ARGUMENT...]  what is marked `quick` and is neither slow nor serial, in three processes,
#                                               and needs no server that Go builds
# What fails by an assertion in --all and --quick runs again alone (tools/unsteady.py).
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
mkdir -p build/reports
case ${1:-} in
  --all) chosen="not soak" ;;
  --quick) chosen="quick and not slow and not soak" HEADRACE_TEST_GO_SERVERS=0 ;;
  *) exec .venv/bin/python -m pytest --junitxml=build/reports/pytest.xml "$@" ;;
esac
kind=$1
shift
# All processes must draw the same sample, also around midnight.
export HEADRACE_TEST_GO_SERVERS=${HEADRACE_TEST_GO_SERVERS:-1}
export HEADRACE_CAMPAIGN_SEED=${HEADRACE_CAMPAIGN_SEED:-$(date -u +%Y%m%d)}
rm -f build/reports/{unsteady-,}pytest{,-serial}.*
status=0
.venv/bin/python -m pytest --junitxml=build/reports/pytest.xml --quiet --durations=30 \
  --numprocesses "${TEST_PROCESSES:-3}" --dist loadfile -m "($chosen) and not serial" "$@" || status=$?
status_alone=0
if [[ $kind == --all ]]; then
  # Where the arguments name no file: to collect all tests for these few takes longer than some of them.
  serial=()
  [[ " $*" == *" tests"* || " $*" == *" testing"* ]] ||
    mapfile -t serial < <(grep -rlw --include='test_*.py' 'pytest\.mark\.serial' tests testing)
  .venv/bin/python -m pytest --junitxml=build/reports/pytest-serial.xml --quiet \
    -m "($chosen) and serial" "${serial[@]}" "$@" || status_alone=$?
fi
# 5: no test is of that kind, as where the arguments narrow. 1: tests have failed.
failed=()
for each in "$status pytest" "$status_alone pytest-serial"; do
  case ${each% *} in
    0 | 5) ;;
    1) failed+=("build/reports/${each#* }.xml") ;;
    *) exit "${each% *}" ;;
  esac
done
((${#failed[@]} == 0)) || exec .venv/bin/python tools/unsteady.py pytest "${failed[@]}"
((status == 0 || status_alone == 0)) || exit 5
