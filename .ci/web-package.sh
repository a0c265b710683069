#!/usr/bin/env bash
# The package rigline-web, packed and installed in a fresh project: what is in it, its types under `tsc --strict`, Node, and a bundler.
set -euo pipefail
cd "$(dirname "$0")/../std-adapter/web"
project=$(mktemp -d)
trap 'rm -rf "$project"' EXIT

npm pack --silent --pack-destination "$project" >/dev/null
tarball=$(echo "$project"/rigline-web-*.tgz)
cp consumer/* "$project"
(
  cd "$project"
  tar -tzf "$tarball" | sed 's#^package/##' | sort >contents
  for file in LICENSE-APACHE LICENSE-MIT README.md dist/rigline.d.ts dist/rigline.js dist/rigline_web.wasm dist/session.d.ts dist/transports.d.ts package.json; do
    grep -qx "$file" contents || { echo "the package lacks $file" >&2; exit 1; }
  done
  # Each file that a declaration names is there.
  tar -xzf "$tarball"
  grep -hoE "from '\./[^']+'" package/dist/*.d.ts | sed -E "s#from '\./(.*)\.js'#dist/\1.d.ts#" | sort -u | while read -r named; do
    grep -qx "$named" contents || { echo "the package lacks $named, which its types name" >&2; exit 1; }
  done
  # Links of a README that is read elsewhere lead nowhere unless they are whole addresses.
  if grep -nE '\]\((\.|/|[^)#:]+\))' package/README.md; then echo "README.md has links that are dead outside of the repository" >&2; exit 1; fi
  rm -rf package
  npm install --silent --no-audit --no-fund --offline "$tarball"
)
node_modules/.bin/tsc -p "$project"
(cd "$project" && node consumer.mjs)
page/node_modules/.bin/vite build --logLevel warn --base ./ --outDir "$project/out" "$project"
ls "$project"/out/assets/*.wasm >/dev/null || { echo "the bundler has left the module out" >&2; exit 1; }
node "$project/bundled.mjs" "$project"/out/assets/*.js
echo "rigline-web: packed, typed, run in Node, and bundled"
