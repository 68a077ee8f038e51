"""A connection of the client library, used directly: the server's raw replies."""

from __future__ import annotations

from typing import Any

from redis.backoff import NoBackoff
from redis.connection import Connection
from redis.exceptions import ResponseError
from redis.retry import Retry

from tests.servers import Server


class Wire:
    """One connection. `ask` for a reply; `say` and later `hear` if it may take long."""

    def __init__(self, server: Server) -> None:
        self._connection = Connection(
            host="127.0.0.1",
            port=server.port,
            protocol=2,  # like the package's clients
            decode_responses=True,
            socket_timeout=30,
            retry=Retry(NoBackoff(), 0),
            driver_info=None,
        )
        self._connection.connect()

    def ask(self, *words: object) -> Any:
        """The reply to one command.

        Raises:
            ResponseError: the reply is an error.
        """
        self.say(*words)
        return self._read()

    def error(self, *words: object) -> str:
        """The text of the error that the command must return."""
        try:
            reply = self.ask(*words)
        except ResponseError as error:
            code = getattr(error, "status_code", None)
            return str(error) if code is None or str(error).startswith(code) else f"{code} {error}"
        raise AssertionError(f"{words} got the reply {reply!r}")

    def together(self, *commands: tuple[object, ...]) -> list[Any]:
        """The replies to commands sent in one go, errors as values."""
        self._connection.send_packed_command(self._connection.pack_commands(commands), check_health=False)
        return [self._reply() for _ in commands]

    def say(self, *words: object) -> None:
        """Send a command."""
        self._connection.send_command(*words, check_health=False)

    def hears(self, within: float) -> bool:
        """Whether a reply is there or arrives within `seconds`."""
        return bool(self._connection.can_read(within))

    def hear(self) -> Any:
        """The next reply, an error as a value."""
        assert self.hears(10), "no reply"
        return self._reply()

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()

    def _reply(self) -> Any:
        try:
            return self._read()
        except ResponseError as error:
            return error

    def _read(self) -> Any:
        return self._connection.read_response(disconnect_on_error=False)
