"""One open connection: a program's pipes or a socket, the threads that read and write them, and the call that is out.

All threads are daemons, so that none keeps the interpreter alive. A process that ends, however it ends, closes its pipes and
sockets; that alone makes the other side bring about its safe state.
"""

from __future__ import annotations

import logging
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set, Union

from . import _json, _protocol, _target
from ._protocol import Answer
from .errors import ConnectFailed, ConnectionLost, ProtocolError, RigError, TargetError
from .result import Log

logger = logging.getLogger("rigline")

#: How long the other side has to bring about its safe state, before it is asked to end; and then before it is killed.
PATIENCE = 5.0
_TRAFFIC_LINES = 400
_TRAFFIC_TEXT = 2000
_STDERR_LINES = 20
#: How many bytes of answers to the other side's own requests may wait for it to read them.
_ANSWERS = 1 << 20

#: Waiting on a lock cannot be interrupted on Windows.
_SLICE = 0.1 if sys.platform == "win32" else 3600.0


class Traffic(NamedTuple):
    """A line that went over the connection."""

    #: Seconds since the epoch.
    time: float
    #: ``>`` to the extension, ``<`` from it, ``!`` its standard error.
    direction: str
    #: The line; long ones are cut.
    text: str

    def __str__(self) -> str:
        clock = time.strftime("%H:%M:%S", time.localtime(self.time))
        return f"{clock}.{int(self.time % 1 * 1000):03d} {self.direction} {self.text}"


class _ProgramChannel:
    """A child process. It has a process group of its own, so that Ctrl-C in a terminal reaches this process alone."""

    def __init__(self, program: _target.Program) -> None:
        options: Dict[str, Any] = {}
        if sys.platform == "win32":
            options["creationflags"] = subprocess.CREATE_NEW_PROCESS_GROUP
        else:
            options["start_new_session"] = True
        pipe = subprocess.PIPE
        try:
            self.process = subprocess.Popen(
                list(program.command), stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, **options
            )
        except OSError as error:
            raise ConnectFailed(f"`{program.command[0]}` cannot be started: {error.strerror or error}") from error
        assert self.process.stdin and self.process.stdout and self.process.stderr
        self._stdin, self._stdout, self.stderr = self.process.stdin, self.process.stdout, self.process.stderr

    def read(self) -> bytes:
        return self._stdout.read(1 << 16) or b""

    def write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._stdin.write(view) or 0 :]

    def close_input(self) -> None:
        _quietly(self._stdin.close)

    def terminate(self) -> None:
        """Asks it to end at once, whatever it does."""
        if self.process.poll() is None:
            _quietly(self.process.terminate)

    def end(self, patience: float) -> None:
        """Waits until it has ended; kills it if it does not."""
        try:
            for step in (patience, 2.0):
                try:
                    self.process.wait(step)
                    return
                except subprocess.TimeoutExpired:
                    self.terminate()
        finally:
            if self.process.poll() is None:
                self.kill()
                _quietly(self.process.wait, 2.0)

    def kill(self) -> None:
        if sys.platform == "win32":
            _quietly(self.process.kill)
        else:
            # Its children are in its group.
            _quietly(os.killpg, self.process.pid, signal.SIGKILL)

    def how_it_ended(self) -> str:
        try:
            code = self.process.wait(0.5)
        except subprocess.TimeoutExpired:
            return "it closed its output"
        if code >= 0:
            return f"it has ended with exit status {code}"
        try:
            return f"it was killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"it was killed by signal {-code}"

    @property
    def exit_code(self) -> Optional[int]:
        return self.process.poll()

    def release(self) -> None:
        """Lets go of the pipes."""
        for stream in (self._stdin, self._stdout, self.stderr):
            _quietly(stream.close)

    def forget(self) -> None:
        """In a forked child: the process belongs to the parent."""
        self.release()
        self.process.returncode = 0


class _SocketChannel:
    """A TCP connection."""

    stderr = None
    exit_code: Optional[int] = None

    def __init__(self, server: _target.Server, timeout: float) -> None:
        where = f"tcp:{server.host}:{server.port}"
        try:
            self._socket = socket.create_connection((server.host, server.port), timeout)
        except socket.timeout as error:
            raise ConnectFailed(f"{where} did not accept a connection within {timeout:g} s") from error
        except OSError as error:
            raise ConnectFailed(f"{where} cannot be reached: {error.strerror or error}") from error
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._ended = threading.Event()

    def read(self) -> bytes:
        try:
            data = self._socket.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            self._ended.set()
        return data

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def close_input(self) -> None:
        _quietly(self._socket.shutdown, socket.SHUT_WR)

    def terminate(self) -> None:
        _quietly(self._socket.shutdown, socket.SHUT_RDWR)

    def end(self, patience: float) -> None:
        # The server closes its side when it has seen ours.
        self._ended.wait(min(patience, 2.0))
        self.terminate()

    def kill(self) -> None:
        self.terminate()

    def how_it_ended(self) -> str:
        return "the server closed the connection"

    def release(self) -> None:
        _quietly(self._socket.close)

    def forget(self) -> None:
        # Not shut down: the parent goes on with it.
        self.release()


_Channel = Union[_ProgramChannel, _SocketChannel]


class Connection:
    """An open connection, from its first line to its end."""

    def __init__(
        self,
        endpoint: Union[_target.Program, _target.Server],
        name: str,
        start_timeout: float,
        on_log: Callable[[Log], None],
        traffic: Optional[Deque[Traffic]] = None,
        taps: Optional[List[Callable[[Traffic], None]]] = None,
    ) -> None:
        self.name = name
        self._taps: List[Callable[[Traffic], None]] = [] if taps is None else taps
        self._on_log = on_log
        self.traffic: Deque[Traffic] = deque(maxlen=_TRAFFIC_LINES) if traffic is None else traffic
        self._stderr: Deque[str] = deque(maxlen=_STDERR_LINES)
        self._skipped: Deque[str] = deque(maxlen=5)
        # A finalizer may run in whatever thread, in the middle of whatever it does.
        self._lock = threading.RLock()
        self._waiting: Dict[int, Future[Answer]] = {}
        self._lost: Optional[RigError] = None
        self._outgoing: queue.SimpleQueue[Optional[bytes]] = queue.SimpleQueue()
        #: How many bytes of it have not been written.
        self._unwritten = 0
        #: How many requests of the other side were not answered, since it does not read.
        self._unanswered = 0
        # A server may outlive this process, and a late reply to an earlier one must match no call of this one.
        base = 0 if isinstance(endpoint, _target.Program) else int.from_bytes(os.urandom(4), "big")
        self.session = _protocol.Session(base)
        self._channel: _Channel = (
            _ProgramChannel(endpoint)
            if isinstance(endpoint, _target.Program)
            else _SocketChannel(endpoint, start_timeout)
        )
        self._is_bridge = isinstance(endpoint, _target.Program) and endpoint.is_bridge
        self._threads: List[threading.Thread] = []
        with _live_lock:
            _live.add(self)
        for work in (self._read, self._write, self._read_stderr):
            self._threads.append(threading.Thread(target=work, name=f"rigline {name}", daemon=True))
        # The reader starts last: if the program ends at once, it joins the others, which must have been started.
        for thread in reversed(self._threads):
            thread.start()

    @property
    def is_alive(self) -> bool:
        return self._lost is None

    def start(self, make: Callable[[_protocol.Session], Any]) -> Future[Answer]:
        """Sends a request; the future gets its answer, or the error that kept it from coming."""
        with self._lock:
            if self._lost is not None:
                raise self._lost
            number, line = make(self.session)
            future: Future[Answer] = Future()
            future.set_running_or_notify_cancel()
            self._waiting[number] = future
        self._note(">", line)
        self._send(line)
        return future

    def _send(self, line: bytes) -> None:
        with self._lock:
            self._unwritten += len(line)
        self._outgoing.put(line)

    @staticmethod
    def wait(future: Future[Answer], timeout: float) -> Answer:
        """The answer. Raises TimeoutError if it does not come in time."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                return future.result(max(0.0, min(left, _SLICE)))
            except FutureTimeout:
                if not future.done() and time.monotonic() >= deadline:
                    raise TimeoutError from None

    def details(self) -> str:
        """What else was seen, for an error's text."""
        text = ""
        if self._unanswered:
            text = f"\nit sends requests without reading the answers: {self._unanswered} were not answered"
        for title, lines in (("its standard error ends with", self._stderr), ("lines that were skipped", self._skipped)):
            shown = [line for line in list(lines) if line.strip()][-8:]
            if shown:
                text += f"\n{title}:" + "".join(f"\n  {line}" for line in shown)
        return text

    def end(self, *, at_once: bool, error: Optional[RigError] = None) -> None:
        """Ends the connection, and waits for the other side's end.

        Without an acknowledged `shutdown` before it, the other side takes this for a loss, and brings about its safe state.
        `at_once` cuts off a call that is out.
        """
        self._lose(error or ConnectionLost(f"the connection to {self.name} was closed"))
        try:
            self._outgoing.put(None)
            if at_once:
                self._channel.terminate()
            else:
                # What is to be sent goes first.
                self._threads[1].join(1.0)
            self._channel.close_input()
            self._channel.end(PATIENCE)
        except BaseException:
            # A second Ctrl-C: nothing may be left running.
            self._channel.kill()
            raise
        finally:
            # The threads see the end of their streams before these are closed under them.
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(1.0)
            self._channel.release()
            with _live_lock:
                _live.discard(self)

    def interrupt(self, error: RigError) -> None:
        """Begins to end the connection without waiting: from another thread than the caller's, or an event loop."""
        self._lose(error)
        self._outgoing.put(None)
        self._channel.terminate()
        self._channel.close_input()

    def forget(self) -> None:
        """In a forked child: lets go of everything, so that the parent's end remains the end."""
        self._lost = ConnectionLost("the connection belongs to the process that opened it")
        self._channel.forget()

    def _lose(self, error: RigError) -> None:
        with self._lock:
            if self._lost is None:
                self._lost = error
            waiting, self._waiting = self._waiting, {}
            for number in waiting:
                self.session.forget(number)
        for future in waiting.values():
            if not future.done():
                future.set_exception(error)

    def _write(self) -> None:
        while True:
            line = self._outgoing.get()
            if line is None:
                return
            try:
                self._channel.write(line)
            except (OSError, ValueError):
                # The reader sees the end too, and knows why.
                return
            with self._lock:
                self._unwritten -= len(line)

    def _read(self) -> None:
        parts: List[bytes] = []
        size = 0
        while True:
            try:
                data = self._channel.read()
            except (OSError, ValueError):
                data = b""
            if not data:
                break
            *lines, rest = data.split(b"\n")
            for line in lines:
                parts.append(line)
                self._receive(b"".join(parts))
                parts, size = [], 0
            if rest:
                parts.append(rest)
                size += len(rest)
            if size > _protocol.LINE_LIMIT:
                limit = _protocol.LINE_LIMIT
                self._lose(ProtocolError(f"{self.name} wrote a line that is longer than {limit} bytes"))
                self._channel.terminate()
                return
        if parts:
            self._receive(b"".join(parts))
        if self._lost is None:
            self._lose(self._end_of_stream())

    def _end_of_stream(self) -> RigError:
        how = self._channel.how_it_ended()
        # What it wrote at its end is the best explanation there is.
        for thread in self._threads:
            if thread is not threading.current_thread() and thread.name.startswith("rigline") and self._channel.stderr:
                thread.join(0.2)
        if self._is_bridge and self._channel.exit_code == 2 and self._stderr:
            # The command says in its first line what is wrong with its arguments.
            first = next(iter(self._stderr))
            return TargetError(first.replace("error: ", "").replace("invalid value ", "").replace(" for '<TARGET>'", ""))
        return ConnectionLost(f"{self.name}: {how}{self.details()}")

    def _receive(self, line: bytes) -> None:
        came = time.monotonic()
        self._note("<", line)
        with self._lock:
            events = self.session.receive(line)
        for event in events:
            if isinstance(event, _protocol.Reply):
                with self._lock:
                    future = self._waiting.pop(event.id, None)
                if future is not None and not future.done():
                    event.answer.came = came
                    future.set_result(event.answer)
            elif isinstance(event, Log):
                self._on_log(event)
            elif isinstance(event, _protocol.Send):
                if self._unwritten > _ANSWERS:
                    self._unanswered += 1
                    continue
                self._note(">", event.line)
                self._send(event.line)
            elif event.text.strip():
                self._skipped.append(_json.shorten(_json.printable(event.text), 200))
                logger.debug("%s: skipped a line: %s: %s", self.name, event.why, self._skipped[-1])

    def _read_stderr(self) -> None:
        stream = self._channel.stderr
        if stream is None:
            return
        rest = b""
        while True:
            try:
                data = stream.read(1 << 16)
            except (OSError, ValueError):
                data = b""
            *lines, rest = (rest + (data or b"\n")).split(b"\n")
            for line in lines:
                if line.strip():
                    text = self._note("!", line)
                    self._stderr.append(_json.shorten(text, 400))
                    logger.debug("%s: standard error: %s", self.name, text)
            if len(rest) > _protocol.LINE_LIMIT:
                rest = b""
            if not data:
                return

    def _note(self, direction: str, line: bytes) -> str:
        cut = line[: _TRAFFIC_TEXT + 1].decode("utf-8", "replace").strip()
        text = _json.shorten(_json.printable(cut), _TRAFFIC_TEXT)
        line_seen = Traffic(time.time(), direction, text)
        self.traffic.append(line_seen)
        for tap in list(self._taps):
            try:
                tap(line_seen)
            except Exception:
                logger.exception("a listener to the traffic failed")
        return text


_live: Set[Connection] = set()
_live_lock = threading.RLock()


def _after_fork_in_child() -> None:
    global _live_lock
    _live_lock = threading.RLock()
    for connection in list(_live):
        connection.forget()
    _live.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _quietly(action: Callable[..., Any], *args: Any) -> None:
    try:
        action(*args)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        pass
