"""Progress in a terminal: of one job, of running ones, while it is waited for; and `schedq result`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from schedq import Discard, Progress, Queue
from schedq.inspect import display
from schedq.model.progress import ProgressReport
from schedq.transitions import renew
from tests.cli.conftest import Run
from tests.cli.scenes import claimed
from tests.cli.test_processes import Terminal, schedq
from tests.servers import Server
from tests.waiting import until


def running(queue: Queue, job_id: str, progress: Progress | None = None, meta: str = "") -> None:
    """A job that has been claimed, and has reported something."""
    queue.enqueue({"task": "send", "args": ["ada"]}, job_id=job_id)
    job = claimed(queue)
    numbers = None if progress is None else (progress.done, progress.total, progress.note)
    if numbers or meta:
        queue._ask(renew.renew(queue.settings, (), [ProgressReport.of(job.id, job.claim_token, numbers, meta)]))


@pytest.mark.parametrize(
    ("progress", "text", "bar"),
    [
        (Progress(3, 10, "rows"), "3 of 10 (30 %), rows", "███░░░░░░░ 30 %"),
        (Progress(1234567), "1,234,567", "1,234,567"),
        (Progress(0, 0), "0 of 0 (100 %)", "██████████ 100 %"),
        (Progress(999, 1000), "999 of 1,000 (99 %)", "█████████░ 99 %"),
        (Progress(0.5, 2), "0.50 of 2 (25 %)", "██░░░░░░░░ 25 %"),
        (Progress(1e99), "1e+99", "1e+99"),
    ],
)
def test_progress_reads_as_people_say_it(progress: Progress, text: str, bar: str):
    assert (display.progress(progress), display.bar(progress)) == (text, bar)


# -- looking


def test_a_job_shows_how_far_it_has_come_and_its_meta(run: Run, queue: Queue):
    running(queue, "one", Progress(3, 10, "rows"), '{"page":1}')

    lines = run("job", "one").lines

    (line,) = [line for line in lines if line.startswith("progress")]
    assert "███░░░░░░░  3 of 10 (30 %), rows (" in line
    assert lines[lines.index("meta") + 1 :][:3] == ["{", '  "page": 1', "}"]
    assert not [line for line in lines if line.startswith("meta  ")]


def test_as_json_it_has_numbers(run: Run, queue: Queue):
    running(queue, "one", Progress(3, 10, "rows"), '{"page":1}')

    for found in (run("job", "one", "--json").json, run("jobs", "mail", "--json").json["jobs"][0]):
        at_ms = found["progress"].pop("at_ms")
        assert abs(at_ms - queue.stats()["now_ms"]) < 60_000
        assert found["progress"] == {"done": 3, "total": 10, "note": "rows", "fraction": 0.3}
        assert found["meta"] == {"page": 1}


def test_a_job_that_reported_nothing_shows_nothing(run: Run, queue: Queue):
    running(queue, "one")

    assert "progress" not in run("job", "one").out
    assert "progress" not in run("jobs", "mail").out
    assert "progress" not in run("top", "mail", "--once").out
    assert (run("job", "one", "--json").json["progress"], run("job", "one", "--json").json["meta"]) == (None, {})


def test_a_job_that_went_back_shows_how_far_an_earlier_attempt_came(run: Run, queue: Queue, desk: Server):
    running(queue, "one", Progress(3, 10, "rows"))
    with desk.client() as client:
        client.hincrby(queue.settings.keys.job("one"), "attempts", -1)  # as a release does

    (line,) = [line for line in run("job", "one").lines if line.startswith("progress")]

    assert line.startswith("progress of an earlier attempt")
    assert "3 of 10 (30 %), rows (" in line


def test_progress_of_another_program_is_shown_unchanged(run: Run, queue: Queue, desk: Server):
    queue.enqueue(1, job_id="one")
    with desk.client() as client:
        client.hset(queue.settings.keys.job("one"), mapping={"progress": "half way", "meta": "{theirs}"})

    lines = run("job", "one").lines

    assert ["progress", "half", "way"] in [line.split() for line in lines]
    assert ["meta", "{theirs}"] in [line.split() for line in lines]


@pytest.mark.parametrize("command", ["jobs mail --state processing", "top mail --once"])
def test_running_jobs_have_a_bar_if_they_report(run: Run, queue: Queue, command: str):
    running(queue, "loud", Progress(3, 10, "rows"))
    running(queue, "silent")
    running(queue, "counting", Progress(7777))

    lines = run(*command.split()).lines

    head = next(line for line in lines if line.startswith("id ") and "worker" in line)
    assert "progress" in head.split()
    assert "███░░░░░░░ 30 %" in next(line for line in lines if line.startswith("loud"))
    assert "░" not in next(line for line in lines if line.startswith("silent"))
    assert "7,777" in next(line for line in lines if line.startswith("counting"))


def test_a_bar_is_not_cut_on_a_narrow_screen(run: Run, queue: Queue, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    running(queue, "one", Progress(10, 10))

    assert "██████████ 100 %" in run("jobs", "mail", "--state", "processing").out
    assert all(len(line) <= 80 for line in run("jobs", "mail", "--state", "processing").lines)


def test_tail_shows_progress_when_asked(run: Run, queue: Queue, desk: Server):
    def act() -> None:
        with desk.client() as client:
            until(lambda: client.pubsub_numsub(queue.settings.keys.events)[0][1])
        running(queue, "one", Progress(3, 10, "rows"))
        queue.cancel("two")

    def tailed(*words: str) -> Any:
        queue.enqueue(1, job_id="two", delay=60)
        thread = threading.Thread(target=act)
        thread.start()
        said = run("tail", "mail", "-n", "1", *words)
        thread.join()
        queue.purge()
        return said

    assert tailed().out.split()[1:3] == ["cancelled", "two"]
    for words in (("--status", "progress"), ("--id", "one")):
        assert tailed(*words).out.strip().endswith("progress   one  attempt 1, 3 of 10 (30 %), rows")
    assert tailed("--status", "progress", "--json").out.count('"done":3') == 1


# -- results


def test_the_result_of_a_job_is_printed_as_json(run: Run, queue: Queue):
    queue.enqueue(1, job_id="one")
    queue.complete(claimed(queue), {"sent": "é"})

    assert run("result", "one").json == {"sent": "é"}
    assert run("result", "one", "--wait").json == {"sent": "é"}
    assert run("result", "one", "--json").json == {
        "queue": "mail", "id": "one", "status": "completed", "result": {"sent": "é"},
    }  # fmt: skip


def test_a_job_without_a_result_says_why(run: Run, queue: Queue):
    queue.enqueue(1, job_id="failed")
    queue.fail(claimed(queue), Discard("no such user"))
    queue.enqueue(2, job_id="waiting")
    queue.enqueue(3, job_id="cancelled")
    queue.cancel("cancelled")

    for words, why in {
        ("failed",): "no such user",
        ("cancelled",): "job cancelled was cancelled",
        ("waiting",): "job waiting is still pending",
        ("waiting", "--wait", "--timeout", "0.1"): "job waiting is still pending",
        ("never-was",): "nothing is stored about job never-was",
        ("never-was", "--wait"): "nothing is stored about job never-was",
    }.items():
        said = run("result", *words)
        assert (said.code, said.out) == (1, ""), words
        assert why in said.complaint


def test_as_json_a_failure_is_an_object_too(run: Run, queue: Queue):
    queue.enqueue(1, job_id="one")
    queue.fail(claimed(queue), Discard("no such user"))

    said = run("result", "one", "--json")

    assert said.code == 1
    found = json.loads(said.out)
    assert (found["id"], found["status"]) == ("one", "failed")
    assert "no such user" in found["error"]


def test_a_timeout_without_waiting_makes_no_sense(run: Run, queue: Queue):
    assert run("result", "one", "--timeout", "5").code == 2


# -- waiting


def ending(queue: Queue, end: Callable[[Any], object]) -> threading.Thread:
    """Runs the next job as a worker would."""

    def work() -> None:
        job = until(lambda: queue.claim(0))
        assert job is not None
        queue.renew(job, progress=Progress(1, 2))
        end(job)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def test_enqueue_can_wait_for_the_result(run: Run, queue: Queue):
    thread = ending(queue, lambda job: queue.complete(job, {"sent": True}))

    said = run("enqueue", "mail", "1", "--wait", "--id", "one")
    thread.join()

    assert (said.code, json.loads(said.out)) == (0, {"sent": True})
    assert "schedq: job one" in said.err.splitlines()
    assert "█" not in said.err


def test_enqueue_that_waits_fails_with_the_job(run: Run, queue: Queue):
    thread = ending(queue, lambda job: queue.fail(job, Discard("no such user")))

    said = run("enqueue", "mail", "1", "--wait", "--json", "--id", "one")
    thread.join()

    assert said.code == 1
    assert json.loads(said.out)["status"] == "failed"


def test_it_waits_for_one_job_only(run: Run, queue: Queue):
    said = run("enqueue", "mail", "--lines", "--wait", stdin="1\n2\n")

    assert (said.code, queue.stats()["pending_depth"]) == (2, 0)
    assert "--wait waits for one job" in said.complaint


@pytest.mark.processes
@pytest.mark.parametrize("words", [("result", "one", "--wait"), ("enqueue", "mail", '"work"', "--id", "one", "--wait")])
def test_on_a_terminal_a_bar_shows_how_far_the_job_has_come(queue: Queue, words: tuple[str, ...]):
    queue.enqueue("work", job_id="one")
    job = claimed(queue)
    queue.renew(job, progress=Progress(1, 4, "[bold]first[/bold]"))
    screen = Terminal(*words)
    screen.until("1 of 4 (25 %), [bold]first[/bold]")

    queue.renew(job, progress=Progress(3, 4, "then"))
    screen.until("3 of 4 (75 %), then")
    queue.complete(job, {"sent": True})

    assert screen.code() == 0
    assert '{"sent":true}' in screen.text.splitlines()[-1]
    assert "Traceback" not in screen.text


@pytest.mark.processes
def test_without_a_terminal_there_is_no_bar(queue: Queue):
    queue.enqueue("work", job_id="one")
    job = claimed(queue)
    queue.renew(job, progress=Progress(1, 4))
    threading.Timer(1.5, queue.complete, (job, 5)).start()

    said = schedq("result", "one", "--wait")

    assert (said.returncode, said.stdout, said.stderr) == (0, "5\n", "")
