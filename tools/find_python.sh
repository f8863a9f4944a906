#!/usr/bin/env bash
# Prints the Python that virtual environments are made from: $HEADRACE_PYTHON, or the system's own
# 3.11 (its headers come from python3-dev), or whatever python3 is.
set -euo pipefail
for candidate in "${HEADRACE_PYTHON:-}" /usr/bin/python3.11 python3; do
  [[ -n "$candidate" ]] && command -v "$candidate" >/dev/null || continue
  if "$candidate" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    command -v "$candidate"
    exit 0
  fi
done
echo "no Python 3.11 or newer with venv found; set HEADRACE_PYTHON, or: make deps" >&2
exit 1
