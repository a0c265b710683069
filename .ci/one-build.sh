#!/usr/bin/env bash
# After `cargo test`, `cargo run` must find everything built: a dependency whose features differ between the two is built twice.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo test --no-run --quiet
built=$(cargo build --bin rigline 2>&1 | grep -E '^ +Compiling' | grep -v 'rigline' || true)
if [ -n "$built" ]; then
  printf 'one-build: cargo run builds these again; give them the same features in [dependencies] and [dev-dependencies]:\n%s\n' "$built"
  exit 1
fi
echo "one-build: nothing is built twice"
