"""A connection that outlives the job in whose handler it begins has nothing of that job."""

from __future__ import annotations

import asyncio

from schedq import AsyncQueue, current_job
from schedq.connection.subscription import Subscription
from schedq.running import running_job
from schedq.testing import as_job
from tests.servers import Server


def test_a_subscription_that_begins_in_a_handler_knows_nothing_of_its_job(server: Server) -> None:
    found: list[object] = []

    async def scene() -> None:
        queue = AsyncQueue("of-one-job", redis=server.unix_url)
        subscription = Subscription(queue.address, queue.settings)
        heard = asyncio.Event()

        def hear(_: str) -> None:
            found.append(running_job())
            heard.set()

        with as_job("j1"):
            assert current_job().id == "j1"
            await subscription.listen("a-channel", hear)
            async with asyncio.timeout(20):
                await heard.wait()
        await subscription.forget("a-channel", hear)
        await subscription.aclose()
        await queue.aclose()

    asyncio.run(scene())

    assert found[0] is None
