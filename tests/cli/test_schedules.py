"""`schedq schedules`: each command against a real queue, for people and for programs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace

import pytest
from freezegun import freeze_time

from schedq import Queue
from schedq.schedules.fire import DefinitionCache, fire_due
from schedq.testing import wall_clock
from tests.cli.conftest import Run, Said
from tests.servers import Server


def ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


@pytest.fixture
def nightly(queue: Queue) -> Queue:
    """The queue with one schedule in Berlin, far enough ahead that no test meets a slot of it."""
    queue.enqueue(1, job_id="first")
    queue.schedules.upsert(
        "nightly",
        cron="30 2 28 3 *",
        tz="Europe/Berlin",
        task="clean",
        kwargs={"deep": True},
        overlap="skip",
        window=600,
        owner="shop",
        version=3,
        headers={"tenant": "acme"},
    )
    return queue


@pytest.fixture
def frozen(make_queue: Callable[..., Queue]) -> Queue:
    """The queue on a clock that freezegun sets."""
    queue = make_queue(clock=wall_clock)
    queue.enqueue(1, job_id="first")
    # Imports what schedules need: constants that are made while time is frozen are freezegun's, whose astimezone has
    # no fold.
    assert queue.schedules.list() == []
    return queue


@pytest.fixture
def past(frozen: Queue) -> Queue:
    """The queue with an hourly schedule that was made two hours ago and whose slots were fired since."""
    now = datetime.now(UTC)
    with freeze_time(now - timedelta(hours=2)) as time:
        frozen.schedules.upsert("hourly", every=3600, payload={"n": 1})
        for _ in range(2):
            time.tick(timedelta(hours=1))
            frozen._drive(fire_due(frozen.settings, DefinitionCache(), ()))
    return frozen


# -- looking


def test_a_list_shows_when_and_what(nightly: Queue, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "160")

    title, row = run("schedules", "ls").lines

    assert title.split() == ["id", "when", "zone", "next", "slot", "last", "slot", "outcome", "task"]
    assert row.startswith("nightly  30 2 28 3 *  Europe/Berlin  ")
    assert "-03-28 0" in row
    assert "+02:00" in row or "+01:00" in row
    assert row.endswith("clean(deep=true)")


def test_a_list_shows_the_outcome_of_the_last_slot(past: Queue, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "160")

    row = run("schedules", "ls").lines[1]

    assert row.startswith("hourly  every 1 h  UTC ")
    assert " ago" in row
    assert " fired " in row


def test_a_list_says_which_are_paused(nightly: Queue, run: Run):
    nightly.schedules.pause("nightly")

    assert " paused " in run("schedules", "ls").lines[1]


def test_a_list_for_programs(past: Queue, run: Run):
    said = run("schedules", "ls", "--queue", "mail", "--json").json

    (one,) = said["schedules"]
    assert said["queue"] == "mail"
    assert said["next_offset"] is None
    assert (one["id"], one["state"], one["every_ms"], one["runs"]) == ("hourly", "active", 3_600_000, 2)
    assert one["last_slot"]["outcome"] == "fired"
    assert one["last_slot"]["job_id"] == f"hourly-{one['last_slot_ms']}"
    assert one["next_slot_ms"] - one["last_slot_ms"] == 3_600_000


def test_a_list_is_shown_page_by_page(queue: Queue, run: Run):
    queue.enqueue(1)
    for number in range(3):
        queue.schedules.upsert(f"s{number}", every=3600 + number * 86_400, payload=number)

    said = run("schedules", "ls", "--limit", "2")

    assert said.lines[-1] == "next page: schedq schedules ls mail --limit 2 --offset 2"
    rest = run("schedules", "ls", "mail", "--limit", "2", "--offset", "2", "--json").json
    assert len(rest["schedules"]) == 1
    assert rest["next_offset"] is None


def test_a_queue_without_schedules_says_so(queue: Queue, run: Run):
    queue.enqueue(1)

    assert run("schedules", "ls").lines == ["queue mail has no schedules"]


def test_one_is_shown_with_its_policies_in_words(nightly: Queue, run: Run):
    said = run("schedules", "show", "nightly").out

    for text in (
        "30 2 28 3 *",
        "Times that a clock change skips: one slot at the first minute after them.",
        "the last of them runs; the others are coalesced into it; if at most 10 min late",
        "the slot is skipped",
        "shop, version 3",
        '"task": "clean"',
        '"tenant": "acme"',
        "active",
    ):
        assert text in said


def test_one_is_shown_with_what_became_of_its_slots(past: Queue, run: Run):
    lines = run("schedules", "show", "hourly").lines
    stored = run("schedules", "show", "hourly", "--json").json

    assert lines[-3].split() == ["slot", "outcome", "job", "late", "by"]
    assert [f"hourly-{slot['slot_ms']}" in line for slot, line in zip(stored["slots"], lines[-2:], strict=True)] == [
        True,
        True,
    ]
    assert stored["slots"][0]["slot_ms"] - stored["slots"][1]["slot_ms"] == 3_600_000
    assert stored["fields"]["every_ms"] == "3600000"


def test_slots_of_a_pause_are_shown_in_one_row(frozen: Queue, run: Run):
    with freeze_time("2027-03-01 00:30") as time:
        frozen.schedules.upsert("hourly", every=3600, payload=1)
        frozen.schedules.pause("hourly")
        time.tick(timedelta(hours=5))
        frozen.schedules.resume("hourly")

    row = run("schedules", "show", "hourly").lines[-1]

    assert row.split("  ")[:2] == [
        "2027-03-01 01:00 +00:00",
        "skipped: paused (5 slots, to 2027-03-01 05:00 +00:00)",
    ]


def test_a_damaged_schedule_can_be_shown(nightly: Queue, run: Run, desk: Server):
    with desk.client() as client:
        client.hset(nightly.settings.keys.schedule("nightly"), mapping={"tz": "Mars/\x1b[31mBase", "catch_up": "some"})

    assert " damaged " in run("schedules", "ls").lines[1]
    shown = run("schedules", "show", "nightly")
    assert (shown.code, "\x1b" in shown.out) == (0, False)
    assert "catch_up must be one of" in shown.out
    assert run("schedules", "next", "nightly").code == 1


def test_next_slots_have_offsets_and_marks(frozen: Queue, run: Run):
    with freeze_time("2027-03-01"):
        frozen.schedules.upsert("gap", cron="30 2 28 3 *", tz="Europe/Berlin", payload=1)

    lines = run("schedules", "next", "gap", "-n", "2").lines

    assert lines[2].split() == ["LOCAL", "OFFSET", "UTC"]
    assert lines[3].split() == [
        *("Sun", "2027-03-28", "03:00:00", "+02:00", "2027-03-28", "01:00:00"),
        *["gap:", "replaces", "a", "local", "time", "that", "clocks", "skip"],
    ]
    assert lines[4].split() == ["Tue", "2028-03-28", "02:30:00", "+02:00", "2028-03-28", "00:30:00"]
    first = run("schedules", "next", "gap", "-n", "1", "--json").json
    slot_ms = ms(datetime(2027, 3, 28, 1, tzinfo=UTC))
    assert first["slots"] == [{"slot_ms": slot_ms, "local": "2027-03-28T03:00:00+02:00", "mark": "gap"}]


def test_next_slots_read_as_those_of_schedq_cron_do(frozen: Queue, run: Run):
    expression = "30 2 * * *"
    with freeze_time("2027-10-29 12:00"):
        frozen.schedules.upsert("both", cron=expression, tz="Europe/Berlin", fold="both", payload=1)

    ours = run("schedules", "next", "both", "-n", "5").lines
    theirs = run(
        "cron", expression, "--tz", "Europe/Berlin", "--fold", "both", "--from", "2027-10-29T12:00Z", "-n", "5"
    ).lines

    assert ours[2:] == theirs[3:]
    assert [line.partition("fold: ")[2] for line in ours[4:6]] == ["the first of two", "the second of two"]


def test_next_slots_of_an_interval_end_with_it(queue: Queue, run: Run):
    queue.enqueue(1)
    begin = datetime(2100, 1, 1, tzinfo=UTC)
    queue.schedules.upsert("few", every=3600, payload=1, start=begin, end=begin + timedelta(hours=1))

    lines = run("schedules", "next", "few").lines

    assert [line[:23] for line in lines[3:5]] == ["Fri 2100-01-01 00:00:00", "Fri 2100-01-01 01:00:00"]
    assert lines[5] == "No more slots."


# -- steering


def test_pause_and_resume(nightly: Queue, run: Run):
    assert run("schedules", "pause", "nightly").lines == ["nightly: paused"]
    assert run("schedules", "pause", "nightly").lines == ["nightly: was already paused"]
    assert nightly.schedules.get("nightly").state == "paused"
    (line,) = run("schedules", "resume", "nightly").lines
    assert line.startswith("nightly: resumed; next slot ")
    assert run("schedules", "resume", "nightly").lines[0].startswith("nightly: was not paused; next slot ")
    assert nightly.schedules.get("nightly").state == "active"


def test_a_trigger_names_its_job(nightly: Queue, run: Run):
    said = run("schedules", "trigger", "nightly", "--json").json

    (answer,) = said["schedules"]
    assert nightly.get_job(answer["job_id"]).payload == {"task": "clean", "kwargs": {"deep": True}}
    assert run("schedules", "trigger", "nightly").lines[0].startswith("nightly: triggered as job nightly-t")


def test_a_deletion_asks_for_confirmation(nightly: Queue, run: Run):
    asked = run("schedules", "rm", "nightly")

    assert (asked.code, asked.out) == (1, "")
    assert "add --yes; nothing was done" in asked.complaint
    assert nightly.schedules.get("nightly") is not None
    assert run("schedules", "rm", "nightly", "--yes").lines == ["nightly: deleted"]
    assert nightly.schedules.get("nightly") is None


def test_a_declined_deletion_deletes_nothing(nightly: Queue, run: Run, monkeypatch: pytest.MonkeyPatch):
    asked: list[str] = []
    monkeypatch.setattr("schedq.cli.params.sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr("schedq.cli.params.click.confirm", lambda question, err: asked.append(question))

    said = run("schedules", "rm", "nightly", "never")

    assert (said.code, said.complaint) == (1, "schedq: nothing was done")
    assert asked == ["Delete 1 schedule of queue mail (nightly)?"]
    assert nightly.schedules.get("nightly") is not None


@pytest.mark.parametrize("verb", ["pause", "resume", "trigger", "rm"])
def test_a_missing_schedule_is_named_and_the_others_are_processed(verb: str, nightly: Queue, run: Run):
    sure = ["--yes"] if verb == "rm" else []

    said = run("schedules", verb, "never", "nightly", *sure)
    as_json = run("schedules", verb, "never", "--json", *sure)

    assert (said.code, said.complaint) == (1, "schedq: queue mail has no schedule never")
    assert said.out.startswith("nightly: ")
    assert as_json.code == 1
    why = "queue mail has no schedule never"
    assert as_json.json == {"queue": "mail", "schedules": [{"id": "never", "answer": "no", "why": why}]}


def test_one_that_is_damaged_still_does_not_go_on(nightly: Queue, run: Run, desk: Server):
    nightly.schedules.pause("nightly")
    with desk.client() as client:
        client.hset(nightly.settings.keys.schedule("nightly"), "cron", "61 * * * *")

    said = run("schedules", "resume", "nightly")

    assert (said.code, said.out) == (1, "")
    assert "schedule nightly is damaged" in said.complaint


def test_each_command_that_acts_is_one_line_of_the_log(nightly: Queue, run: Run, desk: Server):
    past = ("--from", "2025-01-01", "--to", "2025-12-31")
    for words in (("pause",), ("resume",), ("trigger",), ("backfill", *past), ("ls",), ("rm", "--yes")):
        assert run("schedules", words[0], *(["nightly"] if words[0] != "ls" else []), *words[1:]).code == 0

    with desk.client() as client:
        log = [entry["move"] for _, entry in client.xrange(nightly.settings.keys.log)]
    acts = ("create", "pause", "resume", "trigger", "backfill", "delete")
    assert [move for move in log if move.startswith("schedule")] == [f"schedule {act}" for act in acts]


# -- filling in


def test_a_backfill_enqueues_past_slots_once(queue: Queue, run: Run):
    queue.enqueue(1, job_id="first")
    queue.schedules.upsert("daily", cron="0 3 * * *", tz="Europe/Berlin", payload={"n": 1})
    words = ("schedules", "backfill", "daily", "--from", "2025-03-01", "--to", "2025-03-04T03:00", "--rate", "0.1")

    first, again = run(*words), run(*words, "--json")

    assert first.lines == ["daily: 4 slots, 4 jobs enqueued; the last is due in 30 s"]
    assert again.json == {"queue": "mail", "id": "daily", "slots": 4, "enqueued": 0, "rate": 0.1, "ends_in_ms": 30_000}
    made = [record.id for record in (*queue.list_pending(), *queue.list_delayed()) if record.id != "first"]
    assert sorted(made) == [f"daily-{ms(datetime(2025, 3, day, 2, tzinfo=UTC))}" for day in (1, 2, 3, 4)]
    assert run(*words).lines == ["daily: 4 slots, 0 jobs enqueued, 4 already existed"]


def test_a_backfill_shows_its_progress_on_a_terminal(queue: Queue, run: Run, monkeypatch: pytest.MonkeyPatch):
    queue.enqueue(1)
    queue.schedules.upsert("hourly", every=3600, payload=1)
    monkeypatch.setattr(import_module("schedq.cli.schedules.control"), "_is_terminal", lambda: True)

    said = run("schedules", "backfill", "hourly", "--from", "2025-01-01", "--to", "2025-03-01")

    assert said.code == 0
    assert "\r1,417 slots done" in said.err
    assert said.err.endswith("done\n")


# -- an application's code

APP = """
from schedq import Queue
queue = Queue("mail")

@queue.cron("0 3 * * *", tz="Europe/Berlin")
def clean(): ...

@queue.every({every})
def ping(): ...
"""


Upsert = Callable[..., Said]


@pytest.fixture
def upsert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run) -> Iterator[Upsert]:
    """Upsert the schedules of this code, as a process of its own would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def upsert(code: str, *options: str) -> Said:
        sys.modules.pop("scheduled_shop", None)
        (tmp_path / "scheduled_shop.py").write_text(code)
        return run("schedules", "upsert", "scheduled_shop:queue", *options)

    yield upsert
    sys.modules.pop("scheduled_shop", None)


def test_the_schedules_of_code_are_written(upsert: Upsert, run: Run):
    said = upsert(APP.format(every=3600))

    assert said.lines == ["clean: created", "ping: created", "queue mail: the code has 2 schedules"]
    found = run("schedules", "ls", "--json").json
    assert {one["id"]: one["owner"] for one in found["schedules"]} == dict.fromkeys(("clean", "ping"), "scheduled_shop")
    assert upsert(APP.format(every=60)).lines[:2] == ["ping: changed", "clean: unchanged"]


def test_schedules_removed_from_the_code_are_reported_and_pruned(upsert: Upsert):
    upsert(APP.format(every=3600))
    code = APP.format(every=3600).partition("@queue.every")[0]

    assert upsert(code).lines == [
        "clean: unchanged",
        "ping: kept: no longer in the code",
        "queue mail: the code has 1 schedule; --prune deletes those no longer in it",
    ]
    found = upsert(code, "--prune", "--json").json
    assert (found["unchanged"], found["missing"], found["removed"]) == (["clean"], ["ping"], ["ping"])
    assert upsert(code, "--prune").lines == ["clean: unchanged", "queue mail: the code has 1 schedule"]


def test_schedules_of_imported_modules_are_pruned_if_these_are_given(upsert: Upsert, tmp_path: Path, queue: Queue):
    code = """
from scheduled_shop import queue

@queue.every(3600)
def invoice(): ...
"""
    shop, billing = APP.format(every=3600), tmp_path / "scheduled_billing.py"
    billing.write_text(code + "\n@queue.every(7200)\ndef remind(): ...\n")
    queue.schedules.upsert("report-17", every=3600, payload=1)

    def store(*options: str) -> list[str]:
        sys.modules.pop("scheduled_billing", None)
        return upsert(shop, *options).lines

    assert store("--import", "scheduled_billing")[-2:] == [
        "queue mail: the code has 4 schedules",
        "left alone: report-17: they have no owner",
    ]
    billing.write_text(code)
    assert store("--prune")[-3:] == [
        "queue mail: the code has 2 schedules",
        "left alone: report-17: they have no owner",
        "left alone: invoice, remind: they belong to scheduled_billing; --import scheduled_billing checks them too",
    ]
    assert "remind: deleted: no longer in the code" in store("--prune", "--import", "scheduled_billing")
    billing.write_text("")
    assert "which has no task of this queue any more; schedq schedules rm" in store("--import", "scheduled_billing")[-1]
    sys.modules.pop("scheduled_billing", None)


def test_a_newer_version_of_the_application_is_left_alone(upsert: Upsert, queue: Queue):
    queue.schedules.upsert("clean", cron="0 4 * * *", payload=1, version=2)

    assert upsert(APP.format(every=3600)).lines[1] == "clean: kept: a newer version of the application wrote it"
    assert queue.schedules.get("clean").cron == "0 4 * * *"


def test_code_for_asyncio_is_taken_as_well(upsert: Upsert):
    assert upsert(APP.format(every=3600).replace("Queue", "AsyncQueue")).lines[0] == "clean: created"


# -- mistakes

USAGE = {
    ("tpyo",): "No such command 'tpyo'",
    ("ls", "--limit", "0"): "--limit",
    ("ls",): "there is no queue here; name one with --queue",
    ("show", "no:id"): "no:id",
    ("next", "a", "-n", "0"): "-n",
    ("rm", "a", "b c"): "b c",
    ("pause", "a", "--queue", "no:name"): "no:name",
    ("trigger", "a", "--redis", "http://x"): "unknown Redis URL scheme",
    ("backfill", "a"): "--from",
    ("update", "a"): "nothing to change is given",
    ("backfill", "a", "--from", "soon", "--to", "2025-01-01"): "'soon' is not a valid time",
    ("backfill", "a", "--from", "2025-01-02", "--to", "2025-01-01"): "--to is before --from",
    ("backfill", "a", "--from", "2025-01-01", "--to", "2025-01-02", "--rate", "0"): "--rate",
    ("upsert", "nowhere_to_be_found:queue"): "there is no module 'nowhere_to_be_found' here",
    ("upsert", "app"): "must be MODULE:QUEUE",
}


@pytest.mark.parametrize("words", USAGE, ids=lambda words: " ".join(words)[:60])
def test_a_mistake_of_usage_is_one_line_and_exit_code_2(words: tuple[str, ...], run: Run):
    said = run("schedules", *words)

    assert (said.code, said.out) == (2, "")
    assert USAGE[words] in said.complaint
    assert said.complaint.startswith("schedq schedules")


BACKFILL = ("backfill", "nightly", "--from", "2025-01-01")
REFUSED = {
    ("show", "never"): "queue mail has no schedule never",
    ("next", "never"): "queue mail has no schedule never",
    ("backfill", "never", "--from", "2025-01-01", "--to", "2025-01-02"): "queue mail has no schedule never",
    ("update", "never", "--every", "30s"): "queue mail has no schedule never",
    (*BACKFILL, "--to", "2025-01-02"): "schedule nightly has no past slot in that period",
}


@pytest.mark.parametrize("words", REFUSED, ids=lambda words: " ".join(words)[:60])
def test_a_refusal_is_one_line_and_exit_code_1(words: tuple[str, ...], nightly: Queue, run: Run):
    said = run("schedules", *words)

    assert (said.code, said.out) == (1, "")
    assert said.complaint == f"schedq: {REFUSED[words]}"
    assert [record.id for record in nightly.list_pending()] == ["first"]


@pytest.mark.parametrize("words", ["ls", "show a", "next a", "pause a", "resume a", "trigger a", "rm a --yes"])
def test_redis_that_is_down_is_one_line(words: str, run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("schedq.cli.queues.RETRY_S", 0.1)

    said = run("schedules", *words.split(), "--queue", "mail", "--redis", "redis://127.0.0.1:1")

    assert (said.code, said.out) == (1, "")
    assert "redis://127.0.0.1:1/0 does not respond" in said.complaint


def test_the_queue_of_the_environment_is_taken(
    nightly: Queue, make_queue: Callable[..., Queue], run: Run, monkeypatch: pytest.MonkeyPatch
):
    make_queue("another").schedules.upsert("nightly", every=3600, payload=1)
    assert run("schedules", "show", "nightly").code == 2
    monkeypatch.setenv("SCHEDQ_QUEUE", "mail")

    assert run("schedules", "show", "nightly", "--json").json["queue"] == "mail"
