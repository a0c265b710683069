"""JSON as the protocols need it: strict, with exact numbers, and never deeper than the stack allows."""

from __future__ import annotations

import json
import math
import os
import re
from decimal import Decimal
from enum import Enum
from typing import Any, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

#: Containers that may be open at once, as rigline's own parser has it.
MAX_DEPTH = 128

Number = Union[int, float, Decimal]

_MARK = re.compile(r'["{}\[\],:]')
_BLANK = " \t\r\n"


def number(text: str) -> Number:
    """A JSON number with its exact value: an int, a float if that has it, else a Decimal."""
    try:
        if not any(mark in text for mark in ".eE"):
            try:
                return int(text)
            except ValueError:
                # Python reads no integer of more than 4300 digits (sys.set_int_max_str_digits).
                return Decimal(text)
        exact = Decimal(text)
        near = float(text)
        return near if math.isfinite(near) and Decimal(repr(near)) == exact else exact
    except ArithmeticError as error:
        raise ValueError(f"the number {shorten(text, 40)} is out of range") from error


#: What is read as a number where one is expected: JSON's, and what instruments write, such as ``+3.30E+00``.
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,17})?")
_DIGIT_LIMIT = 10_000


def decimal(text: str) -> Optional[Decimal]:
    """The number that a text is, exactly, as evals read it; None for what is no number, such as ``inf``, ``0x10`` and ``1_000``."""
    text = text.strip(_BLANK)
    if len(text) > _DIGIT_LIMIT or not _DECIMAL.fullmatch(text):
        return None
    return Decimal(text)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_int=number, parse_float=number, parse_constant=_no_constant)


def loads(text: str) -> Any:
    """Reads a JSON text. Raises ValueError, whatever is wrong with it."""
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dumps(value: Any, where: str = "value") -> str:
    """Writes JSON on one line and in ASCII. Raises TypeError or ValueError, which name the place that cannot be written."""
    parts: List[str] = []
    _write(value, where, parts, 0)
    return "".join(parts)


def _write(value: Any, where: str, parts: List[str], depth: int) -> None:
    if depth > MAX_DEPTH - 8:
        raise ValueError(f"{shorten(where, 60)}: nested too deeply, more than {MAX_DEPTH - 8} levels")
    if isinstance(value, Enum):
        value = value.value
    if value is None or value is True or value is False:
        parts.append({None: "null", True: "true", False: "false"}[value])
    elif isinstance(value, str):
        parts.append(json.dumps(str(value)))
    elif isinstance(value, int):
        parts.append(int.__repr__(value))
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where}: {value!r} is not a JSON number")
        parts.append(float.__repr__(value))
    elif isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueError(f"{where}: {value} is not a JSON number")
        parts.append(str(value))
    elif isinstance(value, os.PathLike):
        _write(os.fsdecode(value), where, parts, depth)
    elif isinstance(value, Mapping):
        parts.append("{")
        for place, (key, member) in enumerate(value.items()):
            if not isinstance(key, str):
                raise TypeError(f"{where}: the key {key!r} is not a string")
            parts.append("," if place else "")
            parts.append(json.dumps(str(key)) + ":")
            _write(member, f"{where}.{key}", parts, depth + 1)
        parts.append("}")
    elif isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray, memoryview)):
        parts.append("[")
        for place, element in enumerate(value):
            parts.append("," if place else "")
            _write(element, f"{where}[{place}]", parts, depth + 1)
        parts.append("]")
    elif hasattr(value, "__float__") and hasattr(value, "dtype"):
        # numpy's scalars, without importing numpy.
        _write(value.item(), where, parts, depth)
    else:
        raise TypeError(f"{where}: {type(value).__name__} is not a type that JSON has")


def members(text: str) -> Iterator[Tuple[str, str]]:
    """The members of an object: names, and values as their JSON text. The text has been read before, so it is an object."""
    depth = 0
    key: Optional[str] = None
    start = 0
    for mark, begin, end in _tokens(text):
        if mark in "{[":
            depth += 1
        elif depth == 1 and mark == '"' and key is None:
            key = json.loads(text[begin:end])
        elif depth == 1 and mark == ":":
            start = end
        elif (depth == 1 and mark == ",") or (mark in "}]" and depth == 1):
            if key is not None:
                yield key, text[start:begin].strip(_BLANK)
            key = None
        if mark in "}]":
            depth -= 1


def top_level(text: str) -> Iterator[Tuple[str, str]]:
    """The names of a damaged object's members, as they are written, and what stands behind each colon."""
    depth = 0
    for mark, begin, end in _tokens(text):
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth <= 0:
                return
        elif mark == '"' and end < 0:
            return
        elif mark == '"' and depth == 1:
            rest = text[end : end + 64].lstrip(_BLANK)
            if rest.startswith(":"):
                yield text[begin + 1 : end - 1], rest[1:].lstrip(_BLANK)


def end_of_object(text: str, start: int) -> Optional[int]:
    """Where the object that begins at `start` ends; None if it does not."""
    depth = 0
    for mark, _, end in _tokens(text, start):
        if mark in "{[":
            depth += 1
        elif mark in "}]":
            depth -= 1
            if depth == 0:
                return end
        elif end < 0:
            return None
    return None


def _tokens(text: str, start: int = 0) -> Iterator[Tuple[str, int, int]]:
    """Strings and structural characters: the first character, and where each begins and ends; -1 for a string without an end.

    A regular expression that matches whole strings would take a hundred times the memory of a long one.
    """
    found = _MARK.search(text, start)
    while found is not None:
        mark, begin, end = found.group(), found.start(), found.end()
        if mark == '"':
            end = _end_of_string(text, begin)
        yield mark, begin, end
        if end < 0:
            return
        found = _MARK.search(text, end)


def _end_of_string(text: str, start: int) -> int:
    quote = text.find('"', start + 1)
    while quote >= 0:
        before = quote - 1
        while text[before] == "\\":
            before -= 1
        if (quote - before) % 2 == 1:
            return quote + 1
        quote = text.find('"', quote + 1)
    return -1


def shorten(text: str, length: int) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= length else text[: length - 1] + "…"


_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def printable(text: str) -> str:
    """A text from a peer, fit for a terminal: without escape sequences and what no encoding has."""
    return _UNPRINTABLE.sub(lambda found: found.group().encode("unicode_escape", "surrogatepass").decode("ascii"), text)


def one_line(text: str) -> str:
    """The same on one line, for names."""
    return " ".join(printable(text).split())
