#!/usr/bin/env python3
"""The tool `sum` over rigline and over rmcp: round trip on standard input and output, memory, and size of the binary.

Both servers run at the same time and take turns. Prints a table, and the round trip as a row of tests/bench/README.md;
`.ci/numbers.sh --update` writes both. Run it by hand like this:

    cargo build --release --manifest-path tests/mcp/bench/Cargo.toml --target-dir target/mcp
    tests/mcp/bench.py [target/mcp/release]
"""

import json
import os
import statistics
import subprocess
import sys
import time

WARM, CALLS, ROUNDS = 500, 500, 21


def line(message):
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


class Server:
    def __init__(self, program):
        self.program, self.rounds = program, []
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        assert "result" in self.ask(line({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}))
        self.process.stdin.write(line({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        self.call = line({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "sum", "arguments": {"a": 40, "b": 2}}})
        assert self.ask(self.call)["result"]["structuredContent"] == {"sum": 42}

    def ask(self, message):
        self.process.stdin.write(message)
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def repeat(self, count):
        """Seconds a call."""
        write, flush, read = self.process.stdin.write, self.process.stdin.flush, self.process.stdout.readline
        start = time.perf_counter()
        for _ in range(count):
            write(self.call)
            flush()
            read()
        return (time.perf_counter() - start) / count

    def end(self):
        """Microseconds of a round trip, KiB of resident memory, KiB of the binary."""
        with open(f"/proc/{self.process.pid}/status") as status:
            resident = next(int(row.split()[1]) for row in status if row.startswith("VmRSS"))
        self.process.stdin.close()
        self.process.wait(10)
        return statistics.median(self.rounds) * 1e6, resident, os.path.getsize(self.program) / 1024


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "target/mcp/release"
    servers = {name: Server(os.path.join(folder, f"sum-{name}")) for name in ["rigline", "rmcp"]}
    for server in servers.values():
        server.repeat(WARM)
    for _ in range(ROUNDS):
        for server in servers.values():
            server.rounds.append(server.repeat(CALLS))
    measured = {name: server.end() for name, server in servers.items()}
    print("| the tool `sum` on standard input and output | round trip | resident memory | binary |")
    print("|---|---:|---:|---:|")
    for name, (trip, resident, size) in measured.items():
        print(f"| {name} | {trip:.1f} µs | {resident:,} KiB | {size:,.0f} KiB |")
    ours, theirs = measured["rigline"][0], measured["rmcp"][0]
    print(
        f"\n| MCP, the tool `sum` on standard input and output, wall clock | rmcp: {theirs:.1f} µs | rigline: {ours:.1f} µs "
        f"| {theirs / ours:.2f}x | at least 1x | at least 1x |"
    )


main()
