#!/usr/bin/env bash
# The clients in JavaScript and Go: the vectors, and the simulated rig. Says "skipped:" and why where a language is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh
cargo build -q -p rigline-cli --bin rigline
export RIGLINE_BINARY=${CARGO_TARGET_DIR:-$PWD/target}/debug/rigline
clients=$PWD/std-adapter
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# The first example of a README, in a project that is set up as the README says.
example() { sed -n "/^\`\`\`$1\$/,/^\`\`\`\$/p" "$clients/$1/README.md" | sed '1d;/^```$/q' | sed '/^```$/d'; }

if command -v node >/dev/null 2>&1; then
  (cd std-adapter/js && node --test --test-reporter=dot test/)
  mkdir "$folder/js"
  example js >"$folder/js/example.mjs"
  (cd "$folder/js" && npm init -y >/dev/null && npm install --silent --offline "$clients/js" && node example.mjs) | grep "^3\."
else
  echo "skipped: the JavaScript client, as there is no node"
fi
if install go golang-go; then
  (cd std-adapter/go && go vet ./... && test -z "$(gofmt -l .)" && go test ./...)
  mkdir "$folder/go"
  example go >"$folder/go/main.go"
  module=github.com/rigline/rigline/std-adapter/go
  (cd "$folder/go" && go mod init example 2>/dev/null && go mod edit -require "$module@v0.0.0" -replace "$module=$clients/go" && go run .) | grep "^0\."
else
  echo "skipped: the Go client, as there is no go, and apt-get cannot install it"
fi
