#!/usr/bin/env bash
# Runs every fuzzer for a while, as many at once as there are cores. usage: tools/fuzz.sh SECONDS
# Inputs that found something new stay in build/fuzz/corpus; crashes go to build/fuzz/crashes.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
export FUZZ_SECONDS=$1
mkdir -p build/fuzz/corpus build/fuzz/crashes
run_one() {
  local fuzzer=$1 name
  name=$(basename "$fuzzer")
  local arguments=(-max_total_time="$FUZZ_SECONDS" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
    -artifact_prefix="build/fuzz/crashes/$name-" "build/fuzz/corpus/$name")
  mkdir -p "build/fuzz/corpus/$name"
  [[ -d fuzz/corpus/$name ]] && arguments+=("fuzz/corpus/$name")
  local dictionary
  for dictionary in "fuzz/dictionaries/$name.dict" "fuzz/dictionaries/${name#fuzz_}.dict"; do
    [[ -f $dictionary ]] && arguments+=(-dict="$dictionary") && break
  done
  if "$fuzzer" "${arguments[@]}" > "build/fuzz/$name.log" 2>&1; then
    awk -v name="$name" '/number_of_executed_units/ {print name ": " $2 " executions, no finding"}' \
      "build/fuzz/$name.log"
  else
    tail -n 60 "build/fuzz/$name.log"
    echo "$name: FAILED (build/fuzz/crashes)"
    return 1
  fi
}
export -f run_one
mapfile -t fuzzers < <(find build/fuzz/fuzz -maxdepth 1 -name 'fuzz_*' -type f -executable | sort)
if ((${#fuzzers[@]} == 0)); then
  echo "no fuzzer was built" >&2
  exit 1
fi
printf '%s\n' "${fuzzers[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'run_one {}'
