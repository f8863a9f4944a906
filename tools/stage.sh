#!/usr/bin/env bash
# Runs one stage of a target: says what it does, then how long it took; build/reports/stages.tsv
# collects the stages for tools/summary.py.
# usage: tools/stage.sh NAME COMMAND...
set -uo pipefail
name=$1
shift
mkdir -p build/reports
printf '\n==> %s: %s\n' "$name" "$*"
begin=$EPOCHREALTIME
"$@"
status=$?
seconds=$(awk -v a="$begin" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}')
((status == 0)) && verdict=passed || verdict=failed
printf '%s\t%s\t%s\n' "$name" "$seconds" "$verdict" >> build/reports/stages.tsv
printf '<== %s: %s after %s s\n' "$name" "$verdict" "$seconds"
exit "$status"
