#!/usr/bin/env bash
# Builds the servers that tests run against into build/servers, at the versions of
# testing/servers/go.mod. usage: tools/servers.sh fake-gcs-server|minio|aisnode...
set -euo pipefail
cd "$(dirname "$0")/.."
key=$(cat testing/servers/go.mod testing/servers/go.sum tools/servers.sh | sha256sum)
mkdir -p build/servers
for server in "$@"; do
  binary=build/servers/$server
  if [[ -x $binary && $(cat "$binary.made-from" 2>/dev/null) == "$key" ]]; then
    echo "$server is up to date"
    continue
  fi
  go=$(tools/find_go.sh)
  package=$(awk -v name="$server" '/^tool \(/ {in_tools = 1} /^\)/ {in_tools = 0}
    in_tools && $1 ~ "/" name "$" {print $1}' testing/servers/go.mod)
  if [[ -z $package ]]; then
    echo "testing/servers/go.mod has no tool $server" >&2
    exit 1
  fi
  echo "building $package with $go"
  # aws: AIStore then serves buckets of S3; the others do not know the tag.
  (cd testing/servers && "$go" build -tags aws -trimpath -ldflags=-s -o "../../$binary" "$package")
  echo "$key" > "$binary.made-from"
done
