#!/usr/bin/env bash
# What is built and tested on systems other than Linux: the packages of the command, the core's tests, and the rig in a process.
# The tests of servers, ports, signals and the lab need Linux.
set -euo pipefail
cd "$(dirname "$0")/.."
cargo build -p rigline-cli
cargo test -p rigline -p rigline-macros -p rigline-rig
cargo run -q -p rigline-cli -- call sim self-test
cargo run -q -p rigline-cli -- check sim
cargo run -q -p rigline-cli -- eval run firmware-example/evals --target sim
