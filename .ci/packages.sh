#!/usr/bin/env bash
# Who may depend on whom, held against `cargo metadata`; and that an extension's author, who depends on rigline and rigline-std and
# switches nothing off, builds none of the command's dependencies.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys

# A package, and those of this repository that it may depend on. Development dependencies, which tests and examples use, are free.
MAY = {
    "rigline-macros": [],
    "rigline": ["rigline-macros"],
    "rigline-std": ["rigline"],
    "rigline-host": ["rigline", "rigline-std"],
    "rigline-eval": ["rigline", "rigline-std", "rigline-host"],
    "rigline-lab": ["rigline", "rigline-std", "rigline-host"],
    "rigline-cli": ["rigline", "rigline-std", "rigline-host", "rigline-eval", "rigline-lab", "rigline-rig"],
    "rigline-embassy": ["rigline"],
    "rigline-rig": ["rigline", "rigline-embassy"],
    "rigline-web": ["rigline"],
}
packages = {package["name"]: package for package in json.load(sys.stdin)["packages"]}
problems = [f"{name} is not a package any more" for name in MAY if name not in packages]
for name, package in packages.items():
    used = {d["name"] for d in package["dependencies"] if d["kind"] != "dev" and d["name"] in packages}
    if name in MAY:
        problems += [f"{name} depends on {other}, which it may not" for other in sorted(used - set(MAY[name]))]
        problems += [f"{name} no longer depends on {other}: remove it from the list" for other in sorted(set(MAY[name]) - used)]
    elif package["publish"] != []:
        problems.append(f"{name} is published, and not in the list of who may depend on whom")
for problem in problems:
    print(f"packages: {problem}")
sys.exit(bool(problems))
'

# No crate of these, and no feature `process` of tokio.
foreign='^(axum|clap|jsonschema|plotters|regex|serde_json|serial2|serial2-tokio|tempfile|toml) |^tokio feature "process"'
tree=$(cargo tree -p rigline-std --edges normal,features --prefix none --target all)
if grep -E "$foreign" <<<"$tree"; then
  echo "packages: rigline-std brings these to every extension" >&2
  exit 1
fi
echo "packages: in order; an extension is built from $(cargo tree -p rigline-std --edges normal --prefix none | sort -u | grep -vc '^$') crates"
