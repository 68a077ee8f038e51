"""`embedded://`: a server that we start ourselves."""

from __future__ import annotations

from dataclasses import dataclass

from schedq import embedded
from schedq.connection.place import Place


@dataclass(frozen=True)
class OwnServer:
    """A server that is started when it is needed.

    Attributes:
        label: its URL, with an absolute folder.
    """

    label: str

    def find(self, _key: str) -> Place:
        """The server; it is started if it does not run, and that blocks.

        Raises:
            StoreUnavailable: it can't be started.
        """
        return Place("UnixDomainSocketConnection", {"path": embedded.ensure_server(self.label)}, self.label)
