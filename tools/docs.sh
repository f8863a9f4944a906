#!/usr/bin/env bash
# Makes the site of docs/ in build/docs. A warning is an error: a link that leads nowhere, a name that
# cannot be found. Then every public name must be on a page and explained.
set -euo pipefail
cd "$(dirname "$0")/.."
NO_COLOR=1 .venv/bin/zensical build --strict --clean
exec .venv/bin/python tools/check_reference.py build/docs/objects.inv
