#!/usr/bin/env bash
# The firmware under hostile traffic on both wires, in the emulator: so many requests on each.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo firmware-bench
RIGLINE_REQUIRE_EMULATOR=1 RIGLINE_SOAK=${1:-10000} cargo test -p rigline-tests --test suite soak:: -- --nocapture
