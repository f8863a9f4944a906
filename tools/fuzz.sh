#!/usr/bin/env bash
# Runs every fuzzer for a while, as many at once as there are cores. usage: tools/fuzz.sh SECONDS
# fuzz/run, which this calls, says where inputs and findings stay.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
export FUZZ_SECONDS=$1
run_one() {
  local name=$1 log=build/asan/fuzz/$1.log
  if fuzz/run build/asan "$FUZZ_SECONDS" "$name" > "$log" 2>&1; then
    awk -v name="$name" '/number_of_executed_units/ {print name ": " $2 " executions, no finding"}' \
      "$log"
  else
    tail -n 60 "$log"
    echo "$name: FAILED, the input is in build/asan/fuzz/findings"
    return 1
  fi
}
export -f run_one
for source in fuzz/fuzz_*.cc; do
  name=$(basename "$source" .cc)
  echo "${name#fuzz_}"
done | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'run_one {}'
