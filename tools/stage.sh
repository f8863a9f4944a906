#!/usr/bin/env bash
# Runs one stage of a target: says what it does, then how long it took; build/reports/stages.tsv
# collects name, seconds, verdict and the time of the end for tools/summary.py. Stages may overlap.
# usage: tools/stage.sh NAME COMMAND...
set -uo pipefail
name=$1
shift
mkdir -p build/reports
printf '\n==> %s: %s\n' "$name" "$*"
begin=$EPOCHREALTIME
"$@"
status=$?
end=$EPOCHREALTIME
seconds=$(awk -v a="$begin" -v b="$end" 'BEGIN {printf "%.1f", b - a}')
((status == 0)) && verdict=passed || verdict=failed
printf '%s\t%s\t%s\t%s\n' "$name" "$seconds" "$verdict" "$end" >> build/reports/stages.tsv
printf '<== %s: %s after %s s\n' "$name" "$verdict" "$seconds"
exit "$status"
