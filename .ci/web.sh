#!/usr/bin/env bash
# The web package: what is committed is what the sources make, the vectors, and the comparison with the native build. `.ci/web.sh race` has
# the race in Chromium too. Says "skipped:" and why where something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh

cargo clippy -q -p rigline-web --target wasm32-unknown-unknown -- -D warnings
if ! command -v npm >/dev/null 2>&1; then
  echo "skipped: the web package, as there is no npm"
  exit
fi
std-adapter/web/build.sh --check
node --test --test-reporter=dot std-adapter/web/test/
.ci/web-package.sh
echo
if [ "${1:-}" = race ]; then
  if install chromium chromium; then
    node std-adapter/web/race/run.mjs --check
  else
    echo "skipped: the race, as there is no chromium, and apt-get cannot install it"
  fi
fi
