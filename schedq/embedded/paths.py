"""The data folder and the socket of an embedded server."""

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

# `sun_path` has 108 bytes on Linux and 104 on macOS, including the NUL.
LONGEST_SOCKET_PATH = 103


def data_directory(url: str) -> Path:
    """Return the absolute path of the folder in an `embedded://` URL; without a folder, the user's data folder.

    The text after `embedded://` is used unchanged as a path: percent signs are not decoded. A relative path starts at
    the current working folder.

    Raises:
        UsageError: the URL is invalid.
    """
    if not url.startswith(SCHEME):
        raise UsageError(
            f"{url!r} does not name an embedded server; write embedded:///absolute/folder, "
            "embedded://relative/folder or embedded://"
        )
    path = url.removeprefix(SCHEME)
    if "?" in path or "\0" in path:
        raise UsageError(f"{url!r} must be a folder after embedded://; it takes no options")
    if path == "~" or path.startswith("~/"):
        raise UsageError(f"{url!r}: ~ is not expanded in a URL; write the folder's full path")
    return Path(os.path.abspath(path)) if path else _user_data_folder()


def prepared(folder: Path) -> Path:
    """Return the folder; create it if it does not exist.

    Raises:
        UsageError: the folder can't be created.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"the data folder {folder} can't be created ({error}); name another one") from error
    return folder


def socket_path(folder: Path) -> str:
    """Return the path of the socket for the folder's server. It is short, and the same at every start.

    The name depends on the folder's inode. A server that is still shutting down in a removed folder holds that inode,
    so it can't unlink the socket of a server in a new folder with the same path.
    """
    facts = folder.stat()
    identity = f"{facts.st_dev} {facts.st_ino} {os.path.realpath(folder)}"
    return str(runtime_folder() / _socket_name(identity))


def runtime_folder() -> Path:
    """Return a folder for sockets that only this user can access, with a short path; create it if necessary.

    Raises:
        UsageError: there is no such folder, and none can be created.
    """
    tried = []
    for folder in _runtime_folders():
        tried.append(str(folder))
        if len(os.fsencode(folder / _socket_name(""))) <= LONGEST_SOCKET_PATH and _is_private(folder):
            return folder
    raise UsageError(
        f"there is no private folder for a server's socket (tried {', '.join(tried)}); "
        "set XDG_RUNTIME_DIR to a folder that you own and whose path is short"
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
    # After `sudo` this may be the folder of another user.
    own = os.path.isabs(session) and os.path.isdir(session) and os.stat(session).st_uid == os.geteuid()
    ours = f"schedq-{os.geteuid()}"
    shared = dict.fromkeys((Path("/tmp", ours), Path(tempfile.gettempdir(), ours)))  # noqa: S108 - checked
    return [*([Path(session, "schedq")] if own else []), *shared]


def _is_private(folder: Path) -> bool:
    """Create the folder, or check that this user owns it: in /tmp, any user may have created that name."""
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        facts = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def _socket_name(identity: str) -> str:
    return hashlib.sha256(os.fsencode(identity)).hexdigest()[:16] + ".sock"
