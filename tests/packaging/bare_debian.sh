#!/usr/bin/env bash
# Prints the folder of a Debian 12 that has Python and nothing of ours, made once by debootstrap.
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD/build/debian12
if [[ ! -f $root.complete ]]; then
  rm -rf "$root"
  echo "making $root" >&2
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv bookworm "$root" \
    > "$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; exit 1; }
  rm -rf "$root"/var/cache/apt/archives/*.deb
  touch "$root.complete"
fi
echo "$root"
