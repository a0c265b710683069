#!/usr/bin/env bash
# The public API of the crates that are published, compared with the lists in .ci/api. A difference is either a mistake, or a change
# that the changelog names; then --write makes the lists new.
#
#   .ci/api.sh            compares
#   .ci/api.sh --write    writes the lists
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo public-api --version >/dev/null 2>&1; then
  echo "SKIPPED: there is no cargo-public-api (cargo install cargo-public-api --locked)"
  exit 0
fi
if ! cargo +nightly --version >/dev/null 2>&1; then
  echo "SKIPPED: cargo-public-api needs a nightly toolchain for rustdoc's JSON, and there is none"
  exit 0
fi

changed=0
check() { # CRATE ARGUMENTS...
  local list=.ci/api/$1.txt now
  # Without blanket, automatic and derived implementations, which follow from the rest.
  now=$(cargo public-api --package "$1" -sss --color never "${@:2}" 2>/dev/null) || {
    echo "api: $1: no list can be made" >&2
    cargo public-api --package "$1" -sss "${@:2}" 2>&1 | tail -20 >&2
    exit 1
  }
  if [ "$mode" = --write ]; then
    printf '%s\n' "$now" >"$list"
  elif ! diff --unified=0 "$list" <(printf '%s\n' "$now"); then
    echo "api: $1: its public API has changed; .ci/api.sh --write takes the change over" >&2
    changed=1
  fi
  echo "api: $1: $(printf '%s\n' "$now" | wc -l) items"
}

mode=${1:-}
check rigline --all-features
check rigline-macros
check rigline-std --all-features
check rigline-host
check rigline-eval
check rigline-lab
check rigline-cli
check rigline-rig
check rigline-embassy
exit "$changed"
