#!/usr/bin/env bash
# Runs what the README and the guide tell a reader to run: each line that starts with `$ ` in a ```console block, in order. A line of
# output that follows must appear in what the command prints; in it, `…` stands for anything.
#   readme.sh [FILE…]   the commands of these files [default: README.md, the packages' READMEs and all chapters of the guide]
#   readme.sh --first   only the first command of README.md, and how long it took
# A chapter's `rigline` is the command of this checkout. What needs a board is in a ```sh block, which is not run.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 - "$@" <<'PYTHON'
import glob, os, re, subprocess, sys, time

first = sys.argv[1:] == ["--first"]
guide = sorted(set(glob.glob("std-adapter/src/guide/*.md") + glob.glob("std-adapter/*/src/guide/*.md")))
packages = [f"{folder}/README.md" for folder in ("core", "firmware-example", "std-adapter", *(f"std-adapter/{name}" for name in ("host", "eval", "lab", "cli")))]
files = ["README.md"] if first else sys.argv[1:] or ["README.md", *packages, *guide]
if any(file != "README.md" for file in files):
    subprocess.run(["cargo", "build", "--quiet", "--bin", "rigline"], check=True)
    os.environ["PATH"] = os.path.abspath(os.environ.get("CARGO_TARGET_DIR", "target") + "/debug") + ":" + os.environ["PATH"]
blocks = [block for file in files for block in re.findall(r"^```console\n(.*?)^```", open(file, encoding="utf-8").read(), re.S | re.M)]
failed = 0
for block in blocks:
    steps = []
    for line in block.splitlines():
        if line.startswith("$ "):
            steps.append((line[2:], []))
        elif steps and steps[-1][0].endswith("\\"):
            steps[-1] = (steps[-1][0][:-1] + line.strip(), [])
        elif steps and line.strip():
            steps[-1][1].append(line)
    for command, expected in steps:
        print(f"$ {command}", flush=True)
        began = time.monotonic()
        done = subprocess.run(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=1500)
        out = done.stdout.decode(errors="replace")
        print(out if len(out) < 6000 else out[:1000] + "\n[...]\n" + out[-5000:], flush=True)
        missing = [e for e in expected if not re.search(".*".join(map(re.escape, e.strip().split("…"))), out)]
        if done.returncode or missing:
            failed += 1
            print(f"FAILED: exit {done.returncode}, missing lines: {missing}", flush=True)
        if first:
            print(f"readme: the first command took {time.monotonic() - began:.1f} s", flush=True)
            sys.exit(failed)
sys.exit(failed)
PYTHON
