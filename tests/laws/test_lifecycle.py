"""The table of a job's life cycle in the code, checked against the scripts and the handbook's table."""

from __future__ import annotations

import re

from schedq.model.lifecycle import (
    BROKEN,
    CANCELLED,
    COMPLETED,
    DELAYED,
    FAILED,
    FINISHED,
    JOB_STATES,
    MOVES,
    NOWHERE,
    PENDING,
    PROCESSING,
)
from schedq.transitions import scripts
from scripts.tools.handbook import Block
from tests.cases import for_each
from tests.laws.test_scripts import FRAGMENTS, SCRIPTS, body

NO_MOVES = {
    "define_gate": "writes limits",
    "cancel_group": "says that a group is called off",
    "retry_group": "makes items of failures",
    "hold_gate": "stops claims of a gate or a key",
    "write_settings": "writes settings",
    "heartbeat": "a worker lives",
    "count_tasks": "adds to figures",
    "delete_schedule": "deletes a schedule",
    "find": "looks",
    "add_undo": "records how to undo a step",
    "step": "records the outcome of an operation",
    "failed_try": "records a failed try of a step",
    "until": "records until when a run waits",
    "receive": "takes a message out of its box",
    "start_over": "empties the record of a run",
    "gates": "looks",
    "open_batches": "looks",
    "why_gate": "looks",
    "deregister": "a worker goes",
    "audit": "writes a line of the log",
    "page": "looks",
    "scan_schedules": "looks",
    "stop_worker": "asks a worker to stop",
    "control_schedule": "pauses and resumes schedules",
    "upsert": "writes schedules",
    "pause": "stops claims",
    "pause_task": "stops claims of a task",
    "resume": "allows claims",
    "sample": "writes down how the queue stands",
    "summarize": "looks",
    "stats": "looks",
    "wake": "sets the marker",
    "watch": "looks, and notes that a caller waits",
    "why": "looks",
}
OF_GROUPS = {"groups", "items", "failures"}
STATUS = re.compile(r"'status', '(\w+)'")


KEEPS_A_STATUS = "tombstone"
"""The fragment that deletes a cancelled job's record and leaves its status for the entry that is still in `pending`."""


def whole_body(name: str) -> str:
    """A script's body with its fragments."""
    included = re.findall(rf"^ *--@include (?!{KEEPS_A_STATUS}$)(\w+)$", scripts.text(name), re.MULTILINE)
    return body(name) + "".join(body(f"shared/{fragment}") for fragment in included)


def test_the_table_names_every_place_and_no_other():
    named = {place for move in MOVES for place in (*move.source, *move.target)} - {NOWHERE}

    assert named == set(JOB_STATES)
    assert {COMPLETED, FAILED, CANCELLED} == FINISHED


def test_every_place_can_be_reached_and_left():
    """Whatever happens to a job, it can be trimmed or purged in the end."""
    reached, left = {NOWHERE}, {NOWHERE}
    for _ in JOB_STATES:
        reached |= {place for move in MOVES if reached & set(move.source) for place in move.target}
        left |= {place for move in MOVES if left & set(move.target) for place in move.source}

    assert reached == left == {NOWHERE, *JOB_STATES}


def test_moves_have_unique_names():
    assert len({move.name for move in MOVES}) == len(MOVES)


def test_every_script_makes_a_move_or_is_listed_as_making_none():
    making = {script for move in MOVES for script in move.scripts}

    assert making | NO_MOVES.keys() == set(SCRIPTS)
    assert not making & NO_MOVES.keys()


@for_each(sorted(set(SCRIPTS) - NO_MOVES.keys()))
def test_a_script_writes_the_statuses_of_its_moves_and_no_other(name: str):
    written = set(STATUS.findall(whole_body(name))) & set(JOB_STATES)
    if name in ("enqueue", "enqueue_unique", "fire", "settle"):  # written as a choice of two
        assert re.search("'delayed' or 'pending'|'pending' or 'delayed'", whole_body(name))
        written |= {DELAYED, PENDING}
    changed = {
        place
        for move in MOVES
        if name in move.scripts
        for place in move.target
        if place not in (NOWHERE, BROKEN) and set(move.source) != set(move.target)
    }

    assert written == changed


@for_each(sorted(NO_MOVES))
def test_a_script_that_makes_no_move_touches_no_place(name: str):
    pushes = re.findall(r"redis\.p?call\('(?:[LR]PUSH|[LR]POP|LREM|LTRIM|ZADD|ZREM)', (\w+)", body(name))

    assert set(pushes) <= {
        "workers",
        "wake",
        "leases",
        "schedules",
        "samples",
        "resting",
        "gate_holds",
        "undos",
        *OF_GROUPS,
    }
    if name not in ("cancel_group", "open_batches", "retry_group"):  # a group has a status, too
        assert "'status'," not in re.sub(r"read_job\(.*\)", "", body(name))


@for_each(SCRIPTS)
def test_ids_are_added_to_broken_only_where_the_table_says_so(name: str):
    breaks = {script for move in MOVES if move.target == (BROKEN,) for script in move.scripts}

    assert ("broken" in re.findall(r"--@include (\w+)", scripts.text(name))) == (name in breaks)


def test_fragments_are_all_used():
    used = {
        f"shared/{fragment}"
        for name in SCRIPTS
        for fragment in re.findall(r"^ *--@include (\w+)$", scripts.text(name), re.MULTILINE)
    }

    assert used == set(FRAGMENTS)


@for_each(sorted({script for move in MOVES for script in move.scripts}))
def test_a_script_that_can_end_a_job_tells_its_group_first(name: str):
    """Except of one that has ended already, and of one without a readable record, which an audit finds."""
    moves = [move for move in MOVES if name in move.scripts and move.name != "trim"]
    ends = {move.name for move in moves if set(move.target) & (FINISHED | {NOWHERE})}
    included = re.findall(r"^ *--@include (\w+)$", scripts.text(name), re.MULTILINE)

    assert ("group_end" in included) >= bool(ends), f"{name} makes {ends}"
    if ends:
        source = scripts.load(name).source
        assert source.count("tell_group") > source.count("local function tell_group"), f"{name} calls it nowhere"


def table_in_the_handbook() -> list[tuple[str, str, str, str]]:
    """The rows between the marks: move, from, to, scripts."""
    text = Block("data-in-redis.md", "moves").read()
    rows = [line.strip().strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in row) for row in rows[2:]]  # type: ignore[misc]


def test_the_handbook_shows_the_same_moves():
    def words(places: tuple[str, ...]) -> str:
        return "any" if places == JOB_STATES else ", ".join(place or "–" for place in places)

    wanted = {(move.name, words(move.source), words(move.target)) for move in MOVES}

    assert {row[:3] for row in table_in_the_handbook()} == wanted


def test_claimed_jobs_are_the_only_ones_that_can_be_settled():
    for move in MOVES:
        if "settle" in move.scripts and move.name not in ("trim", "make", "wake"):
            assert move.source == (PROCESSING,)
