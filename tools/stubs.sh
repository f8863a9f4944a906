#!/usr/bin/env bash
# The type stub of headrace._engine. usage: tools/stubs.sh write|check
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# As a module of its own: in the package its public classes say that they are of `headrace`, and the
# generator leaves out what is of another module.
PYTHONPATH=build/release/python/headrace .venv/bin/python -m nanobind.stubgen --quiet -m _engine \
  -p bindings/stubs.pattern -o "$scratch/_engine.pyi"
.venv/bin/ruff format --quiet --isolated --line-length 100 "$scratch/_engine.pyi"
case $1 in
  write) cp "$scratch/_engine.pyi" python/headrace/_engine.pyi ;;
  check)
    diff -u python/headrace/_engine.pyi "$scratch/_engine.pyi" || {
      echo "python/headrace/_engine.pyi is not the generated one: make stubs-write" >&2
      exit 1
    }
    ;;
esac
