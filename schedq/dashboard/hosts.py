"""Allowed values of the Host header, and loopback addresses.

Any web page can make its own name resolve to this address (DNS rebinding) and then read the responses. The browser
still sends that name as Host, so only known names are served.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import Final

from schedq.errors import UsageError

LOCAL: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")


class Hosts:
    """The allow-list.

    Args:
        names: names and IP addresses besides the local ones.
        any_address: also allow every IP address; DNS rebinding can't use one as its name.

    Raises:
        UsageError: a name is not a valid host.
    """

    def __init__(self, names: Iterable[str] = (), *, any_address: bool = False) -> None:
        self._any_address = any_address
        self._names = set(LOCAL)
        for name in names:
            is_bare = isinstance(_address(name), ipaddress.IPv6Address) and not name.startswith("[")
            text = f"[{name}]" if is_bare else name
            match = _HOST.fullmatch(text)
            if match is None or match[1] != text:
                raise UsageError(f"host {name!r} must be a name or an address, without scheme, port or path")
            self._names.add(text.lower())

    def allows(self, header: str) -> bool:
        """Whether a Host header is allowed; its port does not matter."""
        match = _HOST.fullmatch(header)
        if match is None:
            return False
        name = match[1].lower()
        return name in self._names or (self._any_address and _address(name) is not None)


def is_loopback(address: str) -> bool:
    """Whether an address is a loopback address."""
    found = parsed_address(address)
    return found is not None and found.is_loopback


def parsed_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """An IP address, of version 4 also where IPv6 wraps it; None if the text is none."""
    found = _address(text)
    return found.ipv4_mapped or found if isinstance(found, ipaddress.IPv6Address) else found


def is_any(address: str) -> bool:
    """Whether a server bound to it listens on every address of the machine."""
    found = _address(address)
    return found is not None and found.is_unspecified


def resolved(host: str, port: int) -> tuple[socket.AddressFamily, str]:
    """The address to bind to, and its family.

    Raises:
        UsageError: the host has none.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise UsageError(f"host {host!r} has no address: {error}") from error
    family, *_, address = sorted(found, key=lambda entry: entry[0] != socket.AF_INET)[0]
    return family, str(address[0])


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text.strip("[]").partition("%")[0])
    except ValueError:
        return None
