#!/usr/bin/env bash
# The clients in JavaScript and Go: the vectors, and the simulated rig. Says "skipped:" and why where a language is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh
cargo build -q -p rigline-std --bin rigline
export RIGLINE_BINARY=${CARGO_TARGET_DIR:-$PWD/target}/debug/rigline

if command -v node >/dev/null 2>&1; then
  (cd std-adapter/js && node --test --test-reporter=dot test/)
  echo
else
  echo "skipped: the JavaScript client, as there is no node"
fi
if install go golang-go; then
  (cd std-adapter/go && go vet ./... && test -z "$(gofmt -l .)" && go test ./...)
else
  echo "skipped: the Go client, as there is no go, and apt-get cannot install it"
fi
