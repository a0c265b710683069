#!/usr/bin/env bash
# The layers in core/src and in the packages of std-adapter. ARCHITECTURE.md draws them, bottom to top, in its blocks ```layers CRATE; this script reads
# them there, and fails on an import that points up, on modules that import each other in a circle, on a module that no layer
# has, and on a protocol's name outside its own files. What is known and not fixed yet is listed in .ci/layers.known, with the
# reason; an entry there that is no longer true fails too, so that the list only shrinks.
#
#   .ci/layers.sh            the check
#   .ci/layers.sh --graph    prints which module imports which
#   .ci/layers.sh --lower    lowers the counts in .ci/layers.known, and removes what is no longer true
#   .ci/layers.sh --self-test    proves that each kind of fault is found, on a copy with the fault put in
set -euo pipefail
cd "$(dirname "$0")/.."
if [ "${1:-}" = --self-test ]; then
    copy=$(mktemp -d)
    trap 'rm -rf "$copy"' EXIT
    # What is not committed yet is meant, too.
    fresh() { rm -rf "${copy:?}"/* && mkdir -p "$copy/.ci" && cp -r ARCHITECTURE.md core std-adapter "$copy" && mkdir -p "$copy/firmware-example/esp32c3" && cp -r firmware-example/boards "$copy/firmware-example" && cp -r firmware-example/esp32c3/{build.rs,src} "$copy/firmware-example/esp32c3" && cp .ci/layers* "$copy/.ci"; }
    caught() { # NAME WHAT-IS-SAID
        if said=$("$copy/.ci/layers.sh" 2>&1); then echo "self-test: $1 is not found" && exit 1; fi
        grep -qF -- "$2" <<<"$said" || { echo "self-test: $1: said instead: $said" && exit 1; }
        echo "self-test: $1 is found"
    }
    fresh && "$copy/.ci/layers.sh" >/dev/null
    fresh && sed -i '1i use crate::engine::Engine;' "$copy/core/src/frame/mod.rs"
    caught "an upward import" "frame imports engine, which is above it"
    fresh && printf 'fn f() { let _ = super::super::serve::blocking::serve; }\n' >>"$copy/core/src/json/number.rs"
    caught "an upward path" "json imports serve, which is above it"
    fresh && sed -i '1i use crate::{duration::GoDuration, engine::{self, Engine}};' "$copy/core/src/event.rs"
    caught "an upward import in braces" "event imports engine, which is above it"
    fresh && printf 'use super::stop;\n' >>"$copy/std-adapter/src/stdio/other.rs" && printf 'use super::other;\n' >>"$copy/std-adapter/src/stdio/stop.rs"
    caught "a circle in a folder" "a circle in stdio"
    fresh && printf 'const WORD: &str = "namel3ss";\n' >>"$copy/core/src/frame/mod.rs"
    caught "a protocol's name" "core/src/frame/mod.rs names protocols"
    fresh && printf '//! New.\n' >"$copy/core/src/newcomer.rs"
    caught "a module without a layer" "core: newcomer has no layer"
    fresh && echo 'core: frame imports engine: not true' >>"$copy/.ci/layers.known"
    caught "a stale exception" "is no longer true"
    exit
fi
exec python3 - "$@" <<'PYTHON'
import pathlib, re, sys

PROTOCOLS = ["gevals", "amplifier", "namel3ss", "waza", "mcp"]
# Where a protocol may be named: `{}` is its name. waza's desktop side is the package rigline-eval, and its command `rigline eval`.
# Besides: the registries, and the table of what other eval runners have: their files, and the members and graders of those.
OWN = {
    "core": ["protocol/", "client/", "lib.rs"],
    "std": ["{}/", "{}.rs", "lib.rs", "guide.rs", "path.rs"],
    "host": ["{}/", "lib.rs", "guide.rs", "protocols.rs", "choose.rs"],
    "eval": ["foreign.rs"],
    "lab": [],
    "cli": ["lib.rs", "bin/rigline/protocols/{}", "bin/rigline/protocols/mod.rs", "bin/rigline/protocols/install.rs", "bin/rigline/protocols/spelling.rs"],
}
ALSO = {("eval", "waza"): [""], ("cli", "waza"): ["bin/rigline/eval.rs", "bin/rigline/eval/", "bin/rigline/junit.rs"]}
CRATES = {"core": "core/src", "std": "std-adapter/src", "host": "std-adapter/host/src", "eval": "std-adapter/eval/src", "lab": "std-adapter/lab/src", "cli": "std-adapter/cli/src"}
problems, known = [], {}
known_file = pathlib.Path(".ci/layers.known")


def code(path):
    """The file's text without comments, strings' insides kept, and without its tests."""
    text = path.read_text(encoding="utf-8")
    text = re.sub(r"^#\[cfg\((?:all\()?test\b[^\]]*\]\s*\n(?:#\[.*\]\n)*mod \w+ \{$.*?^\}", "", text, flags=re.S | re.M)
    text = re.sub(r"^\s*#\[cfg\(test\)\]\s*\n\s*mod \w+;", "", text, flags=re.M)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    # Help is documentation.
    text = re.sub(r'after_help = "(?:[^"\\]|\\.)*"', "", text)
    return re.sub(r"(?m)(?<![:\"'])//.*$", "", text)


def paths_of_use(tree, prefix=()):
    """The paths of a use tree: `a::{b, c::d}` has `a::b` and `a::c::d`."""
    tree = re.sub(r"\s+as\s+\w+", "", tree.strip())
    if "{" not in tree:
        yield (*prefix, *[part.strip() for part in tree.split("::") if part.strip()])
        return
    head, rest = tree.split("{", 1)
    inside, depth, item = rest.rsplit("}", 1)[0], 0, ""
    prefix = (*prefix, *[part.strip() for part in head.split("::") if part.strip()])
    for sign in inside + ",":
        depth += (sign == "{") - (sign == "}")
        if sign == "," and depth == 0:
            if item.strip():
                yield from paths_of_use(item, prefix)
            item = ""
        else:
            item += sign


class Crate:
    def __init__(self, name, root):
        self.name, self.root = name, pathlib.Path(root)
        self.files = {p: self.module(p) for p in sorted(self.root.rglob("*.rs")) if not self.is_test(p)}
        self.modules = set(self.files.values())
        self.texts = {p: code(p) for p in self.files}
        self.reexports = {}
        for use in re.findall(r"pub use ([^;]+);", self.texts[self.root / "lib.rs"]):
            for path in paths_of_use(use):
                if path[0] != "rigline_macros":
                    self.reexports[path[-1]] = path[:-1]

    def is_test(self, path):
        return path.stem == "tests" or "tests" in path.parts

    def module(self, path):
        parts = list(path.relative_to(self.root).with_suffix("").parts)
        if parts[0] == "bin":
            # The command is a crate: its modules stand above all of the library's.
            parts = ["bin", *parts[2:]]
        if parts[-1] in ("mod", "lib", "main"):
            parts = parts[:-1]
        if parts[:1] == ["macro_support"]:
            parts[0] = "__private"
        return tuple(parts)

    def imports(self):
        """(file's module, imported module), both as deep as they are known."""
        for path, module in self.files.items():
            text = self.texts[path]
            uses = re.findall(r"\buse ([^;]+);", text)
            found = {p for use in uses for p in paths_of_use(use)}
            rest = re.sub(r"\buse [^;]+;", "", text)
            found |= {tuple(p.split("::")) for p in re.findall(r"\b(?:crate|super|self|rigline_cli)(?:::\w+)+", rest)}
            for target in found:
                resolved = self.resolve(module, list(target))
                if resolved is not None and resolved != module:
                    yield module, resolved

    def resolve(self, module, path):
        """The module of this package that a path names; none for a path into another package, which cargo checks."""
        in_command = module[:1] == ("bin",)
        if path[0] == "rigline_cli" and in_command:
            base, path = [], path[1:]
        elif path[0] == "crate":
            base, path = (["bin"] if in_command else []), path[1:]
        elif path[0] in ("super", "self"):
            base = list(module)
            while path and path[0] in ("super", "self"):
                if path[0] == "super":
                    if not base:
                        return None
                    base.pop()
                path = path[1:]
        elif (*module, path[0]) in self.modules and len(path) > 1:
            base = list(module)
        else:
            return None
        if not base and path and path[0] in self.reexports and (path[0],) not in self.modules:
            base, path = list(self.reexports[path[0]]), []
        while path and (*base, path[0]) in self.modules:
            base.append(path.pop(0))
        return tuple(base)


def layers(crate):
    text = pathlib.Path("ARCHITECTURE.md").read_text(encoding="utf-8")
    block = re.search(rf"^```layers {re.escape(crate)}\n(.*?)^```", text, re.S | re.M)
    if not block:
        sys.exit(f"layers: ARCHITECTURE.md has no block ```layers {crate}")
    rows = [re.findall(r"[\w/]+", line.split("  #")[0]) for line in block[1].splitlines() if line.strip()]
    return {name: level for level, row in enumerate(rows) for name in row}


def circles(edges):
    """The strongly connected components of more than one node."""
    nodes = sorted({n for edge in edges for n in edge})
    reach = {n: {b for a, b in edges if a == n} for n in nodes}
    for middle in nodes:
        for n in nodes:
            if middle in reach[n]:
                reach[n] |= reach[middle]
    seen = set()
    for n in nodes:
        circle = sorted(m for m in reach[n] if n in reach[m])
        if len(circle) > 1 and n not in seen:
            seen.update(circle)
            yield circle


found = {}
for crate in [Crate(name, root) for name, root in CRATES.items()]:
    level = layers(crate.name)
    edges = set(crate.imports())

    def top(module):
        """The layer's name for a module: `protocol/format`, where that has a layer of its own, or the module at the top."""
        inner = "/".join(module[:2])
        return inner if inner in level else module[0]

    tops = sorted({(top(a), top(b)) for a, b in edges if a and b and top(a) != top(b)})
    if "--graph" in sys.argv:
        for a in sorted({a for a, _ in tops}):
            print(f"{crate.name}: {a} -> {', '.join(b for x, b in tops if x == a)}")
    for module in sorted({top(m) for m in crate.modules if m}):
        if module not in level:
            found[f"{crate.name}: {module} has no layer"] = None
    for module in level:
        if tuple(module.split("/")) not in crate.modules:
            found[f"{crate.name}: there is no module {module}, which has a layer"] = None
    for a, b in tops:
        if level.get(b, 0) > level.get(a, 99):
            found[f"{crate.name}: {a} imports {b}, which is above it"] = None
    # Up is reported above; circles that point down or sideways only, and those of a folder.
    flat = [(a, b) for a, b in tops if level.get(b, 0) <= level.get(a, 99)]
    for circle in circles(flat):
        found[f"{crate.name}: a circle: {', '.join(circle)}"] = None
    for folder in sorted({m[:-1] for m in crate.modules if len(m) > 1}):
        depth = len(folder) + 1
        inner = {(a[:depth], b[:depth]) for a, b in edges if len(a) >= depth and len(b) >= depth and a[:-1][: depth - 1] == folder == b[: depth - 1]}
        for circle in circles([(a[-1], b[-1]) for a, b in inner if a != b]):
            found[f"{crate.name}: a circle in {'/'.join(folder)}: {', '.join(circle)}"] = None
    for path, text in crate.texts.items():
        relative = path.relative_to(crate.root).as_posix()
        count = 0
        for protocol in PROTOCOLS:
            own = [place.format(protocol) for place in OWN[crate.name]] + ALSO.get((crate.name, protocol), [])
            if not any(relative.startswith(place) for place in own):
                count += len(re.findall(protocol, text, re.I))
        if count:
            found[f"{path.as_posix()} names protocols"] = count

entries = []
for line in known_file.read_text(encoding="utf-8").splitlines():
    if not line.strip() or line.startswith("#"):
        entries.append((None, None, line))
        continue
    match = re.fullmatch(r"(.+?)(?: \((\d+)\))?: ([^:]*[^:\s][^:]*)", line)
    if not match:
        sys.exit(f"layers: .ci/layers.known: no reason: {line}")
    entries.append((match[1], match[2] and int(match[2]), line))
    known[match[1]] = match[2] and int(match[2])
for fault, count in sorted(found.items()):
    if fault not in known:
        problems.append(fault + (f" ({count} times)" if count else ""))
    elif count and known[fault] is not None and count > known[fault]:
        problems.append(f"{fault}: {count} times, and {known[fault]} are known")
stale = {f for f in known if f not in found or (found[f] and known[f] is not None and found[f] < known[f])}
if "--lower" in sys.argv:
    lines = []
    for fault, count, line in entries:
        if fault in stale and fault not in found:
            continue
        lines.append(line.replace(f"({count})", f"({found[fault]})") if fault in stale else line)
    known_file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    stale = set()
for fault in sorted(stale):
    now = f", but {found[fault]} times" if fault in found else ""
    problems.append(f".ci/layers.known: `{fault}` is no longer true{now}: run .ci/layers.sh --lower")
for problem in problems:
    print(f"layers: {problem}")
if problems:
    sys.exit(1)
print(f"layers: in order, but for {len(known)} known exceptions")
PYTHON
