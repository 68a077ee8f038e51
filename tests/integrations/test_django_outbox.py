"""The outbox with Django: exactly the jobs of committed transactions are enqueued, on each database that it supports.

The tests of a site, in its own process for each database. How a relay behaves when it is interrupted is tested with
SQLAlchemy, whose outbox has the same relay.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.integrations.databases import mariadb, mariadb_program, postgres, postgres_folder
from tests.servers import Server
from tests.testing.projects import run
from tests.waiting import until

pytestmark = pytest.mark.processes

SETTINGS = """
    import json
    import os

    if os.environ["SITE_DATABASE"] == "mariadb":
        import pymysql
        pymysql.install_as_MySQLdb()

    SECRET_KEY = "test"
    USE_TZ = True
    DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
    INSTALLED_APPS = ["schedq.integrations.django", "schedq.integrations.django.outbox", "site_app"]
    DATABASES = json.loads(os.environ["SITE_DATABASES"])
    BACKEND = "schedq.integrations.django.backend.SchedqBackend"
    OPTIONS = {"redis": os.environ["SITE_REDIS"], "max_attempts": 1}
    TASKS = {
        "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mails"], "OPTIONS": {**OPTIONS, "outbox": True}},
        "direct": {"BACKEND": BACKEND, "QUEUES": ["direct"], "OPTIONS": OPTIONS},
    }
    SCHEDQ = {"QUEUES": ["site_app.queues:queue"], "OUTBOX_DATABASES": ["default", "other"]}
"""
MODELS = """
    from django.db import models

    class Order(models.Model):
        customer = models.CharField(max_length=40)
"""
QUEUES = """
    import os
    from schedq import Queue

    queue = Queue("plain", redis=os.environ["SITE_REDIS"])

    @queue.task
    def greet(name):
        return f"Hello, {name}!"
"""
TASKS = """
    from site_app.models import Order
    try:
        from django.tasks import task
    except ImportError:
        from django_tasks import task

    @task
    def confirm(order):
        return f"order {order} is confirmed"

    @task(backend="direct", queue_name="direct")
    def tell(name):
        return f"{name} is informed"
"""
TESTS = """
    import os
    import threading
    import time
    from datetime import timedelta
    from io import StringIO

    from django.core.management import call_command
    from django.db import connection, transaction
    from django.test import TestCase, TransactionTestCase
    from django.utils import timezone
    from redis import Redis

    from schedq import UsageError
    from schedq.integrations.django.headers import job_headers
    from schedq.integrations.django.outbox import DjangoOutbox
    from schedq.integrations.django.outbox.models import OutboxRow
    from schedq.integrations.django.outbox.relays import relaying, send_outbox, site_relays
    from schedq.testing import queue_tester, run_due
    from site_app.models import Order
    from site_app.queues import greet, queue
    from site_app.tasks import confirm, tell
    try:
        from django.tasks import default_task_backend as backend, task_backends
        from django.tasks.exceptions import TaskResultDoesNotExist
        from django.tasks.signals import task_enqueued
    except ImportError:
        from django_tasks import default_task_backend as backend, task_backends
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued

    outbox = DjangoOutbox()

    def until(holds):
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.01)

    def waiting():
        return [job.payload["args"][0] for job in queue.list_pending(limit=1000)]

    class Committing(TransactionTestCase):
        databases = ["default", "other"]

        def setUp(self):
            with Redis.from_url(os.environ["SITE_REDIS"]) as server:
                server.flushall()

        def test_a_committed_task_is_enqueued_with_the_id_of_its_result(self):
            told = []
            task_enqueued.connect(lambda task_result, **_: told.append(task_result.id), weak=False)
            with transaction.atomic():
                Order.objects.create(customer="Ada")
                with job_headers({"tenant": "acme"}):
                    result = confirm.enqueue(7)
                self.assertEqual(told, [])
            self.assertEqual(told, [result.id])
            self.assertEqual(backend.get_result(result.id).status, "READY")
            self.assertEqual(backend.get_result(result.id).args, [7])
            self.assertEqual(send_outbox(), 1)
            self.assertEqual(backend.queue("default").get_job(result.id).headers, {"tenant": "acme"})
            run_due(backend.queue("default"))
            self.assertEqual(backend.get_result(result.id).return_value, "order 7 is confirmed")
            self.assertEqual(send_outbox(), 0)

        def test_a_rolled_back_task_is_not(self):
            with self.assertRaises(KeyError), transaction.atomic():
                result = confirm.enqueue(7)
                raise KeyError
            self.assertEqual(send_outbox(), 0)
            with self.assertRaises(TaskResultDoesNotExist):
                backend.get_result(result.id)

        def test_a_delay_counts_from_the_transaction(self):
            at = timezone.now().replace(microsecond=0) + timedelta(hours=1)
            result = confirm.using(run_after=at).enqueue(7)
            send_outbox()
            job = backend.queue("default").get_job(result.id)
            self.assertEqual((job.status, job.run_at_ms), ("delayed", int(at.timestamp() * 1000)))

        def test_options_and_headers_of_a_queues_own_task_are_kept(self):
            with transaction.atomic():
                job = outbox.enqueue(greet.options(headers={"tenant": "acme"}, max_attempts=7, delay=1000), "Ada")
                created_ms = OutboxRow.objects.get().created_at_ms
                self.assertIsNone(job.record())
            send_outbox()
            record = job.record()
            self.assertEqual((record.headers, record.fields["max_attempts"]), ({"tenant": "acme"}, "7"))
            self.assertEqual(record.run_at_ms, created_ms + 1_000_000)

        def test_a_task_of_another_backend_goes_through_the_outbox_on_request(self):
            with transaction.atomic():
                result = outbox.enqueue(tell, "Ada")
                self.assertEqual(task_backends["direct"].queue("direct").stats().pending_depth, 0)
            self.assertEqual(send_outbox(), 1)
            self.assertEqual(task_backends["direct"].get_result(result.id).status, "READY")

        def test_wrong_calls_raise_at_once_and_write_nothing(self):
            for wrong in (lambda: outbox.enqueue(greet), lambda: outbox.enqueue(print), lambda: confirm.enqueue({1}),
                          lambda: outbox.ordered("").enqueue(confirm, 1), lambda: outbox.ordered("").enqueue(greet, 1)):
                with self.assertRaises(UsageError):
                    wrong()
            self.assertEqual(OutboxRow.objects.count(), 0)

        def test_a_row_is_written_in_the_transaction_of_its_database(self):
            with self.assertRaises(KeyError), transaction.atomic(using="other"):
                DjangoOutbox(using="other").enqueue(greet, "Eve")
                kept = outbox.enqueue(greet, "Ada")
                raise KeyError
            DjangoOutbox(using="other").enqueue(greet, "Grace")
            self.assertEqual(send_outbox(), 2)
            self.assertEqual(sorted(waiting()), ["Ada", "Grace"])

        def test_rows_of_one_key_keep_their_order_whatever_keys_look_like(self):
            for name, key in enumerate(["order-1", "Order-1", "order-1 ", "order-é", "order-e"] * 2):
                outbox.ordered(key).enqueue(greet, name)
            rows = list(OutboxRow.objects.order_by("seq"))
            self.assertEqual(len({row.order_key for row in rows}), 5)
            OutboxRow.objects.filter(seq=rows[0].seq).update(held="a test holds it")
            self.assertEqual(send_outbox(), 8)
            self.assertEqual(waiting(), [1, 2, 3, 4, 6, 7, 8, 9])
            OutboxRow.objects.update(held=None)
            send_outbox()
            self.assertEqual(waiting()[-2:], [0, 5])

        def test_several_relays_send_each_row_once(self):
            for number in range(300):
                outbox.enqueue(greet, number)
            with relaying(), relaying():
                until(lambda: len(waiting()) >= 300 and not OutboxRow.objects.filter(sent_at_ms=None).exists())
            self.assertEqual(sorted(waiting()), list(range(300)))

        def test_a_row_does_not_overtake_one_of_its_key_that_another_relay_holds(self):
            if connection.vendor == "sqlite":
                self.skipTest("SQLite locks the whole database")
            outbox.ordered("order-1").enqueue(greet, "Ada")
            outbox.ordered("order-1").enqueue(greet, "Grace")
            outbox.ordered("order-2").enqueue(greet, "Bob")
            locked, release = threading.Event(), threading.Event()

            def hold():
                with transaction.atomic():
                    OutboxRow.objects.select_for_update().get(seq=OutboxRow.objects.earliest("seq").seq)
                    locked.set()
                    release.wait(60)
                connection.close()

            other = threading.Thread(target=hold)
            other.start()
            locked.wait(60)
            self.assertEqual(send_outbox(), 1)
            release.set()
            other.join()
            send_outbox()
            self.assertEqual(waiting(), ["Bob", "Ada", "Grace"])

        def test_sent_rows_are_deleted_and_the_lag_is_reported_for_each_database(self):
            outbox.enqueue(greet, "Ada")
            DjangoOutbox(using="other").enqueue(greet, "Grace")
            DjangoOutbox(using="other").enqueue(greet, "held")
            OutboxRow.objects.using("other").filter(payload__contains="held").update(held="a test")
            with self.settings(SCHEDQ={"QUEUES": ["site_app.queues:queue"], "OUTBOX_POLL": 0.01,
                                       "OUTBOX_KEEP": 0, "OUTBOX_DATABASES": ["default", "other"]}):
                send_outbox()
                with relaying():
                    until(lambda: queue.stats().outbox_at_ms and queue.stats().outbox_held == 1)
                    until(lambda: not OutboxRow.objects.exists() and OutboxRow.objects.using("other").count() == 1)
            self.assertEqual(queue.stats().outbox_unsent, 1)

        def test_the_command_sends_once(self):
            confirm.enqueue(7)
            call_command("schedq_outbox", "--once")
            self.assertEqual(backend.queue("default").stats().pending_depth, 1)

        def test_a_worker_sends_what_it_finds_and_runs_it(self):
            result = confirm.enqueue(7)
            call_command("schedq_worker", "--burst", "--concurrency", "1", "--quiet")
            self.assertEqual(backend.get_result(result.id).return_value, "order 7 is confirmed")

        def test_a_worker_without_outbox_leaves_it_alone(self):
            result = confirm.enqueue(7)
            call_command("schedq_worker", "--burst", "--no-outbox", "--quiet")
            self.assertEqual(OutboxRow.objects.get().started_at_ms, None)

        def test_models_and_migrations_agree(self):
            call_command("makemigrations", "schedq_outbox", "--check", "--dry-run", stdout=StringIO())

    class InTransaction(TestCase):
        databases = ["default", "other"]

        def test_rows_are_sent_within_the_transaction_of_a_test(self):
            jobs = self.enterContext(queue_tester())
            with self.captureOnCommitCallbacks(execute=True) as called:
                result = confirm.enqueue(7)
            self.assertEqual(len(called), 1)
            self.assertEqual(send_outbox(), 1)
            self.assertEqual(jobs.run_due(), 1)
            self.assertEqual(backend.get_result(result.id).return_value, "order 7 is confirmed")

        async def test_async_code_writes_rows(self):
            jobs = self.enterContext(queue_tester())
            await confirm.aenqueue(7)
            await outbox.aenqueue(greet, "Ada")
            self.assertEqual(await OutboxRow.objects.acount(), 2)
"""
SITE = {
    "site_settings.py": SETTINGS,
    "site_app/__init__.py": "",
    "site_app/models.py": MODELS,
    "site_app/queues.py": QUEUES,
    "site_app/tasks.py": TASKS,
    "site_app/tests.py": TESTS,
}


@pytest.fixture
def redis() -> Iterator[Server]:
    with Server() as server:
        yield server


def run_tests(folder: Path, redis: Server, kind: str, databases: dict[str, Any]) -> str:
    code, output = run(
        folder,
        SITE,
        ["-W", "error", "-m", "django", "test", "--settings", "site_settings", "-v", "2"],
        SITE_REDIS=redis.url,
        SITE_DATABASE=kind,
        SITE_DATABASES=json.dumps(databases),
    )
    assert code == 0, output
    return output


def test_with_sqlite(redis: Server, tmp_path: Path) -> None:
    def database(name: str) -> dict[str, Any]:
        test = {"NAME": str(tmp_path / f"test-{name}.sqlite")}  # a file, so that threads have connections of their own
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / name), "TEST": test}

    output = run_tests(tmp_path, redis, "sqlite", {"default": database("first"), "other": database("second")})
    assert "\nOK (skipped=1)\n" in output, "only SQLite has no locks of rows"


def test_with_postgresql(redis: Server, tmp_path: Path) -> None:
    programs = postgres_folder()
    if programs is None:
        pytest.skip("PostgreSQL is not installed")
    with postgres(programs) as url:
        folder = url.partition("host=")[2]
        until(lambda: accepts(f"user=app dbname=postgres host={folder}"))
        given = {"ENGINE": "django.db.backends.postgresql", "USER": "app", "HOST": folder, "NAME": "postgres"}
        first, second = ({**given, "TEST": {"NAME": name}} for name in ("first", "second"))
        assert "\nOK\n" in run_tests(tmp_path, redis, "postgresql", {"default": first, "other": second})


def test_with_mariadb(redis: Server, tmp_path: Path) -> None:
    program = mariadb_program()
    if program is None:
        pytest.skip("MariaDB is not installed")
    pytest.importorskip("pymysql")
    with mariadb(program) as sock:
        given = {"ENGINE": "django.db.backends.mysql", "USER": "app", "HOST": sock, "NAME": "site"}
        first, second = ({**given, "TEST": {"NAME": name}} for name in ("first", "second"))
        assert "\nOK\n" in run_tests(tmp_path, redis, "mariadb", {"default": first, "other": second})


def accepts(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return False
    return True
