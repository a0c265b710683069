"""Where an extension is: the target's text, and the program or the address that it stands for."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import sys
import sysconfig
from dataclasses import dataclass
from typing import List, Optional, Tuple, Union

from .errors import ConnectFailed, TargetError

_KINDS = "sim, serial:PORT, serial:auto, tcp:HOST:PORT, replay:DIR, rig:NAME, exec:PROGRAM [ARGS], or a program's path"


@dataclass(frozen=True)
class Program:
    """A program that speaks lines on its standard input and output."""

    command: Tuple[str, ...]
    #: It is `rigline bridge`, which waits for devices by itself.
    is_bridge: bool = False


@dataclass(frozen=True)
class Server:
    """A TCP server that speaks lines."""

    host: str
    port: int


def find_binary() -> str:
    """The program `rigline`: what RIGLINE_BINARY names, else the one that came with this package, else the one in PATH."""
    named = os.environ.get("RIGLINE_BINARY")
    if named:
        if os.path.isfile(named) and os.access(named, os.X_OK):
            return named
        raise ConnectFailed(f"RIGLINE_BINARY names {named}, which is not a program")
    name = "rigline.exe" if sys.platform == "win32" else "rigline"
    folders = [sysconfig.get_path("scripts"), os.path.dirname(os.path.abspath(sys.executable))]
    scheme = "nt_user" if os.name == "nt" else "posix_user"
    if scheme in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", scheme))
    for folder in folders:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    found = shutil.which(name)
    if found:
        return found
    raise ConnectFailed(
        f"the program `rigline` is neither in {folders[0]} nor in PATH; install the wheel, or name it in RIGLINE_BINARY"
    )


def resolve(
    target: str, *, wait: float = 0.0, start_timeout: float = 10.0, record: Optional[str] = None, session: int = 1
) -> Union[Program, Server]:
    """What to start or to connect to for a target. Raises TargetError if the text is wrong.

    `record` is a folder for a recording, and `session` the session's number: each has a recording of its own.
    """
    if not isinstance(target, str):
        raise TargetError(f"a target is a text such as 'serial:auto', not {type(target).__name__}")
    target = target.strip()
    if not target:
        raise TargetError(f"the target is empty; known targets: {_KINDS}")
    kind, colon, rest = target.partition(":")
    if kind == "replay":
        folder, options = recording(target)
        if os.path.isdir(of_session(folder, session)):
            folder = of_session(folder, session)
        return _bridge(f"replay:{folder}{options}", wait, start_timeout, record, session)
    if record is not None:
        # Only for its errors.
        resolve(target)
        return _bridge(target, wait, start_timeout, record, session)
    # A single letter is a drive.
    if not colon or not re.fullmatch("[A-Za-z][A-Za-z0-9+.-]+", kind) or os.path.exists(target):
        if target == "sim":
            return Program((find_binary(), "rig"))
        return _program([target], target)
    if kind == "exec":
        try:
            words = shlex.split(rest)
        except ValueError as error:
            raise TargetError(f"`{target}`: {str(error).lower()}") from None
        if not words:
            raise TargetError("exec: names no program; write exec:PROGRAM [ARGS]")
        return _program(words, words[0])
    if kind == "tcp" and "?" not in rest:
        return _server(rest, target)
    if kind in ("serial", "tcp"):
        if not rest.partition("?")[0]:
            raise TargetError(f"`{target}` names no port; write serial:/dev/ttyACM0, serial:auto or serial:auto/SERIAL")
        return _bridge(target, wait, start_timeout, None, session)
    if kind == "rig":
        if not rest:
            raise TargetError(f"`{target}` names no rig; write rig:NAME or rig:KEY=VALUE")
        return _bridge(target, wait, start_timeout, None, session)
    if kind in ("http", "https"):
        raise TargetError(f"`{target}`: this client does not support HTTP; known targets: {_KINDS}")
    raise TargetError(f"`{kind}:` is not a kind of target; known targets: {_KINDS}")


def of_session(folder: str, session: int) -> str:
    """The folder of a session's recording."""
    return folder if session < 2 else f"{folder.rstrip(os.sep)}-{session}"


def recording(target: str) -> Tuple[str, str]:
    """A recording's folder, and its options with their question mark. A folder's name may have a question mark too."""
    rest = target.strip().partition(":")[2]
    folder, mark, options = rest.rpartition("?")
    if mark and "=" in options and not any(separator in options for separator in "/\\"):
        rest, options = folder, mark + options
    else:
        options = ""
    if not rest:
        raise TargetError(f"`{target}` names no recording; write replay:DIR")
    return rest, options


def _bridge(target: str, wait: float, start_timeout: float, record: Optional[str], session: int) -> Program:
    # An infinite wait too: durations end at 292 years.
    waiting = f"{max(1, round(min(wait, 9e9) * 1000))}ms"
    starting = f"{max(1, round(start_timeout * 1000))}ms"
    options = ["--wait", waiting, "--start-timeout", starting, "--line-limit", str(8 << 20)]
    if record is not None:
        options += ["--record", of_session(record, session)]
    return Program((find_binary(), "bridge", *options, "--", target), is_bridge=True)


def _program(words: List[str], name: str) -> Program:
    found: Optional[str] = shutil.which(name)
    if found is None and os.path.exists(name):
        if stat.S_ISCHR(os.stat(name).st_mode):
            raise TargetError(f"`{name}` is a device, not a program; write serial:{name}")
        what = "a folder" if os.path.isdir(name) else "not executable"
        raise TargetError(f"`{name}` is not a program: it is {what}")
    if found is None:
        where = "" if os.path.dirname(name) else " in PATH"
        hint = "" if os.path.dirname(name) else f"; other targets are: {_KINDS}"
        raise ConnectFailed(f"there is no program `{name}`{where}{hint}")
    return Program((found, *words[1:]))


def _server(address: str, target: str) -> Server:
    found = re.fullmatch(r"(?:\[([^\]]+)\]|([^:\[\]]+)):([0-9]{1,5})", address)
    port = int(found.group(3)) if found else 0
    if found is None or not 0 < port < 65536:
        form = "tcp:HOST:PORT with a port from 1 to 65535, such as tcp:localhost:7000"
        raise TargetError(f"`{target}` is not an address; write {form}")
    return Server(found.group(1) or found.group(2), port)
