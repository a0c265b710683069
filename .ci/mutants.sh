#!/usr/bin/env bash
# Mutants of the core: it is changed in one place at a time, and its own tests must notice.
#   .ci/mutants.sh all [FILE...]   those of the core, or of these files, that cargo-gamma makes: all are in one build, so that each takes about a second
# The other forms build each mutant by itself, which takes half a minute. cargo-mutants makes these; all are cut into 120 shards.
#   .ci/mutants.sh SHARD...        these shards, such as: 3 60 117
#   .ci/mutants.sh in FILE [REGEX] those of a file, and whose names match
#   .ci/mutants.sh for MINUTES     shards from the day's on, the next day others, until the time is up
#   .ci/mutants.sh today MINUTES   an eighth of one, another one each day; what is not done in this time is left out
# At least 95 % of those that compile must be noticed, of the few of a day all but two; .ci/mutants.known lists those that need not be. What is
# missed is printed, whether this fails or not: it needs a test, or a reason in that list.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh
[ -n "${RUSTUP_TOOLCHAIN:-}" ] || use_pinned
usage() { sed -n '2,8s/^# //p' "$0" >&2 && exit 2; }
[ $# -gt 0 ] || usage
mode=$1
install_mutants || { echo "there is no cargo-mutants, and cargo cannot install it: cargo install cargo-mutants --locked"; exit 77; }

out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/mutants
mkdir -p "$out" && rm -rf "$out"/{tree,run,all,caught,missed,timeout,unviable}
# A copy is changed in its place: what was built for one mutant, one shard and one run is there for the next. Its files are newer than that.
tree=$out/tree
mkdir "$tree"
git ls-files -z --cached --others --exclude-standard | while IFS= read -r -d '' file; do
  if [ -e "$file" ] || [ -L "$file" ]; then printf '%s\0' "$file"; fi
done | tar --null --files-from=- --dereference --create | tar --extract --touch --directory "$tree"
export CARGO_TARGET_DIR=$out/build
# Most of a mutant's time is its build.
export CARGO_INCREMENTAL=1
day=$(($(date +%s) / 86400))

# A name without the place in the file, which any change moves.
named() { sed -E 's/^([^:]+):[0-9]+:[0-9]+: /\1: /'; }

# The tests pass without a change: seen once.
baseline=(--minimum-test-timeout 60)
mutants() { # SECONDS OPTION...
  local seconds=$1 code=0
  shift
  rm -rf "$out/run" && mkdir "$out/run"
  # It ends by itself when it is interrupted, and tells what it has found.
  timeout --signal=INT --kill-after=60 "$seconds" cargo mutants --dir "$tree" --in-place -p rigline --all-features --output "$out/run" --colors never \
    --no-shuffle "${baseline[@]}" "$@" -- --lib --tests >"$out/log" 2>&1 || code=$?
  case $code in
  0 | 2 | 3 | 124 | 130) ;; # 2: some were missed, 3: some took too long; and those whose time was up
  *) tail -n 40 "$out/log" && exit 1 ;;
  esac
  baseline=(--baseline skip --timeout 120)
  local kind
  for kind in caught missed timeout unviable; do
    named <"$out/run/mutants.out/$kind.txt" >>"$out/$kind" || true
  done
}
shard() { # SECONDS SHARD
  mutants "$1" --shard "$2" --sharding round-robin
}

# Those that cargo-gamma makes, by the names of cargo-mutants.
gamma() { # FILE...
  if ! cargo gamma --version >/dev/null 2>&1; then
    # Its names may change until 1.0. Without optimisation it takes ten minutes to read the core.
    env --unset CARGO_TARGET_DIR CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_DEV_DEBUG=0 cargo install --quiet --locked --debug --version ^0.4 cargo-gamma ||
      { echo "there is no cargo-gamma, and cargo cannot install it: cargo install cargo-gamma --locked"; exit 77; }
  fi
  local files=() file
  for file in "$@"; do files+=(--file "$file"); done
  # It copies what git does not ignore, and the tree stands in a folder that git ignores.
  git init --quiet "$tree"
  # The tests run thousands of times, so that optimising them pays.
  (
    unset CARGO_TARGET_DIR
    export CARGO_PROFILE_DEV_OPT_LEVEL=1 CARGO_PROFILE_TEST_OPT_LEVEL=1 NO_COLOR=1
    cd "$tree" && cargo gamma run --no-config --no-relaunch --package rigline --all-features --mutators "$MUTATORS" \
      --minimum-test-timeout 5 --progress never --cache-dir "$tree/target/gamma" --artifact-dir "$out/gamma" "${files[@]}" 2>&1
  ) | grep -vE "^ *(killed|unviable|SURVIVED|TIMEOUT|Wrote)" || [ "${PIPESTATUS[0]}" = 0 ]
  cargo mutants --dir "$tree" -p rigline --all-features --list --json "${files[@]}" >"$out/mutants.json"
  python3 .ci/mutants.py "$out/gamma/gamma-report.json" "$out"
}
# What cargo-mutants does, too.
MUTATORS='fn_value,!fn_value.two,relational,arith,bitwise,shift,assign,logical.and_to_or,logical.or_to_and'
MUTATORS+=',match_guard.always_true,match_guard.always_false,match_arm,struct_field,unary'

case $1 in
all)
  shift
  gamma "$@"
  ;;
today)
  [ $# = 2 ] || usage
  # The gate has seen that the tests pass without a change.
  baseline=(--baseline skip --timeout 120)
  shard $(($2 * 60)) "$((day % 960))/960"
  ;;
for)
  [ $# = 2 ] || usage
  until=$((SECONDS + $2 * 60)) shards=0
  while [ $((until - SECONDS)) -gt 300 ] && [ $shards -lt 120 ]; do
    shard $((until - SECONDS)) "$(((day * 7 + shards) % 120))/120"
    shards=$((shards + 1))
  done
  ;;
in)
  [ $# -gt 1 ] || usage
  mutants 36000 --file "$2" ${3:+"--re=$3"}
  ;;
*)
  for shard in "$@"; do shard 36000 "${shard%/120}/120"; done
  ;;
esac
cargo mutants --dir "$tree" -p rigline --all-features --list --colors never | named >"$out/all"
touch "$out"/{caught,missed,timeout,unviable}

python3 - "$out" .ci/mutants.known "$mode" <<'PYTHON'
import pathlib, sys

out, known_file = map(pathlib.Path, sys.argv[1:3])
lines = {kind: (out / kind).read_text().splitlines() for kind in ("all", "caught", "missed", "timeout", "unviable")}
known, problems = {}, []
for line in known_file.read_text().splitlines():
    if not line.startswith("#"):
        # A change may have the sign itself, as `replace & with | in f` has.
        name, _, reason = line.rpartition(" | ")
        known[name] = reason
        if not reason.strip():
            problems.append(f"{name}: {known_file} has no reason for it")
for name in known:
    if name not in lines["all"]:
        problems.append(f"{name}: there is no such mutant: remove it from {known_file}")
    elif lines["all"].count(name) == 1 and name in lines["caught"] + lines["timeout"]:
        problems.append(f"{name}: it is noticed: remove it from {known_file}")
noticed = len(lines["caught"]) + len(lines["timeout"])
excused = [name for name in lines["missed"] if name in known]
missed = [name for name in lines["missed"] if name not in known]
viable = noticed + len(missed) + len(excused)
for name in missed:
    print(f"not noticed: {name}")
print(
    f"mutants: of {len(lines['all'])} in all, {viable + len(lines['unviable'])} were made; {viable} of these compile, and {noticed} of them are noticed"
    f" ({100 * noticed / max(viable, 1):.1f} %), {len(excused)} are known: {len(missed)} are missed"
)
if viable + len(lines["unviable"]) == 0:
    problems.append("no mutant was tried within the time")
if len(missed) > (2 if sys.argv[3] == "today" else 0.05 * viable):
    problems.append(f"{len(missed)} of {viable} are not noticed: write a test for each in core/tests or beside the code, or a reason into {known_file}")
for problem in problems:
    print(f"mutants: {problem}")
sys.exit(bool(problems))
PYTHON
