"""The host's half of a gevals session, without I/O: makes request lines, and says what each line that comes back is.

Real peers print banners into the stream, leave members out and glue lines together. A line that is not a message is noise, and
never an error. A reply that can be recognised although it is damaged ends its call with a reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Tuple, Union

from . import _json
from .result import Log

VERSION = "0.0.1"
#: The longest line that is taken from a peer, in bytes.
LINE_LIMIT = 16 << 20
#: How many places of a damaged line are tried as the beginning of a message.
_CANDIDATES = 8
_BEGINS = re.compile(r'\{[ \t\r\n]*"')


@dataclass
class Answer:
    """What a call came to.

    ``kind`` is ``success``, ``failed`` (the operation's own logic), ``refused`` (a JSON-RPC error) or ``invalid`` (it cannot
    be used).
    """

    kind: str
    message: str = ""
    error: str = ""
    code: Optional[int] = None
    data: Any = None
    outputs: Dict[str, str] = field(default_factory=dict)
    faults: Tuple[str, ...] = ()
    #: The reply's `result` as it came, and its text.
    result: Any = None
    #: When it came, by the monotonic clock; 0 of one that did not come over a connection.
    came: float = 0.0


@dataclass
class Reply:
    """The reply to a request that was out."""

    id: int
    answer: Answer


@dataclass
class Send:
    """A line that is to be sent: the refusal of a request of the peer's."""

    line: bytes


@dataclass
class Noise:
    """A line that is not a message, or a reply that nobody waits for."""

    text: str
    why: str


Event = Union[Reply, Log, Send, Noise]


class Session:
    """Gives ids to requests, and matches what comes back."""

    def __init__(self, base: int = 0) -> None:
        self._first = self._next = (base & 0x3FFF_FFFF) + 1
        self._pending: Dict[int, str] = {}

    def initialize(self, config: Optional[str]) -> Tuple[int, bytes]:
        extra = "" if config is None else f',"config":{config}'
        return self.request("initialize", f'{{"protocolVersion":"{VERSION}"{extra}}}')

    def execute(self, operation: str, args: str, context: str) -> Tuple[int, bytes]:
        name = _json.dumps(operation)
        return self.request("execute", f'{{"operation":{name},"args":{args},"context":{context}}}')

    def shutdown(self) -> Tuple[int, bytes]:
        return self.request("shutdown", "{}")

    def request(self, method: str, params: str) -> Tuple[int, bytes]:
        """A request's id, and its line with the newline."""
        number = self._next
        self._next += 1
        self._pending[number] = method
        line = f'{{"jsonrpc":"2.0","id":{number},"method":"{method}","params":{params}}}\n'
        return number, line.encode("ascii")

    def forget(self, number: int) -> None:
        """No longer waits for a reply."""
        self._pending.pop(number, None)

    @property
    def pending(self) -> Tuple[int, ...]:
        return tuple(self._pending)

    def receive(self, line: bytes) -> List[Event]:
        """Says what a line is. Several messages may stand on it."""
        events: List[Event] = []
        try:
            rest = line.strip(b" \t\r\n\v\f\0").decode("utf-8-sig")
        except UnicodeDecodeError:
            # Bytes that are not UTF-8 are not JSON. A message may still follow them.
            rest = line.decode("utf-8", "backslashreplace").strip()
        while rest:
            rest = self._receive(rest, events)
        return events

    def _receive(self, text: str, events: List[Event]) -> str:
        """Adds what the text begins with, and gives what is left of it."""
        try:
            value = _json.loads(text)
        except ValueError as error:
            return self._recover(text, str(error), events)
        self._classify(value, text, events)
        return ""

    def _recover(self, text: str, fault: str, events: List[Event]) -> str:
        damaged = text
        for place, begin in enumerate(_BEGINS.finditer(text)):
            if place >= _CANDIDATES:
                break
            at = begin.start()
            end = _json.end_of_object(text, at)
            if end is None:
                if at > 0 and not damaged.startswith("{") and '"jsonrpc"' in text[at:]:
                    damaged = text[at:]
                continue
            rest = text[end:].lstrip()
            # It is part of something larger.
            if at > 0 and rest[:1] in ("}", "]", ",", '"') and rest:
                continue
            try:
                value = _json.loads(text[at:end])
            except ValueError as error:
                if not damaged.startswith("{"):
                    damaged, fault = text[at:], str(error)
                continue
            if at > 0 and not (isinstance(value, dict) and value.get("jsonrpc") == "2.0"):
                continue
            if at > 0:
                events.append(Noise(text[:at].strip(), "not JSON"))
            self._classify(value, text[at:end], events)
            return rest
        self._damaged(damaged, fault, text, events)
        return ""

    def _damaged(self, text: str, fault: str, line: str, events: List[Event]) -> None:
        events.append(Noise(line, f"not JSON: {fault}"))
        if not text.startswith("{"):
            return
        number: Optional[int] = None
        for key, value in _json.top_level(text):
            # A damaged notification or request fails no call.
            if key == "method":
                return
            if key == "id" and number is None:
                digits = re.match("[0-9]{1,10}", value)
                number = int(digits.group()) if digits else None
        if number in self._pending:
            self._finish(number, Answer("invalid", error=f"the answer is not JSON: {fault}"), events)

    def _classify(self, value: Any, text: str, events: List[Event]) -> None:
        if not isinstance(value, dict):
            events.append(Noise(text, "JSON, but not an object"))
            return
        versioned = value.get("jsonrpc") == "2.0"
        if "method" in value:
            self._from_peer(value, text, versioned, events)
            return
        error = value.get("error")
        if error is not None:
            answer = _of_error(error)
        elif "result" in value:
            answer = Answer("success", result=value["result"])
        else:
            answer = Answer("invalid", error="the answer has neither a result nor an error")
        number = _number(value.get("id"))
        if number in self._pending:
            if answer.kind == "success" and self._pending[number] == "execute":
                answer = _of_result(value["result"], text)
            self._finish(number, answer, events)
        elif answer.kind == "refused" and value.get("id") is None and (versioned or answer.code is not None):
            # The peer could not read a request (JSON-RPC 2.0, section 5): it must be the one that is out.
            if len(self._pending) == 1:
                self._finish(next(iter(self._pending)), answer, events)
            else:
                events.append(Noise(text, f"an error that names no request: {answer.error}"))
        else:
            events.append(Noise(text, "a reply that nobody waits for" if "id" in value else "not a message"))

    def _from_peer(self, value: Dict[str, Any], text: str, versioned: bool, events: List[Event]) -> None:
        method, params = value["method"], value.get("params")
        if not isinstance(method, str):
            events.append(Noise(text, "not a message"))
        elif "id" in value and versioned:
            own = _number(value["id"])
            is_own = own is not None and self._first <= own < self._next
            if is_own and method in ("initialize", "execute", "shutdown"):
                events.append(Noise(text, "a request of ours came back"))
                return
            shown = _json.dumps("Unknown method: " + _json.shorten(method, 64))
            number = _json.dumps(value["id"]) if isinstance(value["id"], (str, int, float)) else "null"
            line = f'{{"jsonrpc":"2.0","id":{number},"error":{{"code":-32601,"message":{shown}}}}}\n'
            events.append(Send(line.encode("ascii")))
        elif method == "log" and (versioned or isinstance(params, dict)):
            events.append(_log(params))
        else:
            events.append(Noise(text, "a notification" if versioned else "not a message"))

    def _finish(self, number: Any, answer: Answer, events: List[Event]) -> None:
        self.forget(number)
        events.append(Reply(number, answer))


def _number(value: Any) -> Optional[int]:
    """The value of an id, in whatever spelling."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,10}", value):
        return int(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value):
        return int(value)
    return None


_NO_MEMBER = object()


def member(value: Any, name: str) -> Any:
    """The member of that name, or else one whose name differs in case only; None if there is none."""
    if not isinstance(value, dict):
        return None
    found = value.get(name, _NO_MEMBER)
    if found is _NO_MEMBER:
        alike = [other for key, other in value.items() if key.lower() == name]
        return alike[-1] if alike else None
    return found


def plain(value: Any) -> str:
    """A value as a person reads it."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    try:
        return _json.dumps(value)
    except ValueError:
        # What a peer wrote may be deeper than what is written here.
        return "a value that is nested too deeply"


def _of_error(error: Any) -> Answer:
    code = error.get("code") if isinstance(error, dict) else error
    if isinstance(code, str) and re.fullmatch("-?[0-9]{1,10}", code):
        code = int(code)
    if isinstance(code, bool) or not isinstance(code, (int, float)) or code != int(code):
        code = None
    message = plain(member(error, "message")) if isinstance(error, dict) else ""
    data = error.get("data") if isinstance(error, dict) else None
    text = message or plain(data) or plain(error)
    return Answer("refused", error=text, code=None if code is None else int(code), data=data)


def _of_result(result: Any, text: str) -> Answer:
    message, error = plain(member(result, "message")), plain(member(result, "error"))
    success = member(result, "success")
    faults: Tuple[str, ...] = ()
    outputs: Dict[str, str] = {}
    if not isinstance(result, dict):
        return Answer("invalid", error="the result is not an object", result=result)
    found = member(result, "outputs")
    if isinstance(found, dict):
        if all(isinstance(value, str) for value in found.values()):
            outputs = found
        else:
            # Their JSON text as it came: 1.50 stays 1.50, and numbers of any size stay whole.
            outputs = {
                key: plain(found.get(key)) if isinstance(found.get(key), str) or raw == "null" else raw
                for key, raw in _outputs_text(text)
            }
    elif found is not None:
        faults = ("the result's outputs are not an object",)
    if not isinstance(success, bool):
        why = "the result has no success" if success is None else "the result's success is not a boolean"
        note = f" (its error: {error})" if error else f" (its message: {message})" if message else ""
        return Answer("invalid", message, why + note, outputs=outputs, faults=faults, result=result)
    if success:
        return Answer("success", message, outputs=outputs, faults=faults, result=result)
    reason = error or message or "the operation failed without a reason"
    data = member(result, "data")
    return Answer("failed", message, reason, data=data, outputs=outputs, faults=faults, result=result)


def _outputs_text(text: str) -> List[Tuple[str, str]]:
    for name in ("result", "outputs"):
        named = list(_json.members(text))
        exact = [raw for key, raw in named if key == name]
        alike = [raw for key, raw in named if key.lower() == name]
        text = (exact or alike)[-1]
    return list(_json.members(text))


_LEVELS = {
    "debug": "debug",
    "trace": "debug",
    "verbose": "debug",
    "info": "info",
    "warn": "warn",
    "warning": "warn",
    "error": "error",
    "err": "error",
    "fatal": "error",
    "critical": "error",
    "panic": "error",
}


def _log(params: Any) -> Log:
    if not isinstance(params, dict):
        return Log("info", plain(params))
    level = member(params, "level")
    known = _LEVELS.get(level.lower(), "info") if isinstance(level, str) else "info"
    return Log(known, plain(member(params, "message")), member(params, "data"))
