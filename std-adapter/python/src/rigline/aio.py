"""The client for asyncio: the same :class:`Rig`, whose calls are awaited."""

from __future__ import annotations

import asyncio
import queue
import threading
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Awaitable, Callable, Generator, List, Mapping, Optional, Tuple, Type, TypeVar

from ._connection import Traffic
from .client import Context, Rig
from .errors import Cancelled
from .result import Log, Manifest, Result

__all__ = ["AsyncRig", "connect_async"]

T = TypeVar("T")
Self = TypeVar("Self", bound="AsyncRig")


class AsyncRig:
    """A session with an extension, for asyncio: ``await rig.measure(channel="3V3")``.

    Calls take turns. Cancelling one (a task's ``cancel``, ``asyncio.wait_for``, Ctrl-C) cuts it off and switches outputs off;
    the next call connects again. :func:`connect_async` makes one.
    """

    def __init__(self, rig: Rig, worker: _Worker) -> None:
        self._rig = rig
        self._worker = worker

    @property
    def target(self) -> str:
        """The target's text."""
        return self._rig.target

    @property
    def manifest(self) -> Manifest:
        """What the extension says about itself."""
        return self._rig.manifest

    @property
    def traffic(self) -> Tuple[Traffic, ...]:
        """The last 400 lines of the connection, both ways and its standard error."""
        return self._rig.traffic

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return self._rig.closed

    def on_log(self, listener: Callable[[Log], None]) -> None:
        """Calls a function with each log as it comes, in a separate thread. Logs go to :mod:`logging` in any case."""
        self._rig.on_log(listener)

    async def call(
        self,
        operation: str,
        arguments: Optional[Mapping[str, Any]] = None,
        /,
        *,
        timeout: Optional[float] = None,
        context: Optional[Context] = None,
        **named: Any,
    ) -> Result:
        """Calls an operation; as :meth:`Rig.call`."""
        cut = threading.Event()

        def cancel() -> None:
            # The worker may have begun, and not have come as far as to a connection.
            cut.set()
            self._rig.cancel()

        return await self._worker.run(
            lambda: self._rig._call(operation, arguments, timeout, context, named, cut.is_set), cancel
        )

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Result]]:
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        operation = self._rig._operation(name)

        def method(arguments: Optional[Mapping[str, Any]] = None, /, **named: Any) -> Awaitable[Result]:
            return self.call(operation, arguments, **named)

        method.__name__ = method.__qualname__ = name
        method.__doc__ = self.manifest.operations[operation].description
        return method

    def __dir__(self) -> List[str]:
        return sorted({*super().__dir__(), *(set(dir(self._rig)) - set(dir(Rig)))})

    def __repr__(self) -> str:
        return f"<Async{repr(self._rig)[1:]}"

    async def close(self, *, keep: Optional[bool] = None) -> None:
        """Ends the session; as :meth:`Rig.close`."""
        # Not to be cut off: outputs are to be off afterwards.
        await asyncio.shield(self._worker.run(lambda: self._rig.close(keep=keep), lambda: None))
        self._worker.stop()

    async def __aenter__(self: Self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.close(keep=False if error is not None else None)


class connect_async:  # noqa: N801 - it is used as a function is
    """Opens a session as :func:`connect` does: ``async with connect_async("sim") as rig``, or ``await connect_async("sim")``."""

    def __init__(self, target: Optional[str] = None, **options: Any) -> None:
        self._target, self._options = target, options
        self._rig: Optional[AsyncRig] = None

    def __await__(self) -> Generator[Any, None, AsyncRig]:
        return self._connect().__await__()

    async def __aenter__(self) -> AsyncRig:
        self._rig = await self._connect()
        return self._rig

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        assert self._rig is not None
        await self._rig.__aexit__(kind, error, trace)

    async def _connect(self) -> AsyncRig:
        worker = _Worker()
        opened: List[Rig] = []
        given_up = threading.Event()

        def connect() -> Rig:
            rig = Rig(self._target, **self._options)
            opened.append(rig)
            if given_up.is_set():
                rig.close()
                raise Cancelled("the wait for the rig was cancelled")
            return rig

        def close() -> None:
            for rig in opened:
                rig.close()

        def give_up() -> None:
            given_up.set()
            worker.submit(close)

        try:
            return AsyncRig(await worker.run(connect, give_up), worker)
        except BaseException:
            worker.stop()
            raise


class _Worker:
    """A daemon thread that does one thing after the other. It ends with its owner."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Optional[Callable[[], None]]] = queue.SimpleQueue()
        self._stopped = False
        threading.Thread(target=_work, args=(self._jobs,), name="rigline asyncio", daemon=True).start()

    def __del__(self) -> None:
        self.stop()

    def stop(self) -> None:
        self._stopped = True
        self._jobs.put(None)

    def submit(self, action: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()

        def job() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action())
            except BaseException as error:
                future.set_exception(error)

        if self._stopped:
            # The rig is closed, and says so at once.
            job()
        else:
            self._jobs.put(job)
        return future

    async def run(self, action: Callable[[], T], cancel: Callable[[], None]) -> T:
        future = self.submit(action)
        waiting = asyncio.wrap_future(future)
        # There may be no caller left for the error of a cancelled call.
        waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            # What has not begun is left out; what runs is cut off.
            if not future.cancel() and not future.done():
                cancel()
            raise


def _work(jobs: queue.SimpleQueue[Optional[Callable[[], None]]]) -> None:
    while True:
        job = jobs.get()
        if job is None:
            return
        job()
        del job
