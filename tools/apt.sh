#!/usr/bin/env bash
# Installs what tools/apt-packages.txt names and this machine lacks. Asks the network only then.
# usage: tools/apt.sh [build|bench]      build: without the packages of the tests and the checks; bench: all packages,
#                                        also those that only the benchmarks need
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
  build) end="^# -- only the tests" ;;
  bench) end="^$" ;;
  *) end="^# -- only the benchmarks" ;;
esac
mapfile -t wanted < <(awk -v end="$end" '$0 ~ end {exit} /^[^#]/' tools/apt-packages.txt)
if ! command -v dpkg-query >/dev/null; then
  echo "not a Debian: install by hand what tools/apt-packages.txt names" >&2
  exit 0
fi
mapfile -t present < <(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2>/dev/null |
  awk '$1 == "ii" {print $2}')
mapfile -t missing < <(comm -23 <(printf '%s\n' "${wanted[@]}" | sort -u) \
  <(printf '%s\n' "${present[@]}" | sort -u))
if ((${#missing[@]} == 0)); then
  echo "all ${#wanted[@]} Debian packages are there"
  exit 0
fi
as_root=()
if ((EUID != 0)); then
  if ! command -v sudo >/dev/null; then
    echo "as root: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing: ${missing[*]}"
# Debian starts a server when it installs one; our tests start their own nginx. This file tells it not to, while we
# install; it goes again however that ends. One that is there already is the administrator's, and is left alone.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  echo "until the packages are installed, $policy keeps their servers from being started"
  trap '"${as_root[@]}" rm -f "$policy" && echo "$policy is gone again"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
  "${as_root[@]}" chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -q
"${as_root[@]}" apt-get install -q -y --no-install-recommends "${missing[@]}"
