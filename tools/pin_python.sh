#!/usr/bin/env bash
# Writes constraints/NAME.txt from constraints/NAME.in: every package that it leads to, with its version and the
# hashes of its files. What is pinned already stays at its version, but for `--upgrade`, which is passed on.
# usage: tools/pin_python.sh [NAME...] [-- OPTION...]      default: every NAME that is not peers*
set -euo pipefail
cd "$(dirname "$0")/.."
names=()
while (($#)) && [[ $1 != -- ]]; do names+=("$1") && shift; done
(($#)) && shift
((${#names[@]})) || names=(uv python demo torch-oldest torch-newest)
for name in "${names[@]}"; do
  tools/uv.sh pip compile --quiet --python "$(tools/find_python.sh)" --generate-hashes --no-annotate \
    --no-emit-index-url --no-emit-find-links \
    --custom-compile-command "tools/pin_python.sh $name   (Python 3.11, Linux x86-64)" \
    --output-file "constraints/$name.txt" "$@" "constraints/$name.in"
done
