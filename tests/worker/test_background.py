"""The background thread of a worker: its errors end the worker, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from schedq import UsageError
from schedq.worker.threads import LoopThread
from tests.doors import Handle
from tests.waiting import until
from tests.worker.crew import Crew


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "schedq-background"]


@pytest.mark.parametrize(
    "role", ["background.promoter.Promoter", "background.registrar.Registrar", "worker.heartbeat.Heartbeat"]
)
@pytest.mark.parametrize("error", [UsageError("refused for good"), SystemExit(3)])
def test_an_error_in_the_background_ends_the_worker(
    queue: Handle, crew: Crew, monkeypatch: pytest.MonkeyPatch, role: str, error: BaseException
) -> None:
    async def fail(_: Any) -> None:
        raise error

    monkeypatch.setattr(f"schedq.{role}.run", fail)
    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue)
    post.join()

    assert post.error is error if isinstance(error, UsageError) else "SystemExit" in str(post.error)
    post.error = None
    until(lambda: not threads())


def test_nothing_is_left_of_the_background_when_the_worker_has_stopped(queue: Handle, crew: Crew) -> None:
    queue.task(name="ok")(lambda: "ok")
    post = crew.start(queue)
    assert queue.result(queue.enqueue({"task": "ok"}), 60) == "ok"
    until(lambda: len(threads()) == 1)  # that of an earlier worker may be about to end

    post.stop()
    post.join()

    until(lambda: not threads())


def test_background_work_can_be_cancelled_from_the_workers_loop() -> None:
    ends: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ends.append(f"{name} in {threading.current_thread().name}")

    async def main() -> None:
        background = LoopThread()
        background.start()
        one = background.run(work("one"))
        background.run(work("two"))
        await background.run(asyncio.sleep(0))
        one.cancel()
        await background.cancel()
        await background.aclose()

    asyncio.run(asyncio.wait_for(main(), 20))

    assert sorted(ends) == ["one in schedq-background", "two in schedq-background"]


def test_results_of_background_work_arrive_on_the_loop_that_asked() -> None:
    async def main() -> tuple[int, str]:
        background = LoopThread()
        background.start()
        try:
            number = await background.run(asyncio.sleep(0, 7))
            with pytest.raises(ValueError, match="no") as caught:
                await background.run(failing())
            return number, str(caught.value)
        finally:
            await background.aclose()

    async def failing() -> None:
        raise ValueError("no")

    assert asyncio.run(asyncio.wait_for(main(), 20)) == (7, "no")
