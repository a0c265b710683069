#!/usr/bin/env bash
# The figures of firmware-example/README.md: builds the images and compares (or, with --update, writes) the table there.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}
images=$out/figures
built=$out/thumbv6m-none-eabi/firmware
mkdir -p "$images"
build() { cargo build -q -p rigline-rig --profile firmware --target thumbv6m-none-eabi "$@"; }

build --no-default-features --features bench-images --bin echo-bare --bin echo --bin engine --bin cycles
cp "$built"/{echo-bare,echo,engine,cycles} "$images"
for protocol in amplifier namel3ss waza; do
  build --no-default-features --features "bench-images,$protocol" --bin engine
  cp "$built/engine" "$images/engine-$protocol"
done
build --features firmware --bin rig
cp "$built/rig" "$images"
node tests/emulator/table.mjs "$images" firmware-example/README.md "$@"
