#!/usr/bin/env bash
# The README and the guide as a newcomer meets them: a fresh clone, a fresh package cache, no built files. Prints how long
# the first command and `cargo test` take, and fails when the target folder is larger than 2 GB.
#   first-hour.sh [newest]   with the compiler that is installed, or with the newest stable one and rust-src
#   first-hour.sh installed  without a checkout: three commands each from the wheel and from npx, of the files that .ci/release.sh has
#                            made, and from cargo; each is timed
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = newest ]; then
  RUSTUP_TOOLCHAIN=$(.ci/compilers.sh version) || { echo "$RUSTUP_TOOLCHAIN"; exit 77; }
  export RUSTUP_TOOLCHAIN
fi
place=$(mktemp -d)
registry=
trap 'rm -rf "$place"; if [ -n "$registry" ]; then kill "$registry" || true; fi' EXIT

# timed WAY COMMAND: runs a line as a newcomer does, in the way's own folder.
timed() {
  local began=$EPOCHREALTIME
  (cd "$place/$1" && env "${clean[@]}" bash -c "$2") >"$place/log" 2>&1 </dev/null || {
    cat "$place/log"
    echo "first-hour: $1: $2: FAILED"
    exit 1
  }
  tail -n 3 "$place/log"
  python3 -c 'import sys; print(f"first-hour: {sys.argv[1]}: {sys.argv[2]}: {float(sys.argv[4]) - float(sys.argv[3]):.1f} s")' "$1" "$2" "$began" "$EPOCHREALTIME"
}

installed() {
  local target=${CARGO_TARGET_DIR:-$PWD/target} files
  files=${RIGLINE_RELEASE_FOLDER:-$target/release-files}
  [ -f "$files/SHA256SUMS" ] || { echo "$files has no files of a release; .ci/release.sh makes them"; exit 77; }
  mkdir "$place/pip" "$place/npx" "$place/cargo"

  # As after the release: the package index has the wheel beside all others. Nothing is kept from earlier runs.
  clean=(-i HOME="$place/pip" PATH="$place/pip/venv/bin:/usr/bin:/bin" PIP_FIND_LINKS="$files" PIP_DISABLE_PIP_VERSION_CHECK=1)
  for variable in PIP_INDEX_URL PIP_EXTRA_INDEX_URL PIP_TRUSTED_HOST PIP_CERT SSL_CERT_FILE REQUESTS_CA_BUNDLE; do
    if [ -n "${!variable:-}" ]; then clean+=("$variable=${!variable}"); fi
  done
  python3 -m venv "$place/pip/venv"
  printf '%s\n' 'def test_3v3(rig, measure):' '    rig.power(rail="3V3", on=True)' \
    '    measure("3V3", rig.measure(channel="3V3").number("volts"), "V", low=3.135, high=3.465)' >"$place/pip/test_board.py"
  timed pip "pip install rigline pytest"
  timed pip "rigline call sim self-test"
  timed pip "pytest --rigline-target sim"

  mkfifo "$place/until"
  .ci/release.py registry "$files" <"$place/until" >"$place/address" &
  registry=$!
  exec 8>"$place/until"
  while ! [ -s "$place/address" ] && kill -0 "$registry"; do sleep 0.1; done
  clean=(-i HOME="$place/npx" PATH="$(dirname "$(command -v npm)"):$(dirname "$(command -v node)"):/usr/bin:/bin" npm_config_registry="$(cat "$place/address")" npm_config_yes=true npm_config_fund=false npm_config_update_notifier=false)
  printf '%s\n' "import { connect } from 'rigline/node';" "const rig = await connect('sim');" "await rig.call('power', { rail: '3V3', on: true });" \
    "console.log((await rig.call('measure', { channel: '3V3' })).message);" 'await rig.close();' >"$place/npx/example.mjs"
  timed npx "npx rigline call sim self-test"
  timed npx "npx rigline eval new evals"
  timed npx "npm install rigline && node example.mjs"

  git clone --quiet . "$place/cargo/rigline"
  mkdir "$place/cargo/home"
  if [ -f "${CARGO_HOME:-$HOME/.cargo}/config.toml" ]; then cp "${CARGO_HOME:-$HOME/.cargo}/config.toml" "$place/cargo/home/"; fi
  clean=(-u CARGO_TARGET_DIR -u CARGO_INCREMENTAL CARGO_HOME="$place/cargo/home" PATH="$place/cargo/home/bin:$(dirname "$(rustup which cargo)"):$PATH")
  timed cargo "cargo install --quiet --locked --path rigline/std-adapter/cli"
  timed cargo "rigline new greeter"
  timed cargo "cd greeter && cargo test --quiet"
}
if [ "${1:-}" = installed ]; then
  installed
  echo "first-hour: passed"
  exit
fi
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
