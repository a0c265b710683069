#!/usr/bin/env python3
"""The tool `sum` over rigline and over rmcp: round trip on standard input and output, memory, and size of the binary.

    cargo build --release --manifest-path tests/mcp/bench/Cargo.toml --target-dir target/mcp
    tests/mcp/bench.py [target/mcp/release]
"""

import json
import os
import statistics
import subprocess
import sys
import time

WARM, CALLS, ROUNDS = 500, 2000, 5


def line(message):
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def measure(program):
    server = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    ask = lambda message: (server.stdin.write(line(message)), server.stdin.flush(), json.loads(server.stdout.readline()))[2]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    assert "result" in ask({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    server.stdin.write(line({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sum", "arguments": {"a": 40, "b": 2}}}
    assert ask(request)["result"]["structuredContent"] == {"sum": 42}
    raw = line(request)

    def call():
        server.stdin.write(raw)
        server.stdin.flush()
        server.stdout.readline()

    for _ in range(WARM):
        call()
    rounds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        rounds.append((time.perf_counter() - start) / CALLS * 1e6)
    with open(f"/proc/{server.pid}/status") as status:
        resident = next(int(row.split()[1]) for row in status if row.startswith("VmRSS"))
    server.stdin.close()
    server.wait(10)
    return statistics.median(rounds), resident, os.path.getsize(program) / 1024


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "target/mcp/release"
    print("| the tool `sum` on standard input and output | round trip | resident memory | binary |")
    print("|---|---|---|---|")
    for name in ["rigline", "rmcp"]:
        trip, resident, size = measure(os.path.join(folder, f"sum-{name}"))
        print(f"| {name} | {trip:.1f} µs | {resident:,} KiB | {size:,.0f} KiB |")


main()
