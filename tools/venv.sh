#!/usr/bin/env bash
# Makes the virtual environment FOLDER from a requirements FILE with hashes, unless it is already just that. Files are
# hard links to one cache (tools/uv.sh): what several environments have is unpacked once. Nothing may write into them.
# An environment made from a LARGER file, which names all that FILE does, stays as it is.
# usage: tools/venv.sh FOLDER FILE [LARGER]
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1 requirements=$2
python=$(tools/find_python.sh)
key_of() { { "$python" -VV; echo "$python $PWD"; cat "$1"; } | sha256sum; }
key=$(key_of "$requirements")
made_from=$(cat "$folder/made-from" 2>/dev/null || true)
if [[ -x $folder/bin/python && ($made_from == "$key" || $made_from == "$(key_of "${3:-$requirements}")") ]]; then
  echo "$folder is up to date"
else
  rm -rf "$folder"
  tools/uv.sh venv --quiet --python "$python" "$folder"
  tools/uv.sh pip install --quiet --python "$folder/bin/python" --require-hashes -r "$requirements"
  echo "$key" > "$folder/made-from"
fi
if [[ $folder == .venv ]]; then
  # The build's own copy of the package, when there is one (bindings/CMakeLists.txt stages it), so that every child
  # interpreter of a test finds it too; and its command, as pip would install it.
  site=$("$folder/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  echo "$PWD/build/release/python" > "$site/headrace_build.pth"
  rm -f "$folder/bin/headrace"
  cat > "$folder/bin/headrace" <<COMMAND
#!$PWD/$folder/bin/python
import sys

from headrace._cli import main

if __name__ == "__main__":
    sys.exit(main())
COMMAND
  chmod 755 "$folder/bin/headrace"
fi
