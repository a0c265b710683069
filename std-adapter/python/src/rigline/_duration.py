"""Time limits as the gevals protocol writes them: Go's durations, such as ``1m30s``."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Union

_LONGEST = 2**63 - 1  # nanoseconds


def of_seconds(seconds: Union[int, float, Decimal]) -> str:
    """A time span as Go's ``time.Duration`` prints it. Raises ValueError unless it is more than zero."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float, Decimal)):
        raise TypeError(f"a timeout is a number of seconds, not {type(seconds).__name__}")
    if not (isinstance(seconds, int) or math.isfinite(seconds)) or not seconds > 0:
        raise ValueError(f"a timeout must be more than zero seconds, and finite; {seconds!r} is not")
    # A subclass of float, such as numpy's, may have a `repr` that is no number.
    nanoseconds = max(1, round(Decimal(float.__repr__(seconds) if isinstance(seconds, float) else seconds) * 10**9))
    if nanoseconds > _LONGEST:
        raise ValueError(f"a timeout of {seconds!r} s is too long: the protocol ends at 292 years")
    for unit, size in (("ns", 1), ("µs", 1000), ("ms", 10**6)):
        if nanoseconds < size * 1000:
            return _fraction(nanoseconds, size) + unit
    minutes, rest = divmod(nanoseconds, 60 * 10**9)
    hours, minutes = divmod(minutes, 60)
    text = f"{hours}h" if hours else ""
    if hours or minutes:
        text += f"{minutes}m"
    return text + _fraction(rest, 10**9) + "s"


def _fraction(value: int, size: int) -> str:
    whole, rest = divmod(value, size)
    digits = len(str(size)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0").rstrip(".") if rest else str(whole)
