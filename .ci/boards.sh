#!/usr/bin/env bash
# The boards of firmware-example/boards: links their images, checks the table of their sizes, and runs those that QEMU runs.
#   .ci/boards.sh             all of it
#   .ci/boards.sh link        all but running them, which `cargo test` does where the images are
#   .ci/boards.sh build [IMAGE...]   links these images, or all
#   .ci/boards.sh --update    links all, and writes the table
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh
[ -n "${RUSTUP_TOOLCHAIN:-}" ] || use_pinned
out=${CARGO_TARGET_DIR:-target}

# An image, its target, and whether it runs here.
images=(
  "qemu-stm32f405 thumbv7em-none-eabi runs"
  "qemu-an505 thumbv8m.main-none-eabi runs"
  "qemu-riscv32 riscv32imac-unknown-none-elf runs"
  "hello-rp2040 thumbv6m-none-eabi not-run"
  "hello-rp2350 thumbv8m.main-none-eabi not-run"
  "hello-stm32f072 thumbv6m-none-eabi not-run"
  "hello-stm32f411 thumbv7em-none-eabi not-run"
  "hello-nrf52840 thumbv7em-none-eabi not-run"
  "hello-esp32c3 riscv32imc-unknown-none-elf not-run"
)

# The package of an image. The ESP32-C3's is a workspace of its own.
package() { # IMAGE
  case $1 in
  hello-esp32c3) echo --manifest-path firmware-example/esp32c3/Cargo.toml --target-dir "$out" ;;
  *) echo -p rigline-boards --features "$1" --bin "$1" ;;
  esac
}

target() { # CHIP
  local image
  for image in "${images[@]}"; do
    if [[ $image == "hello-$1 "* ]]; then image=${image#* } && echo "${image% *}"; fi
  done
}

case ${1:-} in
"") do=check ;;
link) do=check && links_only=yes && shift ;;
build) do=build && shift ;;
--update) do=update && shift ;;
*) echo "usage: .ci/boards.sh [link | build [IMAGE...] | --update]" >&2 && exit 2 ;;
esac

wanted=()
for image in "${images[@]}"; do
  read -r name target runs <<<"$image"
  if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then continue; fi
  if add_target "$target"; then
    wanted+=("$image")
  else
    skip "$name" "the target cannot be had: rustup target add $target"
  fi
done

lint() {
  local image name target runs package lib
  for image in "${wanted[@]}"; do
    read -r name target runs <<<"$image"
    read -ra package <<<"$(package "$name")"
    lib=--lib
    if [ "$name" = hello-esp32c3 ]; then
      cargo fmt --manifest-path firmware-example/esp32c3/Cargo.toml --check
      lib=
    fi
    # embassy's macro uses the parameter `_spawner` by name.
    cargo clippy -q "${package[@]}" --target "$target" $lib -- -D warnings -A clippy::used_underscore_binding
  done
}

# Clippy has a profile of its own, so that both run at once.
cargo build -q -p rigline-images
if [ "$do" = check ]; then
  lint >"$out/boards-clippy.log" 2>&1 &
  linting=$!
fi
built=()
for image in "${wanted[@]}"; do
  read -r name target runs <<<"$image"
  read -ra package <<<"$(package "$name")"
  # As `cargo image` does, which would wait for clippy.
  "$out/debug/rigline-images" --profile firmware -q "${package[@]}" --target "$target"
  built+=("$out/$target/firmware/$name:$runs")
done
if [ -n "${linting:-}" ]; then
  wait "$linting" || { cat "$out/boards-clippy.log" && exit 1; }
fi
for name in "$@"; do
  [[ " ${built[*]} " == *"/$name:"* ]] || { echo "boards.sh: no image $name: expected one of ${images[*]%% *}" >&2; exit 2; }
done
if [ "$do" = build ]; then exit; fi
if [ "${#built[@]}" = 0 ]; then finish; exit; fi

table=$out/boards.md
.ci/sizes.py "${built[@]}" | tee "$table"
if [ "${#built[@]}" = "${#images[@]}" ]; then
  .ci/figures.py "$do" boards "$table"
else
  skip "the table of sizes" "not all images could be linked"
fi
if [ "$do" = update ] || [ -n "${links_only:-}" ]; then finish; exit; fi

ready=1
for program in qemu-system-arm:qemu-system-arm qemu-system-riscv32:qemu-system-misc; do
  install "${program%:*}" "${program#*:}" || { ready=0; skip "the boards in QEMU" "there is no ${program%:*}: apt-get install ${program#*:}"; }
done
if [ "$ready" = 1 ] && [ "${#built[@]}" = "${#images[@]}" ]; then export RIGLINE_REQUIRE_BOARDS=1; fi
cargo test -q -p rigline-tests --test suite boards::

# What `rigline new` writes for each chip. Its dependencies have other features in part: not in the gate.
if [ -n "${RIGLINE_BOARDS_LONG:-}" ]; then
  folder=$(mktemp -d)
  for chip in rp2350 stm32f072 stm32f411 nrf52840 esp32c3; do
    mkdir "$folder/$chip"
    cargo run -q -p rigline-cli --bin rigline -- new --help >/dev/null
    rigline=$(realpath "$out/debug/rigline")
    (cd "$folder/$chip" && "$rigline" new my-meter --firmware "$chip" >/dev/null)
    if [ "$chip" = esp32c3 ]; then add_target riscv32imc-unknown-none-elf || continue; else cp Cargo.lock "$folder/$chip/my-meter"; fi
    # With the flags of the images: what both depend on is built once.
    flags=$(cargo run -q -p rigline-images -- --print-flags --target "$(target "$chip")" | paste -s -d $'\x1f')
    (
      export CARGO_ENCODED_RUSTFLAGS=$flags CARGO_TARGET_DIR
      CARGO_TARGET_DIR=$(realpath "$out")
      cd "$folder/$chip/my-meter" && cargo firmware -q && echo "a new project for $chip: linked"
    )
  done
  rm -rf "$folder"
fi
finish
