"""Connections that listen to channels: the context they run in, and what is logged when Redis rejects them."""

from __future__ import annotations

import asyncio

import pytest

from schedq import AsyncQueue, current_job
from schedq.connection.pubsub import PubSub
from schedq.model.current_job import running_job
from schedq.testing import as_job
from tests.conftest import MakeQueue
from tests.servers import Server
from tests.waiting import until


def test_a_subscription_that_begins_in_a_handler_does_not_inherit_its_job(server: Server) -> None:
    found: list[object] = []

    async def scene() -> None:
        queue = AsyncQueue("of-one-job", redis=server.unix_url)
        subscription = PubSub(queue.address, queue.settings)
        heard = asyncio.Event()

        def hear(_: str) -> None:
            found.append(running_job())
            heard.set()

        with as_job("j1"):
            assert current_job().id == "j1"
            await subscription.subscribe("a-channel", hear)
            async with asyncio.timeout(20):
                await heard.wait()
        await subscription.unsubscribe("a-channel", hear)
        await subscription.aclose()
        await queue.aclose()

    asyncio.run(scene())

    assert found[0] is None


def test_a_user_who_may_not_subscribe_is_warned_once(
    make_queue: MakeQueue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("schedq.connection.endpoint._warned_of", set())
    with Server() as server:
        with server.client() as client:
            client.execute_command("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "resetchannels", "+@all")
        queue = make_queue(at=server, url=f"redis://deaf:pw@127.0.0.1:{server.port}/0")
        job_id = queue.enqueue(1)

        until(lambda: queue.wait(job_id, timeout=0.2) or caplog.messages)
        assert queue.wait(job_id, timeout=0.2) is False

        assert ["does not let this user subscribe" in line for line in caplog.messages] == [True]
        assert "schedq doctor --acl" in caplog.text
        queue.forget()
