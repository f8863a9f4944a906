#!/usr/bin/env bash
# Builds the servers that tests run against into build/servers, at the versions of
# testing/servers/go.mod; those of `make soak` alone have testing/servers/soak: versitygw (go.mod), S3Mock (a jar from
# Maven's repository, for a Java runtime) and moto (.venvs/moto, from constraints/moto.txt).
# usage: tools/servers.sh fake-gcs-server|minio|aisnode|versitygw|s3mock|moto...
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/servers

s3mock() {
  local artifact
  artifact=com.adobe.testing:s3mock:$(< testing/servers/soak/s3mock.version):jar:exec
  if [[ -s build/servers/s3mock.jar && $(cat build/servers/s3mock.jar.made-from 2> /dev/null) == "$artifact" ]]; then
    echo "s3mock is up to date"
    return
  fi
  if ! command -v mvn > /dev/null || ! command -v java > /dev/null; then
    echo "installing Maven and a Java runtime for S3Mock"
    apt-get install --yes --quiet maven default-jre-headless
  fi
  echo "fetching $artifact"
  mvn --quiet --batch-mode dependency:copy -Dartifact="$artifact" -Dmdep.stripVersion=true -Dmdep.stripClassifier=true \
    -DoutputDirectory="$PWD/build/servers"
  echo "$artifact" > build/servers/s3mock.jar.made-from
}

moto() {
  local key python
  python=$(tools/find_python.sh)
  key=$({ echo "$python $PWD"; cat constraints/moto.txt; } | sha256sum)
  if [[ $(cat .venvs/moto/made-from 2> /dev/null) == "$key" ]]; then
    echo "moto is up to date"
    return
  fi
  echo "installing moto into .venvs/moto"
  rm -rf .venvs/moto
  tools/uv.sh venv --quiet --python "$python" .venvs/moto
  tools/uv.sh pip install --quiet --no-deps --python .venvs/moto/bin/python -r constraints/moto.txt
  echo "$key" > .venvs/moto/made-from
}

for server in "$@"; do
  if [[ $server == s3mock || $server == moto ]]; then
    "$server"
    continue
  fi
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
