#!/usr/bin/env bash
# The page of `rigline web` in real Chromium: by WebSocket against the simulated rig, and by Web Serial against the emulated board. Installs
# what it needs where it may, and says what it skips and why. Pictures of the page's states go to target/web-pictures.
# `.ci/web-tests.sh NAME …` runs these test files only, such as `.ci/web-tests.sh live`.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=.ci/lib.sh
source .ci/lib.sh

chromium=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$chromium" ]; then
  install chromium chromium || { echo "skipped: the page in Chromium, as there is no chromium, and apt-get cannot install it"; exit 0; }
  chromium=$(command -v chromium)
fi
export CHROMIUM=$chromium
command -v npm >/dev/null 2>&1 || { echo "skipped: the page in Chromium, as there is no npm"; exit 0; }
# The tests of the chart build it from its sources.
for package in std-adapter/web/tests std-adapter/web std-adapter/web/page; do
  [ "$package" != std-adapter/web/tests ] && [ -d $package/node_modules ] && [ $package/node_modules -nt $package/package-lock.json ] && continue
  (cd $package && npm ci --no-audit --no-fund --silent)
done

target=${CARGO_TARGET_DIR:-target}
cargo build -q -p rigline-cli
export RIGLINE_BINARY=$PWD/$target/debug/rigline
[ "${target#/}" = "$target" ] || RIGLINE_BINARY=$target/debug/rigline

# Web Serial needs a USB device, which umockdev pretends; a policy that opens it without a person, which only root may write; and the image.
why=
policy=/etc/chromium/policies/managed/rigline-web-tests.json
ports=$(seq -s, 18090 18105)
if ! install umockdev-wrapper umockdev python3-gi gir1.2-umockdev-1.0; then why="there is no umockdev, and apt-get cannot install it"
elif ! /usr/bin/python3 -c 'import gi; gi.require_version("UMockdev", "1.0")' 2>/dev/null; then why="Python has no gi of umockdev"
elif ! command -v cc >/dev/null 2>&1; then why="there is no C compiler"
elif ! rustup target list --installed 2>/dev/null | grep -qx thumbv6m-none-eabi; then why="the target thumbv6m-none-eabi is not installed"
elif ! mkdir -p "${policy%/*}" 2>/dev/null || ! [ -w "${policy%/*}" ]; then why="${policy%/*} cannot be written"
fi
if [ -n "$why" ]; then
  echo "skipped: Web Serial, as $why"
else
  urls=$(seq -f '"http://127.0.0.1:%.0f"' 18090 18105 | paste -sd,)
  # The same text in every run: runs at the same time do not disturb each other.
  printf '{"SerialAllowAllPortsForUrls":[%s],"SerialAllowUsbDevicesForUrls":[{"devices":[{"vendor_id":5824,"product_id":10205}],"urls":[%s]}]}\n' "$urls" "$urls" >"$policy.$$"
  mv "$policy.$$" "$policy"
  (cd tests/emulator && npm ci --no-audit --no-fund --silent)
  cargo build -q -p rigline-tests --bin emulator
  [ -f "$target/thumbv6m-none-eabi/firmware/rig" ] || cargo -q firmware
  export RIGLINE_WEB_SERIAL=$ports
fi

cd std-adapter/web/tests
files=(*.test.mjs)
if [ $# -gt 0 ]; then files=("${@/%/.test.mjs}"); fi
# Each has a browser of its own. Two of them are as many as two cores draw in time.
node --test --test-concurrency=2 --test-reporter=spec "${files[@]}"
