#!/usr/bin/env bash
# Configures and builds one CMake preset in build/PRESET. usage: tools/build.sh PRESET [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
settings=()
if [[ $preset == release ]]; then
  settings=(-DHEADRACE_BUILD_BINDINGS=ON "-DPython_EXECUTABLE=$PWD/.venv/bin/python")
fi
# ninja runs CMake again by itself when a CMake file changes, but not for another preset or setting.
key=$({ cat CMakePresets.json; echo "${settings[@]}" "$PWD"; } | sha256sum)
if [[ ! -f build/$preset/build.ninja || $(cat "build/$preset/made-from" 2>/dev/null) != "$key" ]]; then
  cmake --preset "$preset" --log-level=WARNING "${settings[@]}"
  echo "$key" > "build/$preset/made-from"
fi
ninja -C "build/$preset" -j "${JOBS:-$(nproc)}" "$@"
# The command, where an installation would put it: the interpreter of .venv finds the package.
if [[ $preset == release && -x .venv/bin/python && ! -x .venv/bin/headrace ]]; then
  printf '%s\n' "#!$PWD/.venv/bin/python" "import sys" "from headrace._cli import main" \
    "sys.exit(main())" > .venv/bin/headrace.new
  chmod +x .venv/bin/headrace.new
  mv .venv/bin/headrace.new .venv/bin/headrace
fi
