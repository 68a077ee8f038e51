"""`schedq archive`: every end of a job is in a file, whatever was interrupted, and what was lost is said."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from schedq import Discard, Queue
from schedq.inspect.archive import archive_page
from scripts.tools.handbook import all_blocks
from tests.cli.conftest import Run, Said
from tests.doors import Clock
from tests.pages import page
from tests.servers import Server
from tests.waiting import until

Lines = list[dict[str, Any]]


def lines(folder: Path, queue: str = "mail") -> Lines:
    """Every line of a queue's files, in order."""
    return [
        json.loads(line) for path in sorted((folder / queue).glob("*.jsonl")) for line in path.read_text().splitlines()
    ]


def ended(queue: Queue, *ids: str) -> None:
    """Jobs that have completed."""
    for job_id in ids:
        queue.enqueue({"task": "send", "args": [job_id]}, job_id=job_id)
        job = queue.claim(0)
        assert job
        queue.complete(job, {"sent": job_id})


Once = Callable[..., Said]


@pytest.fixture
def once(run: Run, tmp_path: Path) -> Once:
    """Catches up and exits."""
    return lambda *words: run("archive", *words, "--to", str(tmp_path), "--once")


# -- what is written


def test_each_way_to_end_is_a_line_with_the_whole_record(once: Once, queue: Queue, tmp_path: Path):
    ended(queue, "done")
    queue.enqueue(2, job_id="bad", headers={"tenant": "7"})
    job = queue.claim(0)
    assert job
    queue.fail(job, Discard("refused"))
    queue.enqueue(3, job_id="off", delay=60)
    queue.cancel("off")

    assert once().code == 0

    done, bad, off = lines(tmp_path)
    assert [(it["id"], it["state"], it["record"]) for it in (done, bad, off)] == [
        ("done", "completed", "whole"),
        ("bad", "failed", "whole"),
        ("off", "cancelled", "whole"),
    ]
    assert (done["task"], done["payload"]["args"], done["result"]) == ("send", ["done"], {"sent": "done"})
    assert done["at_ms"] == done["completed_at_ms"] >= done["started_at_ms"] > 0
    assert (bad["last_error"], bad["headers"], bad["attempts"]) == ("refused", {"tenant": "7"}, 1)
    assert bad["history"][0]["outcome"] == "failed"
    assert {it["queue"] for it in (done, bad, off)} == {"mail"}
    assert len({it["entry"] for it in (done, bad, off)}) == 3


def test_a_file_has_the_jobs_of_a_day_in_utc(once: Once, make_queue: Callable[..., Queue], tmp_path: Path):
    clock = Clock(1_893_455_999.5)
    queue = make_queue(clock=clock)
    ended(queue, "old")
    clock.pass_time(0.5)
    ended(queue, "new")

    assert once().code == 0

    assert sorted(path.name for path in (tmp_path / "mail").glob("*.jsonl")) == ["2029-12-31.jsonl", "2030-01-01.jsonl"]
    assert [it["at"] for it in lines(tmp_path)] == ["2029-12-31T23:59:59.500Z", "2030-01-01T00:00:00.000Z"]


def test_all_queues_are_archived_or_those_that_are_named(once: Once, make_queue: Callable[..., Queue], tmp_path: Path):
    for name in ("a", "b", "c"):
        ended(make_queue(name), f"of-{name}")

    assert once("a", "b").code == 0
    assert [len(lines(tmp_path, name)) for name in ("a", "b", "c")] == [1, 1, 0]
    assert once().code == 0
    assert [len(lines(tmp_path, name)) for name in ("a", "b", "c")] == [1, 1, 1]


def test_a_record_that_has_gone_or_changed_leaves_what_the_log_knows(
    once: Once, queue: Queue, desk: Server, tmp_path: Path
):
    ended(queue, "gone")
    queue.enqueue(1, job_id="again")
    job = queue.claim(0)
    assert job
    queue.fail(job, Discard("no"))
    queue.requeue("again")
    with desk.client() as client:
        client.delete(queue.settings.keys.job("gone"))
        client.lrem(queue.settings.keys.completed, 0, "gone")

    assert once().code == 0

    found = {it["id"]: it for it in lines(tmp_path)}
    assert {name: (it["state"], it["record"]) for name, it in found.items()} == {
        "gone": ("completed", "gone"),
        "again": ("failed", "changed"),
    }
    assert found["gone"].keys() == {"entry", "queue", "id", "state", "at", "at_ms", "attempts", "record"}


def test_a_key_that_is_no_record_does_not_stop_the_rest(once: Once, queue: Queue, desk: Server, tmp_path: Path):
    ended(queue, "one", "two")
    with desk.client() as client:
        client.delete(queue.settings.keys.job("one"))
        client.set(queue.settings.keys.job("one"), "text")

    assert once().code == 0

    assert [(it["id"], it["record"]) for it in lines(tmp_path)] == [("one", "gone"), ("two", "whole")]


def test_a_damaged_log_of_one_queue_does_not_stop_the_others(
    once: Once, make_queue: Callable[..., Queue], desk: Server, tmp_path: Path
):
    bad, good = make_queue("bad"), make_queue("good")
    ended(bad, "a")
    ended(good, "b")
    with desk.client() as client:
        client.delete(bad.settings.keys.log)
        client.set(bad.settings.keys.log, "text")

    said = once()

    assert said.code == 1
    assert "archive: queue bad: " in said.err
    assert [it["id"] for it in lines(tmp_path, "good")] == ["b"]


def test_a_queue_without_a_log_is_named(once: Once, make_queue: Callable[..., Queue], desk: Server):
    ended(make_queue(log_size=0), "a")
    with desk.client() as client:
        client.hset("queue:mail:settings", "log_size", "0")

    said = once()

    assert said.code == 0
    assert "queue mail: it writes no log, since its log_size is 0" in said.err


def test_text_that_is_no_text_can_be_read_by_every_program(once: Once, queue: Queue, desk: Server, tmp_path: Path):
    ended(queue, "a")
    with desk.client() as client:
        client.hset(queue.settings.keys.job("a"), "worker", b"\xff\xc3\xa9")

    assert once().code == 0

    (path,) = (tmp_path / "mail").glob("*.jsonl")
    assert json.loads(path.read_bytes().decode())["worker"] == "?é"


def test_jobs_that_one_command_cancelled_are_one_line(once: Once, queue: Queue, tmp_path: Path):
    queue.enqueue_many(range(30), delay=60)
    queue.inspector.act_on("cancel", "delayed")

    assert once().code == 0

    (line,) = lines(tmp_path)
    assert (line["state"], line["record"], line["count"]) == ("cancelled", "many", 30)


# -- the position


def test_the_next_start_continues_where_the_last_one_stopped(once: Once, queue: Queue, tmp_path: Path):
    for name in ("a", "b", "c"):
        ended(queue, name)
        assert once().code == 0
        assert once().code == 0

    assert [it["id"] for it in lines(tmp_path)] == ["a", "b", "c"]


def test_a_crash_before_the_position_was_stored_repeats_lines_and_loses_none(once: Once, queue: Queue, tmp_path: Path):
    ended(queue, "a")
    once()
    before = (tmp_path / "mail" / "position.json").read_bytes()
    ended(queue, "b")
    once()
    (tmp_path / "mail" / "position.json").write_bytes(before)

    assert once().code == 0

    found = lines(tmp_path)
    assert [it["id"] for it in found] == ["a", "b", "b"]
    assert found[1] == found[2]


def test_what_a_crash_left_of_a_line_is_removed(once: Once, queue: Queue, tmp_path: Path):
    ended(queue, "a")
    once()
    (path,) = (tmp_path / "mail").glob("*.jsonl")
    with path.open("a") as file:
        file.write('{"entry":"1-1","payload":"' + "x" * 200_000)
    ended(queue, "b")

    assert once().code == 0

    assert [it["id"] for it in lines(tmp_path)] == ["a", "b"]


def test_thousands_of_jobs_are_read_in_small_pages(once: Once, make_queue: Callable[..., Queue], tmp_path: Path):
    queue = make_queue(log_size=5000)
    queue.enqueue_many(range(1300))
    while job := queue.claim(0):
        queue.complete(job)

    assert once().code == 0

    assert sorted(it["payload"] for it in lines(tmp_path)) == list(range(1300))


def test_a_page_ends_early_where_the_records_are_large(queue: Queue):
    for number in range(60):
        queue.enqueue("x" * 250_000, job_id=f"large-{number}")
        job = queue.claim(0)
        assert job
        queue.complete(job)

    found = queue._drive(archive_page(queue.settings, ""))
    rest = queue._drive(archive_page(queue.settings, found.position))

    assert (len(found.lines), found.is_last) == (20, False)
    assert len(rest.lines) == 20
    assert rest.lines[0]["id"] == "large-20"


# -- what was lost


def test_what_the_log_lost_is_said(once: Once, queue: Queue, desk: Server, tmp_path: Path):
    ended(queue, "a")
    once()
    ended(queue, "b", "c", "d")
    with desk.client() as client:
        client.xtrim(queue.settings.keys.log, maxlen=1, approximate=False)

    said = once()

    assert said.code == 1
    assert "the log of queue mail was lost after entry" in said.err
    assert [it["id"] for it in lines(tmp_path)] == ["a", "d"]
    (gap,) = [json.loads(line) for line in (tmp_path / "mail" / "gaps.log").read_text().splitlines()]
    assert [gap["after"], gap["before"]] == [it["entry"] for it in lines(tmp_path)]
    assert gap["after_ms"] <= gap["before_ms"]
    assert once().code == 0  # it is said once


def test_a_log_that_lost_only_what_was_read_has_no_gap(once: Once, queue: Queue, desk: Server, tmp_path: Path):
    ended(queue, "a", "b")
    once()
    ended(queue, "c")
    with desk.client() as client:
        client.xtrim(queue.settings.keys.log, maxlen=2, approximate=False)

    assert once().code == 0
    assert [it["id"] for it in lines(tmp_path)] == ["a", "b", "c"]


def test_a_log_that_was_restored_from_a_backup_is_read_again(once: Once, queue: Queue, desk: Server, tmp_path: Path):
    ended(queue, "a")
    with desk.client() as client:
        backup = client.xrange(queue.settings.keys.log)
        ended(queue, "b")
        once()
        client.delete(queue.settings.keys.log)
        for entry_id, fields in backup:
            client.xadd(queue.settings.keys.log, fields, id=entry_id)

    said = once()

    assert said.code == 1
    assert [it["id"] for it in lines(tmp_path)] == ["a", "b", "a"]
    assert once().code == 0


# -- rights, signals, outages


def test_a_viewer_is_enough(run: Run, tmp_path: Path):
    with Server(users={}, topology="single") as server, Queue("mail", redis=server.own_url) as queue:
        ended(queue, "a")
        (rules,) = run("doctor", "--acl", "--role", "viewer", "--user", "eye").out.splitlines()
        with server.client() as client:
            client.execute_command(*rules.split())
            client.execute_command("ACL", "SETUSER", "eye", ">eye")

        said = run("archive", "--to", str(tmp_path), "--once", "--redis", server.url_as("eye"))

    assert said.code == 0
    assert [it["record"] for it in lines(tmp_path)] == ["whole"]


@pytest.mark.processes
def test_it_follows_through_an_outage_until_it_is_asked_to_stop(tmp_path: Path):
    words = (sys.executable, "-m", "schedq", "archive", "--to", str(tmp_path), "--every", "100ms")
    with Server(appendonly=True, appendfsync="always") as server, Queue("mail", redis=server.unix_url) as queue:
        ended(queue, "a")
        environment = os.environ | {"SCHEDQ_REDIS_URL": server.unix_url}
        with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as process:
            until(lambda: len(lines(tmp_path)) == 1, within=60)
            server.kill()
            second = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=60, check=False)
            server.start()
            ended(queue, "b")
            until(lambda: [it["id"] for it in lines(tmp_path)] == ["a", "b"], within=90)
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=60)

    assert process.returncode == 0
    assert "Traceback" not in log
    assert (second.returncode, second.stderr.strip()) == (1, f"schedq: another schedq archive uses {tmp_path}/archive")


# -- mistakes


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--once"], 2, "Missing option '--to'"),
        (["--to", "{folder}", "--every", "0"], 2, "--every must be at least 100ms"),
        (["--to", "{folder}", "--once", "a:b"], 2, "queue name 'a:b'"),
        (["--to", "{folder}", "--once", "--redis", "http://x"], 2, "unknown Redis URL scheme"),
        (["--to", "{folder}", "--once", "meil"], 1, "nothing is stored about queue meil"),
        (["--to", "{folder}/file/x", "--once"], 1, "can't be used"),
        (["--to", "{folder}", "--once", "--redis", "redis://127.0.0.1:1"], 1, "127.0.0.1:1"),
    ],
)
def test_mistakes_are_one_line(words: list[str], code: int, says: str, run: Run, queue: Queue, tmp_path: Path):
    queue.enqueue(1)
    (tmp_path / "file").touch()

    said = run("archive", *(word.replace("{folder}", str(tmp_path)) for word in words))

    assert said.code == code
    assert says in said.complaint


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"version":2,"entry":"1-1"}', '{"version":1,"entry":"x"}'])
def test_a_damaged_position_is_not_taken_for_the_beginning(text: str, once: Once, queue: Queue, tmp_path: Path):
    ended(queue, "a")
    once()
    (tmp_path / "mail" / "position.json").write_text(text)

    said = once()

    assert said.code == 1
    assert "if it is moved away, the whole log is written again" in said.complaint
    assert len(lines(tmp_path)) == 1


# -- the page


def blocks(language: str, word: str) -> list[str]:
    return [block.code for block in all_blocks(page("archive.md")) if block.language == language and word in block.code]


@pytest.fixture
def archived(once: Once, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder `archive` with two jobs, one of them twice, in the current folder."""
    ended(queue, "a")
    queue.enqueue({"task": "send"}, job_id="bad")
    job = queue.claim(0)
    assert job
    queue.fail(job, Discard("refused"))
    once()
    (path,) = (tmp_path / "mail").glob("*.jsonl")
    path.write_text(path.read_text() + path.read_text().splitlines()[1] + "\n")
    (tmp_path / "archive").mkdir()
    (tmp_path / "mail").rename(tmp_path / "archive" / "mail")
    monkeypatch.chdir(tmp_path)


def test_the_pages_lines_for_jq_work(archived: None):
    if shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    commands = [line for code in blocks("sh", "jq ") for line in code.splitlines() if line.startswith("jq")]

    said = [subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout for line in commands]

    assert len(said) == 2
    assert json.loads(said[0]) == {"id": "bad", "task": "send", "last_error": "refused"}
    assert json.loads(said[1]) == {"completed": 1, "failed": 1}


def test_the_pages_queries_for_duckdb_work(archived: None):
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed")
    (code,) = blocks("sql", "read_json")

    found = [duckdb.sql(query).fetchall() for query in code.split(";") if query.strip()]

    assert found[0] == [("mail", "completed", 1), ("mail", "failed", 1)]
    assert found[1][0][:2] == ("send", 2)
