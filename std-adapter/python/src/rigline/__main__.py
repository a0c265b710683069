"""``python -m rigline``: the command `rigline`."""

from __future__ import annotations

import os
import subprocess
import sys

from ._target import find_binary
from .errors import RiglineError


def main() -> int:
    try:
        command = [find_binary(), *sys.argv[1:]]
    except RiglineError as error:
        print(f"rigline: {error}", file=sys.stderr)
        return 2
    if sys.platform == "win32":
        return subprocess.call(command)
    os.execv(command[0], command)


if __name__ == "__main__":
    sys.exit(main())
