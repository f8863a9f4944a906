#!/usr/bin/env bash
# clang-tidy over the engine and the bindings (tests and fuzzers are left to the compiler). A file
# that passed is not checked again, in this checkout or, as with ccache, in another one of this user,
# until it, a header of ours that it includes or a setting changes. What it includes, the build knows.
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
passed=${XDG_CACHE_HOME:-$HOME/.cache}/headrace/tidy
mkdir -p "$passed"
find "$passed" -type f -mtime +30 -delete
began=$(mktemp)
trap 'rm -f "$began"' EXIT
export passed began
common=$({ .venv/bin/clang-tidy --version; cat .clang-tidy tools/tidy.sh constraints/python.txt
  dpkg-query -W -f '${Package} ${Version}\n' 'lib*-dev'; } | sha256sum)
commands=$(sed "s#$PWD#.#g" "$database/compile_commands.json")
files=("$@")
if ((${#files[@]} == 0)); then
  mapfile -t files < <(tools/sources.sh 'src/*.cc' 'bindings/*.cc' | grep -v '_test[^/]*\.cc$')
fi
declare -A included key
while IFS=$'\t' read -r file header; do included[$file]+="$header"$'\n'; done < <(
  ninja -C "$database" -t deps | awk '
    /: #deps / { file = "" }
    $1 ~ "^../../(src|bindings)/" { sub("^../../", "", $1); if (file == "") file = $1
      print file "\t" $1 }' | sort -u)
# Of all that the check depends on; what was not built is checked each time.
key_of() {
  [[ -v included[$1] ]] || { echo unknown; return; }
  { echo "$common $1"; grep -F -- "-c ./$1\"" <<< "$commands"; xargs sha256sum <<< "${included[$1]}"; } |
    sha256sum | cut -d' ' -f1
}
todo=()
for file in "${files[@]}"; do
  key[$file]=$(key_of "$file")
  [[ -f $passed/${key[$file]} ]] || todo+=("$file:${key[$file]}")
done
echo "${#todo[@]} of ${#files[@]} files to check"
check_one() {
  local file=${1%:*} key=${1##*:} log
  log=$(mktemp)
  if .venv/bin/clang-tidy --quiet -p "$database" --extra-arg="-resource-dir=$resource_dir" \
      --extra-arg=-Wno-unknown-warning-option "$file" > "$log" 2>&1; then
    # What was edited meanwhile may not be what was checked.
    if [[ $key != unknown && ! $file -nt $began && -z $(find src bindings -name '*.h' -newer "$began") ]]; then
      : > "$passed/$key"
    fi
    rm "$log"
  else
    grep -vE '^[0-9]+ warnings? |^Suppressed|^Use -header-filter' "$log"
    rm "$log"
    return 1
  fi
}
export -f check_one
((${#todo[@]} == 0)) || printf '%s\n' "${todo[@]}" | xargs -P "${JOBS:-$(nproc)}" -I{} bash -c 'check_one {}'
