"""Each attempt has a Flask application context of its own, in the place where its function runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, current_app, g, has_app_context

from schedq import Queue
from schedq.integrations.flask import FlaskContext
from schedq.isolation.settings import IsolationSettings
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Handle
from tests.integrations import flask_app
from tests.integrations.flask_app import Site
from tests.waiting import until
from tests.worker.crew import Crew, renew_every
from tests.worker.layers import KINDS
from tests.worker.processes import outcome


@pytest.fixture
def door() -> str:
    return "blocking"


@pytest.fixture
def queue(make_queue: MakeQueue) -> Handle:
    queue = make_queue(visibility_ms=30_000)
    renew_every(1, queue)
    return queue


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def site(queue: Handle, url: str, request: pytest.FixtureRequest) -> Iterator[Site]:
    site = flask_app.define(queue.queue, url, isolates="isolated" in request.node.name)
    flask_app.metadata.create_all(site.engine)
    yield site
    site.engine.dispose()


@pytest.fixture
def crew(make_queue: MakeQueue, site: Site) -> Iterator[Crew]:
    crew = Crew()
    yield crew
    crew.end()
    assert site.connections() == 0
    assert not has_app_context()


@pytest.mark.parametrize("by", ["a worker", "run_due"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_attempt_has_a_fresh_context_and_teardown_gets_its_error(
    queue: Handle, site: Site, crew: Crew, kind: str, by: str
):
    jobs = [site.tasks[kind].enqueue(text, how) for text, how in (("a", "well"), ("b", "first"), ("c", "well"))]
    if by == "run_due":
        run_due(queue.queue)
    else:
        crew.start(queue, concurrency=1)

    assert [outcome(queue, job.id).result for job in jobs] == [["store", None, os.getpid()]] * 3
    assert sorted(site.texts()) == ["a", "b", "c"]
    assert sorted(filter(None, site.ended)) == ["ValueError: b"]
    assert len(site.ended) == (8 if kind == "awaitable" else 4)  # a plain function is entered, and then its awaitable


def test_dependencies_of_plain_and_async_tasks_are_inside(queue: Handle, site: Site, crew: Crew):
    jobs = [site.tasks[name].enqueue() for name in ("depends", "adepends")]
    crew.start(queue)

    assert [outcome(queue, job.id).result for job in jobs] == ["tenant of store"] * 2


def test_after_a_timeout_the_context_lives_until_the_thread_ends(queue: Handle, site: Site, crew: Crew):
    job = site.tasks["plain"].options(timeout=1, max_attempts=1).enqueue("late", "wait")
    crew.start(queue, concurrency=1)

    assert outcome(queue, job.id).last_error == "TimeoutError: timed out after 1 s"

    until(lambda: site.ended == ["TimeoutError: timed out after 1 s"])


@pytest.mark.processes
def test_isolated_attempts_have_it_in_their_process(queue: Handle, site: Site, crew: Crew, url: str):
    load = partial(flask_app.load, queue.name, queue.server.unix_url, url)
    crew.start(queue, isolation=IsolationSettings(load=load))
    work = site.tasks["isolated"]
    jobs = [work.enqueue("a"), work.enqueue("b", "first"), work.options(timeout=2, max_attempts=1).enqueue("c", "hang")]

    found = [outcome(queue, job.id) for job in jobs]

    assert [each.status for each in found] == ["completed", "completed", "failed"]
    assert all(name == "store" and left is None and pid != os.getpid() for name, left, pid in map(result, found[:2]))
    assert sorted(site.texts()) == ["a", "b"]
    assert site.ended == []


def result(record: Any) -> list[object]:
    found: list[object] = record.result
    return found


def test_an_attempt_in_the_context_of_a_request_has_its_own(queue: Handle, site: Site):
    job = site.tasks["plain"].enqueue("a")

    with site.app.test_request_context():
        g.text = "of the request"
        run_due(queue.queue)

        assert job.result(0) == ["store", None, os.getpid()]
        assert g.text == "of the request"
        assert site.ended == [""]


def test_the_application_may_be_set_later(queue: Handle):
    context = queue.queue.around(FlaskContext())
    work = queue.task(name="work", max_attempts=1)(lambda: current_app.name)

    early = work.enqueue()
    run_due(queue.queue)
    for name in ("first", "second"):  # as tests create one application after the other
        context.init_app(Flask(name))
    later = work.enqueue()
    run_due(queue.queue)

    assert "FlaskContext has no application; call its init_app(app)" in outcome(queue, early.id).last_error
    assert later.result(0) == "second"


def test_a_view_enqueues_and_a_test_runs_the_job(schedq_tester: Any):
    app = Flask("shop")
    with Queue("views") as queue:
        queue.around(FlaskContext(app))
        receipt = queue.task(name="receipt")(lambda number: f"receipt {number} of {current_app.name}")

        @app.post("/orders/<int:number>")
        def order(number: int) -> dict[str, str]:
            return {"job": receipt.enqueue(number).id}

        job_id = app.test_client().post("/orders/7").get_json()["job"]
        schedq_tester.run_due()

        assert queue.job(job_id).result(0) == "receipt 7 of shop"
