"""Arguments and results of types that JSON lacks: annotations say which, and Redis has their form in JSON."""

from __future__ import annotations

import asyncio
import datetime as dt
import enum
import functools
import ipaddress
import json
import logging
import pathlib
import subprocess
import sys
import uuid
import zoneinfo
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedq import ArgumentsError, JobFailed, Queue, UsageError, Worker
from schedq.queue.conversion import conversion_of, may_convert
from schedq.testing import run_due
from tests.conftest import MakeQueue
from tests.doors import Handle

if TYPE_CHECKING:
    from pathlib import PurePosixPath as NotThereAtRunTime

UTC = dt.UTC
SOME_ID = uuid.UUID("9adcbdfc-4b8b-45ab-9cd3-6e61e991587a")


class Color(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Text(str):
    __slots__ = ()


@dataclass
class Line:
    price: Decimal
    amount: int = 1


@dataclass
class Order:
    customer: int
    lines: list[Line] = field(default_factory=list)
    at: dt.datetime | None = None


class Point(NamedTuple):
    x: int
    y: int


class Window(TypedDict):
    start: dt.date


class Customer(pydantic.BaseModel):
    name: str = pydantic.Field(alias="fullName")
    since: dt.date


class Strict(pydantic.BaseModel, strict=True):
    at: dt.datetime


Money = NewType("Money", Decimal)
BERLIN = dt.timezone(dt.timedelta(hours=2))

FORMS: list[tuple[Any, Any, Any]] = [
    (dt.datetime, dt.datetime(2026, 3, 1, 12, 30, 5, 250_000, tzinfo=UTC), "2026-03-01T12:30:05.250000Z"),
    (dt.datetime, dt.datetime(2026, 7, 1, 12, 30, tzinfo=BERLIN), "2026-07-01T12:30:00+02:00"),
    (dt.datetime, dt.datetime(2026, 7, 1, 12, 30), "2026-07-01T12:30:00"),
    (dt.date, dt.date(2026, 3, 1), "2026-03-01"),
    (dt.time, dt.time(12, 30, 5), "12:30:05"),
    (dt.timedelta, dt.timedelta(days=1, hours=2, microseconds=5), "P1DT7200.000005S"),
    (dt.timedelta, dt.timedelta(seconds=-1), "-PT1S"),
    (uuid.UUID, SOME_ID, str(SOME_ID)),
    (Decimal, Decimal("12.50"), "12.50"),
    (Color, Color.RED, "red"),
    (Level, Level.HIGH, 3),
    (bytes, b"\x00\xff", "AP8="),
    (set[int], {7}, [7]),
    (frozenset[str], frozenset({"a"}), ["a"]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (pathlib.Path, pathlib.Path("/tmp/a"), "/tmp/a"),
    (pathlib.PurePosixPath, pathlib.PurePosixPath("a/b"), "a/b"),
    (zoneinfo.ZoneInfo, zoneinfo.ZoneInfo("Europe/Berlin"), "Europe/Berlin"),
    (ipaddress.IPv4Address, ipaddress.IPv4Address("10.0.0.1"), "10.0.0.1"),
    (Order, Order(7, [Line(Decimal("1.20"))]), {"customer": 7, "lines": [{"price": "1.20", "amount": 1}], "at": None}),
    (Point, Point(1, 2), [1, 2]),
    (Window, {"start": dt.date(2026, 3, 1)}, {"start": "2026-03-01"}),
    (Customer, Customer(fullName="Ada", since=dt.date(2026, 3, 1)), {"fullName": "Ada", "since": "2026-03-01"}),
    (Strict, Strict(at=dt.datetime(2026, 3, 1, tzinfo=UTC)), {"at": "2026-03-01T00:00:00Z"}),
    (dict[int, dt.date], {1: dt.date(2026, 3, 1)}, {"1": "2026-03-01"}),
    (dict[uuid.UUID, int], {SOME_ID: 1}, {str(SOME_ID): 1}),
    (list[dt.date | None], [None, dt.date(2026, 3, 1)], [None, "2026-03-01"]),
    (Annotated[dt.date, "of birth"], dt.date(2026, 3, 1), "2026-03-01"),
    (Money, Decimal("1.5"), "1.5"),
    (uuid.UUID | int, 5, 5),
]


@pytest.mark.parametrize(("annotation", "value", "form"), FORMS, ids=lambda it: getattr(it, "__name__", None))
def test_a_value_is_stored_in_its_form_and_arrives_unchanged(annotation: Any, value: Any, form: Any):
    def take(it, *more, named, **others): ...

    take.__annotations__ = dict.fromkeys(["it", "more", "named", "others", "return"], annotation)
    conversion = conversion_of("take", take)
    assert conversion is not None

    args, kwargs = conversion.encode_arguments([value, value], {"named": value, "other": value})
    stored = json.loads(json.dumps([args, kwargs, conversion.encode_result(value)]))

    assert stored == [[form, form], {"named": form, "other": form}, form]
    args, kwargs = conversion.decode_arguments(*stored[:2])
    found = [*args, *kwargs.values(), conversion.decode_result(stored[2])]
    assert found == [value] * 5
    assert {type(each) for each in found} == {type(value)}


@given(
    st.builds(
        Order, st.integers(-(2**53), 2**53), st.lists(st.builds(Line, st.decimals(allow_nan=False), st.integers(0, 9)))
    ),
    st.datetimes(timezones=st.just(UTC)),
    st.timedeltas(dt.timedelta(days=-9999), dt.timedelta(days=9999)),
    st.binary(),
)
def test_whatever_the_values_are_they_arrive(order: Order, at: dt.datetime, wait: dt.timedelta, blob: bytes):
    def take(order: Order, at: dt.datetime, wait: dt.timedelta, blob: bytes): ...

    conversion = conversion_of("take", take)
    assert conversion is not None
    args, _ = conversion.encode_arguments([order, at, wait, blob], {})

    assert conversion.decode_arguments(json.loads(json.dumps(args)), {})[0] == [order, at, wait, blob]


# -- through a queue


@pytest.fixture
def seen() -> list[Any]:
    return []


def with_tasks(queue: Handle, seen: list[Any]) -> dict[str, Any]:
    @queue.task
    def plan(order: Order, when: dt.datetime, *, wait: dt.timedelta = dt.timedelta(0), note: str = "") -> Order:
        seen.append((order, when, wait, note))
        return order

    @queue.task
    async def aplan(order: Order) -> set[int]:
        seen.append(order)
        return {order.customer}

    @queue.task
    def late(it: DefinedBelow) -> None:
        seen.append(it)

    return {"plan": plan, "aplan": aplan, "late": late}


@dataclass
class DefinedBelow:
    at: dt.date


NOON = dt.datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_a_job_gets_its_arguments_and_its_caller_the_result(queue: Handle, seen: list[Any]):
    tasks = with_tasks(queue, seen)
    order = Order(7, [Line(Decimal("1.20"))])

    planned = tasks["plan"].enqueue(order, NOON, wait=dt.timedelta(minutes=5), note="x")
    counted = tasks["aplan"].enqueue(order)
    tasks["late"].enqueue(DefinedBelow(dt.date(2026, 3, 1)))
    run_due(queue.queue)

    assert seen == [(order, NOON, dt.timedelta(minutes=5), "x"), order, DefinedBelow(dt.date(2026, 3, 1))]
    assert planned.result(0) == order
    assert counted.result(0) == {7}
    assert queue.run(counted.aresult(0)) == {7}
    assert queue.result(planned.id, 0) == {"customer": 7, "lines": [{"price": "1.20", "amount": 1}], "at": None}
    payload = {"task": "aplan", "args": [{"customer": 7, "lines": [{"price": "1.20", "amount": 1}], "at": None}]}
    assert json.loads(queue.fields(counted.id)["payload"]) == payload


def test_many_jobs_and_schedules_get_them_too(queue: Handle, seen: list[Any]):
    plan = with_tasks(queue, seen)["plan"]

    plan.enqueue_many([((Order(n), NOON), {}) for n in range(3)])
    queue.run(plan.aenqueue_many([((Order(3), NOON), {"wait": dt.timedelta(1)})]))
    queue.schedules.upsert("by-task", every=3600, task=plan, args=[Order(4), NOON])
    queue.schedules.upsert("by-name", every=3600, task="plan", args=[Order(5), NOON])
    run_due(queue.queue)

    assert [each[0].customer for each in seen] == [0, 1, 2, 3]
    for schedule in ("by-task", "by-name"):
        payload = queue.schedules.get(schedule).payload
        assert payload["args"][1] == "2026-03-01T12:00:00Z"


def test_a_job_of_another_language_or_an_older_release_is_read_by_the_annotations(queue: Handle, seen: list[Any]):
    with_tasks(queue, seen)

    queue.enqueue({"task": "plan", "args": [{"customer": 7}, "2026-03-01T13:00:00+01:00"], "kwargs": {"wait": "PT5M"}})
    run_due(queue.queue)

    assert seen == [(Order(7), NOON, dt.timedelta(minutes=5), "")]


WRONG = [
    (({"customer": "x"}, "2026-03-01T12:00:00Z"), {}, "args[0].customer: Expected `int`, got `str`"),
    (({"customer": 1, "lines": [{"price": []}]}, NOON.isoformat()), {}, "args[0].lines[0].price"),
    (({"customer": 1}, "noon"), {}, "args[1]: Invalid RFC3339 encoded datetime"),
    (({"customer": 1}, NOON.isoformat()), {"wait": True}, "kwargs['wait']: Expected `duration`, got `bool`"),
]


@pytest.mark.parametrize(("args", "kwargs", "problem"), WRONG)
def test_what_does_not_fit_is_refused_at_once_with_its_place(
    queue: Handle, seen: list[Any], args: Any, kwargs: Any, problem: str
):
    plan = with_tasks(queue, seen)["plan"]
    calls: list[Callable[[], Any]] = [
        lambda: plan.enqueue(*args, **kwargs),
        lambda: queue.run(plan.aenqueue(*args, **kwargs)),
        lambda: plan.enqueue_many([(args, kwargs)]),
        lambda: queue.schedules.upsert("one", every=60, task="plan", args=args, kwargs=kwargs),
        lambda: queue.every(60, args=args, kwargs=kwargs)(plan),
    ]

    for call in calls:
        with pytest.raises(ArgumentsError) as refused:
            call()
        assert problem in str(refused.value)
    assert queue.places() == {}

    job_id = queue.enqueue({"task": "plan", "args": list(args), "kwargs": kwargs})
    run_due(queue.queue)
    assert queue.fields(job_id)["status"] == "failed"
    assert queue.fields(job_id)["attempts"] == "1"
    assert queue.fields(job_id)["last_error"].startswith(f"wrong arguments: task 'plan': {problem}")
    assert seen == []


def test_a_type_error_of_the_function_itself_is_tried_again(queue: Handle):
    @queue.task
    def broken(at: dt.datetime) -> None:
        raise TypeError("of its own")

    job = broken.enqueue(NOON)
    run_due(queue.queue)

    assert queue.fields(job.id)["status"] == "delayed"
    assert "of its own" in queue.fields(job.id)["last_error"]


def test_a_result_that_is_not_of_its_annotation_does_not_fail_the_job(queue: Handle):
    @queue.task
    def lie() -> Order:
        return {"customer": "x"}  # type: ignore[return-value]

    job = lie.enqueue()
    run_due(queue.queue)

    assert queue.fields(job.id)["status"] == "completed"
    assert "result.customer: Expected `int`, got `str`" in queue.fields(job.id)["result_error"]


def test_a_result_of_another_release_that_does_not_fit_raises_a_clear_error(queue: Handle):
    @queue.task
    def count() -> Order:
        return Order(1)

    job = count.enqueue()
    queue.complete(queue.claim(0), ["old"])

    with pytest.raises(UsageError, match=r"task 'count': result: Expected `object`, got `array`"):
        job.result(0)
    assert queue.job(job.id).result(0) == ["old"]


def test_a_worker_converts_as_well(make_queue: MakeQueue, seen: list[Any]):
    queue = make_queue()
    tasks = with_tasks(queue, seen)
    planned, counted = tasks["plan"].enqueue(Order(1), NOON), tasks["aplan"].enqueue(Order(2))
    bad = queue.enqueue({"task": "plan", "args": [{"customer": "x"}, "noon"]})

    asyncio.run(Worker([queue.queue], burst=True).run())

    assert (planned.result(0), counted.result(0)) == (Order(1), {2})
    assert queue.fields(bad)["last_error"].startswith("wrong arguments: task 'plan': args[0].customer")
    with pytest.raises(JobFailed):
        queue.result(bad, 0)


# -- what is not converted

PLAIN: list[Any] = [
    Any,
    object,
    str,
    int,
    float,
    bool,
    None,
    list,
    dict,
    list[int],
    dict[str, list[float | None]],
    int | None,
    Sequence[str],
    Iterable[int],
    Mapping[str, Any],
    Literal["a", 1, None],
    NewType("Id", int),
    Annotated[int, "x"],
    Awaitable[int],
    Coroutine[Any, Any, list[int]],
    "int",
    "dict[str, int]",
    Queue,  # a class that is not known
    Order | Window,  # JSON can't tell them apart
    dt.datetime | str,
    list["Nowhere"],  # type: ignore[name-defined] # noqa: F821 - on purpose
]


@pytest.mark.parametrize("annotation", PLAIN, ids=str)
def test_a_parameter_of_a_json_type_or_an_unknown_type_is_left_unchanged(annotation: Any):
    def take(it, *, other): ...

    take.__annotations__ = {"it": annotation, "return": annotation}

    assert conversion_of("take", take) is None


def test_a_function_without_such_annotations_is_examined_only_once(queue: Handle):
    def take(one: int, two: str | None = None, *, three=1) -> None: ...

    assert may_convert(take) is False
    assert may_convert(functools.partial(take, 1)) is False
    assert may_convert(print) is False


def test_values_of_parameters_without_annotation_arrive_as_plain_json(queue: Handle, seen: list[Any]):
    @queue.task
    def take(at: dt.date, other, more: int) -> None:
        seen.append((at, other, more))

    queue.enqueue({"task": "take", "args": ["2026-03-01", "2026-03-01", "no number"]})
    run_due(queue.queue)

    assert seen == [(dt.date(2026, 3, 1), "2026-03-01", "no number")]


WAY_OUT = "name the type in the task's annotations, or use a JSON type"


@pytest.mark.parametrize(
    ("args", "place"),
    [
        ((NOON,), "payload['args'][0] is a datetime"),
        (({"a": [1, {2}]},), "payload['args'][0]['a'][1] is a set"),
    ],
)
def test_a_value_that_can_not_be_converted_is_refused_with_its_place_and_a_remedy(queue: Handle, args: Any, place: str):
    @queue.task
    def take(it) -> None: ...

    with pytest.raises(UsageError) as refused:
        take.enqueue(*args)

    assert str(refused.value) == f"{place}, which is not JSON; {WAY_OUT}"


def test_an_annotation_that_cannot_be_evaluated_is_named_once_and_stays_plain(
    queue: Handle, seen: list[Any], caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, logger="schedq")

    @queue.task
    def take(path: NotThereAtRunTime, at: dt.date) -> None:
        seen.append((path, at))

    take.enqueue("/tmp", dt.date(2026, 3, 1))
    take.enqueue("/tmp", dt.date(2026, 3, 1))
    run_due(queue.queue)

    assert seen == [("/tmp", dt.date(2026, 3, 1))] * 2
    assert [entry.getMessage() for entry in caplog.records if "annotation" in entry.getMessage()] == [
        "task take: the annotation of parameter path can't be evaluated "
        "(NameError: name 'NotThereAtRunTime' is not defined), so it stays plain JSON"
    ]


# -- other callables


def test_methods_partials_and_callable_objects_are_converted_for(queue: Handle, seen: list[Any]):
    class Mailer:
        def send(self, at: dt.date) -> None:
            seen.append(at)

        def __call__(self, at: dt.date) -> None:
            seen.append(at)

    def post(prefix: str, at: dt.date) -> None:
        seen.append(at)

    tasks = [
        queue.task(Mailer().send),
        queue.task(name="called")(Mailer()),
        queue.task(name="post")(functools.partial(post, "x")),
    ]
    for task in tasks:
        task.enqueue(dt.date(2026, 3, 1))
    run_due(queue.queue)

    assert seen == [dt.date(2026, 3, 1)] * 3


def test_subclasses_of_json_types_are_treated_like_those():
    def take(it: tuple[str, int]): ...

    conversion = conversion_of("take", take)
    assert conversion is not None

    assert conversion.encode_arguments([(Text("a"), Level.HIGH)], {}) == ([("a", 3)], {})


@pytest.mark.processes
def test_an_application_without_such_annotations_imports_nothing_for_them(queue: Handle):
    code = (
        "import sys, schedq\n"
        "queue = schedq.Queue('q', redis='redis://127.0.0.1:1')\n"
        "@queue.task\n"
        "def take(one: int, two: 'str | None' = None) -> dict[str, int]: ...\n"
        "take.new_job([1], {})\n"
        "print(*{'msgspec', 'pydantic'} & sys.modules.keys())\n"
    )
    assert subprocess.check_output([sys.executable, "-c", code]).split() == []
