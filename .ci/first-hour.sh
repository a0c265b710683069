#!/usr/bin/env bash
# The README and the guide as a newcomer meets them: a fresh clone, a fresh package cache, no built files. Prints how long
# the first command and `cargo test` take, and fails when the target folder is larger than 2 GB.
#   first-hour.sh [newest]   with the compiler that is installed, or with the newest stable one and rust-src
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = newest ]; then
  RUSTUP_TOOLCHAIN=$(.ci/compilers.sh version) || { echo "$RUSTUP_TOOLCHAIN"; exit 77; }
  export RUSTUP_TOOLCHAIN
fi
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
git clone --quiet . "$place/rigline"
cd "$place/rigline"
# rustup's toolchains stay; cargo's packages, settings and installed programs do not.
mkdir "$place/cargo"
[ -f "${CARGO_HOME:-$HOME/.cargo}/config.toml" ] && cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$place/cargo/"
PATH=$(dirname "$(rustup which cargo)"):$PATH
export PATH CARGO_HOME=$place/cargo
unset CARGO_TARGET_DIR CARGO_INCREMENTAL CARGO_PROFILE_DEV_DEBUG RIGLINE_FIRMWARE_DIR RIGLINE_REQUIRE_EMULATOR
time cargo fetch --quiet
echo "first-hour: everything is downloaded; the README's first command follows"
.ci/readme.sh --first
echo "first-hour: target has $(du -sm target | cut -f1) MB"
# What `cargo test` does, in two parts: the second builds no more than what tests build themselves.
TIMEFORMAT="first-hour: it took %R s; %U s and %S s of the processors' time"
time cargo test --no-run
echo "first-hour: built; target has $(du -sm target | cut -f1) MB"
time cargo test
size=$(du -sm target | cut -f1)
echo "first-hour: tested; target has $size MB"
[ "$size" -lt 2000 ]
.ci/one-build.sh
.ci/readme.sh
cargo test -p rigline-std -p rigline-host --doc guide
(cd "$place" && rigline/target/debug/rigline new greeter && cd greeter && cargo test)
echo "first-hour: passed"
