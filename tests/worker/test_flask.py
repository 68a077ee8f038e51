"""Flask's application context around each attempt, by the middleware of the handbook's page on web applications."""

from __future__ import annotations

from typing import Any

import pytest
from flask import Flask, current_app, has_app_context

from schedq import AttemptFacts, CallNext, JobFailed
from tests.doors import Handle
from tests.worker.crew import Crew
from tests.worker.layers import KINDS, handler


@pytest.mark.parametrize("kind", KINDS)
def test_each_attempt_has_an_application_context_and_teardown_gets_its_error(
    queue: Handle, crew: Crew, kind: str
) -> None:
    app, ended = Flask("store"), list[BaseException | None]()
    app.teardown_appcontext(ended.append)

    @queue.use
    async def application_context(attempt: AttemptFacts, call_next: CallNext) -> Any:
        with app.app_context():
            return await call_next()

    def fail() -> None:
        raise ValueError(current_app.name)

    works = queue.task(name="works")(handler(kind, lambda: current_app.name))
    fails = queue.task(name="fails", max_attempts=1)(handler(kind, fail))
    crew.start(queue)

    assert works.enqueue().result(20) == "store"
    with pytest.raises(JobFailed, match="ValueError: store"):
        fails.enqueue().result(20)

    assert [type(error) for error in ended] == [type(None), ValueError]
    assert not has_app_context()
