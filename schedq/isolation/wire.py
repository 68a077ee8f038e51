"""The messages between a worker and its child processes: JSON objects, each after its length in 4 bytes.

To a child: `run` starts an attempt; `stop` and `release` say why it should end; `hand` has a function to run; `exit`
ends an idle child.
From a child: `ready` once, or `unusable` with a reason; `report` for progress and meta; `ended` with the outcome of an
attempt; `returned` or `raised` at the end of a function.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from schedq.model import backoff
from schedq.model.headers import Headers
from schedq.model.outcome import described
from schedq.model.records import ClaimedJob, Settlement

Message = dict[str, Any]
"""A message: its kind under `kind`, and its fields."""
_LENGTH: Final = struct.Struct("!I")


class Assignment(NamedTuple):
    """What a child needs to run an attempt.

    Attributes:
        queue: the name of the queue.
        worker: the id of the worker.
        job: the claimed job.
        trace: the context of the worker's current span, as a job's `trace`; or ''.
    """

    queue: str
    worker: str
    job: ClaimedJob
    trace: str = ""

    def message(self) -> Message:
        """Return it as a message of the kind `run`."""
        job = self.job
        fields = {name: getattr(job, name) for name in ClaimedJob.__slots__}
        fields |= {"backoff": None if job.backoff is None else backoff.to_text(job.backoff)}
        fields |= {"headers": dict(job.headers)}
        return {"kind": "run", "queue": self.queue, "worker": self.worker, "job": fields, "trace": self.trace}

    @classmethod
    def of(cls, message: Message) -> Assignment:
        """Read such a message."""
        fields = dict(message["job"])
        plan, headers = fields["backoff"], fields["headers"]
        fields["backoff"] = None if plan is None else backoff.from_text(plan)
        job = ClaimedJob(**fields)
        if headers:
            job.headers = Headers(headers)
        return cls(message["queue"], message["worker"], job, message["trace"])


class Raised(NamedTuple):
    """An exception: the module and the qualified name of its class, and its text."""

    module: str
    name: str
    text: str

    @classmethod
    def of(cls, error: BaseException) -> Raised:
        """Describe an exception."""
        kind = type(error)
        text = described(error).removeprefix(kind.__name__).removeprefix(": ")
        return cls(kind.__module__, kind.__qualname__, text)


class Ended(NamedTuple):
    """How an attempt ended, as the child decided.

    Attributes:
        settlement: the outcome.
        raised: the exception, if one was raised.
    """

    settlement: Settlement
    raised: Raised | None = None

    def message(self) -> Message:
        """Return it as a message of the kind `ended`."""
        return {"kind": "ended", "settlement": self.settlement, "raised": self.raised}

    @classmethod
    def of(cls, message: Message) -> Ended:
        """Read such a message."""
        raised = message["raised"]
        return cls(Settlement(*message["settlement"]), None if raised is None else Raised(*raised))


def packed(message: Mapping[str, Any]) -> bytes:
    """Return a message as bytes."""
    data = json.dumps(message, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return _LENGTH.pack(len(data)) + data


async def read(reader: asyncio.StreamReader) -> Message | None:
    """Return the next message; None at the end of the connection, also in the middle of a message."""
    try:
        (size,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
        found: Message = json.loads((await reader.readexactly(size)).decode("utf-8", "surrogatepass"))
    except (asyncio.IncompleteReadError, OSError):
        return None
    return found


def receive(connection: socket.socket) -> Message | None:
    """Wait in a thread for the next message; None at the end of the connection."""
    head = _exactly(connection, _LENGTH.size)
    data = head and _exactly(connection, *_LENGTH.unpack(head))
    if not data:
        return None
    found: Message = json.loads(data.decode("utf-8", "surrogatepass"))
    return found


def _exactly(connection: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        try:
            part = connection.recv(size - len(found))
        except OSError:
            return b""
        if not part:
            return b""
        found += part
    return bytes(found)
