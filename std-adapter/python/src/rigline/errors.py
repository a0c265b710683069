"""What can go wrong, one class a kind.

=====================  ==========================================================  =========
class                  what happened                                               JSON-RPC
=====================  ==========================================================  =========
OperationFailed        the operation ran, and its own logic failed                 (result)
UnknownOperation       the extension has no such operation                         -32601
BadArguments           arguments are missing, unknown or out of range              -32602
Unreachable            the operation could not be carried out                      -32000
Forbidden              it is not allowed, an Unreachable of rigline's own servers  -32000
CallTimeout            the call did not end in time                                -32001
RequirementNotMet      a program that the extension needs is missing               -32002
InternalError          the extension has an internal fault                        -32603
ProtocolError          an answer came that cannot be used                          others
TooLarge               its answer does not fit, an InternalError of theirs         -32603
TargetError            the target's text is wrong
ConnectFailed          there is no such device or program, or it did not answer
ConnectionLost         the device, the program or the server went away
Cancelled              the call was cancelled
RigClosed              the rig was closed before
=====================  ==========================================================  =========

All of them are :class:`RiglineError`. All but :class:`OperationFailed` are :class:`RigError` too: they say that the rig or
its use is at fault, and nothing about the board under test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Type

if TYPE_CHECKING:
    from .result import Result

__all__ = [
    "BadArguments",
    "CallTimeout",
    "Cancelled",
    "ConnectFailed",
    "ConnectionLost",
    "Forbidden",
    "InternalError",
    "OperationFailed",
    "ProtocolError",
    "RequirementNotMet",
    "RigBusy",
    "RigClosed",
    "RigError",
    "RiglineError",
    "TargetError",
    "TooLarge",
    "UnknownOperation",
    "Unreachable",
]


#: What rigline's own servers say of a failure in its data.
KIND_NAME = "rigline/kind"
CODE_NAME = "rigline/code"


class RiglineError(Exception):
    """Anything that this package raises."""

    def __init__(
        self,
        message: str,
        *,
        operation: Optional[str] = None,
        code: Optional[int] = None,
        data: Any = None,
        refused: bool = False,
    ) -> None:
        super().__init__(message)
        #: What happened, as one text.
        self.message = message
        #: The operation that was called, if one was.
        self.operation = operation
        #: The JSON-RPC error code, if one came.
        self.code = code
        #: The JSON-RPC error's data; ``None`` if there is none.
        self.data = data
        #: Whether the extension itself said so, in a JSON-RPC error.
        self.refused = refused

    @property
    def own_code(self) -> Optional[str]:
        """The code that the operation itself has chosen, of an extension that is served by rigline."""
        code = self.data.get(CODE_NAME) if isinstance(self.data, dict) else None
        return code if isinstance(code, str) else None

    def __str__(self) -> str:
        return self.message if self.operation is None else f"{self.operation}: {self.message}"

    def __reduce__(self) -> Any:
        # Errors cross processes (pytest-xdist, multiprocessing): keyword arguments must survive.
        return (_restore, (type(self), self.message, dict(self.__dict__)))


class OperationFailed(RiglineError, AssertionError):
    """The operation ran, and its own logic failed: what it looked at is not as it should be.

    It is an AssertionError, so that reports show a failure of the board under test, and no fault of the rig.
    """

    #: Message, outputs and logs of the failed call.
    result: Result

    def __init__(self, message: str, result: Result, data: Any = None) -> None:
        super().__init__(message, operation=result.operation, data=data)
        self.result = result


class RigError(RiglineError):
    """The rig, the way to it or its use is at fault, and not the board under test."""


class TargetError(RigError, ValueError):
    """The target's text is wrong."""


class ConnectFailed(RigError, ConnectionError):
    """No session could be opened: no such device or program, the port is in use, or it did not answer."""


class ConnectionLost(RigError, ConnectionError):
    """The device, the program or the server went away. The next call connects again."""


class Cancelled(RigError):
    """The call was cancelled by :meth:`Rig.cancel`. The rig is in its safe state, and the next call connects again."""


class RigBusy(ConnectFailed):
    """Another run, or another program, uses the rig."""


class RigClosed(RigError):
    """The rig was closed, or belongs to another process."""


class UnknownOperation(RigError, AttributeError):
    """The extension has no such operation."""


class BadArguments(RigError, TypeError):
    """Arguments are missing, unknown, of the wrong type or out of range."""


class Unreachable(RigError):
    """The operation could not be carried out: no access to the hardware, a service that is away."""


class Forbidden(Unreachable):
    """The operation is not allowed."""


class CallTimeout(RigError, TimeoutError):
    """The call did not end in time."""


class RequirementNotMet(RigError):
    """A program that the extension needs is missing."""


class InternalError(RigError):
    """The extension has an internal fault, or its answer does not fit its memory."""


class TooLarge(InternalError):
    """The answer does not fit the extension's memory."""


class ProtocolError(RigError):
    """An answer came that cannot be used."""


def _restore(kind: Type[RiglineError], message: str, state: Dict[str, Any]) -> RiglineError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


_BY_CODE: Dict[int, Type[RigError]] = {
    -32601: UnknownOperation,
    -32602: BadArguments,
    -32603: InternalError,
    -32000: Unreachable,
    -32001: CallTimeout,
    -32002: RequirementNotMet,
}


_BY_KIND: Dict[str, Type[RigError]] = {"forbidden": Forbidden, "too_large": TooLarge}


def of_code(code: Optional[int], data: Any = None) -> Type[RigError]:
    """The class for a JSON-RPC error code. In the error's data, rigline's own servers say what the code does not."""
    if code is None:
        return ProtocolError
    kind = _BY_KIND.get(str(data.get(KIND_NAME))) if isinstance(data, dict) else None
    return kind or _BY_CODE.get(code, ProtocolError)
