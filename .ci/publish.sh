#!/usr/bin/env bash
# Publishes the files that .ci/release.sh has made. A person starts it by a tag (CONTRIBUTING.md, "A release").
#   publish.sh check      whether this version can be published; sends nothing
#   publish.sh draft      makes the draft of a release with the files, on the repository's page (by gh)
#   publish.sh fetch      fetches the files of the release of this version (by gh)
#   publish.sh packages   checks, and publishes on crates.io, PyPI and npm. It can be repeated: what is there already stays
# RIGLINE_RELEASE_FOLDER names the folder [default: target/release-files].
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${RIGLINE_RELEASE_FOLDER:-${CARGO_TARGET_DIR:-$PWD/target}/release-files}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
crates=(rigline-macros rigline rigline-embassy rigline-rig rigline-std rigline-host rigline-eval rigline-lab rigline-cli)

wrong() { echo "publish: $*" >&2; problems=$((problems + 1)); }

# All problems at once.
check() {
  problems=0
  [ -z "$(git status --porcelain)" ] || wrong "there are changes that are not committed"
  [ "$(git describe --exact-match --tags --match "v$version" 2>/dev/null)" = "v$version" ] || wrong "the commit has no tag v$version"
  grep -qF "## [$version]" CHANGELOG.md || wrong "CHANGELOG.md has no section [$version]"
  local package
  for package in std-adapter/js std-adapter/web; do
    grep -qF "\"version\": \"$version\"" "$package/package.json" || wrong "$package/package.json has another version than Cargo.toml, which has $version"
  done
  if [ -f "$folder/SHA256SUMS" ]; then
    (cd "$folder" && sha256sum --check --quiet SHA256SUMS) || wrong "$folder has files with other checksums"
    python3 - "$folder/artefacts.json" "$version" "$(git rev-parse HEAD)" <<'PYTHON' || problems=$((problems + 1))
import json, sys
made = json.load(open(sys.argv[1]))
problems = [f"{file['name']}: {trial['how']}: {trial['result']}" for file in made["files"] for trial in file["trials"] if trial["result"] == "failed"]
problems += [f"{file['name']} was not tried" for file in made["files"] if not file["trials"]]
problems += [f"{what['what']} was not made: {what['why']}" for what in made["not_made"]]
if made["version"] != sys.argv[2] or made["commit"] != sys.argv[3]:
    problems.append(f"the files are those of {made['version']}, commit {made['commit']}")
counts = {}
for file in made["files"]:
    counts[file["kind"]] = counts.get(file["kind"], 0) + 1
for kind, least in {"archive": 5, "wheel": 5, "npm package": 7, "crate": 9, "SBOM": 1}.items():
    if counts.get(kind, 0) < least:
        problems.append(f"there are {counts.get(kind, 0)} files of the kind {kind}, and a release has {least}")
for problem in problems:
    print(f"publish: {problem}", file=sys.stderr)
sys.exit(bool(problems))
PYTHON
  else
    wrong "$folder has no SHA256SUMS; .ci/release.sh makes the files"
  fi
  if [ "$problems" -gt 0 ]; then return 1; fi
  echo "publish: $version can be published"
}

# The section of this version in CHANGELOG.md.
changes() { awk -v begin="## [$version]" 'index($0, begin) == 1 { on = 1; next } /^## / { on = 0 } on' CHANGELOG.md; }

case ${1:-} in
check) check ;;
draft)
  check
  changes | gh release create "v$version" --draft --verify-tag --title "rigline $version" --notes-file - "$folder"/rigline-* "$folder/SHA256SUMS" "$folder/artefacts.json"
  ;;
fetch)
  mkdir -p "$folder"
  gh release download "v$version" --dir "$folder" --clobber
  ;;
packages)
  check
  left=()
  for name in "${crates[@]}"; do
    if cargo info --quiet --registry crates-io "$name@$version" >/dev/null 2>&1; then echo "publish: $name $version is on crates.io"; else left+=("--package=$name"); fi
  done
  # Built from their files when they were made.
  if [ "${#left[@]}" -gt 0 ]; then cargo publish --no-verify "${left[@]}"; fi

  tools=$(mktemp -d)
  trap 'rm -rf "$tools"' EXIT
  python3 -m venv "$tools"
  "$tools/bin/pip" install --quiet --disable-pip-version-check uv
  # With the workflow's identity, or UV_PUBLISH_TOKEN. PyPI takes the same file again.
  "$tools/bin/uv" publish "$folder"/rigline-*.whl

  # The packages of the systems come before the one that installs them.
  for file in "$folder"/rigline-{linux,win32,darwin}-*.tgz "$folder/rigline-$version.tgz" "$folder/rigline-web-$version.tgz"; do
    name=$(tar -xzOf "$file" package/package.json | python3 -c 'import json, sys; print(json.load(sys.stdin)["name"])')
    if [ "$(npm view "$name@$version" version 2>/dev/null)" = "$version" ]; then echo "publish: $name $version is on npm"; else npm publish --access public "$file"; fi
  done
  ;;
*)
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  exit 2
  ;;
esac
