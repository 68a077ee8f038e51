"""`schedq why`: the one reason that a job is not running, in words and for programs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from schedq import Queue, UsageError
from schedq.inspect.why import REASONS
from schedq.model.ids import made_at_ms, new_ids
from scripts.tools.handbook import Block
from tests.cli import gate_whys, run_whys, whys
from tests.cli.conftest import Run
from tests.cli.whys import Situation
from tests.doors import contents
from tests.servers import Server

SITUATIONS = (*whys.SITUATIONS, *gate_whys.SITUATIONS, *run_whys.SITUATIONS)
UNKNOWN = {reason.name for reason in REASONS if not reason.is_known}
Staged = Callable[[Situation], str]


@pytest.fixture
def staged(make_queue: Callable[..., Queue], desk: Server) -> Staged:
    """Sets a situation; the job's id."""

    def stage(it: Situation) -> str:
        with desk.client() as client:
            return it.stage(make_queue(**it.settings), client)

    return stage


@pytest.mark.parametrize("it", SITUATIONS, ids=lambda it: it.name)
def test_the_reason_is_given_in_words(run: Run, staged: Staged, it: Situation):
    job_id = staged(it)

    said = run("why", job_id, "--queue", "mail")

    if it.reason in UNKNOWN:
        assert (said.code, said.out) == (1, "")
        text = said.complaint.partition("queue mail: ")[2]
    else:
        text = said.lines[0].removeprefix(f"job {job_id} in queue mail: ")
    assert re.search(it.says, text), text


@pytest.mark.parametrize("it", SITUATIONS, ids=lambda it: it.name)
def test_the_reason_is_given_to_programs(run: Run, staged: Staged, it: Situation):
    job_id = staged(it)

    said = run("why", job_id, "--queue", "mail", "--json")

    found = said.json
    assert (found["reason"], found["queue"], found["id"]) == (it.reason, "mail", job_id)
    assert re.search(it.says, found["text"])
    assert {name: found[name] for name in it.facts} == it.facts
    assert said.code == (1 if it.reason in UNKNOWN else 0)


def test_looking_changes_nothing(staged: Staged, make_queue: Callable[..., Queue], desk: Server):
    queue = make_queue()
    for it in SITUATIONS:
        with desk.client() as client:
            client.flushall()
            job_id = staged(it)
            queue.stats()
            before = contents(client)
            queue.inspector.why(job_id)
            assert contents(client) == before, it.name


def test_every_reason_has_a_situation():
    assert {it.reason for it in SITUATIONS} == {reason.name for reason in REASONS}


def test_the_handbook_has_the_reasons_in_their_order():
    table = Block("why.md", "reasons").read()
    rows = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in table.strip().splitlines()[2:]]

    assert rows == [(f"`{reason.name}`", reason.means) for reason in REASONS]


def test_without_a_queue_every_one_is_searched(run: Run, make_queue: Callable[..., Queue]):
    make_queue("bills").enqueue(1)
    job_id = make_queue("mail").enqueue(1, delay=60)
    make_queue("news").enqueue(1)

    assert run("why", job_id, "--json").json["queue"] == "mail"
    said = run("why", "nobody", "--json")
    assert (said.code, said.json["reason"]) == (1, "unknown")
    assert "searched for in 3 queues" in run("why", "nobody").complaint


def test_the_job_that_holds_a_unique_key_is_found_by_the_key(run: Run, make_queue: Callable[..., Queue]):
    make_queue("bills").enqueue(1)
    job_id = make_queue("mail").enqueue(1, unique="nightly", delay=7 * 86_400)

    found = run("why", "--unique", "nightly").lines[0]
    nobody = run("why", "--unique", "weekly")

    assert re.fullmatch(
        rf"job {job_id} in queue mail: it is due in .*; it holds the unique key 'nightly': another call with it "
        "returns this job",
        found,
    )
    assert run("why", "--unique", "nightly", "--json").json["unique"] == "nightly"
    assert (nobody.code, nobody.complaint) == (
        1,
        "schedq: unique key 'weekly', searched for in 2 queues: no job holds it",
    )
    assert run("why", job_id, "--unique", "nightly").code == 2


def test_without_any_queue_a_job_is_unknown(run: Run):
    said = run("why", "nobody", "--json")

    assert (said.code, said.json) == (
        1,
        {"reason": "unknown", "text": "there is no queue here", "queue": None, "id": "nobody"},
    )


def test_a_damaged_queue_does_not_hide_a_job_of_another(run: Run, make_queue: Callable[..., Queue], desk: Server):
    make_queue("bills").enqueue(1)
    job_id = make_queue("mail").enqueue(1, delay=60)
    with desk.client() as client:
        client.delete("queue:bills:pending")
        client.set("queue:bills:pending", "x")

    assert run("why", job_id, "--json").json["queue"] == "mail"
    assert "queue:bills:pending" in run("why", "nobody").complaint


def test_what_others_stored_is_shown_harmlessly(run: Run, queue: Queue, desk: Server):
    job_id = queue.enqueue({"task": "x\x1b[31m"})
    with desk.client() as client:
        client.hset(f"queue:mail:job:{job_id}", mapping={"status": "failed", "last_error": "[red]\x1b[31mno"})

    assert r"with [red]\x1b[31mno" in run("why", job_id).lines[0]


def test_an_id_of_ours_says_when_it_was_made(queue: Queue):
    stats = queue.stats()

    (job_id,) = new_ids()

    assert abs((made_at_ms(job_id) or 0) - stats["now_ms"]) < 600_000
    for other in ("", "order-17", "z" * 26, "0" * 26, job_id[:-1], job_id.upper()):
        assert made_at_ms(other) is None


def test_an_invalid_id_is_refused(queue: Queue):
    with pytest.raises(UsageError, match="job id"):
        queue.inspector.why("a:b")
