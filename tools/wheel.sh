#!/usr/bin/env bash
# Builds dist/headrace-*.whl, makes it self-contained, and checks its tag and its size.
set -euo pipefail
cd "$(dirname "$0")/.."
max_bytes=8000000
platform=manylinux_2_34_x86_64
rm -rf build/wheel dist
mkdir -p build/wheel dist
PATH="$PWD/.venv/bin:$PATH"
# With the flags of the presets, so that the compiler cache has most of it.
python -m pip wheel . --quiet --disable-pip-version-check --no-deps --no-build-isolation \
  --config-settings=cmake.define.HEADRACE_WERROR=ON --wheel-dir build/wheel
auditwheel repair --plat "$platform" --only-plat --wheel-dir dist build/wheel/headrace-*.whl
wheel=$(ls dist/headrace-*.whl)
bytes=$(stat -c %s "$wheel")
echo "$wheel: $bytes bytes"
if ((bytes > max_bytes)); then
  echo "the wheel is larger than $max_bytes bytes" >&2
  exit 1
fi
tag=$(python -c 'import sys; print(f"cp{sys.version_info.major}{sys.version_info.minor}")')
if [[ $wheel != *-$tag-$tag-$platform.whl ]]; then
  echo "the wheel's tag is not $tag-$tag-$platform" >&2
  exit 1
fi
# Only PyInit__engine leaves the module: another OpenSSL or zlib in the process stays its own.
python -m zipfile -e "$wheel" build/wheel/unpacked
exported=$(nm -D --defined-only build/wheel/unpacked/headrace/_engine*.so | awk '{print $3}')
if [[ $exported != PyInit__engine ]]; then
  echo "the module exports more than PyInit__engine:" >&2
  head -n 20 <<< "$exported" >&2
  exit 1
fi
