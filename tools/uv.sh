#!/usr/bin/env bash
# Runs the uv of constraints/uv.txt, which pip installs into .venvs, with what this machine's pip is configured with:
# index, certificates, proxy, folders of wheels. All of that is asked when it runs and stands in no file.
# usage: tools/uv.sh ARGUMENT...
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
version=$(sed -nE 's/^uv==([0-9.]+).*/\1/p' "$root/constraints/uv.txt")
home=$root/.venvs/uv-$version
if [[ ! -x $home/bin/uv ]]; then
  mkdir -p "$root/.venvs"
  scratch=$(mktemp -d "$root/.venvs/uv-XXXXXX")
  trap 'rm -rf "$scratch"' EXIT
  "$("$root/tools/find_python.sh")" -m venv "$scratch"
  "$scratch/bin/python" -m pip install --quiet --disable-pip-version-check --require-hashes \
    -r "$root/constraints/uv.txt" >&2
  mv --no-target-directory "$scratch" "$home"
  trap - EXIT
fi
# It shares its files with the environments by hard links; where the cache is on another file system it copies.
export UV_LINK_MODE=${UV_LINK_MODE:-hardlink} UV_PYTHON_DOWNLOADS=never UV_NO_PROGRESS=1
mapfile -t -d '' settings < <("$home/bin/python" "$root/tools/uv_settings.py")
exec env "${settings[@]}" "$home/bin/uv" "$@"
