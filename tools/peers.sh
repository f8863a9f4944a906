#!/usr/bin/env bash
# Makes .venvs/peers, .venvs/peers-checkpoints, .venvs/peers-s3fs and .venvs/dlio: all of .venv, and over it the clients
# that bench/ compares with, and DLIO.
# usage: tools/peers.sh        unless they are already just that
#        tools/peers.sh pin    write constraints/peers*.txt and dlio.txt anew from their .in
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(tools/find_python.sh)

# make FOLDER PINS: torch and what else .venv has is found there, not installed again.
make() {
  rm -rf "$1"
  tools/uv.sh venv --quiet --python "$python" "$1"
  local site
  site=$("$1/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  printf "%s\n" "$PWD/.venv/lib/${site#*/lib/}" "$PWD/build/release/python" > "$site/project.pth"
  # The pins are all that .venv lacks.
  tools/uv.sh pip install --quiet --no-deps --python "$1/bin/python" -r "$2"
}

# pin NAME: what NAME.in needs over .venv, to the version. What .venv has is kept where it will do; NAME-overrides.txt
# leaves out what a package asks for in vain.
pin() {
  local scratch overrides=()
  scratch=$(mktemp -d)
  [[ ! -e constraints/$1-overrides.txt ]] || overrides=(--override "constraints/$1-overrides.txt")
  sed -nE 's/^([A-Za-z0-9._-]+==[^ \\;]+).*/\1/p' constraints/python.txt > "$scratch/had"
  cp "$scratch/had" "$scratch/pins"
  tools/uv.sh pip compile --quiet --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
    --python "$python" "${overrides[@]}" --output-file "$scratch/pins" "constraints/$1.in"
  {
    echo "# Written by tools/peers.sh from constraints/$1.in, over constraints/python.txt."
    grep -vxFf "$scratch/had" "$scratch/pins"
  } > "constraints/$1.txt"
  rm -rf "$scratch"
}

for name in peers peers-checkpoints peers-s3fs dlio; do
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
