# Shared by .ci/run and .ci/long.
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
skipped=()
started=$SECONDS

# The compiler whose lints deny a change, and whose output the figures and the built page are. Newer ones only warn.
PINNED=1.95.0

has_compiler() { # VERSION
  [[ $'\n'$(rustup toolchain list) == *$'\n'"$1-"* ]]
}

use_pinned() {
  local instead component
  instead="$(rustc --version) is used"
  command -v rustup >/dev/null 2>&1 || { skip "Rust $PINNED" "there is no rustup; $instead"; return; }
  has_compiler "$PINNED" || rustup toolchain install "$PINNED" --profile minimal --no-self-update ||
    { skip "Rust $PINNED" "rustup cannot install it; $instead"; return; }
  # rust-analyzer brings rust-src to most machines, and the compiler then quotes the library in its errors.
  for component in clippy rustfmt rust-src; do
    rustup component add "$component" --toolchain "$PINNED" >/dev/null 2>&1 || skip "$component of Rust $PINNED" "rustup cannot install it"
  done
  export RUSTUP_TOOLCHAIN=$PINNED
}

step() { # NAME COMMAND...
  local name=$1 from=$SECONDS
  shift
  printf '\n=== %s\n' "$name"
  "$@" || { printf '=== %s: FAILED after %d s\n' "$name" $((SECONDS - from)); exit 1; }
  printf '=== %s: %d s\n' "$name" $((SECONDS - from))
}

# The same for a command that exits with 77 where it cannot be run, and says why in its last line.
step_or_skip() { # NAME COMMAND...
  local name=$1 from=$SECONDS log code=0
  shift
  log=$(mktemp)
  printf '\n=== %s\n' "$name"
  "$@" 2>&1 | tee "$log" || code=${PIPESTATUS[0]}
  case $code in
  0) printf '=== %s: %d s\n' "$name" $((SECONDS - from)) ;;
  77) skip "$name" "$(tail -n 1 "$log")" ;;
  *) printf '=== %s: FAILED after %d s\n' "$name" $((SECONDS - from)); exit 1 ;;
  esac
  rm -f "$log"
}

skip() { # NAME WHY
  printf 'SKIPPED %s: %s\n' "$1" "$2"
  skipped+=("$1: $2")
}

finish() {
  printf '\n=== all passed in %d s\n' $((SECONDS - started))
  if [ "${#skipped[@]}" -gt 0 ]; then printf 'skipped: %s\n' "${skipped[@]}"; fi
}

add_target() {
  rustup target add "$1" >/dev/null 2>&1 && return
  # Where rustup cannot reach its server: by a script that builds the target from source, if there is one beside the repository.
  local script
  for script in "${RIGLINE_ADD_TARGET:-}" ../*/toolchain/add-rust-target; do
    if [ -x "$script" ]; then "$script" "$1" && return; fi
  done
  return 1
}

install_tools() {
  add_target thumbv6m-none-eabi
  add_target wasm32-unknown-unknown
  # waza's text tests its server with nc.
  install nc netcat-openbsd || skip "waza's nc line" "there is no nc, and apt-get cannot install it"
  # The boards besides the RP2040.
  install qemu-system-arm qemu-system-arm || skip "the ARM boards in QEMU" "there is no qemu-system-arm, and apt-get cannot install it"
  install qemu-system-riscv32 qemu-system-misc || skip "the RISC-V board in QEMU" "there is no qemu-system-riscv32, and apt-get cannot install it"
  # The bench's counts of instructions.
  install valgrind valgrind || skip "counts of instructions" "there is no valgrind, and apt-get cannot install it"
  if command -v npm >/dev/null 2>&1; then (cd tests/emulator && npm ci --no-audit --no-fund --silent); fi
}

# The lists of packages are fetched once in a run.
install() { # COMMAND DEBIAN-PACKAGE...
  command -v "$1" >/dev/null 2>&1 && return
  command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ] || return
  if [ -z "${RIGLINE_APT_UPDATED:-}" ]; then
    apt-get update -qq >/dev/null 2>&1 && export RIGLINE_APT_UPDATED=yes || return
  fi
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "${@:2}" >/dev/null 2>&1
}

# The list of known mutants has the names of this version. Its build without optimisation takes a third of the time, and it waits for cargo anyway.
install_mutants() {
  cargo mutants --version >/dev/null 2>&1 || env --unset CARGO_TARGET_DIR cargo install --quiet --locked --debug --version 27.1.0 cargo-mutants
}

install_fuzz() {
  cargo fuzz --version >/dev/null 2>&1 || env --unset CARGO_TARGET_DIR cargo install --quiet --locked --debug cargo-fuzz
}

# What the tests of rigs on other hosts need: sshd, and a NATS server.
step_hosts() {
  local made log=${CARGO_TARGET_DIR:-target}/nats.log
  mkdir -p "${log%/*}"
  PATH=$PATH:/usr/sbin install sshd openssh-server openssh-client || skip "rigs over SSH" "there is no sshd, and apt-get cannot install it"
  if ! command -v python3 >/dev/null 2>&1; then
    skip "rigs over NATS" "there is no python3"
  elif made=$(.ci/nats.sh 2>"$log"); then
    export NATS_SERVER=$made
    printf '\n=== the NATS server: %s\n' "$NATS_SERVER"
  else
    skip "rigs over NATS" "its server cannot be installed: $(tail -n 1 "$log")"
  fi
}

# The real namel3ss for its tests, which the README's `cargo test` runs among the others.
step_namel3ss() {
  local made log=${CARGO_TARGET_DIR:-target}/namel3ss.log
  mkdir -p "${log%/*}"
  if ! command -v python3 >/dev/null 2>&1; then
    skip "the real namel3ss" "there is no python3"
  elif made=$(.ci/namel3ss.sh 2>"$log"); then
    export RIGLINE_NAMEL3SS_PYTHON=$made
    printf '\n=== the real namel3ss: %s\n' "$RIGLINE_NAMEL3SS_PYTHON"
  else
    skip "the real namel3ss" "it cannot be installed: $(tail -n 1 "$log")"
  fi
}
