"""One user at a time for a rig, by whatever name it is called.

A rig's names do not depend on how its target is written: the resolved addresses of a server, or the file of a port. Each name has a file,
which is locked while the rig is used. The operating system unlocks it when its process ends, however it ends. The command `rigline` has a
twin of this (`host/rig_lock.rs`), with the same files, so that evals, `rigline call` and the page keep out of each other's way.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import stat
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from typing import Dict, List, Union

from .errors import RigBusy

_NAME_LIMIT = 120
_guard = threading.Lock()


@dataclass
class _Held:
    descriptor: int
    alone: int = 0
    shared: int = 0


#: What this process has locked: a process does not lock itself out.
_held: Dict[str, _Held] = {}


class RigLock:
    """The lock of one rig. `group` names processes that wait for each other as long as it takes."""

    def __init__(self, target: str, group: str = "", *, shared: bool = False) -> None:
        self._target, self._group, self._shared = target, group, shared
        self._paths = [_path(name) for name in names(target)]
        self._taken: List[str] = []

    @property
    def key(self) -> str:
        """What is the same for each way to write one target."""
        return "\n".join(self._paths)

    def acquire(self, wait: float) -> None:
        """Takes the lock. Raises RigBusy if another process has it for longer than `wait` seconds."""
        deadline = time.monotonic() + wait
        try:
            for path in self._paths:
                while not self._take(path):
                    holder, group, kind = (*_holder(path).split(), "", "", "")[:3]
                    same_run = bool(self._group) and group == self._group
                    if time.monotonic() >= deadline and not same_run:
                        who = "another test run" if kind == "pytest" else "another program"
                        raise RigBusy(f"{self._target} is in use by {who} (process {holder or 'unknown'})")
                    time.sleep(0.05)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Gives it back."""
        with _guard:
            taken, self._taken = self._taken, []
            for path in taken:
                there = _held.get(path)
                if there is None:
                    continue
                if self._shared:
                    there.shared -= 1
                else:
                    there.alone -= 1
                if not there.alone and not there.shared:
                    del _held[path]
                    os.close(there.descriptor)
                elif not there.alone and not self._shared:
                    _try_lock(there.descriptor, shared=True)

    def _take(self, path: str) -> bool:
        with _guard:
            there = _held.get(path)
            if there is None:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600)
                try:
                    if not _try_lock(descriptor, self._shared):
                        os.close(descriptor)
                        return False
                    os.ftruncate(descriptor, 0)
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    kind = "python" if self._shared else "pytest"
                    os.write(descriptor, f"{os.getpid()} {self._group or '-'} {kind}".encode())
                except BaseException:
                    os.close(descriptor)
                    raise
                there = _held[path] = _Held(descriptor)
            elif not self._shared and not there.alone and not _try_lock(there.descriptor, shared=False):
                _try_lock(there.descriptor, shared=True)
                return False
            if self._shared:
                there.shared += 1
            else:
                there.alone += 1
            self._taken.append(path)
            return True


def names(target: str) -> List[str]:
    """The names of a target's rig. There are none for a program, which each session starts for itself."""
    kind, _, rest = target.strip().partition(":")
    where = rest.partition("?")[0]
    if kind == "tcp":
        host, _, port = where.lstrip("/").rpartition(":")
        host = host.strip("[]")
        if not host or not port.isdigit() or not 0 < int(port) < 65536:
            return []
        try:
            found = socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return [f"tcp-{host.lower()}-{port}"]
        return sorted({_of_address(str(address[4][0]), int(port)) for address in found})
    if kind == "serial":
        # The port itself is opened once. This is for the workers of one run, which wait for each other.
        path = where if where.startswith("/") else os.path.join("/dev", where)
        for candidate in (path, os.path.join("/dev/serial", where)):
            if os.path.exists(candidate):
                return [f"run-{os.path.realpath(candidate)}"]
        return [f"run-{where}"]
    return []


def _of_address(text: str, port: int) -> str:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = getattr(address, "ipv4_mapped", None)
    address = address if mapped is None else mapped
    return f"tcp-here-{port}" if _is_here(address) else f"tcp-{address}-{port}"


def _is_here(address: Union[ipaddress.IPv4Address, ipaddress.IPv6Address]) -> bool:
    """Whether an address is one of this machine's: another one cannot be bound."""
    if address.is_loopback or address.is_unspecified:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
        return True
    except OSError:
        return False


def _path(name: str) -> str:
    return os.path.join(_folder(), re.sub("[^A-Za-z0-9.-]", "_", name[:_NAME_LIMIT]) + ".lock")


def _folder() -> str:
    """The folder does not depend on variables such as `TMPDIR`, which two processes may have differently."""
    if sys.platform == "win32":
        folder = os.path.join(tempfile.gettempdir(), "rigline-user")
        os.makedirs(folder, exist_ok=True)
        return folder
    folder = f"/tmp/rigline-{os.getuid()}"
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    about = os.lstat(folder)
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
        raise RigBusy(f"{folder} is not a folder of this user, so that no rig can be locked")
    return folder


def _holder(path: str) -> str:
    """Who has it, as far as can be read: the process id, the group or `-`, and the kind of program."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(200)
    except OSError:
        return ""


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int, shared: bool) -> bool:
        # A byte far behind the text, which others read. There are no shared locks: who would share it is alone.
        os.lseek(descriptor, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int, shared: bool) -> bool:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _after_fork_in_child() -> None:
    global _guard
    _guard = threading.Lock()
    # A forked child would keep the lock when its parent has ended.
    for there in list(_held.values()):
        os.close(there.descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
