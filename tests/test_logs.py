"""The log of a long-running process."""

from __future__ import annotations

import io
import json
import logging
import math
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime

import click
import pytest

from schedq import UsageError
from schedq.cli import daemon
from schedq.logs import JobFields
from schedq.testing import as_job

Lines = Callable[[], list[str]]


@pytest.fixture
def written(capsys: pytest.CaptureFixture[str]) -> Iterator[Lines]:
    """The lines written to stderr; logging is restored afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("schedq")
    handlers, level, ours_level = root.handlers[:], root.level, ours.level
    yield lambda: capsys.readouterr().err.splitlines()
    root.handlers[:] = handlers
    root.setLevel(level)
    ours.setLevel(ours_level)


def log_an_error() -> None:
    try:
        raise LookupError("no such\n00:00:00.000 INFO    forged")
    except LookupError:
        logging.getLogger("schedq").exception("job %s: failed", "j1")


def test_text_is_a_line_with_time_level_and_sentence(written: Lines) -> None:
    daemon.set_up_logging("text", 0)

    logging.getLogger("schedq").warning("job %s: %s", "j1", "lease ended")

    (line,) = written()
    assert re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3} WARNING job j1: lease ended", line)


def test_json_is_an_object_per_line(written: Lines) -> None:
    daemon.set_up_logging("json", 0)

    logging.getLogger("schedq").error("job %s: größer\nund zwei", "j1")
    log_an_error()

    first, second = (json.loads(line) for line in written())
    moment = datetime.fromisoformat(first.pop("time"))
    assert abs((datetime.now(moment.tzinfo) - moment).total_seconds()) < 5
    assert first == {"level": "error", "logger": "schedq", "pid": os.getpid(), "message": "job j1: größer\nund zwei"}
    assert second["message"] == "job j1: failed"
    assert "LookupError: no such\n" in second["traceback"]


def test_no_text_can_pass_for_another_line_or_steer_a_terminal(written: Lines) -> None:
    daemon.set_up_logging("text", 0)

    logging.getLogger("schedq").info("job %s: %s", "j1", "bad\r\n00:00:00.000 ERROR   forged\x1b[2J\x9b\u202e\ud800")

    (line,) = written()
    assert line.endswith(r"INFO    job j1: bad\r\n00:00:00.000 ERROR   forged\x1b[2J\x9b\u202e\ud800")


def test_no_json_can_steer_a_terminal(written: Lines) -> None:
    daemon.set_up_logging("json", 0)

    logging.getLogger("schedq").info("%s", "\x1b[2J\x9b\u202e\u2028\ud800")

    (line,) = written()
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line)["message"] == "\x1b[2J\x9b\u202e\u2028\ud800"


def test_the_lines_of_a_traceback_are_set_in(written: Lines) -> None:
    daemon.set_up_logging("text", 0)

    log_an_error()

    first, *rest = written()
    assert first.endswith("ERROR   job j1: failed")
    assert rest[0] == "    Traceback (most recent call last):"
    assert "    00:00:00.000 INFO    forged" in rest
    assert all(line.startswith("    ") for line in rest)


@pytest.mark.parametrize(
    ("verbosity", "seen"),
    [
        (0, ["schedq INFO", "other WARNING"]),
        (1, ["schedq DEBUG", "schedq INFO", "other WARNING"]),
        (2, ["schedq DEBUG", "schedq INFO", "other DEBUG", "other INFO", "other WARNING"]),
    ],
)
def test_v_says_more(written: Lines, verbosity: int, seen: list[str]) -> None:
    daemon.set_up_logging("json", verbosity)

    for level in (logging.DEBUG, logging.INFO):
        logging.getLogger("schedq").log(level, "x")
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger("other").log(level, "x")

    entries = [json.loads(line) for line in written()]
    assert [f"{entry['logger']} {entry['level'].upper()}" for entry in entries] == seen


def test_quiet_leaves_warnings_and_errors(written: Lines) -> None:
    daemon.set_up_logging("text", 0, quiet=True)

    for level in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR):
        logging.getLogger("schedq").log(level, "x")

    assert [line.split()[1] for line in written()] == ["WARNING", "ERROR"]


def test_quiet_and_verbose_exclude_each_other() -> None:
    with pytest.raises(click.UsageError, match="give --quiet or -v, not both"):
        daemon.set_up_logging("text", 1, quiet=True)


def test_setting_up_twice_writes_each_line_once(written: Lines) -> None:
    daemon.set_up_logging("text", 0)
    daemon.set_up_logging("text", 0)

    logging.getLogger("schedq").info("once")

    assert len(written()) == 1


def test_a_line_in_a_handler_has_the_fields_of_its_job(written: Lines) -> None:
    daemon.set_up_logging("json", 0)

    with as_job("j1", attempts=2):
        logging.getLogger("application").warning("sent", extra={"mail": 7, "task": "mine", "what": object()})
    logging.getLogger("application").warning("outside")

    inside, outside = (json.loads(line) for line in written())
    assert (inside["job_id"], inside["attempt"], inside["mail"], inside["task"]) == ("j1", 2, 7, "mine")
    assert "what" not in inside, "an object's text may contain anything"
    assert not {"job_id", "attempt", "queue", "task", "worker"} & outside.keys()


def test_a_line_of_text_in_a_handler_begins_with_its_job(written: Lines) -> None:
    daemon.set_up_logging("text", 0)

    with as_job("j1"):
        logging.getLogger("application").warning("sent", extra={"task": "mine"})
        logging.getLogger("schedq").warning("job j1: lost")

    first, second = written()
    assert first.endswith(" WARNING [mine j1] sent")
    assert second.endswith(" WARNING job j1: lost")


def test_the_same_fields_reach_an_applications_own_formatter() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(job_id)s/%(attempt)s %(message)s"))
    handler.addFilter(JobFields())
    logger = logging.getLogger("application.own")
    logger.addHandler(handler)
    try:
        with as_job("j1"):
            logger.error("sent")
    finally:
        logger.removeHandler(handler)

    assert stream.getvalue() == "j1/1 sent\n"


def test_a_line_may_have_headers_of_its_job(written: Lines) -> None:
    daemon.set_up_logging("json", 0, headers=["request_id", "absent", "message"])
    logger = logging.getLogger("application")

    with as_job(headers={"request_id": "r-1\n", "tenant": "acme", "message": "forged"}):
        logger.warning("sent")
        logger.warning("own", extra={"request_id": "mine"})
        logger.warning("odd", extra={"headers": "a text of the application's own"})
    logger.warning("outside")

    lines = [json.loads(line) for line in written()]
    assert [line.get("request_id") for line in lines] == ["r-1\\n", "mine", "r-1\\n", None]
    assert [line["message"] for line in lines] == ["sent", "own", "odd", "outside"]
    assert not any({"absent", "tenant"} & line.keys() for line in lines)


def test_one_name_of_a_header_is_no_list_of_names() -> None:
    with pytest.raises(UsageError, match=r"write \['request_id'\]"):
        JobFields("request_id")


def test_what_no_json_can_hold_is_still_a_line(written: Lines) -> None:
    daemon.set_up_logging("json", 0)

    logging.getLogger("application").warning("x", extra={"ratio": math.nan})

    (line,) = written()
    assert json.loads(line, parse_constant=pytest.fail)["ratio"] == "nan"
