#!/usr/bin/env bash
# Makes .venvs/peers: all of .venv, and over it the clients that bench/ compares with.
# usage: tools/peers.sh        unless it is already just that
#        tools/peers.sh pin    write constraints/peers.txt anew from constraints/peers.in
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(tools/find_python.sh)

# make FOLDER REQUIREMENTS: torch and what else .venv has is found there, not installed again.
make() {
  rm -rf "$1"
  "$python" -m venv "$1"
  local site
  site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf "%s\n" "$PWD/.venv/lib/${site#*/lib/}" "$PWD/build/release/python" > "$site/project.pth"
  "$1/bin/python" -m pip install --quiet --disable-pip-version-check -r "$2"
}

if [[ ${1:-} == pin ]]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  make "$scratch/venv" constraints/peers.in
  {
    echo "# Written by tools/peers.sh from constraints/peers.in, over constraints/python.txt."
    "$scratch/venv/bin/python" -m pip freeze --all --local | grep -v '^pip=='
  } > constraints/peers.txt
  exit 0
fi
folder=.venvs/peers
key=$({ "$python" -VV; echo "$python $PWD"; cat constraints/p{ython,eers}.txt tools/peers.sh; } | sha256sum)
if [[ -x $folder/bin/python && $(cat "$folder/made-from" 2> /dev/null) == "$key" ]]; then
  echo "$folder is up to date"
  exit 0
fi
make "$folder" constraints/peers.txt
echo "$key" > "$folder/made-from"
