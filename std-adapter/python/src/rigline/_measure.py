"""Measurements: values, their limits and their verdicts; and what keeps them for reports."""

from __future__ import annotations

import math
import numbers
import os
import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Callable, List, Optional, Protocol, Sequence, Tuple, Union

from . import _json

Number = Union[int, float, Decimal]

_SHOWN_VALUES = 8


@dataclass(frozen=True)
class Measurement:
    """What was measured, and its limits: a number, several numbers, or a text."""

    name: str
    value: Union[Number, Tuple[Number, ...], str]
    unit: str = ""
    low: Optional[Number] = None
    high: Optional[Number] = None
    #: Limits within the others: beyond them a value passes, and is marked as marginal.
    marginal_low: Optional[Number] = None
    marginal_high: Optional[Number] = None
    #: What a text is to be, for people; empty for numbers, and for a text that may be anything.
    expected: str = ""
    #: Whether a text is what it is to be.
    is_expected: bool = True

    @property
    def values(self) -> Tuple[Number, ...]:
        """The numbers; none for a text."""
        if isinstance(self.value, str):
            return ()
        return self.value if isinstance(self.value, tuple) else (self.value,)

    @property
    def verdict(self) -> str:
        """``pass``, ``marginal`` or ``fail``. A limit itself is within the limits. What is not finite fails."""
        if not self.is_expected or self.value == ():
            return "fail"
        if not all(_is_finite(value) and _is_within(value, self.low, self.high) for value in self.values):
            return "fail"
        if not all(_is_within(value, self.marginal_low, self.marginal_high) for value in self.values):
            return "marginal"
        return "pass"

    @property
    def passed(self) -> bool:
        """Whether the value is within its limits, which count as within."""
        return self.verdict != "fail"

    @property
    def shown(self) -> str:
        """Value, limits and verdict."""
        verdict = self.verdict if self.passed else "FAIL"
        if isinstance(self.value, str):
            expected = f" [{self.expected}]" if self.expected else ""
            return f"{_json.shorten(repr(self.value), 200)}{expected} {verdict}"
        unit = f" {self.unit}" if self.unit else ""
        limits = ""
        bounds: Tuple[str, ...] = ()
        if self.low is not None or self.high is not None:
            bounds = tuple("" if limit is None else _digits(limit) for limit in (self.low, self.high))
            limits = f" [{bounds[0]} … {bounds[1]}]".replace("[ ", "[").replace(" ]", "]")
        if verdict == "marginal":
            inner = ["" if limit is None else _digits(limit) for limit in (self.marginal_low, self.marginal_high)]
            verdict += f" (beyond [{inner[0]} … {inner[1]}])".replace("[ ", "[").replace(" ]", "]")
        if not isinstance(self.value, tuple):
            # What is beyond the limit may have more digits.
            value = _digits(self.value)
            value = exact(self.value) if verdict == "FAIL" and value in bounds else value
            return f"{value}{unit}{limits} {verdict}"
        shown = [_digits(value) for value in self.value[:_SHOWN_VALUES]]
        more = len(self.value) - len(shown)
        text = ", ".join(shown) + (f", … {more} more" if more > 0 else "")
        wrong = [at for at, value in enumerate(self.value) if not Measurement("", value, "", self.low, self.high).passed]
        beyond = f", number {wrong[0] + 1} is {exact(self.value[wrong[0]])}" if wrong else ""
        return f"{text or 'no values'}{unit}{limits} {verdict}{beyond}"

    @property
    def properties(self) -> List[Tuple[str, str]]:
        """The parts, for programs: ``value``, ``unit``, ``low``, ``high``, … and ``verdict``."""
        if isinstance(self.value, str):
            value = _json.printable(self.value)
        else:
            value = ", ".join(map(exact, self.values))
        parts = [("value", value)]
        if self.unit:
            parts.append(("unit", self.unit))
        for name in ("low", "high", "marginal_low", "marginal_high"):
            limit = getattr(self, name)
            if limit is not None:
                parts.append((name, exact(limit)))
        if self.expected:
            parts.append(("expected", self.expected))
        return [*parts, ("verdict", self.verdict)]

    def __str__(self) -> str:
        return f"{self.name} {self.shown}"


class MeasurementFailed(AssertionError):
    """Measured values are out of their limits."""

    def __init__(self, *measurements: Measurement) -> None:
        super().__init__("\n".join(map(str, measurements)))
        #: All of them.
        self.measurements = measurements

    @property
    def measurement(self) -> Measurement:
        """The first of them."""
        return self.measurements[0]

    def __reduce__(self) -> Any:
        return (type(self), self.measurements)


class Measure(Protocol):
    """Records what was measured, and fails the test if it is not within its limits."""

    def __call__(
        self,
        name: str,
        value: Number,
        unit: str = "",
        low: Optional[Number] = None,
        high: Optional[Number] = None,
        *,
        marginal_low: Optional[Number] = None,
        marginal_high: Optional[Number] = None,
        soft: bool = False,
    ) -> Measurement:
        """Records a number. With `soft`, the test goes on if it is out of its limits, and fails at its end."""

    def values(
        self,
        name: str,
        values: Sequence[Number],
        unit: str = "",
        low: Optional[Number] = None,
        high: Optional[Number] = None,
        *,
        marginal_low: Optional[Number] = None,
        marginal_high: Optional[Number] = None,
        soft: bool = False,
    ) -> Measurement:
        """Records several numbers, each of which is to be within the limits. None at all is a failure."""

    def text(
        self,
        name: str,
        value: str,
        *,
        equals: Optional[str] = None,
        matches: Optional[str] = None,
        one_of: Optional[Sequence[str]] = None,
        soft: bool = False,
    ) -> Measurement:
        """Records a text. `matches` is a regular expression for the whole text."""

    def attach(self, name: str, data: Union[str, bytes, "os.PathLike[str]"]) -> str:
        """Keeps a text, bytes or a copy of a file beside the test's log, and in Allure's report; gives the path."""


@dataclass
class Collector:
    """The measurements of one attempt at a test. It is what the fixture ``measure`` gives."""

    #: Gets each measurement.
    on_measurement: Callable[[Measurement], None] = field(repr=False)
    #: Stores an attachment, and gives its path.
    store: Callable[[str, Union[str, bytes, "os.PathLike[str]"]], str] = field(repr=False)
    #: Failures that the test went on after.
    soft: List[Measurement] = field(default_factory=list)

    def __call__(
        self,
        name: str,
        value: Number,
        unit: str = "",
        low: Optional[Number] = None,
        high: Optional[Number] = None,
        *,
        marginal_low: Optional[Number] = None,
        marginal_high: Optional[Number] = None,
        soft: bool = False,
    ) -> Measurement:
        __tracebackhide__ = True  # by pytest
        _ensure_number(name, "value", value)
        limits = _limits(name, low, high, marginal_low, marginal_high)
        return self._add(Measurement(_json.one_line(name), value, _json.one_line(unit), *limits), soft)

    def values(
        self,
        name: str,
        values: Sequence[Number],
        unit: str = "",
        low: Optional[Number] = None,
        high: Optional[Number] = None,
        *,
        marginal_low: Optional[Number] = None,
        marginal_high: Optional[Number] = None,
        soft: bool = False,
    ) -> Measurement:
        __tracebackhide__ = True
        if isinstance(values, (str, bytes)):
            raise TypeError(f"measure.values {name!r}: several numbers are expected, not {type(values).__name__}")
        several = tuple(values)
        for at, value in enumerate(several):
            _ensure_number(name, f"value {at + 1}", value)
        limits = _limits(name, low, high, marginal_low, marginal_high)
        return self._add(Measurement(_json.one_line(name), several, _json.one_line(unit), *limits), soft)

    def text(
        self,
        name: str,
        value: str,
        *,
        equals: Optional[str] = None,
        matches: Optional[str] = None,
        one_of: Optional[Sequence[str]] = None,
        soft: bool = False,
    ) -> Measurement:
        __tracebackhide__ = True
        if not isinstance(value, str):
            raise TypeError(f"measure.text {name!r}: the value is a text, not {type(value).__name__} ({value!r})")
        if isinstance(one_of, str):
            raise TypeError(f"measure.text {name!r}: one_of is a list of texts, not a text")
        expected, fits = [], True
        if equals is not None:
            expected.append(f"equals {equals!r}")
            fits = value == equals
        if matches is not None:
            expected.append(f"matches {matches}")
            fits = fits and re.fullmatch(matches, value) is not None
        if one_of is not None:
            expected.append(f"is one of {', '.join(map(repr, one_of))}")
            fits = fits and value in one_of
        said = _json.one_line(" and ".join(expected))
        return self._add(Measurement(_json.one_line(name), value, expected=said, is_expected=fits), soft)

    def attach(self, name: str, data: Union[str, bytes, "os.PathLike[str]"]) -> str:
        if not isinstance(data, (str, bytes, os.PathLike)):
            raise TypeError(f"attach {name!r}: a text, bytes or a path is expected, not {type(data).__name__}")
        return self.store(name, data)

    def _add(self, measurement: Measurement, soft: bool) -> Measurement:
        __tracebackhide__ = True
        self.on_measurement(measurement)
        if not measurement.passed:
            if not soft:
                # What failed before is part of the reason.
                failed, self.soft = [*self.soft, measurement], []
                raise MeasurementFailed(*failed)
            self.soft.append(measurement)
        return measurement


def exact(number: Number) -> str:
    """A number with all its digits: those of the device, if it came from there."""
    text = getattr(number, "text", None)
    if isinstance(text, str):
        return text
    if isinstance(number, Decimal):
        return str(number)
    if isinstance(number, int):
        # `str` refuses integers of more than 4300 digits.
        return str(number) if number.bit_length() < 14_000 else str(Decimal(number))
    try:
        return float.__repr__(float(number))
    except (OverflowError, ValueError):
        return str(number)


def _digits(number: Number) -> str:
    """A number for people. Floats that were computed are rounded to ten digits."""
    if isinstance(number, (int, Decimal)) or isinstance(getattr(number, "text", None), str):
        return exact(number)
    return f"{float(number):.10g}"


def _is_finite(number: Number) -> bool:
    text = getattr(number, "text", None)
    if isinstance(text, str):
        # A number of the device, which may be beyond floats.
        return _json.decimal(text) is not None
    if isinstance(number, Decimal):
        return number.is_finite()
    try:
        return math.isfinite(number)
    except OverflowError:
        # An integer, or a fraction, beyond floats.
        return True


def _is_within(value: Number, low: Optional[Number], high: Optional[Number]) -> bool:
    return (low is None or _is_at_most(low, value)) and (high is None or _is_at_most(value, high))


def _is_at_most(one: Number, other: Number) -> bool:
    """Whether a number is at most another. Numbers of the device count with all their digits, as in evals. Beside a Decimal, a float is
    the number that it is written as: 3.3, not 3.2999…"""
    pair: List[Any] = [one, other]
    if any(isinstance(number, Decimal) or hasattr(number, "text") for number in pair):
        pair = [_as_written(number) for number in pair]
    try:
        return bool(pair[0] <= pair[1])
    except ArithmeticError:
        # A signaling NaN.
        return False


def _as_written(number: Any) -> Any:
    """A number as one that is compared exactly."""
    if isinstance(number, (Decimal, numbers.Rational)):
        return number
    return Decimal(exact(number))


def _ensure_number(name: str, what: str, number: Any) -> None:
    # NumPy's numbers are real numbers, too.
    if not isinstance(number, (numbers.Real, Decimal)) or isinstance(number, bool):
        raise TypeError(f"measure {name!r}: {what} is a number, not {type(number).__name__} ({number!r})")


def _limits(
    name: str, low: Optional[Number], high: Optional[Number], marginal_low: Optional[Number], marginal_high: Optional[Number]
) -> Tuple[Optional[Number], Optional[Number], Optional[Number], Optional[Number]]:
    limits = {"low": low, "marginal_low": marginal_low, "marginal_high": marginal_high, "high": high}
    there = [(what, limit) for what, limit in limits.items() if limit is not None]
    for what, limit in there:
        _ensure_number(name, what, limit)
        if not _is_finite(limit):
            raise ValueError(f"measure {name!r}: {what} is {limit!r}; leave a limit out where there is none")
    for (below, least), (above, most) in zip(there, there[1:]):
        if not _is_at_most(least, most):
            raise ValueError(f"measure {name!r}: {below} is {least!r}, which is above {above}, {most!r}")
    return low, high, marginal_low, marginal_high
