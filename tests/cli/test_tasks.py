"""`schedq tasks`: figures of the tasks of a queue."""

from __future__ import annotations

import pytest

from schedq import Queue
from tests.cli.conftest import Run
from tests.inspect.scenes import report


@pytest.fixture
def counted(queue: Queue) -> Queue:
    """Two tasks have run."""
    report(queue, "send", completed=97, failed=1, retried=2, run_ms=[40] * 99 + [5000], late_ms=[3] * 100)
    report(queue, "count", completed=1, run_ms=[90_000], late_ms=[0])
    return queue


@pytest.mark.usefixtures("counted")
def test_each_task_has_a_line_the_one_that_ran_longest_first(run: Run):
    lines = run("tasks", "mail").lines
    start = next(n for n, line in enumerate(lines) if line.startswith("task "))
    titles, rows = lines[start], lines[start + 1 :]

    assert "queue mail at" in lines[0]
    assert "tasks since" in " ".join(lines[:start])
    assert titles.split() == ["task", "done", "failed", "retried", "errors", "p50", "p99", "max", "late"]
    assert [row.split()[:5] for row in rows] == [
        ["count", "1", "0", "0", "0"],
        ["send", "97", "1", "2", "3"],
    ]
    assert rows[1].split()[-4:] == ["5.0", "s", "3", "ms"]


@pytest.mark.usefixtures("counted")
def test_one_task_is_shown_by_time_and_with_histograms(run: Run):
    said = "\n".join(run("tasks", "mail", "--task", "send").lines)

    assert ": task send since" in said
    for fact in ("all of it", "ran for", "started late by", "████"):
        assert fact in said


@pytest.mark.usefixtures("counted")
def test_programs_get_counts_and_bins(run: Run):
    found = run("tasks", "mail", "--ever", "--json").json

    assert (found["queue"], found["since_ms"]) == ("mail", 0)
    count, send = found["tasks"]
    assert (count["task"], count["completed"], count["error_rate"]) == ("count", 1, 0)
    assert (send["failed"], send["retried"], send["run"]["count"], send["run"]["longest_ms"]) == (1, 2, 100, 5000)
    assert sum(each["count"] for each in send["run"]["bins"]) == 100
    assert all(each["below_ms"] > 1 for each in send["run"]["bins"])


@pytest.mark.usefixtures("counted")
@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("--task", "sned"), 1, "nothing was counted of task sned in this time; there are figures of count, send"),
        (("--within", "3d"), 1, "not between 0 and 48 hours"),
        (("--within", "soon"), 2, "soon"),
        (("--within", "1h", "--ever"), 2, "--ever and --within exclude each other"),
    ],
)
def test_a_mistake_is_named(run: Run, words: tuple[str, ...], code: int, complaint: str):
    result = run("tasks", "mail", *words)

    assert result.code == code
    assert complaint in result.err


def test_a_queue_without_figures_shows_none(run: Run, queue: Queue):
    queue.enqueue(1)

    assert "no task has run" in "\n".join(run("tasks", "mail").lines)
    assert run("tasks", "mial").code == 1
