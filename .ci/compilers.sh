#!/usr/bin/env bash
# The compilers that users have, beside the pinned one that everything else in the gate uses. Each has a target folder of its own.
#   compilers.sh oldest   the one that the README promises: builds, and passes the unit tests
#   compilers.sh newest   the newest stable one, with rust-src, which rust-analyzer brings: all of `cargo test` but the emulated board's,
#                         in the environment of somebody else: see `odd`
#   compilers.sh build oldest | newest   builds what one of these runs
#   compilers.sh odd COMMAND…   a command in that environment
#   compilers.sh version  installs the newest stable one, and prints its number
# Exits with 77 and the reason in the last line where a compiler cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh

unavailable() {
  echo "$*"
  exit 77
}

# have VERSION COMPONENT…: installs a compiler, and its components where they can be had.
have() {
  local version=$1
  shift
  command -v rustup >/dev/null 2>&1 || unavailable "there is no rustup, which installs compilers"
  has_compiler "$version" || rustup toolchain install "$version" --profile minimal --no-self-update 2>&1 ||
    unavailable "rustup cannot install Rust $version"
  local component
  for component in "$@"; do
    rustup component add "$component" --toolchain "$version" >/dev/null 2>&1 || echo "compilers: Rust $version is used without $component"
  done
}

# The number of the newest stable compiler: what rustup would update `stable` to, or the newest that is installed.
newest() {
  local version
  version=$(rustup check 2>/dev/null | grep '^stable-' | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | tail -n 1 || true)
  [ -n "$version" ] || version=$(rustup toolchain list | grep -oE '^[0-9]+\.[0-9]+\.[0-9]+' | sort -V | tail -n 1 || true)
  echo "$version"
}

# A command as somebody else's machine runs it: started by nohup, with another language, time zone, file mode, home and colours, behind
# a proxy that is not there.
odd() {
  local place=${CARGO_TARGET_DIR:-$PWD/target}/odd
  mkdir -p "$place/Ev dizini"
  CARGO_HOME=${CARGO_HOME:-$HOME/.cargo} RUSTUP_HOME=${RUSTUP_HOME:-$HOME/.rustup}
  export CARGO_HOME RUSTUP_HOME
  (
    trap '' HUP PIPE
    umask 077
    # A language that the system lacks is one more oddity; the shell need not say so.
    { export HOME="$place/Ev dizini" LANG=tr_TR.UTF-8 LC_ALL=tr_TR.UTF-8 LANGUAGE=tr TZ=Pacific/Chatham; } 2>/dev/null
    export http_proxy=http://127.0.0.1:9 https_proxy=http://127.0.0.1:9 HTTP_PROXY=http://127.0.0.1:9 all_proxy=socks5://127.0.0.1:9
    export CLICOLOR_FORCE=1 FORCE_COLOR=1 COLUMNS=41 RUST_BACKTRACE=full XDG_STATE_HOME=/proc XDG_RUNTIME_DIR=/does/not/exist
    unset TERM
    exec nohup "$@" </dev/null
  )
}

use_oldest() {
  version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
  case $version in *.*.*) ;; *) version=$version.0 ;; esac
  have "$version"
  export CARGO_TARGET_DIR=$PWD/target/oldest
}

use_newest() {
  version=$(newest)
  [ -n "$version" ] || unavailable "rustup does not say which stable compiler is the newest"
  have "$version" rust-src rustfmt
  # The emulated board runs the same images, whatever compiles the tests: its tests take minutes, and run with the pinned compiler only.
  export RIGLINE_FIRMWARE_DIR=/no/images
  unset RIGLINE_REQUIRE_EMULATOR RIGLINE_REQUIRE_BOARDS
  export CARGO_TARGET_DIR=$PWD/target/newest
}

case "$*" in
"build oldest")
  use_oldest
  cargo "+$version" build
  cargo "+$version" test --no-run --lib --bins
  ;;
"build newest")
  use_newest
  cargo "+$version" test --no-run
  ;;
oldest)
  use_oldest
  cargo "+$version" build
  cargo "+$version" test --lib --bins
  echo "compilers: Rust $version builds everything, and the unit tests pass"
  ;;
newest)
  use_newest
  mkdir -p "$CARGO_TARGET_DIR"
  log=$CARGO_TARGET_DIR/test.log
  cargo "+$version" test --no-run 2>&1 | tee "$log"
  warnings=$(grep -c '^warning' "$log" || true)
  # Not through a pipe: `odd` ignores SIGPIPE, and the tests' own processes would wait for a reader.
  odd cargo "+$version" test >"$log" 2>&1 || {
    cat "$log"
    exit 1
  }
  grep -E '^test result|^skipped|Running|Doc-tests' "$log"
  sed -n '/^These tests were skipped/,/^$/p' "$log"
  # The last program of all has the list.
  [[ $(grep Running "$log" | tail -n 1) == *what_was_skipped* ]] || { echo "compilers: what_was_skipped is not the last test program"; exit 1; }
  echo "compilers: all tests pass with Rust $version, in somebody else's environment; $warnings warnings"
  ;;
version)
  version=$(newest)
  [ -n "$version" ] || unavailable "rustup does not say which stable compiler is the newest"
  have "$version" rust-src rustfmt >&2
  echo "$version"
  ;;
"odd "*)
  shift
  odd "$@"
  ;;
*)
  sed -n '2,9p' "$0"
  exit 2
  ;;
esac
