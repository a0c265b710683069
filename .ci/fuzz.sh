#!/usr/bin/env bash
# Fuzzes each target for the given number of seconds. Needs a nightly toolchain; cargo-fuzz is installed if it is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh
seconds=${1:-15}
if ! rustc +nightly --version >/dev/null 2>&1; then
  echo "SKIPPED fuzz: no nightly toolchain (rustup toolchain install nightly)"
  exit 0
fi
install_fuzz
# They run for seconds: optimising each at link time would take longer than it gains.
export CARGO_PROFILE_RELEASE_LTO=false CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
for target in $(cargo +nightly fuzz list --fuzz-dir tests/fuzz); do
  echo "--- $target, $seconds s"
  mkdir -p "tests/fuzz/corpus/$target"
  log=$(mktemp)
  status=0
  cargo +nightly fuzz run --fuzz-dir tests/fuzz "$target" "tests/fuzz/corpus/$target" "tests/fuzz/seeds/$target" -- \
    -dict=tests/fuzz/json.dict -max_len=4096 -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
    >"$log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    tail -n 40 "$log"
    echo "$target: failed, exit $status"
    exit 1
  fi
  grep "^stat::number_of_executed_units" "$log"
  rm -f "$log"
done
