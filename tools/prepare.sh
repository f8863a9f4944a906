#!/usr/bin/env bash
# What every target needs, where it is missing, with the waits on top of each other: the servers are built, and .venv
# is filled from the network, while the engine is compiled. Only the Python module needs .venv.
# usage: tools/prepare.sh [demo]      demo: no servers, no tests, and of .venv what `make demo` needs
set -uo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/reports
packages=() requirements=(constraints/python.txt) engine=() module=() servers=(fake-gcs-server minio aisnode)
if [[ ${1:-} == demo ]]; then
  packages=(build)
  requirements=(constraints/demo.txt constraints/python.txt)
  engine=(headrace_engine) module=(headrace_python_package) servers=()
fi
tools/stage.sh deps tools/apt.sh "${packages[@]}" || exit 1
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
# start NAME COMMAND...: a stage beside the compiler, whose output comes when it has ended
declare -A started=()
start() {
  tools/stage.sh "$@" > "$logs/$1" 2>&1 &
  started[$1]=$!
}
((${#servers[@]})) && start servers tools/servers.sh "${servers[@]}"
start venv tools/venv.sh .venv "${requirements[@]}"
status=0
if [[ ! -f build/release/build.ninja ]]; then
  echo "while the engine is compiled, these go on beside it: ${!started[*]}"
  tools/stage.sh build-engine tools/build.sh release-engine "${engine[@]}" || status=1
fi
for name in "${!started[@]}"; do
  wait "${started[$name]}" || status=1
  cat "$logs/$name"
done
((status == 0)) && tools/stage.sh build tools/build.sh release "${module[@]}"
