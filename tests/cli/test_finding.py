"""Jobs, schedules and batches are found by their id, in whichever queue they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from schedq import Queue
from tests.cli.conftest import Run
from tests.servers import Server

OF_JOBS = ("job", "why", "result", "cancel", "requeue")


@pytest.fixture(params=["single", "cluster"])
def two(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Queue, Queue]]:
    """Two queues of one server, or of a cluster."""
    with Server(topology=request.param) as server:
        monkeypatch.setenv("SCHEDQ_REDIS_URL", server.own_url)
        with Queue("a", redis=server.own_url) as first, Queue("b", redis=server.own_url) as second:
            yield first, second


def test_a_job_is_found_on_a_server_and_on_a_cluster(two: tuple[Queue, Queue], run: Run):
    two[0].enqueue(1, job_id="in-a")
    two[1].enqueue(1, job_id="in-b")
    for queue in two:
        queue.enqueue(1, job_id="in-both")
    until_listed(run)

    assert run("job", "in-b", "--json").json["queue"] == "b"
    assert run("why", "in-a", "--json").json["queue"] == "a"
    for command in OF_JOBS:
        said = run(command, "in-both")
        assert (said.code, "2 queues have a job of this id: a, b; name one" in said.complaint) == (2, True)
        said = run(command, "nowhere")
        assert said.code == 1
        assert "nowhere" in said.complaint
    assert run("job", "in-both", "--queue", "b", "--json").json["queue"] == "b"


def until_listed(run: Run) -> None:
    """On a cluster a thread adds names to the list of queues."""
    ends_at = time.monotonic() + 30
    while len(run("stats", "--json").json["queues"]) < 2:
        assert time.monotonic() < ends_at


def test_jobs_of_different_queues_are_named_with_theirs(run: Run, make_queue: Callable[..., Queue]):
    for name in ("a", "b"):
        make_queue(name).enqueue(1, job_id=f"in-{name}")

    said = run("cancel", "in-a", "in-b", "--yes")

    assert said.code == 1
    assert "these jobs are in different queues (in-a in a, in-b in b); name one with --queue" in said.complaint
    assert make_queue("a").job("in-a").status() == "pending"


def test_an_unknown_job_between_known_ones_is_refused_alone(run: Run, make_queue: Callable[..., Queue]):
    make_queue("a").enqueue(1)
    make_queue("b").enqueue(1, job_id="x")

    said = run("cancel", "nowhere", "x", "--yes")

    assert said.code == 1
    assert "nothing is stored about job nowhere in queue b" in said.complaint
    assert said.out == "x: cancelled\n"


def test_without_any_queue_the_job_is_nowhere(run: Run):
    for command in ("job", "result", "cancel"):
        said = run(command, "x")
        assert (said.code, said.complaint) == (1, "schedq: nothing is stored about job x: there is no queue here")


def test_a_batch_is_found_by_its_id(run: Run, make_queue: Callable[..., Queue]):
    make_queue("a").enqueue(1)
    tasks = make_queue("b")

    @tasks.task
    def work(n: int) -> None: ...

    with tasks.batch("etl", work) as batch:
        batch.add([1])

    assert run("batches", "show", "etl", "--json").json["queue"] == "b"
    assert "nothing is stored about batch nope in any of 2 queues" in run("batches", "show", "nope").complaint


def test_ten_thousand_queues_are_searched_in_pages(
    run: Run, queue: Queue, desk: Server, monkeypatch: pytest.MonkeyPatch
):
    queue.enqueue(1, job_id="x")
    with desk.client() as client:
        client.sadd("schedq:queues", *(f"q{n}" for n in range(10_000)))
        client.config_resetstat()

        assert run("job", "x", "--json").json["queue"] == "mail"

        commands = client.info("commandstats")
    assert commands["cmdstat_exists"]["calls"] < 10_100  # one for each queue, a thousand in a round trip
    assert sum(one["calls"] for one in commands.values()) < 10_200
