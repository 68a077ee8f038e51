"""What is sent again, what is not, and when a request is given up, without a Redis."""

from __future__ import annotations

from typing import Any

import pytest
from redis import exceptions
from redis._parsers import BaseParser

from schedq import Conflict, QueueFull, StoreUnavailable, UsageError
from schedq.connection import redis_errors
from schedq.connection.address import Address
from schedq.connection.request import Request
from schedq.model.records import Options
from schedq.model.settings import Settings
from schedq.transitions import MarkerWait, Operation, enqueue, scripts

ADDRESS = Address("redis://:s3cret@example.org:6380/2")
SCRIPT = scripts.load("stats")


def from_server(text: str) -> Exception:
    """An error as redis-py makes it from the text of a reply."""
    made = BaseParser.parse_error(text)
    assert isinstance(made, Exception)
    return made


def operation(name: str = "stats", **options: Any) -> Operation[Any]:
    return Operation(name, SCRIPT, ("key",), ("argument",), lambda reply: f"read {reply}", **options)


def request(*operations: Operation[Any], retry_for: float = 5) -> Request:
    return Request(operations or [operation()], ADDRESS, Settings("mail"), retry_for)


def test_a_reply_is_read_and_completes_the_request():
    one = request()

    assert one.commands() == [("EVALSHA", SCRIPT.sha, 1, "key", "argument")]
    assert one.on_replies(["reply"]) == 0
    assert not one.left
    assert one.answers == ["read reply"]


def test_on_a_cluster_scripts_name_a_key_that_never_exists_and_commands_do_not():
    queue = Settings("mail", tagged=True)
    plain = Operation("get_job", None, (), ("HGETALL", "key"), dict)

    assert Request([operation(), plain], ADDRESS, queue, 5).commands() == [
        ("EVALSHA", SCRIPT.sha, 2, "key", "queue:{mail}:never", "argument"),
        ("HGETALL", "key"),
    ]


def test_only_unknown_scripts_are_sent_again_with_their_source():
    three = request(operation("a"), operation("b"), operation("c"))

    assert three.on_replies(["1", from_server("NOSCRIPT No matching script"), "3"]) == 0
    assert three.commands() == [("EVAL", SCRIPT.source, 1, "key", "argument")]
    three.on_replies(["2"])

    assert three.answers == ["read 1", "read 2", "read 3"]


def test_an_unknown_script_takes_its_late_arguments_behind_what_follows_it():
    two = request(operation("a")._replace(late_args=("late",)), operation("b"))

    assert two.commands()[0] == ("EVALSHA", SCRIPT.sha, 1, "key", "argument")
    two.on_replies([from_server("NOSCRIPT No matching script"), "2"])

    assert two.commands() == [("EVAL", SCRIPT.source, 1, "key", "late")]


def test_a_server_that_never_learns_the_script_is_not_asked_forever():
    one = request()
    for _ in range(2):
        one.on_replies([from_server("NOSCRIPT No matching script")])

    assert isinstance(one.answers[0], StoreUnavailable)


@pytest.mark.parametrize(
    "text",
    [
        *("BUSY not now", "CLUSTERDOWN not now", "MISCONF not now", "NOREPLICAS not now", "READONLY not now"),
        *("TRYAGAIN not now", "UNBLOCKED not now", "LOADING not now"),
        *("MOVED 5 127.0.0.1:7002", "MOVED 5 :7002", "ASK 5 127.0.0.1:7002"),
    ],
)
def test_transient_errors_are_waited_out(text: str):
    two = request(operation("a"), operation("b"))

    wait = two.on_replies(["1", from_server(text)])

    assert 0 < wait <= 0.05
    assert len(two.commands()) == 1
    assert two.on_replies(["2"]) == 0
    assert two.answers == ["read 1", "read 2"]


IN_SCRIPT_OF_6_2 = "ERR Error running script (call to f_0e3454310bb8a0b3de740e2719a969f9807e209c): @user_script:{}: "


@pytest.mark.parametrize("around", [IN_SCRIPT_OF_6_2.format(65), ""], ids=["raised", "returned"])
@pytest.mark.parametrize("word", ["MISCONF", "NOREPLICAS", "READONLY"])
def test_transient_errors_are_recognized_inside_the_text_that_redis_6_2_adds(word: str, around: str):
    error = from_server(f"{around}@user_script: 65: -{word} Not now. Ask again.")

    assert redis_errors.is_transient(error)
    assert redis_errors.is_demoted(error) == (word != "MISCONF")
    assert str(redis_errors.translate(error, "claim", ADDRESS.label)).endswith(f"replied: {word} Not now. Ask again.")


def test_an_error_of_a_script_itself_is_reported_unchanged():
    error = from_server(IN_SCRIPT_OF_6_2.format(7) + "user_script:7: attempt to index a nil value")

    assert not redis_errors.is_transient(error)
    assert "attempt to index a nil value" in str(redis_errors.translate(error, "claim", ADDRESS.label))


def test_waits_grow_until_retry_for_has_passed(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("schedq.connection.request.monotonic", lambda: now)
    one = request(retry_for=5)
    waits = []

    while one.left:
        waits.append(one.on_error(exceptions.ConnectionError("gone")))
        now += waits[-1]

    assert waits[:3] == pytest.approx([0.05, 0.1, 0.2], rel=0.5)
    assert max(waits) <= 1
    assert now - 100 == pytest.approx(5, abs=0.6)
    assert isinstance(one.answers[0], StoreUnavailable)


def test_without_retries_the_first_lost_connection_is_an_error():
    one = request(retry_for=0)

    assert one.on_error(exceptions.ConnectionError("gone")) == 0
    assert isinstance(one.answers[0], StoreUnavailable)


def test_an_operation_that_must_not_be_repeated_fails_at_once_and_the_others_continue():
    two = request(operation("claim", is_repeatable=False), operation("stats"))

    assert two.on_error(exceptions.ConnectionError("gone")) > 0
    assert isinstance(two.answers[0], StoreUnavailable)
    assert [command[0] for command in two.commands()] == ["EVALSHA"]


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (from_server("OOM command not allowed when used memory > 'maxmemory'"), QueueFull, "memory"),
        (from_server("ERR OOM command not allowed when used memory. script: x"), QueueFull, "memory"),
        (from_server("WRONGTYPE queue:a:pending is a hash, not a list"), Conflict, "queue:a:pending"),
        (from_server("ERR user_script:7: WRONGTYPE Operation against"), Conflict, "WRONGTYPE"),
        (from_server("WRONGPASS invalid username-password pair"), UsageError, "password"),
        (from_server("NOPERM this user has no permissions"), UsageError, "may not"),
        (from_server("ERR DB index is out of range"), UsageError, "no such database"),
        (from_server("ERR unknown"), StoreUnavailable, "unknown"),
        (OSError("no route"), StoreUnavailable, "does not respond"),
        (exceptions.TimeoutError("slow"), StoreUnavailable, "does not respond"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_errors_are_those_of_schedq_and_never_show_the_password(error: Exception, kind: type[Exception], says: str):
    found = redis_errors.translate(error, "enqueue", ADDRESS.label)

    assert type(found) is kind
    assert says in str(found)
    assert "s3cret" not in str(found)


def test_a_permanent_error_is_not_waited_out():
    for text in ("WRONGPASS no", "NOAUTH no", "OOM full", "ERR x", "WRONGTYPE x"):
        one = request()
        assert one.on_replies([from_server(text)]) == 0
        assert not one.left


def test_only_a_demoted_server_makes_the_client_look_for_another():
    assert redis_errors.is_demoted(from_server("READONLY You can't write against a read only replica."))
    assert redis_errors.is_demoted(from_server("MOVED 5 127.0.0.1:7002"))
    assert redis_errors.is_demoted(from_server("CLUSTERDOWN The cluster is down"))
    assert not redis_errors.is_demoted(from_server("ASK 5 127.0.0.1:7002"))
    assert redis_errors.is_demoted(from_server("UNBLOCKED force unblock from blocking operation"))
    assert not redis_errors.is_demoted(from_server("BUSY Redis is busy"))
    assert not redis_errors.is_demoted("READONLY")


# -- how many round trips


def rounds(jobs: list[Any], settings: Settings) -> list[list[Operation[Any]]]:
    """The rounds of an enqueue_many in which every job is stored."""
    prepared = [enqueue.prepare(settings, payload, Options()) for payload in jobs]
    trips = enqueue.enqueue_many(settings, prepared)
    found = []
    try:
        step = next(trips)
        while True:
            assert not isinstance(step, MarkerWait)
            found.append(list(step))
            counts = [(len(operation.args) - 5) // 5 for operation in step]
            step = trips.send([enqueue.Stored(("STORED",) * count) for count in counts])
    except StopIteration:
        return found


def test_ten_thousand_jobs_are_one_round_trip():
    sizes = [
        [(len(operation.args) - 5) // 5 for operation in round_]
        for round_ in rounds(list(range(10_000)), Settings("mail"))
    ]

    assert sizes == [[*[150] * 66, 100]]


def test_a_hundred_megabytes_are_sent_in_rounds_of_a_few():
    sizes = [len(round_) for round_ in rounds(["x" * 200_000] * 500, Settings("mail"))]

    assert sum(sizes) == 100
    assert max(sizes) <= 16


def test_an_enqueue_is_not_sent_again_when_its_record_may_have_been_trimmed(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("schedq.connection.request.monotonic", lambda: now)
    lost = exceptions.ConnectionError("gone")
    two = request(operation("enqueue", repeatable_s=3), operation("stats"), retry_for=30)
    two.commands()
    now += 2
    two.on_error(lost)
    assert len(two.commands()) == 2
    now += 2

    two.on_error(lost)

    assert [command[0] for command in two.commands()] == ["EVALSHA"]
    assert isinstance(two.answers[0], StoreUnavailable)


def test_after_a_slow_connection_attempt_the_time_limit_is_checked_again(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("schedq.connection.request.monotonic", lambda: now)
    one = request(operation("enqueue", repeatable_s=3), retry_for=30)
    one.commands()
    one.on_error(exceptions.ConnectionError("gone"))
    assert one.is_in_time()
    now += 4

    assert not one.is_in_time()

    assert isinstance(one.answers[0], StoreUnavailable)


def test_a_rejection_says_nothing_about_an_earlier_request_whose_reply_was_lost(monkeypatch: pytest.MonkeyPatch):
    now = 100.0
    monkeypatch.setattr("schedq.connection.request.monotonic", lambda: now)
    one = request(operation("enqueue", repeatable_s=3), retry_for=30)
    one.commands()
    one.on_error(exceptions.ConnectionError("gone"))
    one.commands()
    one.on_replies([from_server("LOADING Redis is loading the dataset in memory")])
    now += 4

    one.on_replies([from_server("LOADING Redis is loading the dataset in memory")])

    assert isinstance(one.answers[0], StoreUnavailable)


def test_an_operation_that_was_never_executed_may_be_retried_for_the_callers_whole_time(
    monkeypatch: pytest.MonkeyPatch,
):
    now = 100.0
    monkeypatch.setattr("schedq.connection.request.monotonic", lambda: now)
    unsent, refused = (request(operation("enqueue", repeatable_s=0), retry_for=30) for _ in range(2))
    refused.commands()

    for _ in range(5):
        now += 1
        unsent.on_error(exceptions.ConnectionError("refused"))
        refused.on_replies([from_server("LOADING Redis is loading the dataset in memory")])
        assert unsent.is_in_time()
        assert refused.is_in_time()

    assert unsent.left
    assert refused.left


@pytest.mark.parametrize(("min_keep", "repeatable_s"), [(30, 29), (4, 3), (2, 1.5), (0.4, 0.3), (0, 0)])
def test_an_enqueue_is_not_sent_again_after_its_record_may_have_been_trimmed(min_keep: float, repeatable_s: float):
    queue = Settings("mail", min_keep=min_keep, retry_for=min_keep)

    sent = enqueue.enqueue(queue, enqueue.prepare(queue, 1, Options()))

    assert sent.repeatable_s == pytest.approx(repeatable_s)
