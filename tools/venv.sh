#!/usr/bin/env bash
# Makes the virtual environment FOLDER from a requirements FILE, unless it is already just that.
# usage: tools/venv.sh FOLDER FILE
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 requirements=$2
python=$(tools/find_python.sh)
key=$({ "$python" -VV; echo "$python $PWD"; cat "$requirements"; } | sha256sum)
if [[ -x $folder/bin/python && $(cat "$folder/made-from" 2>/dev/null) == "$key" ]]; then
  echo "$folder is up to date"
  exit 0
fi
rm -rf "$folder"
"$python" -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"
# The build's own copy of the package, when there is one (bindings/CMakeLists.txt stages it), so
# that every child interpreter of a test finds it too.
if [[ $folder == .venv ]]; then
  site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$PWD/build/release/python" > "$site/headrace_build.pth"
fi
echo "$key" > "$folder/made-from"
