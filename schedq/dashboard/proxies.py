"""Logins by a proxy that has authenticated the user: it sends the name in a header, which counts only from there."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from starlette.requests import Request

from schedq.dashboard.hosts import parsed_address
from schedq.errors import UsageError
from schedq.model.escaping import harmless

UNIX: Final = "unix"
"""Stands for clients of a Unix socket, which have no address."""
MOST_NAME: Final = 200
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")


class TrustedProxy:
    """Where a header with the user's name may come from.

    Args:
        header: the name of the header.
        networks: addresses and networks of the proxies, or `unix`.

    Raises:
        UsageError: one is missing or invalid, or would trust everyone.
    """

    def __init__(self, header: str | None, networks: Iterable[str]) -> None:
        names = [*networks]
        if not header or not names:
            raise UsageError("a user header needs a trusted proxy, and a trusted proxy needs a user header: give both")
        if not _TOKEN.fullmatch(header):
            raise UsageError(f"user header {header!r:.100} is not the name of a header")
        self.header: Final = header
        self._has_unix = UNIX in names
        self._networks = [_network(name) for name in names if name != UNIX]

    def sent(self, request: Request) -> bool:
        """Whether the request came directly from the proxy."""
        if request.client is None or not request.client.host:
            return self._has_unix
        address = parsed_address(request.client.host)
        return address is not None and any(address in network for network in self._networks)

    def problem(self, request: Request) -> str:
        """Why a request from the proxy has no valid name; '' if it has one."""
        names = request.headers.getlist(self.header)
        if len(names) > 1:
            return f"The proxy sent the header {self.header} more than once; it must replace what clients send."
        if not names or not names[0].strip():
            return f"The proxy sent no user in the header {self.header}: log in there."
        if len(names[0]) > MOST_NAME:
            return f"The user in the header {self.header} has more than {MOST_NAME} characters."
        return ""

    def user(self, request: Request) -> str:
        """The user's name, with control characters escaped."""
        return harmless(as_sent(request.headers[self.header]).strip())


def as_sent(header: str) -> str:
    """A header value as UTF-8 if possible; Starlette decodes headers as Latin-1."""
    try:
        return header.encode("latin-1").decode()
    except UnicodeError:
        return header


def _network(name: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        found = ipaddress.ip_network(name)
    except ValueError as error:
        raise UsageError(f"trusted proxy {name!r:.100} is no address or network such as 10.0.0.0/8: {error}") from None
    if not found.prefixlen:
        raise UsageError(f"trusted proxy {name} would let everyone choose a name; give the proxy's own address")
    return found
