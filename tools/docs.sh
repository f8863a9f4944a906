#!/usr/bin/env bash
# Makes the site of docs/ in build/docs. A warning is an error: a link that leads nowhere, a name that
# cannot be found. Then every public name must be on a page and explained.
set -euo pipefail
cd "$(dirname "$0")/.."
.venv/bin/zensical build --strict --clean 2>&1 | sed 's/\x1b\[[0-9;]*m//g'  # it colours logs, too
exec .venv/bin/python tools/check_reference.py build/docs/objects.inv
