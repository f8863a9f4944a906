#!/usr/bin/env bash
# Prints a folder with the headers of Python 3.13, which the wheel for Python 3.12 and later is built against. They come
# from Debian 13 by the apt of this machine, which checks signatures; nothing is installed, and root is not needed.
set -euo pipefail
cd "$(dirname "$0")/.."
version=3.13
headers=$PWD/build/python$version-headers
if [[ ! -f $headers/Python.h ]]; then
  scratch=$(mktemp -d)
  trap 'rm -rf "$scratch"' EXIT
  mkdir -p "$scratch"/{lists/partial,cache/archives/partial}
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main" \
    > "$scratch/sources.list"
  apt=(apt-get -q -o "Dir::Etc::SourceList=$scratch/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State=$scratch"
    -o "Dir::State::Lists=$scratch/lists" -o "Dir::Cache=$scratch/cache" -o APT::Get::List-Cleanup=0
    -o Acquire::Languages=none -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false
    -o Debug::NoLocking=1 -o APT::Sandbox::User=)
  "${apt[@]}" update >&2
  (cd "$scratch" && "${apt[@]}" download "libpython$version-dev" >&2)
  dpkg-deb --extract "$scratch"/libpython$version-dev_*.deb "$scratch/unpacked"
  # Debian keeps the part that differs between machines elsewhere.
  cp "$scratch/unpacked/usr/include/$(gcc -print-multiarch)/python$version/pyconfig.h" \
    "$scratch/unpacked/usr/include/python$version/pyconfig.h"
  mkdir -p build
  rm -rf "$headers"
  mv "$scratch/unpacked/usr/include/python$version" "$headers"
fi
echo "$headers"
