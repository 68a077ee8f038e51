"""`schedq demo`: it works as described, its verdict can fail; and the application's tasks."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from demo.checks import Deliveries, Kill, Results, judge, percentile
from demo.plan import PlannedJob, planned_jobs
from demo.screen import Snapshot, WorkerStatus, line

from schedq.model.records import JobRecord
from schedq.testing import as_job
from tests.waiting import until

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "examples"


# -- the whole demo, in its own processes


def start_demo(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """The demo with an empty HOME, an empty PATH and no terminal, in its own process group."""
    for name in ("home", "temporary"):
        (folder / name).mkdir()
    environment = {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "temporary"),
        "PATH": str(folder),
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "COLUMNS": "200",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "schedq", "demo", *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def has_processes(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.processes
def test_the_demo_does_its_work_survives_a_kill_and_leaves_nothing_behind(tmp_path):
    for attempt in range(3):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        demo = start_demo(folder, "--seconds", "8")
        output, _ = demo.communicate(timeout=120)
        if "no job ran long enough for its worker to be killed" not in output:
            break  # otherwise the demo itself did not get the processor while the job was running

    assert demo.returncode == 0, output
    for title in ("Completed", "Pictures", "Webhooks", "Mail", "Recovery", "Early", "Late"):
        assert any(text.split()[:2] == ["ok", title] for text in output.splitlines()), output
    assert "in the middle of contact-sheet (SIGKILL)" in output
    assert "has taken over contact-sheet" in output
    assert "next in" in output
    assert list((folder / "temporary").glob("schedq-demo-*")) == []
    until(lambda: not has_processes(demo.pid))


@pytest.mark.processes
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_takes_everything_down(tmp_path, ending):
    demo = start_demo(tmp_path, "--seconds", "20")
    assert demo.stdout is not None
    for text in demo.stdout:
        if "pending" in text:
            break

    demo.send_signal(ending)

    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1, output
    assert list((tmp_path / "temporary").glob("schedq-demo-*")) == []
    until(lambda: not has_processes(demo.pid))


@pytest.mark.processes
@pytest.mark.parametrize("seconds", ["7.9", "0", "-1", "nan", "1e9", "soon"])
def test_an_invalid_number_of_seconds_is_wrong_usage(tmp_path, seconds):
    demo = start_demo(tmp_path, "--seconds", seconds)

    output, _ = demo.communicate(timeout=60)

    assert demo.returncode == 2
    assert "--seconds" in output


def test_without_its_checkout_the_demo_says_in_one_line_where_to_find_it(tmp_path):
    (tmp_path / "schedq").symlink_to(ROOT / "schedq")

    demo = subprocess.run(
        [sys.executable, "-m", "schedq", "demo"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (demo.returncode, demo.stdout) == (1, "")
    assert demo.stderr.count("\n") == 1
    assert "examples/demo" in demo.stderr


# -- the verdict


COPY = PlannedJob("cat-64", "resize", {}, file="cat-64.jpg", size=(64, 43))
SHEET = PlannedJob("contact-sheet", "contact_sheet", {}, file="contact-sheet.png", size=(400, 200))
ORDER = PlannedJob("order-1", "deliver_webhook", {}, due_s=1, refusals=1)
MAIL = PlannedJob("mail-1", "remind", {}, due_s=2)


def attempt(number: int, worker: str, started: int, ended: int, outcome: str) -> dict[str, object]:
    return {
        "attempt": number,
        "worker": worker,
        "started_at_ms": started,
        "ended_at_ms": ended,
        "outcome": outcome,
    }


def record(job_id: str, *attempts: dict[str, object], status: str = "completed", backoff: str = "") -> JobRecord:
    fields = {
        "status": status,
        "payload": "{}",
        "attempts": str(len(attempts)),
        "worker": str(attempts[-1]["worker"]),
        "started_at_ms": str(attempts[-1]["started_at_ms"]),
        "history": "\n".join(json.dumps(entry) for entry in attempts),
        "backoff": backoff,
    }
    return JobRecord.from_fields(job_id, fields)


GOOD = Results(
    jobs=(COPY, SHEET, ORDER, MAIL),
    due_ms={"order-1": 1000, "mail-1": 2000},
    records={
        "cat-64": record("cat-64", attempt(1, "A", 10, 20, "completed")),
        "contact-sheet": record(
            "contact-sheet", attempt(1, "A", 800, 3300, "lost"), attempt(2, "B", 3301, 5000, "completed")
        ),
        "order-1": record(
            "order-1",
            attempt(1, "A", 1002, 1010, "retry"),
            attempt(2, "B", 1513, 1520, "completed"),
            backoff='{"kind":"exponential","base":0.5,"factor":2,"cap":60,"jitter":0}',
        ),
        "mail-1": record("mail-1", attempt(1, "B", 2005, 2010, "completed")),
    },
    files={"cat-64.jpg": (64, 43), "contact-sheet.png": (400, 200)},
    webhooks={"order-1": Deliveries(accepted=1, refused=1, first_at_ms=1005)},
    mails={"mail-1": Deliveries(accepted=1, first_at_ms=2008)},
    kill=Kill("contact-sheet", "A", 1300),
)


def problems(results: Results) -> dict[str, tuple[str, ...]]:
    return {check.title: check.problems for check in judge(results) if check.problems}


def with_record(job_id: str, changed: JobRecord) -> Results:
    return replace(GOOD, records={**GOOD.records, job_id: changed})


def test_a_good_run_passes_and_its_lateness_is_reported():
    late = judge(GOOD)[-1]

    assert problems(GOOD) == {}
    assert late.summary.startswith("p50 3 ms, p99 5 ms, at most 5 ms")
    assert late.details == ("order-1: 2 ms", "order-1 try 2: 3 ms", "mail-1: 5 ms")


def test_a_job_that_failed_or_vanished_is_a_problem():
    failed = record("mail-1", attempt(1, "B", 2005, 2010, "failed"), status="failed")

    assert problems(with_record("mail-1", failed)) == {"Completed": ("job mail-1 is failed: no error",)}
    gone = replace(GOOD, records={key: found for key, found in GOOD.records.items() if key != "cat-64"})
    assert problems(gone) == {"Completed": ("job cat-64 is not in Redis",)}


def test_a_picture_that_is_missing_or_of_the_wrong_size_is_a_problem():
    found = problems(replace(GOOD, files={"contact-sheet.png": (400, 199)}))

    assert found == {
        "Pictures": (
            "cat-64.jpg is missing, not 64 x 43",
            "contact-sheet.png has 400 x 199 pixels, not 400 x 200",
        )
    }


def test_a_missing_mail_is_a_problem():
    assert problems(replace(GOOD, mails={})) == {"Mail": ("mail-1 was accepted 0 times",)}


def test_a_duplicate_is_a_problem_unless_an_attempt_was_lost():
    twice = replace(GOOD, mails={"mail-1": Deliveries(accepted=1, duplicates=1, first_at_ms=2008)})
    lost = record("mail-1", attempt(1, "A", 2005, 4100, "lost"), attempt(2, "B", 4101, 4110, "completed"))

    assert problems(twice) == {"Mail": ("mail-1 was delivered 1 times too often, with 0 attempts lost",)}
    assert problems(replace(twice, records={**GOOD.records, "mail-1": lost})) == {}


def test_a_webhook_that_was_not_refused_as_planned_or_forged_is_a_problem():
    seen = {"order-1": Deliveries(accepted=1, forged=1, first_at_ms=1005), "order-9": Deliveries(accepted=1)}

    assert problems(replace(GOOD, webhooks=seen)) == {
        "Webhooks": (
            "a delivery with the unknown key 'order-9' arrived",
            "order-1 was refused 0 times instead of 1",
            "1 deliveries had an invalid signature",
        )
    }


def test_a_start_before_its_time_is_a_problem():
    early = record("mail-1", attempt(1, "B", 1999, 2010, "completed"))

    assert problems(with_record("mail-1", early)) == {"Early": ("mail-1 started 1 ms early",)}


def test_a_retry_before_its_backoff_is_over_is_a_problem():
    order = GOOD.records["order-1"]
    first, second = order.history
    early = replace(order, history=(first, {**second, "started_at_ms": 1509}))

    assert problems(with_record("order-1", early)) == {"Early": ("order-1 try 2 started 1 ms early",)}


def test_an_arrival_before_its_time_is_a_problem_whatever_redis_says():
    early = replace(GOOD, mails={"mail-1": Deliveries(accepted=1, first_at_ms=1990)})

    assert problems(early) == {"Early": ("mail-1 arrived 10 ms early",)}


def test_a_delayed_job_without_a_recorded_start_is_a_problem():
    silent = replace(GOOD.records["mail-1"], history=())

    assert problems(with_record("mail-1", silent)) == {"Late": ("mail-1 was due, but there is no record of its start",)}


def test_a_job_that_was_not_finished_by_another_worker_is_a_problem():
    same = record("contact-sheet", attempt(1, "A", 800, 3300, "lost"), attempt(2, "A", 3301, 5000, "completed"))
    never_lost = record("contact-sheet", attempt(1, "A", 800, 3300, "completed"))

    assert problems(with_record("contact-sheet", same)) == {
        "Recovery": ("job contact-sheet was not finished by another worker",)
    }
    assert len(problems(with_record("contact-sheet", never_lost))["Recovery"]) == 3
    assert problems(replace(GOOD, kill=None))["Recovery"]


def test_percentiles_are_nearest_ranks():
    hundred = range(1, 101)

    assert [percentile(hundred, share) for share in (50, 99, 100)] == [50, 99, 100]
    assert percentile([7], 50) == 7


# -- the plan and the plain line


@pytest.mark.parametrize("seconds", [8, 20, 3600])
def test_everything_of_the_plan_is_due_within_the_run(seconds):
    jobs = planned_jobs(seconds, {"cat.jpg": (451, 300)})

    assert len({job.id for job in jobs}) == len(jobs)
    assert all(job.at_s < seconds for job in jobs)
    assert all(1 <= job.due_s < seconds for job in jobs if job.due_s is not None)
    assert {job.task for job in jobs} == {"resize", "contact_sheet", "deliver_webhook", "remind"}


def test_the_plain_line_has_the_countdown_and_the_killed_worker():
    snapshot = Snapshot(
        elapsed_s=3.25,
        pending=1,
        delayed=2,
        next_due_ms=450,
        workers=(
            WorkerStatus("worker A", ("cat-64",), is_killed=True),
            WorkerStatus("worker B", ("mail-1",), is_killed=False),
        ),
        done=5,
        retried=1,
        failed=0,
    )

    assert " ".join(line(snapshot, 9).split()) == (
        "3.2 s pending 1 delayed 2 (next in 0.5 s) running worker A: killed worker B: 1 done 5 of 9 retried 1 failed 0"
    )


# -- the example application, as plain functions


@pytest.fixture
def app(monkeypatch, tmp_path) -> Iterator[ModuleType]:
    from demo import app

    monkeypatch.setattr(app, "PICTURES_OUT", tmp_path)
    yield app
    for name in ("demo.app", "demo.receivers"):
        sys.modules.pop(name, None)


def test_resize_writes_a_copy_of_that_width_and_nothing_else(app, tmp_path):
    from PIL import Image

    assert app.resize("cat.jpg", 100) == "cat-100.jpg"

    assert [path.name for path in tmp_path.iterdir()] == ["cat-100.jpg"]
    with Image.open(tmp_path / "cat-100.jpg") as copy:
        assert copy.size == (100, 67)


def test_the_contact_sheet_has_a_place_for_every_picture(app, tmp_path):
    from PIL import Image

    app.contact_sheet(width=400, columns=4)

    with Image.open(tmp_path / "contact-sheet.png") as sheet:
        assert sheet.size == (400, 200)


def test_a_webhook_is_refused_then_accepted_once_then_recognized(app, monkeypatch):
    import httpx
    from demo.receivers import Journal, WebhookReceiver

    journal = Journal()
    with WebhookReceiver("a secret", journal, refusals=lambda _: 1) as receiver:
        monkeypatch.setattr(app, "WEBHOOK_URL", receiver.url)
        monkeypatch.setattr(app, "WEBHOOK_SECRET", "a secret")
        with as_job("order-1"):
            with pytest.raises(httpx.HTTPStatusError, match="503"):
                asyncio.run(app.deliver_webhook({"order": 1}))
            assert asyncio.run(app.deliver_webhook({"order": 1})) == 200
            assert asyncio.run(app.deliver_webhook({"order": 1})) == 200

    verdicts = [(arrival.key, arrival.verdict) for arrival in journal.arrivals]
    assert verdicts == [("order-1", "refused"), ("order-1", "accepted"), ("order-1", "duplicate")]


def test_the_receiver_accepts_no_wrong_signature_and_no_old_one(app, monkeypatch):
    from email.message import Message

    from demo.receivers import Journal, WebhookReceiver

    def headers(timestamp: str, body: bytes) -> Message:
        message = Message()
        for name, value in {**app.signature(body, timestamp), "Idempotency-Key": "order-1"}.items():
            message[name] = value
        return message

    journal = Journal()
    monkeypatch.setattr(app, "WEBHOOK_SECRET", "a secret")
    with WebhookReceiver("a secret", journal, refusals=lambda _: 0) as receiver:
        assert receiver.judge(headers("1000000000", b"{}"), b"{}") == 401
        assert receiver.judge(headers(str(int(app.time.time())), b"{}"), b"{ }") == 401
        assert receiver.judge(Message(), b"{}") == 401
        assert receiver.judge(headers(str(int(app.time.time())), b"{}"), b"{}") == 200

    assert [arrival.verdict for arrival in journal.arrivals] == ["forged", "forged", "forged", "accepted"]


def test_a_reminder_arrives_and_is_recognized_by_its_job(app, monkeypatch):
    from demo.receivers import Journal, MailSink

    journal = Journal()
    with MailSink(journal) as sink, as_job("mail-1"):
        monkeypatch.setattr(app, "SMTP_PORT", sink.port)
        assert app.remind("ada@example.org", "Tea", "At four.") == "<mail-1@example.org>"
        app.remind("ada@example.org", "Tea", "At four.")

    assert [(arrival.key, arrival.verdict) for arrival in journal.arrivals] == [
        ("mail-1", "accepted"),
        ("mail-1", "duplicate"),
    ]


def test_the_payload_example_greets_both(server):
    greeted = subprocess.run(
        [sys.executable, "payloads.py"],
        cwd=EXAMPLES,
        env={"SCHEDQ_REDIS_URL": server.url, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert greeted.stdout.splitlines() == ["hello ada (attempt 1)", "hello grace (attempt 1)", "2 done"]


def with_a_worker(name: str, url: str) -> subprocess.CompletedProcess[str]:
    """Run an example while a worker serves its queue."""
    environment = {"SCHEDQ_REDIS_URL": url, "PYTHONPATH": str(ROOT)}
    worker = subprocess.Popen(
        [sys.executable, "-m", "schedq", "worker", f"{name}:queue"],
        cwd=EXAMPLES,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return subprocess.run(
            [sys.executable, f"{name}.py"], cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=90
        )
    finally:
        worker.terminate()
        worker.wait(60)


@pytest.mark.processes
def test_the_quickstart_adds_with_a_worker(server):
    answer = with_a_worker("quickstart", server.url)

    assert answer.stdout.split() == ["3", "7"], answer.stderr


@pytest.mark.processes
def test_the_schedules_of_the_example_are_shown_fired_and_skipped(server):
    answer = with_a_worker("schedules", server.url)

    lines = answer.stdout.splitlines()
    shown = {line.split()[0] for line in lines[:5]}
    assert shown == {"poll", "count_visits", "back_up", "report", "report-17"}, answer.stderr
    assert lines[5] == "backed up"
    assert {line.split()[2] for line in lines[6:]} >= {"fired", "skipped"}


@pytest.mark.parametrize("cut", [40, 90, -1])
def test_what_a_killed_sender_left_unfinished_is_no_delivery(cut: int):
    from demo.receivers import Journal, WebhookReceiver

    journal = Journal()
    request = (
        b"POST /hooks HTTP/1.1\r\nHost: here\r\nIdempotency-Key: one\r\nContent-Length: 15\r\n\r\n"
        + b'{"event": "one"}'[:15]
    )
    with (
        WebhookReceiver("a secret", journal, refusals=lambda _: 0) as receiver,
        socket.create_connection(("127.0.0.1", int(receiver.url.split(":")[2].split("/")[0]))) as sender,
    ):
        sender.sendall(request[:cut])
        sender.shutdown(socket.SHUT_WR)
        assert sender.recv(100) == b""

    assert journal.arrivals == []
