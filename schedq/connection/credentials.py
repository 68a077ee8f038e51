"""Who asks: a user and a password that are looked up anew for each connection, so that they may change."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from redis.credentials import CredentialProvider

from schedq.connection.resolver import in_thread
from schedq.errors import SchedqError, StoreUnavailable, UsageError

PASSWORD_FILE: Final = "SCHEDQ_REDIS_PASSWORD_FILE"  # noqa: S105 - where a password is, not what it is
"""Environment variable: the password file of URLs that say no password."""
Credentials = tuple[str] | tuple[str, str]


@dataclass(frozen=True)
class PasswordFile(CredentialProvider):
    """A password in a file.

    Attributes:
        path: absolute.
        username: whose it is, or '' for the server's default user.
    """

    path: str
    username: str = ""

    @classmethod
    def at(cls, path: str, username: str | None) -> PasswordFile:
        """The file of this moment's working folder, which may be another one when a connection is lost."""
        return cls(os.path.abspath(path), username or "")

    def get_credentials(self) -> Credentials:
        """What the file holds now, without the line's end.

        Raises:
            UsageError: it can't be read, or is empty.
        """
        try:
            password = Path(self.path).read_bytes().decode().rstrip("\r\n")
        except OSError as error:
            raise UsageError(f"the password file {self.path} can't be read: {error.strerror or error}") from error
        except UnicodeDecodeError:
            raise UsageError(f"the password file {self.path} is no UTF-8 text") from None
        if not password:
            raise UsageError(f"the password file {self.path} is empty")
        return (self.username, password) if self.username else (password,)


class Guarded(CredentialProvider):
    """A provider of the application, whose failures become errors of this package and which holds up no event loop."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        made = getattr(type(provider), "get_credentials_async", None)
        self._is_blocking = made in (None, CredentialProvider.get_credentials_async)

    def get_credentials(self) -> Credentials:
        """What the provider says now.

        Raises:
            StoreUnavailable: it can't reach something.
            UsageError: it fails.
        """
        try:
            found: Credentials = self._provider.get_credentials()
        except Exception as error:
            raise _named(error) from error
        return found

    async def get_credentials_async(self) -> Credentials:
        """The same; a provider that blocks does so in a thread."""
        if self._is_blocking:
            return await in_thread(self.get_credentials)
        try:
            found: Credentials = await self._provider.get_credentials_async()
        except Exception as error:
            raise _named(error) from error
        return found


def _named(error: Exception) -> SchedqError:
    if isinstance(error, SchedqError):
        return error
    text = f"the credential provider failed: {type(error).__name__}: {error}"
    return StoreUnavailable(text) if isinstance(error, OSError) else UsageError(text)
