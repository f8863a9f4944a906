#!/usr/bin/env bash
# Builds the servers that tests run against into build/servers, at the versions of
# testing/servers/go.mod; those of `make soak` alone have testing/servers/soak/go.mod.
# usage: tools/servers.sh fake-gcs-server|minio|aisnode|versitygw...
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/servers
for server in "$@"; do
  binary=$PWD/build/servers/$server
  module=testing/servers
  [[ $server != versitygw ]] || module=testing/servers/soak
  key=$(cat "$module/go.mod" "$module/go.sum" tools/servers.sh | sha256sum)
  if [[ -x $binary && $(cat "$binary.made-from" 2>/dev/null) == "$key" ]]; then
    echo "$server is up to date"
    continue
  fi
  go=$(tools/find_go.sh)
  package=$(awk -v name="$server" '/^tool \(/ {in_tools = 1} /^\)/ {in_tools = 0}
    in_tools && $1 ~ "/" name "$" {print $1}' "$module/go.mod")
  if [[ -z $package ]]; then
    echo "$module/go.mod has no tool $server" >&2
    exit 1
  fi
  echo "building $package with $go"
  # aws: AIStore then serves buckets of S3; the others do not know the tag.
  (cd "$module" && "$go" build -tags aws -trimpath -ldflags=-s -o "$binary" "$package")
  echo "$key" > "$binary.made-from"
done
