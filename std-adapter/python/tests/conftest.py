from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Iterator, List

import pytest

import rigline
from rigline import _target

pytest_plugins = ["pytester"]

# A shell that starts the tests in the background has SIGINT ignored, and a program that a test starts would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)


def volts(target: str, *, wait: float = 0.0) -> float:
    """What a connection of its own measures at 3V3."""
    with rigline.connect(target, wait=wait, start_timeout=20) as rig:
        return rig.measure(channel="3V3", timeout=20).number("volts")


@pytest.fixture
def script(tmp_path_factory: pytest.TempPathFactory) -> "Script":
    return Script(tmp_path_factory.mktemp("script"))


class Script:
    """Makes extensions out of a few lines of Python: `operate(name, args)` gives the lines that answer a call."""

    HEAD = """
import json, os, signal, sys, time
def say(message):
    sys.stdout.write((message if isinstance(message, str) else json.dumps(message)) + "\\n")
    sys.stdout.flush()
def reply(request, **result):
    say({"jsonrpc": "2.0", "id": request["id"], "result": {"success": True, **result}})
for line in sys.stdin:
    request = json.loads(line)
    method, params = request["method"], request["params"]
    if method == "initialize":
        say({"jsonrpc": "2.0", "id": request["id"], "result": {"name": "script", "version": "1.2.3", "operations": OPERATIONS}})
    elif method == "shutdown":
        say({"jsonrpc": "2.0", "id": request["id"], "result": {}})
        sys.exit()
    else:
        operation, args, context = params["operation"], params["args"], params["context"]
"""

    def __init__(self, folder: "os.PathLike[str]") -> None:
        self.folder = folder

    def target(self, body: str, operations: str = '{"op": {"params": True}}') -> str:
        path = os.path.join(self.folder, "extension.py")
        indented = "\n".join("        " + line for line in body.strip("\n").split("\n"))
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"OPERATIONS = {operations}\n{self.HEAD}{indented}\n")
        return f"exec:{sys.executable} {path}"


@pytest.fixture
def served() -> Iterator[str]:
    """The simulated rig behind a server: a target that several connections reach."""
    command = [_target.find_binary(), "serve", "sim", "--tcp", "127.0.0.1:0"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    target = re.findall(r"tcp:\S+", server.stdout.readline())[-1]
    yield target
    server.terminate()
    server.wait(10)


def board_under_emulation() -> List[str]:
    """The command that emulates a board, if there is one."""
    command = os.environ.get("RIGLINE_EMULATOR", "")
    return [command, "--until-eof"] if command else []


@pytest.fixture(scope="session")
def emulated() -> Iterator[str]:
    """An emulated board's USB serial port."""
    command = board_under_emulation()
    if not command:
        pytest.skip("RIGLINE_EMULATOR names no emulator")
    emulator = subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert emulator.stdout is not None
    target = ""
    for line in emulator.stdout:
        if line.startswith("USB"):
            target = f"serial:{line.split()[1]}"
        if line.startswith("control"):
            break
    assert target, "the emulator did not start"
    yield target
    emulator.terminate()
    emulator.wait(10)
