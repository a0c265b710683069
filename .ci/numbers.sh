#!/usr/bin/env bash
# The figures of the READMEs. Without an argument it measures the counts (sizes, stack, cycles, instructions, allocations) and fails
# when one is not that of the tables. --update writes the tables, the times and the load beside them.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}
images=$out/figures
built=$out/thumbv6m-none-eabi/firmware
mkdir -p "$images"
build() { cargo build -q -p rigline-rig --profile firmware --target thumbv6m-none-eabi "$@"; }

# The firmware's, in the emulator.
if command -v node >/dev/null 2>&1; then
  build --features firmware,bench-images --bin cycles
  cp "$built/cycles" "$images/cycles-all"
  build --no-default-features --features bench-images --bin echo-bare --bin echo --bin engine --bin cycles
  cp "$built"/{echo-bare,echo,engine,cycles} "$images"
  for protocol in amplifier namel3ss mcp waza; do
    build --no-default-features --features "bench-images,$protocol" --bin engine
    cp "$built/engine" "$images/engine-$protocol"
  done
  build --features firmware --bin rig
  cp "$built/rig" "$images"
  node tests/emulator/table.mjs "$images" firmware-example/README.md "$@"
else
  echo "skipped: the firmware's figures, since there is no node"
fi

# The bench's, on this computer.
cargo build -q --release -p rigline-bench
"$out/release/rigline-bench" >"$out/bench.md"
.ci/figures.py "$out/bench.md" "$@"
if [ "${1:-}" = --update ]; then
  if command -v wrk >/dev/null 2>&1; then
    tests/load/run.sh | tee "$out/load.txt"
    .ci/figures.py --load "$out/load.txt"
  else
    echo "skipped: the load, since there is no wrk"
  fi
fi
