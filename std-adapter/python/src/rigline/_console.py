"""The console of the board under test: ``rig.uart``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Union

from .result import Result

if TYPE_CHECKING:
    from .client import Rig

#: How much longer a call may take than its wait, in seconds.
_MARGIN = 5.0
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)


@dataclass(frozen=True)
class Heard:
    """Bytes that came from the console."""

    #: The bytes, as they came.
    data: bytes
    #: The position behind the last of them. ``since=`` takes it.
    mark: int
    #: The number of bytes before them that were overwritten in the rig before they were read.
    missed: int
    #: The whole answer, with the counters.
    result: Result

    @property
    def text(self) -> str:
        """The bytes as text. A byte that is no UTF-8 is a backslash, ``x`` and two digits."""
        return _text(self.data)


@dataclass(frozen=True)
class Match:
    """What :meth:`Uart.expect` found."""

    #: The bytes before the match: at most the last ones that fit into a reply, see `before_count`.
    before_bytes: bytes
    match_bytes: bytes
    #: The number of bytes before the match, whether they are in `before_bytes` or not.
    before_count: int
    #: The position behind the match. ``since=`` takes it.
    mark: int
    #: The number of bytes that were overwritten in the rig before they were looked at.
    missed: int
    #: How long it took, in seconds.
    waited: float
    #: The whole answer, with the logs.
    result: Result

    @property
    def before(self) -> str:
        """What came before the match, as text. A byte that is no UTF-8 is a backslash, ``x`` and two digits."""
        return _text(self.before_bytes)

    @property
    def match(self) -> str:
        """The match as text."""
        return _text(self.match_bytes)


class Uart:
    """The console of the board under test, through the rig's operations ``uart-write``, ``uart-expect``, ``uart-read`` and
    ``uart-break``.

    Texts are taken as they are: a backslash is a backslash. Bytes go and come unchanged. ``speed`` (baud) and ``framing``
    (such as ``"8N1"``) of any call count from then on, until the rig's outputs are switched off.
    """

    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def write(
        self, data: Union[str, bytes], *, speed: Optional[int] = None, framing: Optional[str] = None, **named: Any
    ) -> Result:
        """Sends a text, as UTF-8, or bytes. The result's ``mark`` is the position of the first byte of an answer."""
        __tracebackhide__ = True  # by pytest
        return self._rig.call("uart-write", {**_spelt("data", data), **_line(speed, framing)}, **named)

    def expect(
        self,
        text: Optional[Union[str, bytes]] = None,
        *,
        pattern: Optional[str] = None,
        within: float = 5.0,
        since: Optional[int] = None,
        speed: Optional[int] = None,
        framing: Optional[str] = None,
        **named: Any,
    ) -> Match:
        """Waits until the console says a text or bytes, and gives what came before and the match.

        :param pattern: in place of a text: ``?`` is any byte of a line, ``*`` any number of them, ``#`` one digit or more.
        :param within: how long to wait, in seconds.
        :param since: the mark to look from. By default where the last match or read ended.

        Raises :class:`OperationFailed` where it does not come in time, with what came instead.
        """
        __tracebackhide__ = True
        if (text is None) == (pattern is None):
            raise TypeError("expect() takes either a text or pattern=")
        arguments: Dict[str, Any] = {"within_ms": round(within * 1000), **_line(speed, framing)}
        arguments.update({"pattern": pattern} if text is None else _spelt("text", text))
        if since is not None:
            arguments["since"] = since
        named.setdefault("timeout", within + _MARGIN)
        result = self._rig.call("uart-expect", arguments, **named)
        return Match(
            before_bytes=_bytes(result, "before"),
            match_bytes=_bytes(result, "match"),
            before_count=result.integer("before_bytes"),
            mark=result.integer("mark"),
            missed=result.integer("missed"),
            waited=result.integer("waited_ms") / 1000,
            result=result,
        )

    def read(
        self,
        *,
        since: Optional[int] = None,
        within: float = 0.0,
        discard: bool = False,
        speed: Optional[int] = None,
        framing: Optional[str] = None,
        **named: Any,
    ) -> Heard:
        """Reads what came, as much as fits into a reply.

        :param since: the mark to read from. By default where the last match or read ended.
        :param within: how long to wait for a first byte, in seconds.
        :param discard: whether to leave out what came before this call.
        """
        __tracebackhide__ = True
        arguments: Dict[str, Any] = {"within_ms": round(within * 1000), "discard": discard, **_line(speed, framing)}
        if since is not None:
            arguments["since"] = since
        named.setdefault("timeout", within + _MARGIN)
        result = self._rig.call("uart-read", arguments, **named)
        return Heard(_bytes(result, "data"), result.integer("mark"), result.integer("missed"), result)

    def send_break(self, duration: float = 0.1, **named: Any) -> Result:
        """Holds the line low, for this many seconds."""
        __tracebackhide__ = True
        return self._rig.call("uart-break", {"ms": round(duration * 1000)}, **named)


def _spelt(name: str, data: Union[str, bytes]) -> Mapping[str, Any]:
    """An argument with the encoding that says each byte."""
    if isinstance(data, str):
        return {name: data.replace("\\", "\\\\")}
    return {name: bytes(data).hex(), "encoding": "hex"}


def _line(speed: Optional[int], framing: Optional[str]) -> Mapping[str, Any]:
    given = {"speed": speed, "framing": framing}
    return {name: value for name, value in given.items() if value is not None}


def _bytes(result: Result, name: str) -> bytes:
    """The bytes that an output says, in the encoding of the rig's console."""
    text = result.text(name)
    if result.text("encoding") == "hex":
        return bytes.fromhex(text)
    return _ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()) if found[1] else found[2], text.encode())


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
