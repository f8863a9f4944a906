#!/usr/bin/env bash
# clang-tidy over the engine and the bindings (tests and fuzzers are left to the compiler). A file
# whose text, headers of ours and settings have not changed since it passed is not checked again.
# usage: tools/tidy.sh [FILE...]
set -euo pipefail
cd "$(dirname "$0")/.."
database=build/release
if [[ ! -f $database/compile_commands.json ]]; then
  echo "no $database/compile_commands.json: make build" >&2
  exit 1
fi
# The checker comes without builtin headers; it is of the compiler's own version and takes those.
resource_dir=$(clang-19 -print-resource-dir)
export database resource_dir
passed=build/tidy
mkdir -p "$passed"
common=$({ .venv/bin/clang-tidy --version; cat .clang-tidy; tools/sources.sh 'src/*.h' 'bindings/*.h' |
  xargs -r cat; } | sha256sum)
files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(tools/sources.sh 'src/*.cc' 'bindings/*.cc' | grep -v '_test[^/]*\.cc$')
fi
todo=()
declare -A key
for file in "${files[@]}"; do
  key[$file]=$( (echo "$common"; cat "$file") | sha256sum | cut -d' ' -f1)
  [[ -f $passed/${key[$file]} ]] || todo+=("$file:${key[$file]}")
done
echo "${#todo[@]} of ${#files[@]} files to check"
check_one() {
  local file=${1%:*} key=${1##*:}
  if .venv/bin/clang-tidy --quiet -p "$database" --extra-arg="-resource-dir=$resource_dir" \
      --extra-arg=-Wno-unknown-warning-option "$file" > "build/tidy/$key.log" 2>&1; then
    mv "build/tidy/$key.log" "build/tidy/$key"
  else
    grep -vE '^[0-9]+ warnings? |^Suppressed|^Use -header-filter' "build/tidy/$key.log"
    return 1
  fi
}
export -f check_one
((${#todo[@]} == 0)) || printf '%s\n' "${todo[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'check_one {}'
