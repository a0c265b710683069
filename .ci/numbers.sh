#!/usr/bin/env bash
# The figures of the READMEs. Without an argument it measures the quick counts (sizes, stack, cycles, instructions, allocations) and
# fails when one is not that of the tables. --all measures the growth and the times, too: the growth's counts are compared, the times
# are printed. --update measures all, and writes the tables and the plots.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}
images=$out/figures
built=$out/thumbv6m-none-eabi/firmware
mkdir -p "$images"
case ${1:-} in
  "" | --all) do=check ;;
  --update) do=update ;;
  *) echo "usage: .ci/numbers.sh [--all | --update]" >&2 && exit 2 ;;
esac
build() { cargo image -q -p rigline-rig --target thumbv6m-none-eabi "$@"; }

# The firmware's, in the emulator.
if command -v node >/dev/null 2>&1; then
  build --no-default-features --features firmware,bench-images --bin cycles
  cp "$built/cycles" "$images/cycles-all"
  build --no-default-features --features bench-images --bin echo-bare --bin echo --bin engine --bin cycles
  cp "$built"/{echo-bare,echo,engine,cycles} "$images"
  for protocol in amplifier namel3ss mcp waza; do
    build --no-default-features --features "bench-images,$protocol" --bin engine
    cp "$built/engine" "$images/engine-$protocol"
  done
  build --no-default-features --features firmware --bin rig
  cp "$built/rig" "$images"
  for group in console statistics i2c counter pwm spi; do
    build --no-default-features --features "firmware,$group" --bin rig
    cp "$built/rig" "$images/rig-$group"
  done
  node tests/emulator/table.mjs "$images" >"$images/table.md"
  .ci/figures.py "$do" firmware "$images/table.md"
else
  echo "skipped: the firmware's figures, since there is no node"
fi

# The other boards', which .ci/run checks by itself.
if [ "$do" = update ]; then .ci/boards.sh --update; fi

# The times, which nothing is compared with. Each program prints a row of the bench's second table.
times() {
  "$growth" stream
  # On one processor: between two of them, how the system wakes the other one takes several times as long as the call.
  cargo build -q --release -p rigline-host --example overhead
  taskset -c 0 "$out/release/examples/overhead" 100 | grep '^|'
  # It prints its row also where it fails, which is for .ci/long to say.
  { cargo test -q --release -p rigline-eval --test eval_list -- --ignored --nocapture || true; } | grep '^|'
  cargo build -q --release --manifest-path tests/mcp/bench/Cargo.toml --target-dir "$out/mcp"
  tests/mcp/bench.py "$out/mcp/release"
}

# The bench's, on this computer.
cargo build -q --release -p rigline-bench
bench=$out/release/rigline-bench growth=$out/release/rigline-growth
if ! command -v valgrind >/dev/null 2>&1; then
  echo "skipped: counts of instructions, since there is no valgrind"
  exit
fi
"$bench" >"$out/bench.md"
if [ -n "${1:-}" ]; then times | tee "$out/times.md"; else : >"$out/times.md"; fi
case $do in
  check) .ci/figures.py check bench "$out/bench.md" ;;
  update)
    .ci/figures.py update bench "$out/bench.md" "$out/times.md"
    .ci/figures.py update mcp "$out/times.md"
    ;;
esac

# The growth: measured only on request, and drawn each time.
plots=$out/growth
mkdir -p "$plots"
case ${1:-} in
  --all)
    "$growth" measure >"$plots/growth.csv"
    .ci/figures.py check growth "$plots/growth.csv"
    ;;
  --update)
    "$growth" measure >"$plots/growth.csv"
    cp "$plots/growth.csv" tests/bench/growth.csv
    ;;
esac
"$growth" draw tests/bench/growth.csv "$plots" >"$plots/table.md"
.ci/figures.py "$do" plot "$plots"
.ci/figures.py self-test

if [ "$do" = update ]; then
  if command -v wrk >/dev/null 2>&1; then
    tests/load/run.sh | tee "$out/load.txt"
    .ci/figures.py update load "$out/load.txt"
  else
    echo "skipped: the load, since there is no wrk"
  fi
fi
