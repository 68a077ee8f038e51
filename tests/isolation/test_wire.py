"""The messages between a worker and its children."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from schedq import ClaimedJob, Exponential
from schedq.isolation import wire
from schedq.isolation.wire import Assignment, Ended, Raised
from schedq.model.headers import Headers
from schedq.model.records import Settlement


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_an_attempt_crosses_with_all_that_is_known_of_its_job(ends: tuple[socket.socket, socket.socket]):
    job = ClaimedJob("1", {"task": "send", "args": ["\ud800", 1.5, None]}, 2, "token", backoff=Exponential(base=3))
    job.headers, job.gate_key = Headers({"tenant": "acme"}), "api 42"
    ends[0].sendall(wire.packed(Assignment("mail", "worker-1", job, "00-ab-cd-01").message()))

    message = wire.receive(ends[1])

    assert message is not None
    found = Assignment.of(message)
    assert (found.queue, found.worker, found.trace) == ("mail", "worker-1", "00-ab-cd-01")
    assert {name: getattr(found.job, name) for name in ClaimedJob.__slots__} == {
        name: getattr(job, name) for name in ClaimedJob.__slots__
    }


def test_an_outcome_crosses(ends: tuple[socket.socket, socket.socket]):
    settlement = Settlement("retry", "1", "token", 500, "ValueError: no", "no", "trace", None, "api 42")
    sent = [Ended(settlement, Raised("builtins", "ValueError", "no")), Ended(settlement)]
    for ended in sent:
        ends[0].sendall(wire.packed(ended.message()))

    assert [Ended.of(wire.receive(ends[1]) or {}) for _ in sent] == sent


@pytest.mark.parametrize("cut", [0, 2, 10])
def test_an_end_in_the_middle_of_a_message_is_the_end(ends: tuple[socket.socket, socket.socket], cut: int):
    ends[0].sendall(wire.packed({"kind": "ready"})[:cut])
    ends[0].close()

    assert wire.receive(ends[1]) is None


def test_a_message_of_megabytes_arrives_whole(ends: tuple[socket.socket, socket.socket]):
    text = "x" * 5_000_000
    sender = threading.Thread(target=ends[0].sendall, args=(wire.packed({"kind": "run", "text": text}),))
    sender.start()

    async def read() -> wire.Message | None:
        reader, writer = await asyncio.open_connection(sock=ends[1])
        try:
            return await wire.read(reader)
        finally:
            writer.close()

    found = asyncio.run(read())
    sender.join()

    assert found == {"kind": "run", "text": text}
