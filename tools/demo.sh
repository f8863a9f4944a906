#!/usr/bin/env bash
# The main job: examples/list_and_read.py on a folder, or on a fake-gcs-server of its own.
# usage: tools/demo.sh file|gs
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
case "${1:-file}" in
  file) exec .venv/bin/python examples/list_and_read.py ;;
  gs)
    exec env PYTHONPATH="$PWD" .venv/bin/python - <<'PYTHON'
import os
import subprocess
import sys

from testing.servers import FakeGcsServer

with FakeGcsServer() as server:
    server.make_bucket("demo")
    print(f"fake-gcs-server on {server.url}")
    environment = {**os.environ, "STORAGE_EMULATOR_HOST": server.url}
    sys.exit(subprocess.call([sys.executable, "examples/list_and_read.py", "gs://demo"], env=environment))
PYTHON
    ;;
  *)
    echo "STORE must be file or gs" >&2
    exit 2
    ;;
esac
