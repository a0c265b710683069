#!/usr/bin/env python3
"""Draws a sheet for a stranger's reading: 60 doc comments, 60 public names, and the help of every command.

    tests/reading.py [SEED]     prints the sheet [default seed: 1]
    tests/reading.py [SEED] --answers   prints where each entry is, for those who judge the answers

Names come with their kind and signature, as the docs list them. The reader has not seen the code. For each entry the reader
writes what it means, and where one would look for it. An answer is wrong if somebody who knows the code would not act on it. Over 5 wrong answers of 120 are too many. The same seed draws the same entries as long as the
number of entries is the same. It needs the built command (`cargo build --bin rigline`) and the lists in `.ci/api`.
"""
import pathlib
import random
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SOURCES = ["core/src", "core/macros/src", "std-adapter/src", "std-adapter/host/src", "std-adapter/eval/src", "std-adapter/lab/src"]
SOURCES += ["std-adapter/cli/src/web", "firmware-example/src", "firmware-example/embassy/src"]


def module(path):
    """The module of a source file as a reader of the docs sees it, such as `rigline_host::mcp::client`."""
    package = re.search(r'^name = "(\S+)"', (ROOT / str(path.relative_to(ROOT)).split("/src/")[0] / "Cargo.toml").read_text(encoding="utf-8"), re.M)[1]
    inside = str(path.relative_to(ROOT)).split("/src/")[1].removesuffix(".rs").split("/")
    return "::".join([package.replace("-", "_"), *(part for part in inside if part not in ("lib", "mod"))])


def comments():
    """Public items with their doc comments: (place, comment, module and item)."""
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.rs")):
            if "tests" in path.parts or path.stem == "tests":
                continue
            doc, attributes, around = [], False, []
            for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
                word = line.strip()
                opened = re.match(r"(?:pub )?(struct|enum|trait|impl)\b(?:<.*?>(?= ))?(?:.* for)? (?:\w+::)*(\w+)", line)
                if word.startswith("/// ") or word == "///":
                    doc.append(word[4:])
                    continue
                if doc and (word.startswith("#[") or attributes):
                    attributes = not word.endswith("]")
                    continue
                variant = around[:1] == ["enum"] and re.match(r"[A-Z]\w*(\(|,| \{)", word)
                if doc and (re.match(r"pub (?!\()", word) or variant):
                    name = f"{around[1]}: " if around and line.startswith("    ") else ""
                    yield f"{path.relative_to(ROOT)}:{number}", " ".join(doc), f"{module(path)}, {name}{word.rstrip('{ ,')}"
                if opened:
                    around = [opened[1], opened[2]]
                if line == "}":
                    around = []
                doc, attributes = [], False


def names():
    """Public types, traits, functions and modules: the kind, the path, and what a function takes and returns."""
    for listed in sorted((ROOT / ".ci/api").glob("*.txt")):
        for line in listed.read_text(encoding="utf-8").split("\n"):
            found = re.match(r"(?:#\[\S+\] )?pub ((?:const |async |unsafe )*(?:mod|struct|enum|trait|fn|type|macro) ([\w:]+).*)", line)
            if found and found[2].startswith("rigline") and not found[2].endswith(("::fmt", "::drop", "::clone", "::eq", "::hash")):
                yield found[1].rstrip(":")


def commands(words=()):
    """The help of every command, the hidden ones too."""
    run = subprocess.run([ROOT / "target/debug/rigline", *words, "--help"], capture_output=True, text=True, check=True)
    yield words, run.stdout
    if not words:
        hidden = ["bridge", "descriptor", "events", "gevals-shim", "jsonrpc", "man", "mcp", "mcp-config", "namel3ss-shim", "rig", "targets"]
        listed = re.findall(r"^  ([a-z0-9-]+) ", run.stdout, re.M)
    else:
        hidden = []
        inside = re.search(r"^Commands:\n(.*?)\n\n", run.stdout, re.M | re.S)
        listed = re.findall(r"^  ([a-z0-9-]+) ", inside[1], re.M) if inside else []
    for name in dict.fromkeys([*listed, *hidden]):
        if name != "help":
            yield from commands((*words, name))


def main():
    options = [word for word in sys.argv[1:] if word.startswith("-")]
    seeds = [int(word) for word in sys.argv[1:] if not word.startswith("-")]
    if options not in ([], ["--answers"]) or len(seeds) > 1:
        sys.exit(__doc__)
    choice = random.Random(seeds[0] if seeds else 1)
    documented = list(comments())
    drawn = choice.sample(documented, 60), choice.sample(sorted(set(names())), 60)
    print("# 60 doc comments\n")
    for number, (place, comment, item) in enumerate(drawn[0], 1):
        print(f"{number}. `{item}`: {comment}" + (f" ({place})" if options else ""))
    print("\n# 60 names\n")
    for number, name in enumerate(drawn[1], 61):
        print(f"{number}. `{name}`")
    if options:
        return
    print("\n# Help\n")
    for words, text in commands():
        print(f"## rigline {' '.join(words)}\n\n```text\n{text.strip()}\n```\n")


main()
