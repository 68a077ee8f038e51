"""What commands print on a real terminal of a given size."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios

_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[()][A-Z0-9]|\r")


def on_terminal(*words: str, columns: int, lines: int, **environment: str) -> str:
    """The output of a command on a terminal of this size, with its control codes."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    own = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    with subprocess.Popen(
        [sys.executable, "-m", "schedq", *words],
        preexec_fn=lambda: os.login_tty(theirs),
        pass_fds=(theirs,),
        env=own | {"TERM": "xterm-256color"} | environment,
    ):
        os.close(theirs)
        text = b""
        while True:
            try:
                found = os.read(ours, 65536)
            except OSError:  # the command has ended
                break
            if not found:
                break
            text += found
    os.close(ours)
    return text.decode()


def plain(text: str) -> list[str]:
    """The lines of such an output, without control codes."""
    return _CODES.sub("", text).splitlines()
