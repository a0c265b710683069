#!/usr/bin/env bash
# MCP: the clients of the TypeScript and Python kits, of rmcp, FastMCP, mcporter and the Inspector drive the built-in rig over standard input and
# output and over HTTP, a target over TCP, and an emulated board by way of `rigline mcp`; public servers are checked; and the official conformance
# suite runs in both eras against an extension that has its tools: directly, through `rigline serve exec:…` and through `rigline mcp exec:…`. What
# passes is what the READMEs say; `update` writes it there. With
# `quick` as argument, three of the clients do so over standard input and output, and one drives the board. With a target as argument, such as serial:/dev/ttyACM0 or
# tcp:127.0.0.1:7000, the clients drive that one through `rigline mcp`, and nothing else runs.
# Says "skipped:" and why where something that it needs cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
target=${CARGO_TARGET_DIR:-$PWD/target}
work=$target/mcp
mkdir -p "$work/npm"

what=${1:-all}
if [ "$what" != quick ]; then
  command -v npm >/dev/null 2>&1 || { echo "skipped: there is no npm"; exit 0; }
  cp tests/mcp/package.json tests/mcp/client.mjs "$work/npm"
  if ! (cd "$work/npm" && npm install --no-audit --no-fund --no-package-lock --silent); then
    echo "skipped: the packages of tests/mcp/package.json cannot be installed"
    exit 0
  fi
  # The suite and the Inspector need Node 22, which the package `node` brings.
  if ! "$work/npm/node_modules/node/bin/node" --version >/dev/null 2>&1; then
    (cd "$work/npm/node_modules/node" && node installArchSpecificPackage.js >/dev/null)
  fi
  export PATH=$work/npm/node_modules/node/bin:$PATH
fi
[ -x "$work/python/bin/python" ] || "${PYTHON:-python3}" -m venv "$work/python"
if ! "$work/python/bin/pip" install -q --disable-pip-version-check -r tests/mcp/requirements.txt; then
  echo "skipped: the packages of tests/mcp/requirements.txt cannot be installed"
  exit 0
fi
cargo build -q -p rigline-cli -p rigline-std --bin rigline --example mcp_everything --features rigline-std/http
cargo build -q --manifest-path tests/mcp/rmcp/Cargo.toml --target-dir "$work" --bin rmcp-client
rigline=$target/debug/rigline

started=()
# What was started here, and nothing else.
stop() { for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done; }
trap stop EXIT

serve() { # NAME COMMAND...: starts a server, and sets `url` to what it prints
  local log=$work/$1.log
  shift
  # What an earlier run has left there is gone before it is examined.
  : >"$log"
  "$@" >"$log" 2>&1 &
  started+=($!)
  for _ in $(seq 300); do
    url=$(grep -oE '(http://|tcp:)[^ ]+' "$log" | head -n 1) && [ -n "$url" ] && return
    sleep 0.1
  done
  echo "the server did not start:" && cat "$log" && exit 1
}

inspector() { node "$work/npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js" --cli "$@"; }

says() { # TEXT WHAT INSPECTOR-ARG...: a call that fails makes the Inspector fail, too
  local text=$1 what=$2
  shift 2
  inspector "$@" >"$work/inspector.log" 2>&1 || true
  grep -q "$text" "$work/inspector.log" || { echo "inspector, $what:" && cat "$work/inspector.log" && exit 1; }
}

# The Inspector's command line makes one request and ends. Its cancellation is that it is gone.
inspect() { # TARGET... --OPTION...
  inspector "$@" --method tools/list --strict >"$work/inspector.log" || { cat "$work/inspector.log" && exit 1; }
  says '"name": "self_test"' list "$@" --method tools/list
  says '"structuredContent"' call "$@" --method tools/call --tool-name measure --tool-arg channel=3V3
  says '"passed": 6' "a longer call" "$@" --method tools/call --tool-name self_test
  says '"isError": true' "a failure" "$@" --method tools/call --tool-name measure --tool-arg channel=nope
  says 'not found' "an unknown tool" "$@" --method tools/call --tool-name no_such_tool
  timeout 5 node "$work/npm/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js" --cli "$@" \
    --method tools/call --tool-name wait_for --tool-arg channel=AUX min=9 max=10 within_ms=60000 >/dev/null 2>&1 &&
    { echo "the wait was not cut off" && exit 1; }
  echo "inspector: lists, calls, errors, goes away"
}

# mcporter's command line makes one call and ends.
port() { # OPTION TARGET...
  local call=(node "$work/npm/node_modules/mcporter/dist/cli.js" call "$@")
  ported() { # TEXT TOOL ARG...
    local text=$1
    shift
    "${call[@]}" "$@" >"$work/mcporter.log" 2>&1 || true
    grep -q -- "$text" "$work/mcporter.log" || { echo "mcporter, $*:" && cat "$work/mcporter.log" && exit 1; }
  }
  ported '"volts"' measure channel=3V3 --output json
  # A server in front of the target refuses by the schema, and the rig by its table.
  ported 'unknown channel `nope`\|"nope" is not one of' measure channel=nope
  ported 'channel: required\|"channel" is a required property' measure
  echo "mcporter: calls, failures"
}

emulate() { # starts the rig's image in the emulator, and sets `board` to where it is
  command -v node >/dev/null 2>&1 || { echo "skipped: the emulated board: there is no node" && return 1; }
  if [ ! -d tests/emulator/node_modules ] && ! (cd tests/emulator && npm ci --no-audit --no-fund --silent); then
    echo "skipped: the emulated board: the packages of tests/emulator cannot be installed" && return 1
  fi
  cargo build -q -p rigline-tests --bin emulator
  : >"$work/emulator.log"
  "$target/debug/emulator" --quiet >"$work/emulator.log" 2>&1 &
  started+=($!)
  # It may build the image first.
  for _ in $(seq 6000); do
    board=$(grep -oE '^USB .* tcp:[0-9.:]+' "$work/emulator.log" | grep -oE 'tcp:.*') && [ -n "$board" ] && return
    kill -0 "${started[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  echo "the emulator did not start:" && cat "$work/emulator.log" && exit 1
}

evals() { # TARGET: the tools for evals
  "$work/python/bin/python" tests/mcp/client.py evals "$rigline" mcp "$1" --evals firmware-example/evals --runs "$work/runs"
}

lab() { # an agent that chooses a rig of a lab
  local folder=$work/lab
  mkdir -p "$folder"
  printf '[[rig]]\nname = "r1"\ntarget = "sim"\n' >"$folder/rigs.toml"
  RIGLINE_LAB_DIR=$folder "$work/python/bin/python" tests/mcp/client.py lab "$rigline" mcp --lab
  # The agent of the lab would live on for ten minutes.
  started+=("$(RIGLINE_LAB_DIR=$folder "$rigline" lab status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["agent"]["pid"])')")
}

clients() { # stdio COMMAND... | http URL
  "$work/python/bin/python" tests/mcp/client.py "$@"
  (cd "$work/npm" && node client.mjs "$@")
  "$work/debug/rmcp-client" "$@"
  "$work/python/bin/python" tests/mcp/fast.py "$@"
  if [ "$1" = http ]; then
    port --allow-http --http-url "$2"
    inspect "$2" --transport http
  else
    shift
    port --stdio "$*"
    inspect "$@"
  fi
}

if [ "$what" = quick ]; then
  echo "--- three clients on standard input and output"
  "$work/python/bin/python" tests/mcp/client.py stdio "$rigline" mcp sim
  "$work/debug/rmcp-client" stdio "$rigline" mcp sim
  "$work/python/bin/python" tests/mcp/fast.py stdio "$rigline" mcp sim
  "$work/python/bin/python" tests/mcp/fast.py confirm "$rigline" mcp sim --confirm power
  evals sim
  lab
  if emulate; then
    echo "--- a client of the emulated board"
    "$work/debug/rmcp-client" stdio "$rigline" mcp "$board"
  fi
  exit
fi
if [ "$what" != all ] && [ "$what" != update ]; then
  echo "--- clients of $1, on standard input and output"
  clients stdio "$rigline" mcp "$@"
  exit
fi

echo "--- clients on standard input and output"
clients stdio "$rigline" mcp sim
if pgrep -f "^$rigline mcp sim" >/dev/null; then echo "a server was left behind" && exit 1; fi
"$work/python/bin/python" tests/mcp/fast.py confirm "$rigline" mcp sim --confirm power
echo "--- evals as tools"
evals sim
echo "--- a rig of the lab"
lab
echo "--- clients of a target over TCP"
serve tcp "$rigline" serve sim --tcp 127.0.0.1:0
clients stdio "$rigline" mcp "$url"
echo "--- public servers are judged by what real clients need"
servers=$work/npm/node_modules/@modelcontextprotocol
"$rigline" check "exec:node $servers/server-everything/dist/index.js" --protocol mcp --call echo '{"message":"a"}' --quiet
"$rigline" check "exec:node $servers/server-filesystem/dist/index.js $work" --protocol mcp --quiet
echo "--- clients over HTTP"
serve http "$rigline" serve sim --http 127.0.0.1:0 --protocol mcp
# First, since the Inspector leaves a call behind that goes on, as the legacy era has it.
"$rigline" check "$url" --protocol mcp --call self_test --strict --patience 20s --quiet
clients http "$url"

if emulate; then
  echo "--- clients of the emulated board"
  clients stdio "$rigline" mcp "$board"
  evals "$board"
  "$rigline" check "$board" --protocol mcp --call identify --strict --patience 20s --quiet
fi

# An extension over HTTP, `rigline serve` in front of it, and `rigline mcp` in front of it. The last one has no HTTP, which is all that the suite
# speaks: a bridge passes its messages on as they are.
everything=$target/debug/examples/mcp_everything
suite=$work/npm/node_modules/@modelcontextprotocol/conformance
: >"$work/conformance.tsv"
for way in directly serve mcp; do
  case $way in
    directly) serve everything "$everything" --http 127.0.0.1:0 ;;
    serve) serve served "$rigline" serve "exec:$everything" --http 127.0.0.1:0 --protocol mcp --evals firmware-example/evals ;;
    mcp)
      cp tests/mcp/bridge.mjs "$work/npm"
      serve bridged node "$work/npm/bridge.mjs" "$rigline" mcp "exec:$everything" --evals firmware-example/evals
      ;;
  esac
  for revision in 2026-07-28 2025-11-25; do
    echo "--- the conformance suite, $revision, $way"
    log=$work/conformance-$revision-$way.log
    # A line whose comment names ways is about these alone.
    grep -vE '#.*\bonly\b' "tests/mcp/expected-failures-$revision.yml" >"$work/expected.yml"
    grep -E "#.*\\bonly\\b.*\\b$way\\b" "tests/mcp/expected-failures-$revision.yml" >>"$work/expected.yml" || true
    (cd "$work/npm" && node "$suite/dist/index.js" server --url "$url" --requirements "$revision" \
      --expected-failures "$work/expected.yml" --output-dir "$work/conformance-$revision") >"$log" 2>&1 || { tail -n 60 "$log"; exit 1; }
    grep -E '^Total:' "$log"
    .ci/figures.py conformance "$suite/requirements/$revision.yaml" "$work/expected.yml" "$revision" "$way" >>"$work/conformance.tsv"
  done
done
.ci/figures.py "$([ "$what" = update ] && echo update || echo check)" conformance "$work/conformance.tsv"
echo "all passed"
