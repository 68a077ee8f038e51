"""Commands to bytes and bytes to replies, by hiredis alone: the client library's own layers cost more than the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from hiredis import Reader, pack_command
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError as LineBroken
from redis.exceptions import InvalidResponse

from schedq.operations import Argument

_pack: Final[Callable[[tuple[Argument | bytes, ...]], bytes]] = cast(Any, pack_command)
NOTHING: Final = object()
"""What a reader gives while the next reply is not complete."""


def packed(commands: Sequence[tuple[Argument, ...]]) -> bytes:
    """Commands as they are sent."""
    try:
        words = [_pack(command) for command in commands]
    except UnicodeEncodeError:  # bytes that were no UTF-8 came from Redis as lone surrogates, and go back as they were
        words = [_pack(tuple(map(_as_bytes, command))) for command in commands]
    return words[0] if len(words) == 1 else b"".join(words)


def _as_bytes(word: Argument) -> bytes:
    return str(word).encode(errors="surrogateescape")


def reader() -> Reader:
    """What bytes are fed to, and replies are taken from; errors come as values, as the client library makes them."""
    return Reader(
        protocolError=InvalidResponse,
        replyError=BaseParser.parse_error,
        encoding="utf-8",
        errors="surrogateescape",
        notEnoughData=NOTHING,
    )


def checked(reply: Any) -> Any:
    """The reply, unless it is an error that says that this connection is of no more use.

    Raises:
        ConnectionError: it is one (the server loads its data, or does not know who we are).
    """
    if isinstance(reply, LineBroken):
        raise reply
    return reply
