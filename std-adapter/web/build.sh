#!/usr/bin/env bash
# Builds dist/: the WebAssembly module, rigline.js with its types, and the page. `build.sh --check` builds it elsewhere, and fails where
# the committed dist/ differs; `build.sh --folder DIR` makes DIR, the page alone for any web server, from dist/, and packs it as DIR.zip; where rustc is another one than dist/ was built by, the module and the page are left out of the comparison.
set -euo pipefail
cd "$(dirname "$0")"
here=$PWD
dist=$here/dist
if [ "${1:-}" = --folder ]; then
  folder=${2:?the folder is missing: build.sh --folder DIR}
  cd "$OLDPWD"
  if [ -e "$folder" ] && [ ! -f "$folder/index.html" ]; then echo "$folder is there, and is not the page" >&2; exit 2; fi
  rm -rf "$folder" "$folder.zip"
  mkdir -p "$folder"
  cp -r "$here/dist/index.html" "$here/dist/assets" "$folder"
  python3 - "$folder" <<'PYTHON'
import sys, zipfile, pathlib
folder = pathlib.Path(sys.argv[1])
with zipfile.ZipFile(f"{folder}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            # Without times and owners, so that the same page is the same file.
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(folder)), (1980, 1, 1, 0, 0, 0)), path.read_bytes(), zipfile.ZIP_DEFLATED)
PYTHON
  echo "$folder and $folder.zip"
  exit
fi
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
sed -E 's#\.\./\.\./js/src/(index|rig)\.js#./session.js#' target/rigline.d.ts >"$dist/rigline.d.ts"
sed -E 's#\.\./\.\./js/src/(index|rig)\.js#./session.js#' target/transports.d.ts >"$dist/transports.d.ts"
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
