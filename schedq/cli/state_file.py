"""Small files that commands keep between starts: locked against a second process, and replaced as a whole."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click


def default_folder() -> Path:
    """The folder for such files: systemd's StateDirectory, else the user's folder for state.

    Raises:
        click.UsageError: there is no home folder.
    """
    if given := os.environ.get("STATE_DIRECTORY", "").partition(":")[0]:
        return Path(given)
    if (given := os.environ.get("XDG_STATE_HOME", "")) and os.path.isabs(given):
        return Path(given) / "schedq"
    try:
        return Path.home() / ".local" / "state" / "schedq"
    except RuntimeError as error:
        raise click.UsageError("there is no home folder here: name a file with --state") from error


@contextmanager
def locked(path: Path, who: str) -> Iterator[None]:
    """Hold the lock of a file, which is a second file named NAME.lock; the folder is created.

    The operating system releases the lock when the process ends, however it ends.

    Args:
        path: the file to lock, which need not exist.
        who: the command that holds it, for the error.

    Raises:
        click.ClickException: another process holds it, or the folder can't be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path.with_name(f"{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{path} can't be used: {error}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.ClickException(f"another {who} uses {path}") from None
        except OSError as error:
            raise click.ClickException(f"{path} can't be locked: {error}") from error
        yield
    finally:
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole, on disk when this returns: a crash leaves the old one or the new one.

    Raises:
        OSError: it can't be written; the old one is unchanged.
    """
    new = path.with_name(f"{path.name}.new")
    try:
        with open(new, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
