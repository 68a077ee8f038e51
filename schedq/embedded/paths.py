"""Where an embedded server keeps its data, and where its socket is."""

from __future__ import annotations

import hashlib
import os
import pwd
import stat
import sys
import tempfile
from pathlib import Path

from schedq.errors import UsageError

SCHEME = "embedded://"

# `sun_path` holds 108 bytes with its NUL on Linux, 104 on macOS.
LONGEST_SOCKET_PATH = 103


def data_directory(url: str) -> Path:
    """The absolute path of the folder that an `embedded://` URL names; bare, the user's data folder.

    What follows `embedded://` is a path as it stands: percent signs mean themselves, and a relative one
    starts at the working folder of this moment.

    Raises:
        UsageError: this is no such URL.
    """
    if not url.startswith(SCHEME):
        raise UsageError(
            f"{url!r} names no embedded server; write embedded:///absolute/folder, "
            "embedded://relative/folder or embedded://"
        )
    path = url.removeprefix(SCHEME)
    if "?" in path or "\0" in path:
        raise UsageError(f"{url!r} must be a folder after embedded://; it takes no options")
    if path == "~" or path.startswith("~/"):
        raise UsageError(f"{url!r}: ~ means nothing in a URL; write the folder's whole path")
    return Path(os.path.abspath(path)) if path else _user_data_folder()


def prepared(folder: Path) -> Path:
    """The folder, made if it was not there.

    Raises:
        UsageError: it can't be made.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"the data folder {folder} can't be made ({error}); name another one") from error
    return folder


def socket_path(folder: Path) -> str:
    """Where the folder's server is to listen: a short path, the same at every start.

    The inode is part of the name: a server that is still ending in a removed folder, and so holds its inode,
    can't unlink the socket of one in a new folder of the same path.
    """
    facts = folder.stat()
    identity = f"{facts.st_dev} {facts.st_ino} {os.path.realpath(folder)}"
    return str(runtime_folder() / _socket_name(identity))


def runtime_folder() -> Path:
    """A folder for sockets that only this user can enter; short, and made if it was not there.

    Raises:
        UsageError: there is no such folder.
    """
    tried = []
    for folder in _runtime_folders():
        tried.append(str(folder))
        if len(os.fsencode(folder / _socket_name(""))) <= LONGEST_SOCKET_PATH and _is_private(folder):
            return folder
    raise UsageError(
        f"there is no private folder for a server's socket (tried {', '.join(tried)}); "
        "set XDG_RUNTIME_DIR to a folder of your own whose path is short"
    )


def _user_data_folder() -> Path:
    home = os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    if sys.platform == "darwin":
        return Path(home, "Library/Application Support/schedq")
    # A relative value counts as unset: XDG Base Directory Specification 0.8.
    named = os.environ.get("XDG_DATA_HOME", "")
    return Path(named if os.path.isabs(named) else f"{home}/.local/share", "schedq")


def _runtime_folders() -> list[Path]:
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    # After `sudo` it may be another user's.
    own = os.path.isabs(session) and os.path.isdir(session) and os.stat(session).st_uid == os.geteuid()
    ours = f"schedq-{os.geteuid()}"
    shared = dict.fromkeys((Path("/tmp", ours), Path(tempfile.gettempdir(), ours)))  # noqa: S108 - checked
    return [*([Path(session, "schedq")] if own else []), *shared]


def _is_private(folder: Path) -> bool:
    """Make it, or make sure that nobody else has: in /tmp anybody may have put something of that name."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def _socket_name(identity: str) -> str:
    return hashlib.sha256(os.fsencode(identity)).hexdigest()[:16] + ".sock"
