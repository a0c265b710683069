#!/usr/bin/env python3
"""Counts the lines of product code of each crate: without tests, comments and blank lines."""

import pathlib
import re

CRATES = ["core/src", "core/macros/src", "std-adapter/src", "std-adapter/host/src", "std-adapter/eval/src", "std-adapter/lab/src", "std-adapter/cli/src", "firmware-example/src", "firmware-example/embassy/src"]
TEST = re.compile(r"^( *)#\[cfg\((?:all\()?test\b[^\n]*\]\n(?: *#\[[^\n]*\]\n)* *(?:pub(?:\(\w+\))? )?mod \w+ \{\n.*?^\1\}", re.S | re.M)


def count(path):
    text = re.sub(r"/\*.*?\*/", "", TEST.sub("", path.read_text(encoding="utf-8")), flags=re.S)
    return sum(1 for line in text.splitlines() if line.strip() and not line.strip().startswith("//"))


for crate in CRATES:
    files = [p for p in pathlib.Path(crate).rglob("*.rs") if "tests" not in p.with_suffix("").parts]
    print(f"{crate:32}{sum(map(count, files)):8,}")
