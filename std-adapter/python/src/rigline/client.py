"""The client: :func:`connect` opens a session, and a :class:`Rig` calls operations."""

from __future__ import annotations

import difflib
import keyword
import logging
import os
import threading
import time
import weakref
from collections import deque
from types import TracebackType
from typing import Any, Callable, Deque, Dict, List, Mapping, NoReturn, Optional, Tuple, Type, TypeVar, Union

from . import _duration, _json, _protocol, _target
from ._connection import Connection, Traffic
from ._console import Uart
from ._lock import RigLock
from .errors import (
    BadArguments,
    CallTimeout,
    Cancelled,
    ConnectFailed,
    ConnectionLost,
    OperationFailed,
    ProtocolError,
    RigBusy,
    RigClosed,
    RigError,
    RiglineError,
    UnknownOperation,
    of_code,
)
from .result import Log, Logs, Manifest, Result

__all__ = ["Context", "Rig", "connect"]

Self = TypeVar("Self", bound="Rig")

#: How long the extension's own timeout error may take beyond the call's time limit. No other answer counts then.
GRACE = 2.0
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING, "error": logging.ERROR}
logger = logging.getLogger("rigline")


class Context:
    """A call's surroundings, as the gevals protocol has them. All parts are optional."""

    def __init__(
        self,
        *,
        phase: str = "",
        workdir: Optional[Union[str, "os.PathLike[str]"]] = None,
        env: Optional[Mapping[str, str]] = None,
        agent: Optional[Mapping[str, str]] = None,
    ) -> None:
        if phase not in ("", "setup", "verify", "cleanup"):
            raise ValueError(f"the phase is setup, verify or cleanup, not {phase!r}")
        self.phase = phase
        self.workdir = workdir
        self.env = dict(env or {})
        self.agent = dict(agent) if agent is not None else None

    def text(self, timeout: str) -> str:
        """The context as JSON text."""
        where = os.getcwd() if self.workdir is None else os.fspath(self.workdir)
        members: Dict[str, Any] = {"workdir": where, "phase": self.phase}
        if self.env:
            members["env"] = self.env
        members["timeout"] = timeout
        if self.agent is not None:
            members["agent"] = self.agent
        return _json.dumps(members, "context")


def connect(
    target: Optional[str] = None,
    *,
    config: Optional[Mapping[str, Any]] = None,
    timeout: float = 30.0,
    start_timeout: float = 10.0,
    wait: float = 0.0,
    keep: bool = False,
    record: Optional[Union[str, "os.PathLike[str]"]] = None,
) -> Rig:
    """Opens a session with the extension at `target`, and gives its :class:`Rig`.

    :param target: ``sim``, ``serial:auto``, ``serial:/dev/ttyACM0``, ``tcp:HOST:PORT``, ``exec:PROGRAM ARGS`` or a program's
        path. Without one, the environment variable ``RIGLINE_TARGET`` counts, and then ``serial:auto``.
    :param config: the extension's own settings.
    :param timeout: how long a call may take, in seconds, unless it says otherwise.
    :param start_timeout: how long the extension may take to start.
    :param wait: how long a port that is in use, or a device that is not plugged in, is waited for.
    :param keep: leave the hardware as it is when the rig is closed. Otherwise its outputs are switched off.
    :param record: a folder for a recording of the session, which the target ``replay:FOLDER`` replays. It must be new, empty, or an
        earlier recording's. The sessions after a loss are recorded in ``FOLDER-2`` and so on.

    Raises :class:`TargetError` where the target's text is wrong, and :class:`ConnectFailed` where nothing is there.
    """
    return Rig(
        target, config=config, timeout=timeout, start_timeout=start_timeout, wait=wait, keep=keep, record=record
    )


class Rig:
    """A session with an extension. Its operations are methods: ``rig.measure(channel="3V3")``.

    A name's ``_`` stands for ``-`` where the extension has it, and a final ``_`` is left out where the name would be a word of
    Python. Use it as a context manager: at the end of the block, however it ends, outputs are switched off.

    A rig may be used by several threads; their calls take turns. It cannot be used in another process than the one that opened
    it. After a loss the next call connects again.
    """

    def __init__(
        self,
        target: Optional[str] = None,
        *,
        config: Optional[Mapping[str, Any]] = None,
        timeout: float = 30.0,
        start_timeout: float = 10.0,
        wait: float = 0.0,
        keep: bool = False,
        record: Optional[Union[str, "os.PathLike[str]"]] = None,
    ) -> None:
        if target is None:
            target = os.environ.get("RIGLINE_TARGET") or "serial:auto"
        _duration.of_seconds(timeout)
        _duration.of_seconds(start_timeout)
        if not wait >= 0:
            raise ValueError(f"wait is a number of seconds, and not {wait!r}")
        timeout, start_timeout, wait = float(timeout), float(start_timeout), float(wait)
        self._target = target
        self._config = None if config is None else _json.dumps(config, "config")
        self._timeout, self._start_timeout, self._wait, self._keep = timeout, start_timeout, wait, keep
        self._pid = os.getpid()
        self._turn = threading.Lock()
        self._closed = False
        #: How often a call was cancelled.
        self._cuts = 0
        self._traffic: Deque[Traffic] = deque(maxlen=400)
        self._logs = Logs()
        self._listeners: List[Callable[[Log], None]] = []
        self._taps: List[Callable[[Traffic], None]] = []
        self._record = None if record is None else os.fspath(record)
        #: How many connections there were.
        self._sessions = 0
        self._is_safe = False
        self._lock: Optional[RigLock] = None
        self._manifest: Optional[Manifest] = None
        # What ends with this object must not hold it.
        self._box: List[Optional[Connection]] = [None]
        self._finalizer = weakref.finalize(self, _finalize, self._box, os.getpid())
        try:
            self._open()
        except BaseException:
            self._let_go()
            raise

    # The session

    @property
    def target(self) -> str:
        """The target's text."""
        return self._target

    @property
    def manifest(self) -> Manifest:
        """What the extension says about itself."""
        assert self._manifest is not None
        return self._manifest

    @property
    def traffic(self) -> Tuple[Traffic, ...]:
        """The last 400 lines of the connection, both ways and its standard error."""
        return tuple(self._traffic)

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._closed

    def close(self, *, keep: Optional[bool] = None) -> None:
        """Ends the session. Outputs are switched off, unless `keep` leaves the hardware as it is.

        Closing again does nothing. A call that another thread has out is cut off.
        """
        if self._pid != os.getpid() or self._closed:
            return
        self._closed = True
        self._finalizer.detach()
        connection, self._box[0] = self._box[0], None
        if connection is None:
            self._let_go()
            return
        is_idle = self._turn.acquire(blocking=False)
        try:
            if is_idle and connection.is_alive and (self._keep if keep is None else keep):
                try:
                    connection.wait(connection.start(lambda session: session.shutdown()), 5.0)
                except (RiglineError, TimeoutError):
                    pass
            connection.end(at_once=not is_idle, error=RigClosed("the rig was closed"))
        finally:
            self._let_go()
            if is_idle:
                self._turn.release()

    def cancel(self) -> None:
        """Cuts off the call that is out, from another thread: it raises :class:`Cancelled`, and outputs are switched off."""
        # A call that is still connecting looks at this.
        self._cuts += 1
        connection = self._box[0]
        if connection is not None and self._pid == os.getpid():
            connection.interrupt(Cancelled("the call was cancelled"))

    def on_log(self, listener: Callable[[Log], None]) -> None:
        """Calls a function with each log as it comes, in a separate thread. Logs go to :mod:`logging` in any case."""
        self._listeners.append(listener)

    def on_traffic(self, listener: Callable[[Traffic], None]) -> None:
        """Calls a function with each line of the connection, both ways, in a separate thread. Lines over 2000 characters are cut."""
        self._taps.append(listener)

    def make_safe(self) -> None:
        """Switches the outputs off: it ends the session, so that the rig goes into its safe state. The next call begins a new one."""
        if self._pid != os.getpid() or self._closed:
            return
        with self._turn:
            connection, self._box[0] = self._box[0], None
            if connection is not None:
                connection.end(at_once=False)
                self._is_safe = True

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        # What went wrong half-way is left with its outputs off.
        self.close(keep=False if error is not None else None)

    # Calls

    def call(
        self,
        operation: str,
        arguments: Optional[Mapping[str, Any]] = None,
        /,
        *,
        timeout: Optional[float] = None,
        context: Optional[Context] = None,
        **named: Any,
    ) -> Result:
        """Calls an operation, and gives its :class:`Result`.

        Arguments go by name, ``rig.call("measure", channel="3V3")``, or in a mapping, which also takes names that are not
        Python's, and an argument that is itself called ``timeout`` or ``context``.

        :param timeout: how long the call may take, in seconds. The extension gets it too.

        Raises :class:`OperationFailed` where the operation says that it failed, and a :class:`RigError` where it could not be
        asked. Ctrl-C cancels the call: outputs are switched off.
        """
        __tracebackhide__ = True  # by pytest
        return self._call(operation, arguments, timeout, context, named, lambda: False)

    def _call(
        self,
        operation: str,
        arguments: Optional[Mapping[str, Any]],
        timeout: Optional[float],
        context: Optional[Context],
        named: Mapping[str, Any],
        is_cut: Callable[[], bool],
    ) -> Result:
        __tracebackhide__ = True
        shown = _duration.of_seconds(self._timeout if timeout is None else timeout)
        limit = self._timeout if timeout is None else float(timeout)
        with self._turn:
            cuts = self._cuts
            connection = self._connected(operation)
            name = self._operation(operation)
            text = self._arguments(name, arguments, named)
            surroundings = (context or Context()).text(shown)
            self._check_size(name, text, surroundings)
            logs = self._logs = Logs()
            began = time.monotonic()
            # Whoever cancels from here on finds the connection.
            if is_cut() or self._cuts != cuts:
                raise Cancelled("the call was cancelled before it began", operation=name)
            try:
                future = connection.start(lambda session: session.execute(name, text, surroundings))
                began = time.monotonic()
                answer = connection.wait(future, limit + GRACE)
            except TimeoutError:
                details = connection.details()
                self._drop(connection, Cancelled("the call did not end in time"))
                raise CallTimeout(
                    f"no answer within {limit + GRACE:g} s; the rig was disconnected, and outputs are off{details}",
                    operation=name,
                ) from None
            except RiglineError as error:
                self._drop(connection, None)
                raise _for_call(error, name) from None
            except BaseException:
                # Ctrl-C and the like: the call must not go on.
                self._drop(connection, Cancelled("the call was interrupted"))
                raise
            result = Result(
                operation=name,
                message=_json.printable(answer.message),
                outputs=answer.outputs,
                logs=logs.all(),
                duration=(answer.came or time.monotonic()) - began,
                faults=answer.faults,
            )
        if result.duration > limit and not (answer.kind == "refused" and of_code(answer.code) is CallTimeout):
            said = result.message or _json.printable(answer.error)
            raise CallTimeout(
                f"the answer came after {result.duration:.3f} s, beyond the time limit of {limit:g} s"
                + (f"; it said: {said}" if said else ""),
                operation=name,
            )
        if answer.kind == "success":
            return result
        error_text = _json.printable(answer.error)
        if answer.kind == "failed":
            raise OperationFailed(error_text, result, answer.data)
        if answer.kind == "refused":
            kind = of_code(answer.code, answer.data)
            if kind is ProtocolError and answer.code is not None:
                error_text += f" ({answer.code})"
            raise kind(error_text, operation=name, code=answer.code, data=answer.data, refused=True)
        raise ProtocolError(error_text, operation=name)

    @property
    def uart(self) -> Uart:
        """The console of the board under test, if the rig has one."""
        self._operation("uart-expect")
        return Uart(self)

    def __getattr__(self, name: str) -> Callable[..., Result]:
        # Only reached for what is not an attribute.
        if name.startswith("_") or self.__dict__.get("_manifest") is None:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        operation = self._operation(name)

        def method(arguments: Optional[Mapping[str, Any]] = None, /, **named: Any) -> Result:
            __tracebackhide__ = True
            return self.call(operation, arguments, **named)

        method.__name__ = method.__qualname__ = name
        method.__doc__ = self.manifest.operations[operation].description
        return method

    def __dir__(self) -> List[str]:
        names = {python_name(name) for name in self.manifest.operations}
        return sorted({*super().__dir__(), *names})

    def __repr__(self) -> str:
        about = f" {self.manifest.name} {self.manifest.version}" if self._manifest else ""
        return f"<{type(self).__name__}{about} at {self._target}{', closed' if self._closed else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a rig cannot be passed to another process; pass the target, and connect there")

    # Inside

    def _let_go(self) -> None:
        """Lets others have the rig."""
        if self._lock is not None:
            self._unlock()

    def _open(self) -> Connection:
        self._sessions += 1
        if self._lock is None and self._target.strip().startswith("tcp:"):
            # Others may share a server, but no run that has it alone.
            shared = RigLock(self._target, shared=True)
            shared.acquire(self._wait)
            self._lock = shared
            self._unlock = weakref.finalize(self, shared.release)
        endpoint = _target.resolve(
            self._target,
            wait=self._wait,
            start_timeout=self._start_timeout,
            record=self._record,
            session=self._sessions,
        )
        sink = _log_sink(weakref.ref(self))
        connection = Connection(endpoint, self._target, self._start_timeout, sink, self._traffic, self._taps)
        self._box[0] = connection
        if self._closed:
            # It was closed while it connected again, and `close` did not find this connection.
            error = RigClosed("the rig was closed")
            self._drop(connection, error)
            raise error
        patience = self._start_timeout + self._wait + GRACE
        try:
            future = connection.start(lambda session: session.initialize(self._config))
            answer = connection.wait(future, patience)
        except TimeoutError:
            details = connection.details()
            self._drop(connection, None)
            raise ConnectFailed(
                f"{self._target} did not answer within {patience:g} s; is it a gevals extension?{details}"
            ) from None
        except ConnectionLost as error:
            self._drop(connection, None)
            kind = RigBusy if " is in use by " in error.message else ConnectFailed
            raise kind(f"no session could be opened: {error.message}") from None
        except BaseException:
            self._drop(connection, Cancelled("interrupted"))
            raise
        if answer.kind != "success" or not isinstance(answer.result, dict):
            why = answer.error if answer.kind != "success" else "its manifest is not an object"
            details = connection.details()
            self._drop(connection, None)
            kind = RigBusy if " is in use by " in why else ConnectFailed
            raise kind(f"{self._target}: {_json.printable(why)}{details}", code=answer.code, data=answer.data)
        self._manifest = Manifest.of(answer.result)
        logger.debug("%s: connected to %s %s", self._target, self._manifest.name, self._manifest.version)
        return connection

    def _connected(self, operation: str) -> Connection:
        if self._pid != os.getpid():
            raise RigClosed("the rig belongs to the process that opened it; connect again in this one", operation=operation)
        if self._closed:
            raise RigClosed("the rig was closed", operation=operation)
        connection = self._box[0]
        if connection is not None and connection.is_alive:
            return connection
        if connection is not None:
            self._drop(connection, None)
        level = logging.DEBUG if self._is_safe else logging.WARNING
        self._is_safe = False
        logger.log(level, "%s: connecting again; the state of the earlier session is lost", self._target)
        return self._open()

    def _drop(self, connection: Connection, error: Optional[RigError]) -> None:
        """Ends a connection, so that the hardware goes into its safe state."""
        if self._box[0] is connection:
            self._box[0] = None
        connection.end(at_once=True, error=error)

    def _operation(self, name: str) -> str:
        operations = self.manifest.operations
        found = resolve_name(name, operations)
        if found is not None:
            return found
        alike = [other for other in operations if _dashed(other) == _dashed(name)]
        if len(alike) > 1:
            raise UnknownOperation(f"{name!r} may be {' or '.join(alike)}; write one of them with call()")
        near = difflib.get_close_matches(name.replace("_", "-"), operations, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        known = ", ".join(operations) or "none"
        raise UnknownOperation(f"{self.manifest.name} has no operation {name!r}{hint} (known operations: {known})")

    def _arguments(self, operation: str, given: Optional[Mapping[str, Any]], named: Mapping[str, Any]) -> str:
        if given is not None and not isinstance(given, Mapping):
            what = type(given).__name__
            raise BadArguments(f"arguments go by name, or in one mapping; this is a {what}", operation=operation)
        known = self.manifest.operations[operation]
        schema = {parameter.name: parameter for parameter in known.parameters}
        arguments: Dict[str, Any] = dict(given or {})
        for name, value in named.items():
            name = resolve_name(name, schema) or name
            if name in arguments:
                raise BadArguments(f"the argument {name!r} was given twice", operation=operation)
            arguments[name] = value
        for name in arguments:
            if name not in schema and not known.is_open:
                near = difflib.get_close_matches(str(name), schema, 1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                takes = ", ".join(schema) or "none"
                raise BadArguments(f"there is no argument {name!r}{hint} (known arguments: {takes})", operation=operation)
        missing = [parameter.name for parameter in schema.values() if parameter.required and parameter.name not in arguments]
        if missing:
            s = "s" if len(missing) > 1 else ""
            raise BadArguments(f"missing argument{s}: {', '.join(missing)}", operation=operation)
        try:
            return _json.dumps(arguments, "args")
        except (TypeError, ValueError) as error:
            raise BadArguments(str(error), operation=operation) from None

    def _check_size(self, operation: str, arguments: str, context: str) -> None:
        limit = self.manifest.request_limit
        # The frame around them, with the longest id.
        size = len(arguments) + len(context) + len(operation) + 100
        if limit is not None and size > limit and len(arguments) > limit // 2:
            raise BadArguments(f"the arguments have {len(arguments)} bytes; the limit of a request is {limit}", operation=operation)


def python_name(name: str) -> str:
    """An operation's or argument's name as Python can write it."""
    name = "".join(char if char.isalnum() or char == "_" else "_" for char in name)
    if not name or name[0].isdigit():
        name = "_" + name
    return name + "_" if keyword.iskeyword(name) else name


def resolve_name(name: str, known: Mapping[str, Any]) -> Optional[str]:
    """The known name that a name of Python's stands for."""
    if name in known:
        return name
    alike = [other for other in known if python_name(other) == name] or [other for other in known if _dashed(other) == _dashed(name)]
    return alike[0] if len(alike) == 1 else None


def _dashed(name: str) -> str:
    """A name in the spelling with ``-``: ``set-target`` is ``set_target`` in MCP."""
    return name.replace("_", "-")


def _log_sink(rig: "weakref.ref[Rig]") -> Callable[[Log], None]:
    def sink(log: Log) -> None:
        there = rig()
        if there is None:
            return
        there._logs.add(log)
        name = there._manifest.name if there._manifest else "start"
        text = _json.printable(log.message)
        if log.data is not None:
            text += " " + _json.printable(_protocol.plain(log.data))
        logging.getLogger(f"rigline.{name}").log(_LEVELS[log.level], "%s", text, extra={"rigline": log})
        for listener in list(there._listeners):
            try:
                listener(log)
            except Exception:
                logger.exception("a log listener failed")

    return sink


def _for_call(error: RiglineError, operation: str) -> RiglineError:
    """An error of the connection, as this call's own."""
    return type(error)(error.message, operation=operation, code=error.code, data=error.data)


def _finalize(box: List[Optional[Connection]], pid: int) -> None:
    connection, box[0] = box[0], None
    if connection is not None and pid == os.getpid():
        connection.end(at_once=True)
