#!/usr/bin/env bash
# The core's features: it builds for a microcontroller and for a browser with none of them, with each alone, and with all;
# and it depends on the crates listed below, no more. The adapter builds with none of its features, and with each alone.
# The list of features is cargo's own, so that a new one is checked too.
set -euo pipefail
cd "$(dirname "$0")/.."

targets=(thumbv6m-none-eabi wasm32-unknown-unknown)

# What a feature may bring in addition to the dependencies that are always there.
allowed_by() {
    case $1 in
    none | alloc) ;;
    async) echo embedded-io-async ;;
    defmt) echo defmt ;;
    macros) echo rigline-macros ;;
    # Its feature use-crc wants an algorithm of the crate crc, which it does not re-export.
    postcard) echo postcard crc ;;
    serde-json-core) echo serde-json-core ;;
    *)
        echo "features: .ci/features.sh does not say what the feature $1 may depend on" >&2
        return 1
        ;;
    esac
}

fail() {
    echo "features: $*" >&2
    exit 1
}

# The features of the package in a folder.
features_of() {
    cargo metadata --no-deps --format-version 1 |
        grep -o '"features":{[^}]*},"manifest_path":"[^"]*/'"$1"'/Cargo.toml"' |
        grep -o '"[^"]*":\[' | tr -d '":[' | grep -vx -e default -e std || fail "cargo metadata names no features of $1"
}

features=$(features_of core)

for feature in none $features; do
    [ "$feature" = none ] && selected="" || selected=$feature
    for target in "${targets[@]}"; do
        echo "features: $feature on $target"
        cargo check --quiet -p rigline --no-default-features --features "$selected" --target "$target"
    done

    tree=(cargo tree -p rigline --no-default-features --features "$selected" --target "${targets[0]}" --prefix none)
    also=$(allowed_by "$feature")
    allowed=" rigline embedded-io heapless serde $also "
    direct=$("${tree[@]}" -e normal --depth 1 | cut -d' ' -f1)
    for crate in $direct; do
        [[ $allowed == *" $crate "* ]] || fail "the feature $feature brings the crate $crate"
    done
    # A macro crate runs on the host and may well use serde's derive there; codecs ask for it themselves.
    case $feature in
    postcard | serde-json-core) depth=(--depth 1) ;;
    *) depth=() ;;
    esac
    if "${tree[@]}" -e normal,features,no-proc-macro "${depth[@]}" | grep -q '^serde feature "derive"'; then
        fail "with the feature $feature the core asks for serde's derive"
    fi
done

# The standard library is there on desktops only.
echo "features: std on this machine"
cargo check --quiet -p rigline --no-default-features --features std

all=$(echo $features | tr ' ' ',')
for target in "${targets[@]}"; do
    echo "features: all but std on $target"
    cargo check --quiet -p rigline --features "$all" --target "$target"
    if cargo clippy --version >/dev/null 2>&1; then
        cargo clippy --quiet -p rigline --features "$all" --target "$target" -- -D warnings
        cargo clippy --quiet -p rigline --no-default-features --target "$target" -- -D warnings
    fi
done

for feature in none $(features_of std-adapter); do
    [ "$feature" = none ] && selected="" || selected=$feature
    echo "features: $feature of the adapter"
    cargo check --quiet -p rigline-std --no-default-features --features "$selected"
done
