#!/usr/bin/env bash
# Formats everything and fails if that changed a file; then ruff, a syntax check of the scripts, and what
# must not be forgotten.
set -euo pipefail
cd "$(dirname "$0")/.."
status=0
before=$(tools/sources.sh '*.h' '*.cc' '*.py' '*.pyi' '*.ipynb' | xargs -r sha256sum)
tools/format.sh
after=$(tools/sources.sh '*.h' '*.cc' '*.py' '*.pyi' '*.ipynb' | xargs -r sha256sum)
if [[ $before != "$after" ]]; then
  echo "these files were not formatted; they are now:"
  comm -13 <(sort <<< "$before") <(sort <<< "$after") | awk '{print "  " $2}'
  comm -13 <(sort <<< "$before") <(sort <<< "$after") | awk '{print $2}' |
    xargs git --no-pager diff --stat --
  status=1
fi
.venv/bin/ruff check . || status=1
if ! imports=$(PYTHONPATH=tools:python .venv/bin/lint-imports .importlinter --no-cache --no-logo 2>&1); then
  echo "$imports" >&2
  status=1
fi
for script in $(tools/sources.sh '*.sh' .ci/run); do
  bash -n "$script" || status=1
done
# A lambda that captures everything outlives its frame sooner or later (CONTRIBUTING.md).
if tools/sources.sh 'src/*.cc' 'src/*.h' 'bindings/*.cc' | xargs -r grep -nE '\[=[],]'; then
  echo "lambdas name what they capture: [=] is not used" >&2
  status=1
fi
# It calls arc4random, for which the wheel would need a newer glibc than it promises.
if tools/sources.sh '*.h' '*.cc' | grep -v '^src/headrace/base/random.h$' | xargs -r grep -nw 'std::random_device'; then
  echo "std::random_device needs glibc 2.36: call random_number() of headrace/base/random.h" >&2
  status=1
fi
.venv/bin/python tools/unsteady.py check || status=1
for fuzzer in $(tools/sources.sh 'fuzz/fuzz_*.cc'); do
  name=$(basename "$fuzzer" .cc)
  if [[ ! -d fuzz/corpus/${name#fuzz_} ]]; then
    echo "$fuzzer has no inputs in fuzz/corpus/${name#fuzz_}" >&2
    status=1
  fi
done
exit "$status"
