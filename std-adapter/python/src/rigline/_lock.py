"""One user at a time for a rig that several processes of this user want, such as pytest-xdist's workers.

The operating system releases the lock when its process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import threading
import time
from typing import Dict, Optional

from .errors import RigBusy

_held: Dict[int, "RigLock"] = {}
_guard = threading.Lock()


class RigLock:
    """The lock of one rig. `group` names processes that wait for each other as long as it takes."""

    def __init__(self, target: str, group: str = "") -> None:
        self._target, self._group = target, group
        who = str(os.getuid()) if hasattr(os, "getuid") else "user"
        folder = os.path.join(tempfile.gettempdir(), f"rigline-{who}")
        os.makedirs(folder, mode=0o700, exist_ok=True)
        name = hashlib.sha256(target.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        self._path = os.path.join(folder, f"{name}.lock")
        self._descriptor: Optional[int] = None

    @property
    def key(self) -> str:
        """What is the same for each name of one rig."""
        return self._path

    def acquire(self, wait: float) -> None:
        """Takes the lock. Raises RigBusy if another run has it for longer than `wait` seconds."""
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(self._path, flags, 0o600)
        try:
            deadline = time.monotonic() + wait
            while not _try_lock(descriptor):
                holder, _, group = self.holder().partition(" ")
                same_run = bool(self._group) and group == self._group
                if time.monotonic() >= deadline and not same_run:
                    raise RigBusy(f"{self._target} is in use by another test run (process {holder or 'unknown'})")
                time.sleep(0.05)
            os.ftruncate(descriptor, 0)
            os.lseek(descriptor, 0, os.SEEK_SET)
            os.write(descriptor, f"{os.getpid()} {self._group}".encode())
        except BaseException:
            os.close(descriptor)
            raise
        with _guard:
            self._descriptor = descriptor
            _held[descriptor] = self

    def release(self) -> None:
        """Gives it back."""
        with _guard:
            descriptor, self._descriptor = self._descriptor, None
            if descriptor is not None:
                _held.pop(descriptor, None)
                os.close(descriptor)

    def holder(self) -> str:
        """Who has it, as far as can be read: the process id, and the group."""
        try:
            with open(self._path, encoding="utf-8", errors="replace") as file:
                return file.read(200)
        except OSError:
            return ""


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        # A byte far behind the text, which others read.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _after_fork_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    # A forked child would keep the lock when its parent has ended.
    for descriptor, lock in list(_held.items()):
        lock._descriptor = None
        os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
