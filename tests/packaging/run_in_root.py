"""Installs and uses the wheel inside another root. usage: run_in_root.py ROOT"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))
from testing.servers import Certificates, FakeGcsServer

INSIDE = """
set -e
mount -t proc proc /proc
mount -t tmpfs tmpfs /dev/shm
python3 -m venv --clear /headrace/venv
/headrace/venv/bin/pip install --quiet --disable-pip-version-check --no-index \
  --find-links /headrace/wheels headrace
cd /headrace
venv/bin/python use_wheel.py "$1"
venv/bin/python use_tls.py "$2" ca.pem
/headrace/venv/bin/pip install --quiet --disable-pip-version-check --no-index \
  --find-links /headrace/wheels 'headrace[cli]'
venv/bin/python use_wheel.py "$1" --with-command
PYTHONPATH=/headrace/with-torch exec venv/bin/python torch_smoke.py
"""


def main() -> int:
    """The exit code of what ran inside."""
    root = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        certificates = Certificates(Path(folder))
        (root / "headrace" / "ca.pem").write_bytes(certificates.ca_file.read_bytes())
        with FakeGcsServer() as plain, FakeGcsServer(certificates=certificates) as tls:
            for server in (plain, tls):
                server.make_bucket("bucket")
            # A mount namespace of its own: what is mounted inside is gone with the process.
            command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "env", "-i"]
            command += ["PATH=/usr/bin:/bin:/usr/sbin:/sbin", "HOME=/root", "LANG=C.UTF-8"]
            command += ["chroot", str(root), "sh", "-c", INSIDE, "sh", plain.url, tls.url]
            return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
