#!/usr/bin/env bash
# What every target needs, where it is missing, with the waits on top of each other: the servers are built, and .venv
# is filled from the network, while the engine is compiled. Only the Python module needs .venv.
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/reports
tools/stage.sh deps tools/apt.sh || exit 1
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
tools/stage.sh servers tools/servers.sh fake-gcs-server minio aisnode > "$logs/servers" 2>&1 &
servers=$!
tools/stage.sh venv tools/venv.sh .venv constraints/python.txt > "$logs/venv" 2>&1 &
venv=$!
status=0
if [[ ! -f build/release/build.ninja ]]; then
  tools/stage.sh build-engine tools/build.sh release-engine || status=1
fi
for name in venv servers; do
  wait "${!name}" || status=1
  cat "$logs/$name"
done
((status == 0)) && tools/stage.sh build tools/build.sh release
