"""What an operation answered, and what an extension says about itself."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping as MappingABC
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Type, TypeVar, Union

from . import _json

T = TypeVar("T")


@dataclass(frozen=True)
class Log:
    """A line that the extension logged during a call."""

    #: ``debug``, ``info``, ``warn`` or ``error``.
    level: str
    message: str
    #: Structured data, if there is any.
    data: Any = None


#: How many logs of a call are kept, and how many characters of them.
LOGS = 4096
LOG_TEXT = 4 << 20


class Logs:
    """The first logs of a call, and the number of those that were dropped because there were too many."""

    def __init__(self) -> None:
        self._kept: List[Log] = []
        self._size = 0
        self.dropped = 0

    def add(self, log: Log) -> None:
        """Keeps a log, if there is room for it."""
        size = len(log.message) + (0 if log.data is None else len(str(log.data)))
        if len(self._kept) >= LOGS or self._size + size > LOG_TEXT:
            self.dropped += 1
        else:
            self._kept.append(log)
            self._size += size

    def all(self) -> Tuple[Log, ...]:
        """All that were kept. If some were dropped, the last one says how many."""
        if not self.dropped:
            return tuple(self._kept)
        return (*self._kept, Log("warn", f"{self.dropped} further log lines were dropped, since there were too many"))


class Reading(float):
    """A float that keeps the text of the device: ``3.300`` is 3.3, and its `text` is ``"3.300"``."""

    text: str

    def __new__(cls, value: Union[int, float, Decimal], text: str) -> Reading:
        reading = super().__new__(cls, value)
        reading.text = text
        return reading

    def __reduce__(self) -> Any:
        return (Reading, (float(self), self.text))


@dataclass(frozen=True, eq=False)
class Result(MappingABC):  # type: ignore[type-arg]
    """What an operation answered: a message, and outputs by name.

    The protocol carries outputs as texts. ``result["volts"]`` reads a text that is JSON as its value (a number, a truth
    value, a list), and gives any other text as it is. Where a text must stay one, such as a serial number that may consist
    of digits, use :meth:`text`. :meth:`number`, :meth:`integer`, :meth:`flag` and :meth:`read` say what is expected, and
    raise where the output is something else.
    """

    operation: str
    #: The summary; empty if there is none.
    message: str
    #: The outputs' texts, in their order.
    outputs: Mapping[str, str]
    #: What was logged during the call.
    logs: Tuple[Log, ...] = ()
    #: How long the call took, in seconds.
    duration: float = 0.0
    #: In what the answer was odd, and was understood all the same.
    faults: Tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        text = self.text(name)
        # Words are the most frequent texts, and most are not JSON.
        if text[:1] in _BEGINS_JSON:
            try:
                value = _json.loads(text)
            except ValueError:
                return text
            return Reading(value, text.strip()) if isinstance(value, float) else value
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)

    def __bool__(self) -> bool:
        # A result is a success, with or without outputs.
        return True

    def text(self, name: str) -> str:
        """The output's text, as it came."""
        try:
            return self.outputs[name]
        except KeyError:
            there = ", ".join(self.outputs) or "none"
            raise KeyError(f"{self.operation} has no output {name!r}; known outputs: {there}") from None

    def number(self, name: str) -> float:
        """The output as a float. It keeps its digits, as a :class:`Reading`, for `measure` and its reports."""
        return Reading(self.decimal(name), self.text(name).strip())

    def decimal(self, name: str) -> Decimal:
        """The output's number, exactly as it was written. It may be written as instruments do, such as ``+3.30E+00`` or ``007``."""
        value = _json.decimal(self.text(name))
        if value is None:
            raise self._unexpected(name, "a number")
        return value

    def integer(self, name: str) -> int:
        """The output as a whole number, of any size."""
        value = _json.decimal(self.text(name))
        # `3.0` and `3e0` are measured, not counted.
        if value is None or any(mark in self.text(name) for mark in ".eE"):
            raise self._unexpected(name, "a whole number")
        return int(value)

    def flag(self, name: str) -> bool:
        """The output as a truth value."""
        value = self[name]
        if not isinstance(value, bool):
            raise self._unexpected(name, "true or false")
        return value

    def read(self, kind: Type[T]) -> T:
        """The outputs as a dataclass: each field gets the output of its name, read as the field's type.

        A field without an output keeps its default. Raises KeyError where a field has neither, and ValueError where an
        output is not of the field's type.
        """
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
            raise TypeError(f"{kind!r} is not a dataclass")
        types = typing.get_type_hints(kind)
        values: Dict[str, Any] = {}
        for part in dataclasses.fields(kind):
            has_default = part.default is not dataclasses.MISSING or part.default_factory is not dataclasses.MISSING
            if part.init and (part.name in self.outputs or not has_default):
                values[part.name] = self._as(part.name, types[part.name])
        return typing.cast(T, kind(**values))

    def _as(self, name: str, kind: Any) -> Any:
        choices = typing.get_args(kind) if typing.get_origin(kind) is Union or _is_new_union(kind) else (kind,)
        if type(None) in choices and self.text(name) in ("", "null"):
            return None
        readers: Dict[Any, Any] = {
            str: self.text,
            float: self.number,
            int: self.integer,
            bool: self.flag,
            Decimal: self.decimal,
            Any: self.__getitem__,
        }
        for choice in choices:
            if choice is type(None):
                continue
            reader = readers.get(choice)
            try:
                if reader is not None:
                    return reader(name)
                value = self[name]
                if isinstance(value, typing.get_origin(choice) or choice):
                    return value
            except ValueError:
                pass
        raise self._unexpected(name, getattr(kind, "__name__", str(kind)))

    def _unexpected(self, name: str, what: str) -> ValueError:
        found = _json.shorten(_json.printable(self.text(name)), 80)
        return ValueError(f"{self.operation}: the output {name} is not {what}: {found!r}")


_BEGINS_JSON = frozenset('-0123456789tfn[{"') - {""}


def _is_new_union(kind: Any) -> bool:
    # `int | None` is a separate type from Python 3.10 on.
    return type(kind).__name__ == "UnionType"


@dataclass(frozen=True)
class Parameter:
    """A parameter of an operation."""

    name: str
    #: Its JSON Schema.
    schema: Mapping[str, Any]
    required: bool

    @property
    def description(self) -> str:
        text = self.schema.get("description")
        return text if isinstance(text, str) else ""


@dataclass(frozen=True)
class Operation:
    """An operation of an extension."""

    name: str
    description: str
    #: The JSON Schema of its arguments.
    schema: Any

    @property
    def parameters(self) -> Tuple[Parameter, ...]:
        """The parameters that the schema names."""
        schema = self.schema if isinstance(self.schema, dict) else {}
        properties = schema.get("properties")
        required = schema.get("required")
        needed = required if isinstance(required, list) else []
        if not isinstance(properties, dict):
            return ()
        return tuple(
            Parameter(name, part if isinstance(part, dict) else {}, name in needed) for name, part in properties.items()
        )

    @property
    def is_open(self) -> bool:
        """Whether it takes arguments that the schema does not name."""
        schema = self.schema
        if schema is True:
            return True
        if not isinstance(schema, dict):
            return False
        more = schema.get("additionalProperties")
        combined = any(word in schema for word in ("patternProperties", "$ref", "allOf", "anyOf", "oneOf", "if"))
        return combined or (more is not None and more is not False) or ("properties" not in schema and "type" not in schema)


@dataclass(frozen=True)
class Manifest:
    """What an extension says about itself."""

    name: str
    version: str
    description: str
    operations: Mapping[str, Operation]
    #: Programs that it needs.
    requires: Tuple[str, ...] = ()
    #: The longest request in bytes that it takes, if it says so.
    request_limit: Optional[int] = None
    #: The manifest as it came.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(raw: Mapping[str, Any]) -> Manifest:
        """Reads a manifest; what is missing or odd is left empty."""

        def text(value: Any) -> str:
            return value if isinstance(value, str) else ""

        operations = raw.get("operations")
        requires = raw.get("requires")
        limits = raw.get("limits")
        limit = limits.get("request") if isinstance(limits, dict) else None
        return Manifest(
            name=text(raw.get("name")) or "extension",
            version=text(raw.get("version")),
            description=text(raw.get("description")),
            operations={
                name: Operation(name, text(body.get("description")), body.get("params"))
                for name, body in (operations.items() if isinstance(operations, dict) else ())
                if isinstance(body, dict)
            },
            requires=tuple(
                text(entry.get("command"))
                for entry in (requires if isinstance(requires, list) else ())
                if isinstance(entry, dict)
            ),
            request_limit=limit if isinstance(limit, int) and not isinstance(limit, bool) else None,
            raw=raw,
        )
