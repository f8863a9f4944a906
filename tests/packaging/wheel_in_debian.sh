#!/usr/bin/env bash
# Installs the wheels in a bare Debian 12 (Python 3.11) and a bare Debian 13 (Python 3.13) and reads with them: from a
# fake-gcs-server on this machine's loopback, which the other roots share, without and with TLS, and from a folder; at
# last with torch.
# usage: tests/packaging/wheel_in_debian.sh [12|13 ...]
set -euo pipefail
cd "$(dirname "$0")/../.."
if ((EUID != 0)); then
  exec sudo --preserve-env=PATH "$0" "$@"
fi
source tools/test_environment.sh
(($#)) || set -- 12 13
declare -A pythons=([12]=3.11 [13]=3.13) tags=([12]=cp311-cp311 [13]=cp312-abi3)
constraints=$(mktemp)
trap 'rm -f "$constraints"' EXIT
# In a file of constraints pip takes hashes for a wish to check all of them, and our wheels have none.
sed -E '/^ *--hash|^ *#/d; s/ *\\$//' constraints/python.txt > "$constraints"
for debian in "$@"; do
  root=$(tests/packaging/bare_debian.sh "$debian") python=${pythons[$debian]}
  if [[ -n $(ls "$root"/usr/include/boost "$root"/usr/lib/llvm-* "$root"/usr/lib/x86_64-linux-gnu/libisal* \
      2>/dev/null) ]]; then
    echo "$root is not bare" >&2
    exit 1
  fi
  rm -rf "$root/headrace"
  mkdir -p "$root/headrace/wheels"
  cp tests/packaging/{use_wheel,use_tls,torch_smoke}.py "$root/headrace/"
  # With the wheel comes what it depends on, so the bare system needs no network but loopback.
  .venv/bin/python -m pip download --quiet --disable-pip-version-check --dest "$root/headrace/wheels" \
    --only-binary :all: --python-version "$python" --constraint "$constraints" \
    "headrace[cli] @ file://$(realpath dist/headrace-*-"${tags[$debian]}"-*.whl)"
  # Beside the environment and by hard links: torch has gigabytes, most of which .venv has, too.
  tools/uv.sh pip install --quiet --target "$root/headrace/with-torch" --python-version "$python" \
    --python-platform x86_64-manylinux_2_34 --only-binary :all: --constraint "$constraints" torch numpy
  .venv/bin/python tests/packaging/run_in_root.py "$root"
done
