#!/usr/bin/env bash
# Makes .venvs/peers and .venvs/peers-checkpoints: all of .venv, and over it the clients that bench/ compares with.
# usage: tools/peers.sh        unless they are already just that
#        tools/peers.sh pin    write constraints/peers*.txt anew from constraints/peers*.in
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

# pin NAME: what NAME.in needs over .venv, to the version.
pin() {
  local scratch
  scratch=$(mktemp -d)
  make "$scratch/venv" "constraints/$1.in"
  {
    echo "# Written by tools/peers.sh from constraints/$1.in, over constraints/python.txt."
    "$scratch/venv/bin/python" -m pip freeze --all --local | grep -v '^pip=='
  } > "constraints/$1.txt"
  rm -rf "$scratch"
}

for name in peers peers-checkpoints; do
  if [[ ${1:-} == pin ]]; then
    pin "$name"
    continue
  fi
  folder=.venvs/$name
  key=$({ "$python" -VV; echo "$python $PWD"; cat constraints/{python,"$name"}.txt tools/peers.sh; } | sha256sum)
  if [[ -x $folder/bin/python && $(cat "$folder/made-from" 2> /dev/null) == "$key" ]]; then
    echo "$folder is up to date"
    continue
  fi
  make "$folder" "constraints/$name.txt"
  echo "$key" > "$folder/made-from"
done
