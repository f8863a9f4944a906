#!/usr/bin/env bash
# Prints the folder of a Debian that has Python and nothing of ours, made once by debootstrap.
# usage: tests/packaging/bare_debian.sh 12|13
set -euo pipefail
cd "$(dirname "$0")/../.."
declare -A names=([12]=bookworm [13]=trixie)
root=$PWD/build/debian$1
if [[ ! -f $root.complete ]]; then
  rm -rf "$root"
  echo "making $root" >&2
  debootstrap --variant=minbase --include=ca-certificates,python3,python3-venv "${names[$1]}" "$root" \
    > "$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; exit 1; }
  rm -rf "$root"/var/cache/apt/archives/*.deb
  touch "$root.complete"
fi
echo "$root"
