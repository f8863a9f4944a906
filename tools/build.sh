#!/usr/bin/env bash
# Configures and builds one CMake preset in build/PRESET. usage: tools/build.sh PRESET [TARGET...]
# `release-engine` is the release preset without the Python module, which needs .venv; `release` adds that to it.
# TLS is the system's OpenSSL. Where HEADRACE_AWS_LC is set, the release preset has AWS-LC instead, as the wheels do: to
# measure or to test what their users get.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
preset=${kind%-engine}
settings=(-DHEADRACE_AWS_LC=)
if [[ $preset == release && -n ${HEADRACE_AWS_LC:-} ]]; then
  tools/aws_lc.sh
  settings=("-DHEADRACE_AWS_LC=$PWD/build/aws-lc")
fi
if [[ $kind == release ]]; then
  settings+=(-DHEADRACE_BUILD_BINDINGS=ON "-DPython_EXECUTABLE=$PWD/.venv/bin/python")
fi
shift
# ninja runs CMake again by itself when a CMake file changes, but not for another preset or setting.
key=$({ cat CMakePresets.json; echo "${settings[@]}" "$PWD"; } | sha256sum)
if [[ ! -f build/$preset/build.ninja ||
    ($kind != *-engine && $(cat "build/$preset/made-from" 2>/dev/null) != "$key") ]]; then
  cmake --preset "$preset" --log-level=WARNING "${settings[@]}"
  echo "$key" > "build/$preset/made-from"
fi
export NINJA_STATUS=${NINJA_STATUS:-"[%f/%t, %e s] "}
ninja -C "build/$preset" -j "${JOBS:-$(nproc)}" "$@"
