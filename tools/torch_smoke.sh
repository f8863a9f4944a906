#!/usr/bin/env bash
# Runs tests/packaging/torch_smoke.py with the wheel beside the oldest and the newest torch.
set -euo pipefail
cd "$(dirname "$0")/.."
source tools/test_environment.sh
for which in oldest newest; do
  venv=.venvs/torch-$which
  tools/venv.sh "$venv" "constraints/torch-$which.txt"
  tools/uv.sh pip install --quiet --python "$venv/bin/python" --no-deps --reinstall dist/headrace-*-cp311-cp311-*.whl
  # From a folder that is not the checkout, so that only the installed package can be meant.
  (script=$PWD/tests/packaging/torch_smoke.py python=$PWD/$venv/bin/python && cd "$(mktemp -d)" &&
    "$python" "$script")
done
