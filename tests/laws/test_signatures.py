"""Both clients have the same methods and arguments, and every public name is documented."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import schedq
from schedq import AsyncQueue, Job, Queue, Task
from tests.cases import for_each

DESIGN = [
    "enqueue",
    "enqueue_many",
    "claim",
    "complete",
    "fail",
    "renew",
    "release",
    "snooze",
    "promote_due",
    "reclaim_stuck",
    "stats",
    "get_job",
    "cancel",
    "reschedule",
    "run_now",
    "requeue",
    "requeue_failed",
    "list_pending",
    "list_delayed",
    "list_processing",
    "list_completed",
    "list_failed",
    "pause",
    "resume",
    "purge",
    "events",
    "wait",
    "result",
    "gather_results",
    "job",
    "task",
    "handler",
    "cron",
    "every",
]
CLOSING = {"close", "aclose"}


def verbs(kind: type) -> dict[str, Any]:
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name: member for name, member in found if not name.startswith("_") and name not in CLOSING}


def shape(function: Any) -> list[tuple[str, Any, Any, str]]:
    return [
        (parameter.name, parameter.kind, parameter.default, str(parameter.annotation))
        for parameter in inspect.signature(function).parameters.values()
    ]


def answer(function: Any) -> str:
    found = str(inspect.signature(function).return_annotation)
    found = re.sub(r"AsyncGenerator\[(.*), None\]", r"Generator[\1, None, None]", found)
    return found.removeprefix("Async")


def test_both_clients_have_the_same_verbs():
    assert verbs(Queue).keys() == verbs(AsyncQueue).keys()


@for_each(DESIGN)
def test_every_verb_of_the_design_is_there(verb: str):
    assert verb in verbs(Queue)


@for_each(sorted(verbs(Queue)))
def test_a_verb_takes_and_returns_the_same_in_both_clients(verb: str):
    blocking, awaited = verbs(Queue)[verb], verbs(AsyncQueue)[verb]

    assert shape(blocking) == shape(awaited)
    assert answer(blocking) == answer(awaited)


SAME_IN_BOTH = {
    *("task", "gate", "handler", "job", "cron", "every", "register", "workflow", "flow", "batch"),
    *("use", "around", "observe", "before_enqueue"),
}


@for_each(sorted(set(verbs(Queue)) - SAME_IN_BOTH))
def test_a_verb_is_awaited_in_one_client_and_not_in_the_other(verb: str):
    assert not inspect.iscoroutinefunction(verbs(Queue)[verb])
    found = verbs(AsyncQueue)[verb]
    assert inspect.iscoroutinefunction(found) or inspect.isasyncgenfunction(found)


def test_the_makers_are_one():
    assert Queue.__init__ is AsyncQueue.__init__


@pytest.mark.parametrize(
    ("kind", "verb", "twin"),
    [
        (Job, name, "await_end" if name == "wait" else f"a{name}")
        for name in (
            "record",
            "status",
            "wait",
            "result",
            "cancel",
            "requeue",
            "reschedule",
            "run_now",
            "why",
            "timeline",
            "progress",
        )
    ]
    + [(Task, name, f"a{name}") for name in ("enqueue", "enqueue_many")],
)
def test_handles_have_a_twin_that_is_awaited_for_every_verb(kind: type, verb: str, twin: str):
    blocking, awaited = getattr(kind, verb), getattr(kind, twin)

    assert inspect.iscoroutinefunction(awaited)
    assert not inspect.iscoroutinefunction(blocking)
    assert shape(blocking) == shape(awaited)
    assert answer(blocking) == answer(awaited)


# -- public names


def public() -> Iterator[tuple[str, Any]]:
    """Every public name, and every public member that its class defines."""
    for name in schedq.__all__:
        found = getattr(schedq, name)
        yield name, found
        for member, value in vars(found).items() if inspect.isclass(found) else ():
            is_ours = inspect.isfunction(value) or isinstance(value, (property, classmethod, staticmethod))
            if is_ours and not member.startswith("_"):
                yield f"{name}.{member}", value


PUBLIC = {name: found for name, found in public() if name != "__version__"}


@for_each(PUBLIC)
def test_every_public_name_has_a_description(name: str):
    text = inspect.getdoc(PUBLIC[name])

    assert text
    # Dataclasses and enums generate a docstring if they have none.
    assert not text.startswith(f"{name}(")
    assert text.partition("\n")[0].endswith(".")


def test_the_list_of_public_names_is_sorted_and_complete():
    listed = schedq.__all__
    there = {name for name, found in vars(schedq).items() if not name.startswith("_") and not inspect.ismodule(found)}

    assert listed == sorted(listed, key=lambda name: (not name.isupper(), name))
    assert set(listed) == there | set(schedq._IMPORTED_WHEN_USED) | {"__version__"}


def test_every_error_is_public():
    from schedq import errors

    ours = {name for name, found in vars(errors).items() if inspect.isclass(found) and issubclass(found, Exception)}

    assert ours <= set(schedq.__all__)
    assert all(issubclass(getattr(schedq, name), schedq.SchedqError) for name in ours)


@for_each(PUBLIC)
def test_every_public_function_is_annotated(name: str):
    found = PUBLIC[name]
    if inspect.isfunction(found):
        signature = inspect.signature(found)
        bare = [
            p.name for p in signature.parameters.values() if p.annotation is p.empty and p.name not in ("self", "cls")
        ]
        assert not bare
        assert signature.return_annotation is not signature.empty
