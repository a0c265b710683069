#!/usr/bin/env bash
# Runs what the README tells a reader to run: each line that starts with `$ ` in its ```console blocks, in order, each block in
# one shell. With --first, only the first of them, and how long it took. A line of output that follows must appear in what the command prints, but for `…`, which means anything.
set -euo pipefail
cd "$(dirname "$0")/.."
exec python3 - "${1:-}" <<'PYTHON'
import re, subprocess, sys, time

first = sys.argv[1] == "--first"
file = "README.md" if first else sys.argv[1] or "README.md"
blocks = re.findall(r"^```console\n(.*?)^```", open(file, encoding="utf-8").read(), re.S | re.M)
failed = 0
for block in blocks:
    command, expected = "", []
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
