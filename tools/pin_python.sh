#!/usr/bin/env bash
# Writes constraints/python.txt: every package that constraints/python.in leads to, with its version.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$(tools/find_python.sh)" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --upgrade pip
"$scratch/venv/bin/pip" install --quiet -r constraints/python.in
{
  echo "# Written by tools/pin_python.sh from constraints/python.in. Python 3.11, Linux x86-64."
  "$scratch/venv/bin/pip" freeze --all | grep -v '^pip=='
} > constraints/python.txt
