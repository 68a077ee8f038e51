"""doctor: what people and programs are shown, and the exit code."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from schedq import Queue
from schedq.doctor.checks import LEVELS
from schedq.doctor.roles import ROLES
from tests.cli.conftest import Run, Said
from tests.servers import Server

OF_THE_SERVER = ("no-persistence", "snapshots-only", "version-known-bad")
OF_THE_MACHINE = ("clock-jump", "clock-offset", "latency-high", "latency-stalls", "scripts-slow")
IGNORED = [word for code in OF_THE_SERVER + OF_THE_MACHINE for word in ("--ignore", code)]


def unfolded(said: Said) -> str:
    return " ".join(said.out.split())


def test_a_finding_says_what_was_found_what_it_means_and_what_to_do(run: Run, queue: Queue, desk: Server):
    queue.enqueue(1)
    with desk.client() as client:
        client.hset("queue:mail:job:lost\x1b", mapping={"payload": "1", "status": "pending"})

    said = run("doctor")

    assert said.code == 1
    assert said.err == ""
    assert said.out.splitlines()[0].endswith("; 1 queue")
    text = unfolded(said)
    assert r"warning queue mail: 1 job that no list holds [orphan] lost\x1b it will never run: " in text
    assert "→ redis-cli LPUSH queue:mail:pending ID runs it; redis-cli DEL queue:mail:job:ID deletes it" in text
    assert said.out.splitlines()[-1].split(", ")[-1].split()[1] in ("note", "notes")
    assert max(map(len, said.out.splitlines())) <= 100


def test_programs_get_one_object(run: Run, queue: Queue):
    queue.enqueue(1)

    said = run("doctor", "mail", "--json", *IGNORED)
    found = json.loads(said.out)

    assert (said.code, said.err) == (1, "")
    assert found["is_healthy"] is False
    assert found["queues"] == ["mail"]
    assert found["redis"] == queue.address.label
    assert found["server"]["version"]
    assert found["server"]["ping_max_ms"] >= found["server"]["ping_median_ms"] > 0
    levels = [LEVELS.index(finding["level"]) for finding in found["findings"]]
    assert levels == sorted(levels)
    (missing,) = [finding for finding in found["findings"] if finding["code"] == "no-worker"]
    assert missing.keys() == {"code", "level", "says", "means", "remedy", "queue", "examples", "about", "value"}
    assert (missing["queue"], missing["level"], missing["value"]) == ("mail", "warning", 1)


def test_the_exit_code_is_0_when_nothing_wants_to_be_done(run: Run, queue: Queue):
    queue.enqueue(1)
    queue.purge()

    said = run("doctor", *IGNORED)

    assert (said.code, said.err) == (0, ""), said.out
    assert "note" in said.out
    assert json.loads(run("doctor", "--json", *IGNORED).out)["is_healthy"] is True


def test_ignored_findings_are_shown_but_not_counted(run: Run, queue: Queue):
    queue.enqueue(1)
    assert run("doctor", *IGNORED).code == 1

    said = run("doctor", *IGNORED, "--ignore", "no-worker")

    assert said.code == 0
    assert "ignored queue mail: no worker is alive" in unfolded(said)


def test_a_redis_without_queues_can_be_examined(run: Run, desk: Server):
    said = run("doctor", *IGNORED)

    assert said.code == 0
    assert "; 0 queues" in said.out
    with desk.client() as client:
        assert client.keys("*") == []


def test_a_redis_that_is_down_is_a_finding_and_no_traceback(run: Run):
    said = run("doctor", "--redis", "redis://127.0.0.1:1/0")

    assert (said.code, said.err) == (1, "")
    assert "[redis-unavailable]" in said.out
    found = json.loads(run("doctor", "--json", "--redis", "redis://127.0.0.1:1/0").out)
    assert [finding["code"] for finding in found["findings"]] == ["redis-unavailable"]


def test_an_embedded_server_can_be_examined(run: Run, make_queue: Callable[..., Queue], desk: Server):
    """A server on a unix socket, as that one is."""
    make_queue().enqueue(1)

    assert "[no-worker]" in run("doctor", "--redis", f"unix://{desk.socket_path}").out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["a b"], "queue name 'a b' must be"),
        (["--redis", "http://x"], "unknown Redis URL scheme"),
        (["--sample", "1"], "is not in the range"),
        (["--role", "worker"], "go with --acl"),
        (["--acl", "--role", "boss"], "is not one of"),
        (["--acl", "mail", "reports"], "name one queue"),
        (["--acl", "--queue", "a b"], "queue name"),
        (["--acl", "--user", "ada"], "with --role"),
        (["--acl", "--role", "worker", "--user", "a b"], "is not a valid user name"),
    ],
)
def test_mistakes_are_one_line(words: list[str], says: str, run: Run):
    said = run("doctor", *words)

    assert said.code == 2
    assert says in said.complaint


# -- --acl


def test_the_lines_for_all_roles_go_to_redis_cli_and_the_advice_does_not(run: Run):
    said = run("doctor", "--acl", "--redis", "redis://127.0.0.1:1/0")

    assert said.code == 0
    users = [line.split()[:4] for line in said.out.splitlines()]
    assert users == [["ACL", "SETUSER", f"schedq-{role}", "on"] for role in ROLES]
    assert all("~queue:* ~schedq:queues resetchannels &queue:* -@all +" in line for line in said.out.splitlines())
    assert "then set passwords" in said.complaint


def test_a_user_of_one_queue_is_called_after_it(run: Run):
    (line,) = run("doctor", "--acl", "--role", "viewer", "--queue", "mail").out.splitlines()

    assert line.startswith("ACL SETUSER mail-viewer on resetkeys ~queue:mail:* ~schedq:queues ")


def test_roles_are_one_object_in_json(run: Run):
    found = run("doctor", "--acl", "--json").json["roles"]

    assert [role["role"] for role in found] == list(ROLES)
    assert all(role["line"].startswith(f"ACL SETUSER {role['user']} on ") for role in found)
    assert "evalsha" in found[0]["commands"]
