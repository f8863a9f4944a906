#!/usr/bin/env bash
# Installs the wheel in a bare Debian 12 and reads with it: from a fake-gcs-server on this machine's
# loopback, which the other root shares, and from a folder.
set -euo pipefail
cd "$(dirname "$0")/../.."
if ((EUID != 0)); then
  exec sudo --preserve-env=PATH "$0" "$@"
fi
source tools/test_environment.sh
root=$(tests/packaging/bare_debian.sh)
if [[ -n $(ls "$root"/usr/include/boost "$root"/usr/lib/llvm-* "$root"/usr/lib/x86_64-linux-gnu/libisal* \
    2>/dev/null) ]]; then
  echo "$root is not bare" >&2
  exit 1
fi
rm -rf "$root/headrace"
mkdir -p "$root/headrace/wheels"
cp tests/packaging/use_wheel.py "$root/headrace/"
# With the wheel comes what it depends on, so the bare system needs no network but loopback. In a file of constraints
# pip takes hashes for a wish to check all of them, and the wheel has none.
sed -E '/^ *--hash|^ *#/d; s/ *\\$//' constraints/python.txt > "$root/headrace/constraints.txt"
.venv/bin/python -m pip download --quiet --disable-pip-version-check --dest "$root/headrace/wheels" \
  --only-binary :all: --constraint "$root/headrace/constraints.txt" \
  "headrace[cli] @ file://$(realpath dist/headrace-*.whl)"
.venv/bin/python - "$root" <<'PYTHON'
import subprocess
import sys

sys.path.insert(0, ".")
from testing.servers import FakeGcsServer

INSIDE = """
set -e
mount -t proc proc /proc
python3 -m venv --clear /headrace/venv
/headrace/venv/bin/pip install --quiet --disable-pip-version-check --no-index \
  --find-links /headrace/wheels headrace
cd /headrace
venv/bin/python use_wheel.py "$1"
/headrace/venv/bin/pip install --quiet --disable-pip-version-check --no-index \
  --find-links /headrace/wheels 'headrace[cli]'
exec venv/bin/python use_wheel.py "$1" --with-command
"""
with FakeGcsServer() as server:
    server.make_bucket("bucket")
    # A mount namespace of its own: what is mounted inside is gone with the process.
    sys.exit(
        subprocess.run(
            ["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i", "PATH=/usr/bin:/bin:/usr/sbin:/sbin"]
            + ["HOME=/root", "LANG=C.UTF-8", "chroot", sys.argv[1], "sh", "-c", INSIDE, "sh", server.url],
            check=False,
        ).returncode
    )
PYTHON
