"""How connections subscribe to a queue's channels, and what they receive.

On a cluster scripts send messages by SPUBLISH, which only SSUBSCRIBE receives, or by PUBLISH if they must; see
`transitions/scripts.py`. A subscriber therefore uses both commands. Redis 6.2 does not know SSUBSCRIBE.
"""

from __future__ import annotations

import re
from collections.abc import Container, Sequence

from redis.exceptions import ConnectionError as ConnectionLost

from schedq.connection import redis_errors
from schedq.model.settings import Settings


def subscribe(queue: Settings, *channels: str) -> list[tuple[str, ...]]:
    """The commands that subscribe to channels of a queue; after the reply to the last one no message is missed."""
    plain = ("SUBSCRIBE", *channels)
    return [("SSUBSCRIBE", *channels), plain] if queue.tagged else [plain]


def unsubscribe(queue: Settings, channel: str) -> list[tuple[str, ...]]:
    """The commands that end the subscription to a channel."""
    plain = ("UNSUBSCRIBE", channel)
    return [("SUNSUBSCRIBE", channel), plain] if queue.tagged else [plain]


def refused(replies: Sequence[object]) -> Exception | None:
    """The error in the replies to `subscribe` because of which messages will be missed, or None.

    Raises:
        ConnectionError: another node holds the queue now.
    """
    for reply in replies:
        if isinstance(reply, Exception):
            if redis_errors.is_demoted(reply):
                raise ConnectionLost(str(reply)) from reply
            if not redis_errors.is_unknown_command(reply):
                return reply
    return None


def is_about_shards(error: Exception) -> bool:
    """Whether the user may not use shard channels. Messages that go to all nodes still arrive."""
    return re.search("'s(un)?subscribe'", str(error)) is not None


def text_of(message: Sequence[str], channels: Container[str]) -> str | None:
    """The text of a message to a connection that is subscribed to `channels`; None for any other reply.

    Raises:
        ConnectionError: another node holds the queue now, so this one has ended the subscription.
    """
    kind, channel, text = message
    if kind == "sunsubscribe" and channel in channels:
        raise ConnectionLost(f"{channel} has moved to another node")
    return text if kind in ("message", "smessage") else None
