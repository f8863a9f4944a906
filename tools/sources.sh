#!/usr/bin/env bash
# Prints the files of the project that match the patterns: tracked, or new and not ignored.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files --cached --others --exclude-standard -- "$@" | sort -u | while read -r file; do
  [[ -f $file ]] && echo "$file"
done
