"""The API: the JSON of the commands, as its own document describes it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import redis
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # it has no stubs

from schedq import Discard, NewJob, Queue, Rate
from schedq.cli import main
from schedq.dashboard.api import ROUTES
from schedq.dashboard.pages import FILTERS
from schedq.inspect.stats import TOTALS
from schedq.model.outcome import suspended
from schedq.model.runs import RunWait
from tests.cli.scenes import beat, one_of_each
from tests.dashboard.conftest import TOKEN, Served, Visitor, fetched
from tests.dashboard.hostility import fill
from tests.servers import Server
from tests.transitions.run_scenes import begun

API = "/api/queues/mail"
COMMANDS = {
    "/api/queues": "stats",
    API: "stats mail",
    f"{API}/tasks": "tasks mail",
    f"{API}/jobs?state=failed&text=a": "jobs mail --state failed --text a",
    f"{API}/jobs/failed": "job failed",
    f"{API}/schedules": "schedules ls mail",
    f"{API}/schedules/nightly": "schedules show nightly",
    f"{API}/workers": "workers mail",
    f"{API}/gates": "gates ls mail",
    f"{API}/gates/api": "gates show api",
    f"{API}/batches": "batches ls mail",
    f"{API}/batches/squares": "batches show squares",
    f"{API}/batches/squares/failures": "batches failures squares",
    f"{API}/workflows": "workflows ls mail",
    f"{API}/workflows?state=failed&task=order&limit=1": "workflows ls mail --state failed --task order --limit 1",
    f"{API}/forecast": "forecast mail 24h",
    "/api/doctor?queue=mail": "doctor mail",
}
OTHERS = (
    *(f"{API}/jobs?state={state}" for state in ("pending", "delayed", "processing", "completed", "cancelled")),
    f"{API}/jobs?state=broken",
    f"{API}/tasks?within=ever",
    f"{API}/pulse",
    f"{API}/errors",
    f"{API}/log",
)
ONLY_IN_API = {"damaged", "total", "offset", "next_offset", "why"}
MOMENTS = (
    "now_ms",
    "until_ms",
    "since_ms",
    "seen_at_ms",
    "duration_ms",
    "redis",
    "server",
    "buckets",
    "findings",
    "took_ms",
    "waits",
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, store: Server) -> None:
    monkeypatch.setattr("schedq.doctor.examination._HANDOVER_S", 0)
    monkeypatch.setenv("SCHEDQ_REDIS_URL", store.own_url)


@pytest.fixture
def full(queue: Any) -> Any:
    """A queue that has something of everything."""

    @queue.task
    def square(number: int) -> int:
        return number * number

    with queue.batch("squares", square) as batch:
        batch.add([-1, 2])
    queue.fail(queue.claim(0), Discard("it is negative"))
    queue.complete(queue.claim(0), 4)
    for job_id in ("waits", "refused", "lost"):
        queue.enqueue({"task": "order"}, job_id=job_id)
        run = queue.claim(0)
        if job_id == "waits":
            queue.settle(suspended(begun(run), [RunWait("receive", "receive", None, "paid")]))
        else:
            queue.fail(run, Discard("it has no <card>"))
    one_of_each(queue)
    queue.gate("api", concurrency=2, rate=Rate(6000, per=60))
    queue.enqueue_many([NewJob(n, gate="api", key=key) for n, key in enumerate("aab")])
    queue.schedules.upsert("nightly", payload={"task": "square", "args": [2]}, cron="0 4 * * *")
    queue.pause(task="report")
    beat(
        queue, "w-1", running=1, concurrency=2, jobs='[{"id": "j", "task": "a"}]', tasks='["a"]', workflows='["order"]'
    )
    return queue


class Described:
    """The document, which every reply must be valid by, without a field that it does not have."""

    def __init__(self, visitor: Visitor) -> None:
        self.whole = visitor.get("/api/openapi.json").json()
        self.strict = self._closed(self.whole)

    def _closed(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return [self._closed(each) for each in schema]
        if not isinstance(schema, dict):
            return schema
        found = {name: self._closed(each) for name, each in schema.items()}
        return found | {"additionalProperties": False} if "required" in found and "properties" in found else found

    def errors(self, path: str, reply: Any, *, code: str = "200") -> list[str]:
        route = path.partition("?")[0]
        names = [known for known in self.whole["paths"] if _is_of(route, known)]
        path_of = min(names, key=lambda known: known.count("{"))
        schema = self.strict["paths"][path_of]["get"]["responses"][code]["content"]["application/json"]["schema"]
        validator = Draft202012Validator({**schema, "components": self.strict["components"]})
        return [f"{error.json_path}: {error.message:.200}" for error in validator.iter_errors(reply)]


def _is_of(path: str, route: str) -> bool:
    pairs = [*zip(path.split("/"), route.split("/"), strict=False)]
    return path.count("/") == route.count("/") and all(part == name or name[:1] == "{" for part, name in pairs)


def _without_moments(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_moments(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: _without_moments(each) for name, each in value.items() if name not in MOMENTS}


def test_every_route_replies_as_described_and_as_the_command_prints(
    full: Queue, visitor: Visitor, capsys: pytest.CaptureFixture[str]
) -> None:
    described = Described(visitor)
    assert {"/api/openapi.json", *described.whole["paths"]} == {"/api/openapi.json", *ROUTES}
    tried = {*COMMANDS, *OTHERS}
    assert all(any(_is_of(path.partition("?")[0], route) for path in tried) for route in ROUTES)
    for path in (*COMMANDS, *OTHERS):
        answer = visitor.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json"), answer.text
        reply = answer.json()
        assert described.errors(path, reply) == [], path
        assert any(reply.values()), path
        if path in COMMANDS:
            capsys.readouterr()
            with pytest.raises(SystemExit):
                main([*COMMANDS[path].split(), "--json"])
            printed = _without_moments(json.loads(capsys.readouterr().out))
            ours = _without_moments(reply)
            assert {name: ours[name] for name in printed} == printed, path
            assert ours.keys() - printed.keys() <= ONLY_IN_API, path


def test_the_document_is_valid_openapi(visitor: Visitor) -> None:
    whole = Described(visitor).whole
    assert whole["openapi"].startswith("3.1.")
    assert {"title", "version"} <= whole["info"].keys()
    for path, item in whole["paths"].items():
        ((method, operation),) = item.items()
        assert method == "get"
        of_path = {it["name"] for it in operation["parameters"] if it["in"] == "path"}
        assert of_path == {part[1:-1] for part in path.split("/") if part[:1] == "{"}
        assert {it["name"] for it in operation["parameters"]} - of_path == {*ROUTES[path].takes}
        for parameter in operation["parameters"]:
            Draft202012Validator.check_schema(parameter["schema"])
        assert {"200", "default"} == operation["responses"].keys()
    for schema in whole["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    assert {f"{name}" for name in TOTALS} <= whole["components"]["schemas"]["Stats"]["properties"].keys()
    used = set(_refs(whole))
    assert used == {f"#/components/schemas/{name}" for name in whole["components"]["schemas"]}


def _refs(value: Any) -> list[str]:
    if isinstance(value, list):
        return [ref for each in value for ref in _refs(each)]
    if not isinstance(value, dict):
        return []
    return [*([value["$ref"]] if "$ref" in value else []), *(ref for each in value.values() for ref in _refs(each))]


@pytest.mark.parametrize(
    ("path", "code", "named"),
    [
        ("/api/queues?limit=0", 400, "limit must be a whole number from 1 to 100, got '0'"),
        ("/api/queues?limit=1e3", 400, "'1e3'"),
        ("/api/queues?offset=-1", 400, "'-1'"),
        ("/api/queues?offset=9999999999999999999", 400, "'9999999999999999999'"),
        ("/api/queues?size=1", 400, "no parameter 'size'; there is offset, limit"),
        (f"{API}?size=1", 400, "there is none"),
        (f"{API}/jobs?state=done", 400, "state must be one of pending"),
        (f"{API}/jobs?cursor=x", 400, "cursor 'x'"),
        (f"{API}/jobs?state=broken&cursor=x", 400, "cursor 'x'"),
        (f"{API}/workflows?state=broken", 400, "state must be one of processing"),
        (f"{API}/workflows?cursor=x", 400, "cursor 'x'"),
        (f"{API}/jobs?older=soon", 400, "'soon' is not a duration"),
        (f"{API}/jobs?key=k", 400, "needs a gate"),
        (f"{API}/jobs?task={'a' * 500}", 400, "task must be a text of 1 to 400 characters"),
        (f"{API}/jobs?text=", 400, "text must be"),
        (f"{API}/forecast?within=1s", 400, "within must be a minute to 31 days"),
        (f"{API}/tasks?within=9d", 400, "48 hours"),
        (f"{API}/log?after=x", 400, "'x'"),
        (f"{API}/jobs/{'a' * 300}", 400, "a" * 20),
        ("/api/queues/a:b", 400, "a:b"),
        ("/api/doctor?queue=a:b", 400, "a:b"),
        ("/api/queues/mall", 404, "Nothing is stored about queue mall; did you mean mail?"),
        (f"{API}/jobs/none", 404, "job none"),
        (f"{API}/schedules/none", 404, "schedule none"),
        (f"{API}/gates/none", 404, "gate none"),
        (f"{API}/batches/none", 404, "batch none"),
        (f"{API}/batches/none/failures", 404, "batch none"),
        (f"{API}/tasks?task=none", 404, "'none'"),
        (f"{API}/none", 404, "no such page"),
        ("/api/", 404, "no such page"),
    ],
)
def test_what_can_not_be_answered_is_an_error_in_json(
    path: str, code: int, named: str, queue: Queue, visitor: Visitor
) -> None:
    queue.enqueue(1)

    answer = visitor.get(path)

    assert (answer.status_code, answer.headers["content-type"]) == (code, "application/json"), answer.text
    assert answer.json().keys() == {"error"}
    assert named in answer.json()["error"]


def test_pages_of_jobs_and_of_queues_follow_each_other(visitor: Visitor, queue: Queue, store: Server) -> None:
    ids = queue.enqueue_many([{"task": "odd" if n % 2 else "even"} for n in range(10)])
    with Queue("other", redis=store.own_url) as other:
        other.enqueue(1)
    found: list[str] = []
    more: dict[str, Any] = {}
    while True:
        page = visitor.get(f"{API}/jobs", params={"task": "odd", "limit": 2, **more}).json()
        found += [job["id"] for job in page["jobs"]]
        if not page["cursors"]:
            break
        more = {"cursor": page["cursors"]["pending"]}

    assert found == ids[1::2]
    assert page["totals"] == {"pending": 10}
    first, second = (visitor.get(f"/api/queues?limit=1&offset={n}").json() for n in (0, 1))
    assert [first["queues"][0]["queue"], second["queues"][0]["queue"]] == ["mail", "other"]
    assert (first["next_offset"], second["next_offset"], first["total"]) == (1, None, 2)
    assert {*FILTERS} <= ROUTES["/api/queues/{queue}/jobs"].takes.keys()


def test_runs_are_listed_by_state_page_by_page(visitor: Visitor, full: Queue) -> None:
    (run,) = visitor.get(f"{API}/workflows?state=delayed").json()["runs"]
    assert (run["id"], run["task"]) == ("waits", "order")
    assert 'for a message on topic "paid"' in run["waits"]

    first = visitor.get(f"{API}/workflows?state=failed&limit=1").json()
    more = {"state": "failed", "limit": 1, "cursor": first["cursors"]["failed"]}
    second = visitor.get(f"{API}/workflows", params=more).json()

    assert [run["id"] for page in (first, second) for run in page["runs"]] == ["lost", "refused"]


def test_one_queue_with_damaged_keys_does_not_hide_the_others(visitor: Visitor, queue: Queue, raw: redis.Redis) -> None:
    queue.enqueue(1)
    raw.sadd("schedq:queues", "odd")
    raw.set("queue:odd:pending", "x")

    page = visitor.get("/api/queues").json()

    assert [one["queue"] for one in page["queues"]] == ["mail"]
    assert "queue:odd:pending" in page["damaged"]["odd"]
    assert visitor.get("/api/queues/odd").status_code == 409


@pytest.mark.parametrize("path", [API, "/api/queues", "/api/doctor"])
def test_while_redis_is_down_it_says_so(path: str, serve: Callable[..., Served]) -> None:
    answer = fetched(serve(redis="redis://127.0.0.1:1/0").url + path)

    assert (answer.status_code, answer.json().keys()) == (503, {"error"})


def test_programs_show_the_token_and_are_refused_in_json(serve: Callable[..., Served], queue: Queue) -> None:
    queue.enqueue(1)
    url = serve(token=TOKEN, read_only=True).url
    browser = {"accept": "text/html"}

    for path in (API, "/api/openapi.json", "/api/none"):
        for headers in ({}, browser, {"authorization": "Bearer wrong"}):
            answer = fetched(url + path, headers=headers)
            assert (answer.status_code, answer.json().keys()) == (401, {"error"})
            assert answer.headers["www-authenticate"] == "Bearer"
    assert fetched(url + API, headers={"authorization": f"Bearer {TOKEN}"}).json()["pending_depth"] == 1
    for headers, code in (({"host": "evil.example"}, 400), ({"x-forwarded-for": "10.0.0.1"}, 401)):
        answer = fetched(url + API, headers=headers)
        assert (answer.status_code, answer.json().keys()) == (code, {"error"})


def test_it_changes_nothing(visitor: Visitor, full: Queue, raw: redis.Redis) -> None:
    visitor.get("/api/queues")
    before = {key: raw.dump(key) for key in raw.keys("*")}

    for path in (*COMMANDS, *OTHERS):
        if "doctor" not in path:
            visitor.get(path)
    for method in ("POST", "PUT", "DELETE"):
        assert visitor.http.request(method, API).json().keys() == {"error"}

    assert {key: raw.dump(key) for key in raw.keys("*")} == before


def test_hostile_texts_are_texts_in_ascii_and_as_described(visitor: Visitor, queue: Queue, raw: redis.Redis) -> None:
    queue.enqueue(1)
    with raw.pipeline(transaction=False) as pipeline:
        fill(pipeline)
        pipeline.execute()
    raw.zadd("queue:mail:workers", {"nan": 4e12})
    raw.hset("queue:mail:worker:nan", mapping={"jobs": '[{"id": NaN}]'})
    described = Described(visitor)
    paths = [path for path in (*COMMANDS, *OTHERS) if "batches" not in path and "doctor" not in path]
    hostile = {"jobs/failed": "jobs/j0", "nightly": "s0", "gates/api": "gates/g0", "=a": "=%3C"}
    for path in paths:
        for name, other in hostile.items():
            path = path.replace(name, other)
        answer = visitor.get(path)
        assert answer.text.isascii()
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"
        code = "200" if answer.status_code == 200 else "default"
        assert answer.status_code in (200, 404, 409), answer.text
        assert described.errors(path, answer.json(), code=code) == [], path
