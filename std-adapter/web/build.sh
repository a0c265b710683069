#!/usr/bin/env bash
# Builds dist/: the WebAssembly module, rigline.js with its types, and the page. `build.sh --check` builds it elsewhere, and fails where
# the committed dist/ differs; where rustc is another one than dist/ was built by, the module and the page are left out of the comparison.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
dist=$here/dist
[ "${1:-}" = --check ] && dist=$(mktemp -d) && trap 'rm -rf "$dist"' EXIT

target=${CARGO_TARGET_DIR:-../../target}
# No path of this machine in the module: it would be another one on each machine.
home=${CARGO_HOME:-$HOME/.cargo}
RUSTFLAGS="--remap-path-prefix=$home=/cargo --remap-path-prefix=$(cd ../.. && pwd)=/rigline" CARGO_INCREMENTAL=0 \
  cargo build -q --locked -p rigline-web --lib --profile web --target wasm32-unknown-unknown
if [ -d node_modules ] && [ node_modules -nt package-lock.json ]; then :; else npm ci --no-audit --no-fund --silent; fi
npx tsc -p .

mkdir -p "$dist"
find "$dist" -mindepth 1 -delete
install -m 644 "$target/wasm32-unknown-unknown/web/rigline_web.wasm" "$dist/"
rustc --version >"$dist/rustc.txt"
npx esbuild src/rigline.ts --bundle --minify --format=esm --target=es2022 --charset=utf8 --legal-comments=none --log-level=warning --outfile="$dist/rigline.js"
sed 's|\.\./\.\./js/src/index\.js|./session.js|; s|\./transports\.js|./transports.js|' target/rigline.d.ts >"$dist/rigline.d.ts"
sed 's|\.\./\.\./js/src/index\.js|./session.js|' target/transports.d.ts >"$dist/transports.d.ts"
cp ../js/src/index.d.ts "$dist/session.d.ts"

if [ -f page/package.json ]; then
  (
    cd page
    if [ -d node_modules ] && [ node_modules -nt package-lock.json ]; then :; else npm ci --no-audit --no-fund --silent; fi
    RIGLINE_DIST=$dist npm run --silent build -- --logLevel warn
  )
fi

if [ "$dist" != "$here/dist" ]; then
  exclude=()
  if ! cmp -s "$dist/rustc.txt" dist/rustc.txt; then
    echo "skipped: the module and the page, which has its name; they are of $(cat dist/rustc.txt), and here is $(rustc --version)"
    exclude=(--exclude=rigline_web.wasm --exclude=rustc.txt --exclude=assets --exclude=index.html)
  fi
  diff -r "${exclude[@]}" "$dist" dist || { echo "std-adapter/web/dist is stale: run std-adapter/web/build.sh, and commit it" >&2; exit 1; }
fi
