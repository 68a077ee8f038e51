"""The handbook's list of every public name, made by `python -m tests.laws.reference`; a test compares."""

from __future__ import annotations

import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import schedq
from schedq import testing
from scripts.tools.handbook import Block

TESTING = ["wall_clock", "run_due", "as_job", "override", "queue_tester", "QueueTester", "eager", "EagerQueues"]
BLOCK = Block("reference.md", "reference")
STARS: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
GROUPS = {
    "Queues": ["Queue", "AsyncQueue"],
    "Tasks and jobs": ["Task", "Job", "Gate", "Rate", "Unique", "Debounce", "EnqueueFacts", "inherit_headers"],
    "Batches": ["Batch", "AsyncBatch", "BatchResults", "BatchProgress", "ChildFailure", "RESULT"],
    "Workers": [
        "Worker",
        "IsolationSettings",
        "Middleware",
        "CallNext",
        "Observer",
        "AttemptFacts",
        "AttemptEnd",
        "QueueHealth",
        "StuckSlot",
    ],
    "Schedules": ["Schedules", "AsyncSchedules", "ScheduleOptions"],
    "For operators": [
        "Gates",
        "AsyncGates",
        "GateStatus",
        "GateKey",
        "Inspector",
        "AsyncInspector",
        "JobPage",
        "Acted",
        "Imported",
        "Why",
        "Timeline",
        "AttemptRecord",
        "OperationRecord",
        "TimelineEvent",
        "BatchTimeline",
        "BatchEvent",
        "Forecast",
        "Bucket",
        "Pulse",
        "TaskPulse",
        "TaskStats",
        "CountedTime",
        "Counts",
        "Histogram",
        "UnknownTask",
        "Throughput",
        "Spread",
        "Sample",
        "Errors",
        "ErrorGroup",
        "LogEntry",
    ],
    "In a handler": ["current_job", "CurrentJob", "track", "Depends", "Retry", "Discard", "Snooze", "RateLimited"],
    "In a workflow": ["WorkflowContext", "Flow", "FlowNode"],
    "Backoff": ["Exponential", "Linear", "Fixed", "Steps"],
    "Data": [
        "NewJob",
        "ClaimedJob",
        "JobRecord",
        "Progress",
        "WorkerRecord",
        "BrokenNote",
        "Stats",
        "ScheduleRecord",
        "SlotRecord",
        "Registration",
    ],
    "Errors": [
        "SchedqError",
        "UsageError",
        "ArgumentsError",
        "ClosedError",
        "Conflict",
        "StoreUnavailable",
        "QueueFull",
        "NotAcknowledged",
        "JobFailed",
        "JobCancelled",
        "BatchFailed",
        "BatchCancelled",
        "JobGone",
        "StepFailed",
        "MapFailed",
        "StepChanged",
        "RecordFull",
        "ProcessDied",
        "RemoteError",
    ],
}


def reference() -> str:
    """The text between the marks."""
    sections = [_section(title, _named(names)) for title, names in GROUPS.items()]
    sections.append(_section("schedq.testing", [(name, getattr(testing, name)) for name in TESTING]))
    return "".join(sections)


def _named(names: list[str]) -> list[tuple[str, Any]]:
    return [(name, getattr(schedq, name)) for name in names]


def _section(title: str, entries: list[tuple[str, Any]]) -> str:
    return f"\n**{title}**\n\n" + "".join(f"{line}\n" for name, found in entries for line in _entry(name, found))


def _entry(name: str, found: Any) -> Iterator[str]:
    if name == "AsyncQueue":
        yield "- `AsyncQueue(…)`: `Queue` for asyncio; its methods are awaited, on any loop. `aclose()` closes it."
        return
    if name == "AsyncSchedules":
        yield "- `AsyncSchedules`: `Schedules` of an `AsyncQueue`; its methods are awaited."
        return
    if name == "AsyncGates":
        yield "- `AsyncGates`: `Gates` of an `AsyncQueue`; its methods are awaited."
        return
    if name == "AsyncBatch":
        yield "- `AsyncBatch`: `Batch` of an `AsyncQueue`; its methods are awaited, and it is filled in `async with`."
        return
    if name == "RESULT":
        yield f"- `RESULT`: {_first_line(found)}"
        return
    if name == "AsyncInspector":
        yield "- `AsyncInspector`: `Inspector` of an `AsyncQueue`; its methods are awaited."
        return
    if not inspect.isclass(found):
        yield f"- `{name}{_signature(found)}`: {_first_line(found)}"
        return
    if issubclass(found, Exception):
        bases = ", ".join(base.__name__ for base in found.__bases__)
        takes = _signature(found) if name in GROUPS["In a handler"] else f"({bases})"
        yield f"- `{name}{takes}`: {_first_line(found)}"
        if attributes := _documented(found):
            yield _listed(attributes)
        return
    yield f"- `{name}{_signature(found) if _is_made_by_users(name) else ''}`: {_first_line(found)}"
    if attributes := _attributes(found, name):
        yield _listed(attributes)
    for verb, member in _members(found):
        call = "" if isinstance(member, property) else _signature(member)
        yield f"    - `.{verb}{call}`: {_first_line(member)}"


def _listed(attributes: list[str]) -> str:
    return f"    - {', '.join(f'`{attribute}`' for attribute in attributes)}"


def _attributes(kind: Any, name: str) -> list[str]:
    if issubclass(kind, dict):
        return list(kind.__annotations__)
    if _is_made_by_users(name):
        return []
    if dataclasses.is_dataclass(kind):
        return [entry.name for entry in dataclasses.fields(kind)]
    return _documented(kind)


def _documented(kind: Any) -> list[str]:
    listed = (inspect.getdoc(kind) or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
    return re.findall(r"^    (\w+):", listed, re.MULTILINE)


def _is_made_by_users(name: str) -> bool:
    return name in {"Queue", "NewJob", "Worker", "Observer", "Rate", *GROUPS["Backoff"]}


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    """Its methods and properties, including those of its bases, in the order of the code."""
    seen: dict[str, Any] = {}
    for base in reversed(kind.__mro__[:-1]):
        if base.__module__.startswith("schedq"):
            seen |= {name: member for name, member in vars(base).items() if not name.startswith("_")}
    skipped = {entry.name for entry in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set()
    for name, member in seen.items():
        if name not in skipped and (isinstance(member, property) or inspect.isfunction(member)):
            yield name, member


def _signature(found: Any) -> str:
    overloads = typing.get_overloads(found) if inspect.isfunction(found) else ()
    signature = inspect.signature(overloads[-1] if overloads else found)
    parameters, after_star = [], False
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not after_star:
            parameters.append("*")
        after_star = after_star or parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL)
        text = STARS.get(parameter.kind, "") + parameter.name
        if parameter.default is not parameter.empty:
            text += f"={_value(parameter.default)}"
        parameters.append(text)
    returns = signature.return_annotation
    if inspect.isclass(found) or returns is signature.empty or returns in ("None", None):
        return f"({', '.join(parameters)})"
    text = re.sub(r"\b(?:\w+\.)+(?=[A-Z])", "", str(returns))
    return f"({', '.join(parameters)}) -> {text}"


def _value(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:_}"
    if type(value).__module__ == "dataclasses":
        return "…"
    return repr(value)


def _first_line(found: Any) -> str:
    return (inspect.getdoc(found) or "").partition("\n")[0]


if __name__ == "__main__":
    BLOCK.write(reference())
