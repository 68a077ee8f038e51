"""What commands print on a real terminal of a given size."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import termios
from collections.abc import Mapping
from typing import IO

from tests.servers import environment_now
from tests.stories.processes.forkserver import Fork, fork_server
from tests.stories.processes.scene import ROOT, system_of

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r")


def on_terminal(*words: str, columns: int, lines: int, **environment: str) -> str:
    """The output of a command on a terminal of this size, with its control codes."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with open(theirs, "wb", buffering=0) as screen:
        process = started_on(screen, *words, environment=own | {"TERM": "xterm-256color"} | environment)
    text = b""
    while True:
        try:
            found = os.read(ours, 65536)
        except OSError:  # the command has ended
            break
        if not found:
            break
        text += found
    process.wait(60)
    os.close(ours)
    return text.decode()


def started_on(screen: IO[bytes], *words: str, environment: Mapping[str, str]) -> Fork:
    """A command on this terminal, in a fork of a process that has imported the package."""
    return fork_server(ROOT, system_of(environment_now())).start(words, environment, screen, screen)


def plain(text: str) -> list[str]:
    """The lines of such an output, without control codes."""
    return _CODES.sub("", text).splitlines()
