"""A gevals host as strict as the real one, from the Python standard library alone.

    gevals_host.py OPERATION ARGS [OPERATION ARGS ...] -- PROGRAM [ARGUMENTS]

Starts the program and goes through a whole session: initialize, each operation with its ARGS (JSON, null too), shutdown. Prints a
JSON line for the manifest, each log and each result, and one for the exit. Exit code 0 if all went as the real host takes it.

What it shares with the real host: lines of at most 65,535 bytes; a longer one, a blank one, one that is no JSON, a reply without
"jsonrpc":"2.0", and a reply whose id is not one of ours as a number end its reader for good; <, >, &, U+2028 and U+2029 are sent
as escapes; phase is always empty; calls are made one at a time, with 30 s each; after the reply to shutdown it waits for the exit
and leaves standard input open; stderr goes nowhere.
"""

import json
import queue
import subprocess
import sys
import threading

LONGEST = 65535


class Dead(Exception):
    """The reader has ended, and the host with it."""


class Host:
    def __init__(self, command):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0
        )
        self.replies = queue.Queue()
        self.next_id = 1
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            pending = b""
            while True:
                chunk = self.process.stdout.read(65536)
                if not chunk:
                    raise Dead("the output has ended" + (" in the middle of a line" if pending else ""))
                pending += chunk
                while b"\n" in pending:
                    line, pending = pending.split(b"\n", 1)
                    self.take(line)
                if len(pending) > LONGEST:
                    raise Dead("a line is longer than %d bytes" % LONGEST)
        except Dead as fault:
            self.replies.put(fault)

    def take(self, line):
        if len(line) > LONGEST:
            raise Dead("a line is longer than %d bytes" % LONGEST)
        if not line.strip():
            raise Dead("a blank line")
        try:
            message = json.loads(line.decode("utf-8"), parse_constant=self.no_constant)
        except ValueError as fault:
            raise Dead("not JSON: %s: %r" % (fault, line[:200])) from None
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise Dead("no JSON-RPC 2.0 message: %r" % line[:200])
        if "method" in message:
            if "id" in message:
                # A request: the real host refuses it.
                self.send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "method not found"}})
            elif message["method"] == "log":
                params = message.get("params")
                if isinstance(params, dict) and isinstance(params.get("data", {}), dict):
                    tell({"log": params})
            return
        number = message.get("id")
        if not isinstance(number, int) or isinstance(number, bool) or not 0 < number < self.next_id:
            raise Dead("a reply to nobody: %r" % line[:200])
        self.replies.put(message)

    @staticmethod
    def no_constant(name):
        raise ValueError(name)

    def send(self, message):
        text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
        for char in "<>&\u2028\u2029":
            text = text.replace(char, "\\u%04x" % ord(char))
        self.process.stdin.write(text.encode("utf-8") + b"\n")

    def call(self, method, params):
        number = self.next_id
        self.next_id += 1
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        reply = self.replies.get(timeout=30)
        if isinstance(reply, Dead):
            raise reply
        if reply["id"] != number:
            raise Dead("the reply to another request: %r" % reply)
        if reply.get("error") is not None:
            return {"error": reply["error"]}
        return {"result": reply["result"]}


def tell(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def check_result(operation, result):
    if not isinstance(result, dict) or not isinstance(result.get("success"), bool):
        raise Dead("%s: no result: %r" % (operation, result))
    outputs = result.get("outputs") or {}
    if not all(isinstance(value, str) for value in outputs.values()):
        raise Dead("%s: outputs that are not strings: %r" % (operation, outputs))


def main(arguments):
    split = arguments.index("--")
    calls, command = arguments[:split], arguments[split + 1 :]
    host = Host(command)
    try:
        manifest = host.call("initialize", {"protocolVersion": "0.0.1"})
        tell({"manifest": manifest})
        operations = manifest["result"]["operations"]
        for name, operation in operations.items():
            if operation is None or operation.get("params") is None:
                raise Dead("%s: the manifest's operation crashes the real host" % name)
        for operation, args in zip(calls[::2], calls[1::2]):
            context = {"workdir": "/tmp/task", "phase": ""}
            answer = host.call("execute", {"operation": operation, "args": json.loads(args), "context": context})
            if "result" in answer:
                check_result(operation, answer["result"])
            tell({"operation": operation, **answer})
        tell({"shutdown": host.call("shutdown", {})})
        tell({"exit": host.process.wait(timeout=10)})
        return 0 if host.process.returncode == 0 else 1
    except (Dead, queue.Empty, KeyError, subprocess.TimeoutExpired, BrokenPipeError) as fault:
        tell({"dead": "%s: %s" % (type(fault).__name__, fault)})
        host.process.kill()
        host.process.wait()
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
