"""stats, jobs and job: what people and programs are shown."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from schedq import Fixed, Queue
from schedq.cli import doctor, output
from schedq.connection import client as connections
from schedq.doctor.checks import Finding
from schedq.model.keys import QueueKeys
from schedq.model.lifecycle import JOB_STATES
from schedq.transitions import announce
from tests.cli.conftest import Run
from tests.cli.scenes import beat, claimed, failed_jobs, one_of_each
from tests.servers import Server

STATES = [place for place in JOB_STATES if place != "broken"]

# -- stats


def test_stats_of_a_queue_are_all_of_its_figures(run: Run, queue: Queue):
    one_of_each(queue)

    found = run("stats", "mail", "--json").json

    assert found.items() >= (dict(queue.stats()) | {"now_ms": found["now_ms"], "queue": "mail"}).items()
    assert found["live_workers"] == []


def test_stats_for_people_name_every_figure(run: Run, queue: Queue):
    one_of_each(queue)
    queue.pause()

    lines = run("stats", "mail").lines
    text = "\n".join(lines)

    assert lines[0].startswith("queue mail at unix://")
    assert "paused" in text
    assert " ago)" in text
    assert " (in 4 min " in text
    words = [line.split() for line in lines]
    assert [line[:4] for line in words if "completed" in line] == [["completed", "1", "completed", "1"]]
    for total in (name[:-6] for name in queue.stats() if name.endswith("_total")):
        assert total in text


def test_stats_name_paused_tasks_and_count_their_held_jobs(run: Run, queue: Queue):
    queue.enqueue_many([{"task": "send"}] * 3 + [{"task": "report"}])
    queue.pause(task="send")
    queue.pause(task="resize")
    claimed(queue)

    lines, found = run("stats", "mail").lines, run("stats", "mail", "--json").json

    assert [line for line in lines if line.startswith("paused task  ")][1].startswith("paused task  send, since 20")
    assert "held         3 of 3 pending jobs" in lines
    assert (found["paused_tasks"], found["held_depth"], found["pending_depth"]) == (2, 3, 3)
    assert found["tasks_paused_since_ms"] == queue.list_paused_tasks()


def test_stats_show_the_settings_of_the_application(run: Run, make_queue: Callable[..., Queue]):
    queue = make_queue(visibility_ms=77_000)
    queue._ask(announce.announce(queue.settings))

    assert run("stats", "mail", "--json").json["visibility_ms"] == 77_000
    assert "visibility  1 min 17 s" in run("stats", "mail").out


def test_stats_show_live_workers_and_what_each_runs(run: Run, queue: Queue):
    jobs = [{"id": f"job-{n}", "task": "send"} for n in range(7)]
    beat(queue, "vm-7-a", running=7, jobs=json.dumps(jobs), tasks='["send"]')
    beat(queue, "vm-8-b", host="other[red]\x1b", pid=8, running=0, jobs="[]", stop=1)

    found = run("stats", "mail", "--json").json["live_workers"]
    lines = run("stats", "mail").lines

    assert {worker["id"]: worker["running"] for worker in found} == {"vm-7-a": 7, "vm-8-b": 0}
    assert next(worker for worker in found if worker["id"] == "vm-7-a")["jobs"] == jobs
    assert any(line.startswith("vm ") and line.split()[-5:] == ["7", "of", "10", "job-0", "send"] for line in lines)
    assert any(line.endswith("and 2 more") for line in lines)
    assert any(line.startswith(r"other[red]\x1b  8 ") and "0 of 10, stopping" in line for line in lines)


def test_all_queues_are_a_line_each(run: Run, make_queue: Callable[..., Queue]):
    one_of_each(make_queue("mail"))
    make_queue("reports").enqueue_many(range(1234))
    make_queue("reports").pause()
    make_queue("only-looked-at").stats()

    lines = run("stats").lines
    found = run("stats", "--json").json["queues"]

    assert lines[0].split() == ["queue", "pending", "delayed", "running", "failed", "workers", "next", "due", "paused"]
    assert lines[1].split()[:6] == ["mail", "1", "1", "1", "1", "0"]
    assert lines[1].endswith("in 4 min")
    assert lines[2].split()[:7] == ["reports", "1,234", "0", "0", "0", "0", "–"]
    assert lines[2].endswith(" ago")
    assert len(lines) == 3
    make_queue("mail").pause(task="send")
    assert run("stats").lines[1].endswith("in 4 min  1 task")
    assert [(queue["queue"], queue["pending_depth"]) for queue in found] == [("mail", 1), ("reports", 1234)]


def test_queues_that_only_other_programs_use_are_found_by_a_scan(run: Run, desk: Server):
    with desk.client() as client:
        client.lpush("queue:theirs:pending", "1")
        client.zadd("queue:later:delayed", {"x": 1})
        client.lpush("queue:{braced}:pending", "1")
        client.lpush("queue:no name:pending", "1")
        client.hset("queue:mail:job:pending", mapping={"payload": "1"})
        client.mset({f"filler:{n}": n for n in range(3000)})

        assert run("stats").lines == ["no queue here; --scan also finds queues that only other programs use"]
        with desk.requests() as requests:
            found = run("stats", "--scan", "--json").json["queues"]

    assert [queue["queue"] for queue in found] == ["braced", "later", "theirs"]
    scans = [request for request in requests if request.name == "SCAN"]
    assert len(scans) > 2
    assert not [request for request in requests if request.name in ("KEYS", "SADD")]


def test_a_damaged_queue_does_not_hide_the_others(run: Run, make_queue: Callable[..., Queue], desk: Server):
    make_queue("a").enqueue(1)
    make_queue("b").enqueue(1)
    with desk.client() as client:
        client.set("queue:a:delayed", "what is this")

    said = run("stats")

    assert said.code == 1
    assert "queue a: stats: WRONGTYPE queue:a:delayed" in said.complaint
    assert said.out.splitlines()[1].startswith("b ")


def test_damaged_settings_are_reported_and_do_not_lock_an_operator_out(run: Run, queue: Queue, desk: Server):
    queue.enqueue(1)
    with desk.client() as client:
        client.lpush(queue.settings.keys.settings, "what is this")

    said = run("stats", "mail")

    assert said.code == 0
    assert "WRONGTYPE" in said.complaint
    assert "using the library's default settings" in said.complaint
    assert re.search(r"pending +1\b", said.out)


@pytest.fixture
def trips(monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Counts the round trips of a command; each is sent to the real server."""
    count = [0]
    send = connections._round_trip

    def counted(*asked: Any) -> Any:
        count[0] += 1
        return send(*asked)

    monkeypatch.setattr(connections, "_round_trip", counted)

    def trips(act: Callable[[], object]) -> int:
        before = count[0]
        act()
        return count[0] - before

    return trips


@pytest.mark.parametrize("words", [("stats",), ("stats", "--json"), ("doctor",)], ids=" ".join)
def test_round_trips_grow_by_pages_of_queues_and_unused_names_cost_none(
    run: Run, trips: Callable[..., int], desk: Server, words: tuple[str, ...]
):
    def make(numbers: range) -> None:
        for number in numbers:
            keys = QueueKeys(f"tenant-{number:03}-x")
            desk.lasting_client.sadd("schedq:queues", keys.name, f"{keys.name}-unused")
            desk.lasting_client.rpush(keys.pending, f"{number}")
            desk.lasting_client.hset(keys.job(f"{number}"), "payload", "1")

    make(range(10))
    run(*words)  # loads the scripts
    few = trips(lambda: run(*words))
    make(range(10, 300))
    many = trips(lambda: run(*words))

    said = run(*words)
    assert said.out.count("tenant-299-x") >= 1
    assert "unused" not in said.out
    # A doctor asks some fifty questions, one after the other, to a hundred queues at once, a hundred in a round trip.
    assert many - few <= (3 * few if words == ("doctor",) else 3)


@pytest.mark.parametrize("columns", ["60", "100"])
@pytest.mark.parametrize("color", ["", "1"])
def test_a_long_list_looks_like_a_short_one(
    run: Run, make_queue: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch, columns: str, color: str
):
    for name in ("a", "tenant-12", "a-name-that-has-many-more-characters-than-there-are-columns"):
        make_queue(name).enqueue_many(range(11))
    make_queue("a").enqueue(1, delay=1e6)
    make_queue("a").pause(task="t")
    monkeypatch.setenv("COLUMNS", columns)
    if color:
        monkeypatch.setenv("FORCE_COLOR", color)

    short = run("stats").out
    monkeypatch.setattr(output, "_LONG", 0)

    assert run("stats").out == short


@pytest.mark.parametrize("width", [40, 61, 120, 400])
@pytest.mark.parametrize("queue", ["m", "mail", "a-name-that-has-many-more-characters-than-there-are-columns"])
def test_an_entry_of_the_doctor_looks_the_same_with_any_name(monkeypatch: pytest.MonkeyPatch, width: int, queue: str):
    monkeypatch.setenv("COLUMNS", str(width))
    means, remedy = (
        "no worker is running, so they wait in the meantime",
        f"start one: schedq worker APP --queue {queue}",
    )
    found = Finding("no-worker", "error", f"jobs of {queue} wait", means, remedy, queue, ("job-1",), "", 3)

    for _ in range(2):
        assert doctor._text(found, output.width(), is_ignored=False) == output.rendered(
            "", doctor._entry(found, is_ignored=False)
        )


@pytest.mark.parametrize("command", ["stats", "doctor"])
def test_on_a_terminal_progress_is_shown_and_ctrl_c_ends_it(
    run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch, command: str
):
    queue.enqueue(1)
    assert run(command).err == "", "without a terminal"

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(output, "QUICK_S", 0)
    send = connections._round_trip

    def pressed(*asked: Any) -> Any:
        if len(asks) == 3:
            raise KeyboardInterrupt
        asks.append(send(*asked))
        return asks[-1]

    asks: list[Any] = []
    monkeypatch.setattr(connections, "_round_trip", pressed)
    said = run(command)

    assert (" queues " in said.err, said.out) == (True, "")
    assert said.code in (1, 130)
    assert "Traceback" not in said.err


# -- jobs


def test_without_a_state_all_jobs_are_listed_state_by_state(run: Run, queue: Queue, desk: Server):
    one_of_each(queue)
    with desk.client() as client:
        client.lpush(queue.settings.keys.broken, '{"id":"lost","reason":"no data","at_ms":1700000000000}')

    lines = run("jobs", "mail").lines
    found = run("jobs", "mail", "--json").json

    assert [line for line in lines if line in JOB_STATES] == list(JOB_STATES)
    assert {job["id"]: job["state"] for job in found["jobs"]} == {state: state for state in STATES} | {"lost": "broken"}
    assert found["totals"] == dict.fromkeys(JOB_STATES, 1)
    assert found["next_offset"] is None
    assert any(line.startswith("lost  2023-11-14 23:13  ") and line.endswith("no data") for line in lines)


@pytest.mark.parametrize(
    ("state", "titles", "says"),
    [
        ("pending", "id enqueued task attempts payload", '{"n": 5}'),
        ("delayed", "id due task attempts payload", "in 4 min"),
        ("processing", "id since task attempts worker payload", '{"n": 4}'),
        ("completed", "id completed took task result", '{"sent": true}'),
        ("failed", "id failed took task attempts error", r"no [bold]such[/bold]�[31m user"),
        ("cancelled", "id cancelled task attempts payload", '{"n": 3}'),
    ],
)
def test_a_table_is_fitted_to_the_state(state: str, titles: str, says: str, run: Run, queue: Queue):
    one_of_each(queue)

    lines = run("jobs", "mail", "--state", state).lines

    assert lines[0] == state
    assert lines[1].split() == titles.split()
    assert lines[2].startswith(f"{state} ")
    assert says in lines[2]
    assert lines[3:] == ["1 to 1 of 1", ""]


@pytest.mark.parametrize("state", ["completed", "failed", "cancelled", "pending"])
def test_a_page_of_finished_jobs_says_how_many_there_were(run: Run, queue: Queue, desk: Server, state: str):
    one_of_each(queue)
    desk.lasting_client.hset(queue.settings.keys.stats, f"{state}_total", 48_212)

    said = [run("jobs", "mail", "--state", state, *more).lines[-2] for more in ((), ("--task", "t"))]
    found = run("jobs", "mail", "--state", state, "--json").json

    kept = "" if state == "pending" else "; 1 kept of 48,212 so far"
    assert said == [f"1 to 1 of 1{kept}", f"0 found, 1 of 1 searched{kept}"]
    assert found["so_far"] == ({} if state == "pending" else {state: 48_212})


def test_failed_and_completed_jobs_are_listed_with_their_tasks(run: Run, queue: Queue):
    for task, end in (("send", "fail"), ("charge", "complete")):
        queue.enqueue({"task": task}, max_attempts=1)
        getattr(queue, end)(queue.claim(timeout_ms=0))

    assert " send " in run("jobs", "mail", "--state", "failed").lines[2]
    assert " charge " in run("jobs", "mail", "--state", "completed").lines[2]


def test_pages_follow_one_another_by_the_command_that_is_shown(run: Run, queue: Queue):
    ids = queue.enqueue_many(range(25))

    seen: list[str] = []
    words = ["jobs", "mail", "--state", "pending", "--limit", "10"]
    while words:
        lines = run(*words).lines
        seen += [line.split()[0] for line in lines if line[:26] in ids]
        assert f"{len(seen) - (10 if len(seen) < 25 else 5) + 1} to {len(seen)} of 25" in lines
        next_ones = [line.split()[3:] for line in lines if line.startswith("next page: ")]
        words = next_ones[0] if next_ones else []

    assert seen == ids


def test_programs_page_by_the_next_offset(run: Run, queue: Queue):
    ids = failed_jobs(queue, 12)

    seen: list[str] = []
    offset: int | None = 0
    while offset is not None:
        found = run("jobs", "mail", "--json", "--state", "failed", "--limit", "5", "--offset", str(offset)).json
        seen += [job["id"] for job in found["jobs"]]
        offset = found["next_offset"]

    assert seen == ids[::-1]


def test_no_request_reads_more_than_a_page(run: Run, queue: Queue, desk: Server):
    queue.enqueue_many(range(5000))

    with desk.requests() as requests:
        found = run("jobs", "mail", "--state", "pending", "--limit", "7", "--offset", "4000", "--json").json

    assert [job["payload"] for job in found["jobs"]] == [*range(4000, 4007)]
    pages = [request.words for request in requests if "waiting" in request.words]
    assert [words[-2:] for words in pages] == [("4000", "7")]


def test_a_page_of_large_jobs_is_still_full(run: Run, make_queue: Callable[..., Queue]):
    queue = make_queue(max_payload=2_000_000)
    queue.enqueue_many(["x" * 700_000, "y" * 700_000, "z" * 700_000])

    found = run("jobs", "mail", "--json").json

    assert [job["payload"][0] for job in found["jobs"]] == ["x", "y", "z"]


def test_a_url_with_a_password_is_not_repeated(run: Run, queue: Queue, desk: Server):
    queue.enqueue_many(range(3))
    with desk.client() as client:
        client.acl_setuser("ada", enabled=True, passwords=["+s3cret"], keys=["*"], channels=["*"], commands=["+@all"])

    said = run("jobs", "mail", "--limit", "1", "--redis", f"redis://ada:s3cret@127.0.0.1:{desk.port}")

    assert "next page: schedq jobs mail --redis URL --limit 1 --state pending --offset 1" in said.lines
    assert "s3cret" not in said.out


def test_an_empty_queue_says_so(run: Run, queue: Queue):
    queue.enqueue(1)
    queue.purge()

    assert run("jobs", "mail").lines == ["queue mail holds no jobs"]
    assert run("jobs", "mail", "--state", "failed").lines == ["failed", "none; 0 jobs in all", ""]


# -- job


def test_a_job_is_shown_with_all_that_is_stored(run: Run, make_queue: Callable[..., Queue]):
    queue = make_queue(backoff=Fixed(90))
    queue.enqueue({"task": "send", "args": ["ada"]}, job_id="a", max_attempts=5, timeout=90)
    try:
        raise ValueError("no [bold]such[/bold] user\x1b[31m")
    except ValueError as error:
        queue.fail(claimed(queue), error)

    lines = run("job", "a").lines
    facts = {" ".join(line.split("  ")[0].split()): line.split("  ")[-1].strip() for line in lines[:12]}

    assert facts["job"] == "a"
    assert (facts["queue"], facts["state"], facts["task"], facts["attempts"]) == ("mail", "delayed", "send", "1 of 5")
    assert re.search(r"\(in 1 min( \d+ s)?\)$", facts["due"])
    assert facts["timeout"] == "1 min 30 s"
    assert '  "task": "send",' in lines
    assert "ValueError: no [bold]such[/bold] user�[31m" in lines
    assert "traceback" in lines
    assert 'raise ValueError("no [bold]such[/bold] user' in "\n".join(lines)
    steps = [line[25:].split("  ")[0] for line in lines[lines.index("timeline") + 2 :]]
    assert steps == ["enqueued", "attempt 1: retry", "due"]
    assert " in 1 min" in lines[-1]
    assert not [line for line in lines if "token" in line]


def test_the_error_of_a_completed_job_is_called_an_earlier_attempts(run: Run, queue: Queue):
    queue.enqueue({"n": 1}, job_id="a", backoff=Fixed(0))
    queue.fail(claimed(queue), "no such user")
    titles = [line for line in run("job", "a").lines if "error" in line]
    queue.promote_due()
    job = claimed(queue)
    titles += [line for line in run("job", "a").lines if "error" in line]
    queue.complete(job)
    titles += [line for line in run("job", "a").lines if "error" in line]

    assert [title.partition(",")[0] for title in titles] == ["last error"] + ["error of an earlier attempt"] * 2


def test_a_job_for_programs_has_raw_values(run: Run, queue: Queue):
    one_of_each(queue)

    found = run("job", "completed", "--json").json

    assert found["queue"] == "mail"
    assert (found["status"], found["payload"], found["result"]) == ("completed", {"n": 1}, {"sent": True})
    assert found["completed_at_ms"] == queue.get_job("completed").completed_at_ms
    assert found["fields"]["payload"] == '{"n":1}'
    assert found["history"][0]["outcome"] == "completed"
    (attempt,) = found["timeline"]["attempts"]
    assert (attempt["number"], attempt["outcome"]) == (1, "completed")
    assert found["timeline"]["ended_at_ms"] == found["completed_at_ms"]


def test_a_job_shows_its_history(run: Run, queue: Queue, desk: Server):
    """Instants of the past, so that they are the same whenever it is looked at."""
    with desk.client() as client, Queue("mail", redis=client, clock=lambda: now[0], max_attempts=2) as past:
        now = [1_700_000_000.0]
        past.enqueue({"task": "send"}, job_id="a", delay=60, backoff=Fixed(30))
        now[0] += 60.005
        job = claimed(past)
        now[0] += 1.5
        past.fail(job, "smtp timeout\x1b[31m")
        now[0] += 30
        job = claimed(past)
        now[0] += 0.25
        past.complete(job)

    lines = run("job", "a").lines

    at = lines.index("timeline") + 2
    assert [" ".join(line.split()) for line in lines[at:]] == [
        "2023-11-14 23:13:20.000 enqueued",
        "2023-11-14 23:14:20.005 attempt 1: retry 1.5 s smtp timeout\N{REPLACEMENT CHARACTER}[31m",
        "2023-11-14 23:14:51.505 due",
        "2023-11-14 23:14:51.505 promoted 0 ms late",
        "2023-11-14 23:14:51.505 attempt 2: completed 250 ms",
        "2023-11-14 23:14:51.755 completed",
    ]


def test_fields_of_other_programs_are_shown_unchanged(run: Run, queue: Queue, desk: Server):
    with desk.client() as client:
        client.hset("queue:mail:job:theirs", mapping={"payload": "{oops\x1b", "status": "[red]", "color": "blue\x07"})
        client.lpush("queue:mail:pending", "theirs")

    lines = run("job", "theirs", "--queue", "mail").lines

    assert r"{oops\x1b" in lines
    assert [line.split() for line in lines if line.startswith(("state", "color"))] == [
        ["state", "[red]"],
        ["color", r"blue\x07"],
    ]
    assert run("job", "theirs", "--queue", "mail", "--json").json["payload_text"] == "{oops\x1b"
    assert r"{oops\x1b" in run("jobs", "mail").out


def test_the_queue_of_a_job_is_named_by_option_or_environment_or_is_the_only_one(
    run: Run, make_queue: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
):
    make_queue("a").enqueue(1, job_id="x")
    assert run("job", "x", "--json").json["queue"] == "a"

    make_queue("b").enqueue(2, job_id="x")
    monkeypatch.setenv("SCHEDQ_QUEUE", "b")
    assert run("job", "x", "--json").json["payload"] == 2
    assert run("job", "x", "--queue", "a", "--json").json["payload"] == 1
