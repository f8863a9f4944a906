#!/usr/bin/env bash
# Builds AWS-LC, the TLS library of the wheels, into build/aws-lc: its headers and two archives. The source comes from
# the crate aws-lc-sys, pinned in cmake/aws-lc/Cargo.lock; only cargo's download is used, and no Rust is compiled.
# docs/decisions/2026-11-29-tls-library.md says why.
# usage: tools/aws_lc.sh
set -euo pipefail
cd "$(dirname "$0")/.."
here=build/aws-lc
key=$(cat cmake/aws-lc/Cargo.lock tools/aws_lc.sh | sha256sum)
[[ $(cat "$here/made-from" 2> /dev/null) != "$key" ]] || exit 0
echo "building AWS-LC, once"
cargo=$(command -v cargo || ls "${CARGO_HOME:-$HOME/.cargo}/bin/cargo" 2> /dev/null || true)
if [[ -z $cargo ]]; then
  # Debian 12's `cargo` is too old for today's index of crates; this one is kept new for its browsers.
  echo "installing cargo, which downloads the source of AWS-LC"
  as_root=()
  ((EUID == 0)) || as_root=(sudo)
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" apt-get install -q -y --no-install-recommends cargo-web
  cargo=cargo
fi
compiler=$(command -v clang-21 clang-20 clang-19 clang | head -1)
launcher=()
if command -v ccache > /dev/null; then
  launcher=(env "CCACHE_BASEDIR=$PWD" CCACHE_NOHASHDIR=1 ccache)
fi
rm -rf "$here"
mkdir -p "$here/build"
"$cargo" vendor --quiet --locked --manifest-path cmake/aws-lc/Cargo.toml "$here/crates" > /dev/null
source=$here/crates/aws-lc-sys/aws-lc
# Neither perl nor Go is needed: the crate has the assembly that they would make. Random numbers come from the kernel
# alone, as with OpenSSL: the jitter of the processor would take 24 ms of each process's first handshake.
cmake -S "$source" -B "$here/build" -G Ninja --log-level=WARNING -DCMAKE_BUILD_TYPE=Release \
  "-DCMAKE_C_COMPILER=$compiler" "-DCMAKE_CXX_COMPILER=${compiler/clang/clang++}" \
  "-DCMAKE_C_COMPILER_LAUNCHER=$(IFS=';' && echo "${launcher[*]}")" \
  "-DCMAKE_CXX_COMPILER_LAUNCHER=$(IFS=';' && echo "${launcher[*]}")" \
  -DCMAKE_C_VISIBILITY_PRESET=hidden -DCMAKE_CXX_VISIBILITY_PRESET=hidden -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
  -DBUILD_SHARED_LIBS=OFF -DBUILD_TESTING=OFF -DBUILD_TOOL=OFF -DDISABLE_GO=ON -DDISABLE_PERL=ON \
  -DDISABLE_CPU_JITTER_ENTROPY=ON > /dev/null
NINJA_STATUS="[AWS-LC %f/%t, %e s] " ninja -C "$here/build" --quiet -j "${JOBS:-$(nproc)}" crypto ssl
mkdir "$here/lib"
mv "$here/build/crypto/libcrypto.a" "$here/build/ssl/libssl.a" "$here/lib/"
mv "$source/include" "$here/include"
cmp "$source/LICENSE" cmake/aws-lc/LICENSE  # which the wheel has, and which changes with the version
rm -rf "$here/build" "$here/crates"
echo "$key" > "$here/made-from"
