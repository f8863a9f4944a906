#!/usr/bin/env bash
# Builds dist/headrace-*.whl, one for Python 3.11 and one for 3.12 and all later versions (stable ABI), makes them
# self-contained, and checks tags, sizes and symbols. docs/decisions/2026-11-25-wheels.md has the reasons.
set -euo pipefail
cd "$(dirname "$0")/.."
max_bytes=8000000
platform=manylinux_2_34_x86_64
# The tags are given below, so another Python would make a wheel for 3.11 that holds its own module.
python=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
if [[ $python != 3.11 ]]; then
  echo "tools/wheel.sh: .venv has Python $python, and both wheels are built by Python 3.11: install that, and run" \
    "HEADRACE_PYTHON=python3.11 make wheel" >&2
  exit 1
fi
rm -rf build/wheel dist
mkdir -p build/wheel dist
PATH="$PWD/.venv/bin:$PATH"

# build_wheel TAG [SETTING...]: one wheel, in dist/
build_wheel() {
  local tag=$1 setting settings=()
  shift
  # With the flags of the presets and as deep as build/release, so that the compiler cache has most of it.
  # The tag is given, since the Python that builds is not always the one that the wheel is for.
  for setting in cmake.define.HEADRACE_WERROR=ON "cmake.define.HEADRACE_AWS_LC=$PWD/build/aws-lc" \
      "build-dir=build/$tag" "wheel.tags=$tag-linux_x86_64" "$@"; do
    settings+=("--config-settings=$setting")
  done
  python -m pip wheel . --quiet --disable-pip-version-check --no-deps --no-build-isolation "${settings[@]}" \
    --wheel-dir build/wheel
  auditwheel repair --plat "$platform" --only-plat --wheel-dir dist \
    "build/wheel/headrace-$version-$tag-linux_x86_64.whl"
}
version=$(sed -nE 's/^__version__ = "(.*)"/\1/p' python/headrace/_version.py)
tools/aws_lc.sh
build_wheel cp311-cp311
build_wheel cp312-abi3 "cmake.define.HEADRACE_ABI3_INCLUDE=$(tools/abi3_headers.sh)"

for tag in cp311-cp311 cp312-abi3; do
  wheel=dist/headrace-$version-$tag-$platform.whl
  if [[ ! -f $wheel ]]; then
    echo "there is no $wheel, but: $(ls dist)" >&2
    exit 1
  fi
  bytes=$(stat -c %s "$wheel")
  echo "$wheel: $bytes bytes"
  if ((bytes > max_bytes)); then
    echo "the wheel is larger than $max_bytes bytes" >&2
    exit 1
  fi
done
python tests/packaging/wheel_symbols.py dist/headrace-*.whl
