"""The outbox with SQLAlchemy: exactly the jobs of committed transactions are enqueued, whatever is interrupted."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Engine, MetaData, create_engine, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from schedq import Queue, StoreUnavailable, UsageError
from schedq.doctor.examination import examine
from schedq.integrations.outbox import Relay
from schedq.integrations.sqlalchemy import Outbox
from schedq.testing import run_due
from schedq.transitions import Operation, identity
from schedq.worker import Worker
from tests.integrations.databases import POSTGRES, mariadb, mariadb_program
from tests.servers import Server
from tests.waiting import until

LONG_AGO = 1

MARIADB = pytest.param("mariadb", marks=pytest.mark.processes)


@pytest.fixture(scope="module")
def mariadb_url() -> Iterator[str]:
    program = mariadb_program()
    if program is None:
        pytest.skip("MariaDB is not installed")
    pytest.importorskip("pymysql")
    with mariadb(program) as sock:
        engine = create_engine(f"mysql+pymysql://app@localhost/mysql?unix_socket={sock}")
        with engine.begin() as connection:
            connection.execute(text("CREATE DATABASE site CHARACTER SET latin1"))
        engine.dispose()
        yield f"mysql+pymysql://app@localhost/site?unix_socket={sock}"


@pytest.fixture(params=["sqlite", POSTGRES, MARIADB])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/app.db"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


class Site(NamedTuple):
    """An application: a database, an outbox, a queue with a task, and a relay."""

    engine: Engine
    outbox: Outbox
    queue: Queue
    relay: Relay

    def rows(self) -> list[Any]:
        with self.engine.connect() as connection:
            return [*connection.execute(select(self.outbox.table).order_by(self.outbox.table.c.seq))]

    def change(self, **values: Any) -> None:
        with self.engine.begin() as connection:
            connection.execute(update(self.outbox.table).values(**values))

    def put(self, *names: str, key: str | None = None, **options: Any) -> list[str]:
        outbox = self.outbox if key is None else self.outbox.ordered(key)
        with Session(self.engine) as session, session.begin():
            return [outbox.enqueue(session, greet(self.queue).options(**options), name).id for name in names]

    def waiting(self) -> list[Any]:
        return [job.payload["args"][0] for job in self.queue.list_pending(limit=1000)]


def greet(queue: Queue) -> Any:
    return queue.registry.get("greet")


def forget(queue: Queue, job_id: str) -> Operation[object]:
    """A request that deletes a record, as its expiry does."""
    return Operation("forget", None, (), ("DEL", queue.settings.keys.job(job_id)), identity)


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(url: str, server: Server) -> Iterator[MakeSite]:
    made: list[Site] = []

    def make(**settings: Any) -> Site:
        queue = Queue(f"q-{uuid.uuid4().hex[:12]}", redis=server.unix_url, **settings)
        queue.task(name="greet")(lambda name: f"Hello, {name}!")
        metadata = MetaData()
        outbox = Outbox(metadata, f"outbox_{uuid.uuid4().hex[:12]}")
        engine = create_engine(url)
        metadata.create_all(engine)
        made.append(Site(engine, outbox, queue, outbox.relay(engine, [queue])))
        return made[-1]

    yield make
    for site in made:
        site.queue.close()
        site.outbox.table.drop(site.engine)
        site.engine.dispose()


@pytest.fixture
def site(make_site: MakeSite) -> Site:
    return make_site()


class Killed(BaseException):
    """Ends a relay in the middle."""


def interrupt(monkeypatch: pytest.MonkeyPatch, site: Site) -> None:
    """Let the relay die after it has enqueued, before its transaction commits."""
    enqueue = site.relay._enqueue

    def enqueue_and_die(*given: Any) -> None:
        enqueue(*given)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(site.relay, "_enqueue", enqueue_and_die)
        with pytest.raises(Killed):
            site.relay.send()


def test_a_committed_job_is_enqueued_with_the_id_of_its_row_and_runs(site: Site):
    (job_id,) = site.put("Ada", headers={"tenant": "acme"}, max_attempts=7)
    assert site.queue.get_job(job_id) is None

    assert site.relay.send() == 1

    job = site.queue.get_job(job_id)
    assert job is not None and (job.headers["tenant"], job.fields["max_attempts"]) == ("acme", "7")
    assert run_due(site.queue) == 1
    assert site.queue.job(job_id).result(timeout=0) == "Hello, Ada!"
    assert site.relay.send() == 0


def test_a_transaction_that_rolls_back_leaves_no_job(site: Site):
    with Session(site.engine) as session:
        site.outbox.enqueue(session, greet(site.queue), "Ada")
        session.rollback()

    assert site.relay.send() == 0
    assert site.queue.stats().enqueued_total == 0


def test_wrong_arguments_raise_at_once_and_write_nothing(site: Site):
    with Session(site.engine) as session, session.begin():
        with pytest.raises(UsageError, match="greet"):
            site.outbox.enqueue(session, greet(site.queue))
        with pytest.raises(UsageError, match="order key"):
            site.outbox.ordered("").enqueue(session, greet(site.queue), "Ada")
        late = greet(site.queue).options(delay=60, expires=datetime.now(UTC))
        with pytest.raises(UsageError, match="would expire before it is due"):
            site.outbox.enqueue(session, late, "Ada")

    assert site.rows() == []


def test_a_delay_and_an_expiry_count_from_the_transaction(site: Site):
    (job_id,) = site.put("Ada", delay=1000, expires=2000)
    created_ms = site.rows()[0].created_at_ms

    site.relay.send()

    job = site.queue.get_job(job_id)
    assert job is not None and job.status == "delayed"
    assert job.run_at_ms == created_ms + 1_000_000
    assert job.fields["expires"] == str(created_ms + 2_000_000)


FINE = {"mode": "in", "ms": 0, "fields": [], "durability": "memory"}


@pytest.mark.parametrize(
    "damage",
    [
        {"options": "garbage"},
        {"options": "[]"},
        {"options": "{}"},
        {"options": json.dumps(FINE | {"mode": "soon"})},
        {"options": json.dumps(FINE | {"ms": "1"})},
        {"options": json.dumps(FINE | {"fields": ["expires"]})},
        {"options": json.dumps(FINE | {"fields": [[], {}]})},
        {"options": json.dumps(FINE | {"durability": "none"})},
        {"job_id": "a:b"},
    ],
)
def test_a_damaged_row_is_held_and_stops_only_rows_of_its_key(site: Site, damage: dict[str, str]):
    site.put("damaged", key="k")
    site.change(**damage)
    site.put("after it", key="k")
    site.put("Ada")
    site.put("Grace", key="l")

    assert site.relay.send() == 2

    assert site.waiting() == ["Ada", "Grace"]
    held = [row.held or "" for row in site.rows()]
    assert held[0].startswith("its id or its options can't be read: ")
    assert (held[1:], site.rows()[1].sent_at_ms) == (["", "", ""], None)
    assert site.relay.send() == 0


def test_a_relay_that_dies_before_it_commits_leads_to_no_second_job(site: Site, monkeypatch: pytest.MonkeyPatch):
    site.put("Ada", "Grace")
    interrupt(monkeypatch, site)
    assert site.queue.stats().enqueued_total == 2

    assert site.relay.send() == 2

    assert site.queue.stats().enqueued_total == 2


def test_a_job_that_has_long_ended_is_found_in_the_log(site: Site, monkeypatch: pytest.MonkeyPatch):
    (job_id,) = site.put("Ada")
    interrupt(monkeypatch, site)
    run_due(site.queue)
    site.change(started_at_ms=LONG_AGO)
    site.queue.connections.blocking.ask(forget(site.queue, job_id))

    assert site.relay.send() == 1

    assert site.queue.stats().enqueued_total == 1


def test_a_row_that_no_relay_sent_is_sent_late_if_the_log_shows_that_it_was_not(site: Site):
    site.put("Ada")
    site.change(started_at_ms=LONG_AGO)

    assert site.relay.send() == 1
    assert site.queue.stats().enqueued_total == 1


def test_a_row_that_may_have_been_sent_is_held_shown_and_sent_on_request(make_site: MakeSite, server: Server):
    site = make_site(log_size=0, completed_ttl=60)
    site.put("Ada", "Grace", key="order-1")
    site.put("Bob")
    site.change(started_at_ms=LONG_AGO)
    with site.engine.begin() as connection:
        later = site.outbox.table.c.seq > 1
        connection.execute(update(site.outbox.table).where(later).values(started_at_ms=None))

    assert site.relay.send() == 1  # Grace waits behind Ada, because they have the same order key

    assert site.waiting() == ["Bob"]
    held, waits, _ = site.rows()
    assert "nothing shows whether" in held.held and waits.sent_at_ms is None
    with site.relay.running():
        until(lambda: site.queue.stats().outbox_held == 1)
    assert site.queue.stats().outbox_unsent == 2
    findings = examine(server.unix_url, [site.queue.name]).findings
    assert "outbox-held" in [finding.code for finding in findings]

    site.change(held=None, started_at_ms=None)
    assert site.relay.send() == 2
    assert site.waiting() == ["Bob", "Ada", "Grace"]


def test_an_id_that_exists_with_another_payload_is_held_and_a_repeated_one_is_not(site: Site):
    site.put("Ada", job_id="welcome-17")
    site.put("Ada", job_id="welcome-17")
    site.put("Grace", job_id="welcome-17")

    assert site.relay.send() == 2

    assert [row.held is not None for row in site.rows()] == [False, False, True]
    assert "exists with another payload" in site.rows()[2].held


def test_a_full_queue_leaves_the_rest_in_order(make_site: MakeSite):
    site = make_site(max_pending=1)
    site.put("Ada", "Grace", key="order-1")

    assert site.relay.send() == 1
    run_due(site.queue)
    assert site.relay.send() == 1

    assert site.waiting() == ["Grace"]
    assert site.queue.stats().enqueued_total == 2


def test_several_relays_send_each_row_once(site: Site):
    names = [str(number) for number in range(400)]
    site.put(*names)
    others = [site.outbox.relay(site.engine, [site.queue]) for _ in range(2)]

    with others[0].running(), others[1].running():
        until(lambda: len(site.waiting()) == 400)

    assert sorted(site.waiting(), key=int) == names
    assert site.queue.stats().enqueued_total == 400


@pytest.mark.parametrize("url", [POSTGRES, MARIADB], indirect=True)  # SQLite locks the whole table
def test_a_row_does_not_overtake_one_of_its_key_that_another_relay_holds(site: Site):
    site.put("Ada", "Grace", key="order-1")
    site.put("Bob", key="order-2")
    table = site.outbox.table
    with site.engine.begin() as other:
        other.execute(select(table).where(table.c.seq == 1).with_for_update())
        assert site.relay.send() == 1
        assert site.waiting() == ["Bob"]

    site.relay.send()

    assert site.waiting() == ["Bob", "Ada", "Grace"]


def test_a_burst_ends_when_the_rows_that_its_jobs_have_written_were_run_too(site: Site):
    told = list[str]()

    @site.queue.task
    def welcome(name: str) -> None:
        told.append(name)
        if name == "Ada":
            with Session(site.engine) as session, session.begin():
                site.outbox.enqueue(session, welcome, "Grace")

    with Session(site.engine) as session, session.begin():
        site.outbox.enqueue(session, welcome, "Ada")
    relay = site.outbox.relay(site.engine, [site.queue], poll=3600)  # it looks once, perhaps before anything is ready

    with relay.running():
        asyncio.run(Worker([site.queue], burst=True, concurrency=1).run())

    assert told == ["Ada", "Grace"]


def test_order_keys_that_a_database_may_take_for_one_are_several(site: Site):
    keys = ["order", "Order", "\u00f6rder", "order ", "\u547d\u4ee4"]
    for key in keys:
        site.put(f"held {key}", key=key)
    site.change(held="by a person")
    with site.engine.begin() as connection:
        of_order = site.outbox.table.c.seq != 1
        connection.execute(update(site.outbox.table).where(of_order).values(held=None))
    for key in keys:
        site.put(f"after {key}", key=key)

    assert site.relay.send() == 8

    assert site.waiting() == [f"{when} {key}" for when in ("held", "after") for key in keys[1:]]


def test_queues_of_one_name_on_two_servers_have_no_common_relay(site: Site):
    away = Queue(site.queue.name, redis="redis://127.0.0.1:1")

    with pytest.raises(UsageError, match="is on two servers"):
        site.outbox.relay(site.engine, [site.queue, away])
    away.close()


def test_rows_stay_while_redis_is_unavailable(site: Site):
    site.put("Ada")
    away = Queue(site.queue.name, redis="redis://127.0.0.1:1", retry_for=0)

    with pytest.raises(StoreUnavailable):
        site.outbox.relay(site.engine, [away]).send()

    away.close()
    assert site.rows()[0].started_at_ms is None
    assert site.relay.send() == 1


def test_sent_rows_are_deleted_and_the_lag_is_reported(site: Site):
    relay = site.outbox.relay(site.engine, [site.queue], poll=0.01, keep=0)
    site.put("Ada")
    assert site.queue.stats().outbox_at_ms is None

    relay.send()
    with relay.running():
        until(lambda: site.queue.stats().outbox_at_ms)

    assert site.rows() == []
    stats = site.queue.stats()
    assert (stats.outbox_unsent, stats.outbox_held, stats.outbox_oldest_ms) == (0, 0, None)


def test_async_code_writes_in_its_transaction_and_a_relay_takes_its_engine(site: Site, url: str):
    if url.startswith("mysql"):
        pytest.skip("no driver of MariaDB for asyncio is installed")
    async_url = url.replace("sqlite:", "sqlite+aiosqlite:")

    async def put() -> None:
        engine = create_async_engine(async_url)
        async with AsyncSession(engine) as session:
            async with session.begin():
                await site.outbox.aenqueue(session, greet(site.queue), "Ada")
            await site.outbox.aenqueue(session, greet(site.queue), "rolled back")
            await session.rollback()
        await engine.dispose()

    asyncio.run(put())
    engine = create_async_engine(async_url)

    with site.outbox.relay(engine, [site.queue.aio], poll=0.01).running():
        until(site.waiting)
    assert site.waiting() == ["Ada"]
    assert len(site.rows()) == 1
