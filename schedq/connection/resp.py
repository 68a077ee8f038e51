"""Commands to bytes and bytes to replies, by hiredis alone: the client library's own layers cost more than the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, cast

from hiredis import Reader, pack_command
from redis._parsers import BaseParser
from redis.exceptions import ConnectionError as LineBroken
from redis.exceptions import InvalidResponse

from schedq.operations import Argument

_pack: Final[Callable[[tuple[Argument | bytes, ...]], bytes]] = cast(Any, pack_command)
_PART: Final = 16_384
"""Bytes from which on a part is sent while the rest is packed."""
NOTHING: Final = object()
"""What a reader gives while the next reply is not complete."""


def packed(commands: Sequence[tuple[Argument, ...]]) -> bytes:
    """Commands as they are sent."""
    return _one(commands[0]) if len(commands) == 1 else b"".join(map(_one, commands))


def parts(commands: Sequence[tuple[Argument, ...]]) -> Iterator[bytes]:
    """The same in parts: what is sent already is carried out while the rest is packed."""
    if len(commands) == 1:
        yield _one(commands[0])
        return
    words, size = [], 0
    for command in commands:
        words.append(_one(command))
        size += len(words[-1])
        if size >= _PART:
            yield b"".join(words)
            words, size = [], 0
    if words:
        yield b"".join(words)


def _one(command: tuple[Argument, ...]) -> bytes:
    try:
        return _pack(command)
    except UnicodeEncodeError:  # bytes that were no UTF-8 came from Redis as lone surrogates, and go back as they were
        return _pack(tuple(map(_as_bytes, command)))


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
