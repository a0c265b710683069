"""The client against the vectors that every client is held to: tests/vectors."""

from __future__ import annotations

import json
import socket
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

import rigline
from rigline import _duration, _json
from rigline._measure import Measurement

VECTORS = Path(__file__).resolve().parents[3] / "tests" / "vectors"


def vectors(name: str) -> List[Any]:
    cases: List[Any] = json.loads((VECTORS / name).read_text(encoding="utf-8"))
    assert len(cases) > 4
    return cases


def line_bytes(line: Any, number: str) -> bytes:
    if isinstance(line, str):
        line = {"text": line}
    end = b"\n" if line.get("newline", True) else b""
    return bytes.fromhex(line.get("hex", "")) + line.get("text", "").replace("$ID", number).encode() + end


class Peer:
    """Answers `initialize`, and one call with given lines. Remembers the call and what came after it."""

    def __init__(self, lines: List[Any], operation: str) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"tcp:127.0.0.1:{self._listener.getsockname()[1]}"
        self.call: Any = None
        self.sent: List[Any] = []
        self._thread = threading.Thread(target=self._serve, args=(lines, operation))
        self._thread.start()

    def _serve(self, lines: List[Any], operation: str) -> None:
        stream, _ = self._listener.accept()
        self._listener.close()
        with stream, stream.makefile("rb") as reader:
            opening = json.loads(reader.readline())
            manifest = {"name": "peer", "version": "1.0.0", "operations": {operation: {"params": True}}}
            reply = {"jsonrpc": "2.0", "id": opening["id"], "result": manifest}
            stream.sendall(json.dumps(reply).encode() + b"\n")
            request = reader.readline()
            if request:
                self.call = json.loads(request)
                for line in lines:
                    stream.sendall(line_bytes(line, str(self.call["id"])))
                stream.shutdown(socket.SHUT_WR)
                self.sent = [json.loads(line) for line in reader]

    def finish(self) -> None:
        self._thread.join(10)
        assert not self._thread.is_alive()


def call(lines: List[Any]) -> Tuple[Dict[str, Any], Peer]:
    peer = Peer(lines, "op")
    rig = rigline.connect(peer.target)
    logs: List[rigline.Log] = []
    rig.on_log(logs.append)
    gives: Dict[str, Any]
    try:
        result = rig.op()
        gives = {"kind": "success", "message": result.message, "outputs": dict(result.outputs)}
    except rigline.OperationFailed as error:
        gives = {"kind": "failed", "error": error.message, "outputs": dict(error.result.outputs)}
    except rigline.ConnectionLost:
        gives = {"kind": "lost"}
    except rigline.RigError as error:
        gives = {"kind": "invalid"}
        if error.refused:
            gives = {"kind": "refused", "error": error.message.replace(f" ({error.code})", ""), "code": error.code}
    rig.close()
    peer.finish()
    gives["logs"] = [{"level": log.level, "message": log.message, "data": log.data} for log in logs]
    gives["sends"] = peer.sent
    return gives, peer


@pytest.mark.parametrize("case", vectors("calls.json"), ids=lambda case: case["name"])
def test_a_call_gives_what_the_vectors_say(case: Any) -> None:
    gives, _ = call(case["lines"])
    wanted = case["gives"]
    # What is not fit for a terminal is shown as an escape sequence.
    if "message" in wanted:
        wanted["message"] = _json.printable(wanted["message"])
    assert gives == wanted
    assert list(gives.get("outputs", ())) == list(wanted.get("outputs", ()))


@pytest.mark.parametrize("case", vectors("requests.json"), ids=lambda case: case["name"])
def test_a_request_is_what_the_vectors_say(case: Any) -> None:
    wanted = case["call"]
    peer = Peer(['{"jsonrpc":"2.0","id":$ID,"result":{"success":true}}'], wanted["operation"])
    context = rigline.Context(workdir=wanted["workdir"], phase=wanted.get("phase", ""), env=wanted.get("env"))
    with rigline.connect(peer.target) as rig:
        rig.call(wanted["operation"], wanted["args"], timeout=wanted["timeout"], context=context)
    peer.finish()
    assert peer.call["params"] == case["params"]


@pytest.mark.parametrize("case", vectors("numbers.json"), ids=lambda case: ascii(case["text"]))
def test_a_number_is_judged_as_the_vectors_say(case: Any) -> None:
    result = rigline.Result("op", "", {"x": case["text"]})
    if case["number"] is None:
        for read in (result.number, result.decimal, result.integer):
            with pytest.raises(ValueError, match="is not a"):
                read("x")
        return
    wanted, less, more = (Decimal(case[name]) for name in ("number", "less", "more"))
    number = result.number("x")
    assert result.decimal("x") == wanted
    assert (number, number.text) == (float(wanted), case["text"].strip(" \t\r\n"))  # type: ignore[attr-defined]
    for low, high, passed in [
        (None, None, True),
        (wanted, wanted, True),
        (less, more, True),
        (more, None, False),
        (None, less, False),
    ]:
        assert Measurement("x", number, "", low, high).passed is passed, (low, high)


@pytest.mark.parametrize("row", vectors("failures.json"), ids=lambda row: row["kind"])
@pytest.mark.parametrize("own_code", [None, "E_OWN"])
def test_a_failure_has_the_class_that_the_vectors_say(row: Any, own_code: str) -> None:
    is_told = "gevals" in row["beside"] or own_code
    data = {"rigline/kind": row["kind"]} if is_told else {}
    if own_code:
        data["rigline/code"] = own_code
    reply: Dict[str, Any] = {"jsonrpc": "2.0", "id": "$ID"}
    if row["gevals"] is None:
        reply["result"] = {"success": False, "error": "why", "data": data}
    else:
        reply["error"] = {"code": row["gevals"], "message": "why", "data": data}
    peer = Peer([json.dumps(reply).replace('"$ID"', "$ID")], "op")
    with rigline.connect(peer.target) as rig, pytest.raises(rigline.RiglineError) as raised:
        rig.op()
    peer.finish()
    read = row["kind"] if is_told else row["reads"].get("gevals", row["kind"])
    assert [type(raised.value).__name__] == [other["python"] for other in vectors("failures.json") if other["kind"] == read]
    assert raised.value.own_code == own_code
    # Only the operation's own failure is one of the board.
    assert isinstance(raised.value, AssertionError) is (row["kind"] == "failed")


@pytest.mark.parametrize("seconds, text", vectors("durations.json"))
def test_a_duration_is_written_as_the_vectors_say(seconds: float, text: str) -> None:
    assert _duration.of_seconds(seconds) == text
