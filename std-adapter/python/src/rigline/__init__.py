"""Drive hardware-test rigs, and any other gevals extension, from Python.

>>> import rigline
>>> with rigline.connect("sim") as rig:
...     _ = rig.power(rail="3V3", on=True)
...     volts = rig.measure(channel="3V3").number("volts")
>>> 3.0 < volts < 3.6
True

At the end of the block the rig's outputs are off, however it ends. :func:`connect_async` is the same for asyncio.
"""

from __future__ import annotations

from ._connection import Traffic
from ._console import Heard, Match, Uart
from .aio import AsyncRig, connect_async
from .client import Context, Rig, connect
from .errors import (
    BadArguments,
    CallTimeout,
    Cancelled,
    ConnectFailed,
    ConnectionLost,
    Forbidden,
    InternalError,
    OperationFailed,
    ProtocolError,
    RequirementNotMet,
    RigBusy,
    RigClosed,
    RigError,
    RiglineError,
    TargetError,
    TooLarge,
    UnknownOperation,
    Unreachable,
)
from .result import Log, Manifest, Operation, Parameter, Reading, Result

__all__ = [
    "AsyncRig",
    "BadArguments",
    "CallTimeout",
    "Cancelled",
    "ConnectFailed",
    "ConnectionLost",
    "Context",
    "Forbidden",
    "Heard",
    "InternalError",
    "Log",
    "Manifest",
    "Match",
    "Operation",
    "OperationFailed",
    "Parameter",
    "ProtocolError",
    "Reading",
    "RequirementNotMet",
    "Result",
    "Rig",
    "RigBusy",
    "RigClosed",
    "RigError",
    "RiglineError",
    "TargetError",
    "Traffic",
    "Uart",
    "UnknownOperation",
    "Unreachable",
    "connect",
    "connect_async",
]
