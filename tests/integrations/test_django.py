"""Django's tasks on schedq: a site with a database of its own, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.servers import Server

pytestmark = pytest.mark.processes

SITE = """
import os, sys
import django
from django.conf import settings

ran = []
settings.configure(
    SECRET_KEY="test",
    USE_TZ=True,
    INSTALLED_APPS=["schedq.integrations.django"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite", "CONN_MAX_AGE": 0}},
    TASKS={
        "default": {
            "BACKEND": "schedq.integrations.django.backend.SchedqBackend",
            "QUEUES": ["default", "shop.mails"],
            "OPTIONS": {"max_attempts": 1, "on_commit": "--on-commit" in sys.argv},
        }
    },
)
django.setup()

from asgiref.sync import sync_to_async
from django.core.management import call_command
from django.db import connection, connections, transaction
from schedq.integrations.django import backend as backend_module

try:
    from django.tasks import default_task_backend as backend, task
    from django.tasks.exceptions import TaskResultDoesNotExist
except ImportError:
    from django_tasks import default_task_backend as backend, task
    from django_tasks.exceptions import TaskResultDoesNotExist


def query():
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return connections["default"]  # not the proxy, which differs between threads


@task
def plain(*, fail=False):
    ran.append(query())
    if fail:
        raise RuntimeError("no")


@task(queue_name="shop.mails")
async def on_the_loop():
    ran.append(await sync_to_async(query)())


def is_stored(result):
    try:
        backend.get_result(result.id)
    except TaskResultDoesNotExist:
        return False
    return True


"""


@pytest.fixture
def redis() -> Iterator[Server]:
    """A server of this test, as the site has names of queues that other tests use too."""
    with Server() as server:
        yield server


def run_site(code: str, redis: Server, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new site, which fails if an assertion does."""
    file = folder / "site_of_test.py"
    file.write_text(SITE + dedent(code))
    return subprocess.run(
        [sys.executable, str(file), *arguments],
        cwd=folder,
        env=os.environ | {"SCHEDQ_REDIS_URL": redis.url, "PYTHONPATH": str(Path(__file__).parents[2])},
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_every_attempt_closes_its_database_connection_also_when_it_fails(redis: Server, tmp_path: Path):
    done = run_site(
        """
        good, bad, awaited = plain.enqueue(), plain.enqueue(fail=True), on_the_loop.enqueue()
        call_command("schedq_worker", "--burst", "--concurrency", "1")
        states = [backend.get_result(each.id).status for each in (good, bad, awaited)]
        assert states == ["SUCCESSFUL", "FAILED", "SUCCESSFUL"], states
        assert len(ran) == 3
        assert [each.connection for each in ran] == [None] * 3
        """,
        redis,
        tmp_path,
    )

    assert done.returncode == 0, done.stderr


def test_connections_are_closed_before_and_after_each_attempt_in_the_thread_that_queries(redis: Server, tmp_path: Path):
    done = run_site(
        """
        import threading
        from unittest.mock import patch

        events = []
        close, cursor = backend_module.close_old_connections, type(connections["default"]).cursor

        def closing():
            events.append(("close", threading.get_ident()))
            close()

        def querying(self):
            events.append(("query", threading.get_ident()))
            return cursor(self)

        with patch.object(backend_module, "close_old_connections", closing), \\
             patch.object(type(connections["default"]), "cursor", querying):
            for enqueue in (plain.enqueue, lambda: plain.enqueue(fail=True), on_the_loop.enqueue):
                enqueue()
                events.clear()
                call_command("schedq_worker", "--burst", "--concurrency", "1")
                assert [what for what, _ in events] == ["close", "query", "close"], events
                assert len({thread for _, thread in events}) == 1, events
        """,
        redis,
        tmp_path,
    )

    assert done.returncode == 0, done.stderr


def test_a_job_enqueued_in_a_transaction_is_stored_when_that_commits_if_asked(redis: Server, tmp_path: Path):
    done = run_site(
        """
        with transaction.atomic():
            kept = plain.enqueue()
            assert not is_stored(kept)
        assert is_stored(kept)
        try:
            with transaction.atomic():
                dropped = plain.enqueue()
                raise KeyError
        except KeyError:
            pass
        assert not is_stored(dropped)
        assert is_stored(plain.enqueue())
        """,
        redis,
        tmp_path,
        "--on-commit",
    )

    assert done.returncode == 0, done.stderr


def test_without_that_option_it_is_stored_at_once(redis: Server, tmp_path: Path):
    done = run_site(
        """
        with transaction.atomic():
            assert is_stored(plain.enqueue())
        """,
        redis,
        tmp_path,
    )

    assert done.returncode == 0, done.stderr


def test_the_worker_of_one_queue_leaves_the_others_alone(redis: Server, tmp_path: Path):
    done = run_site(
        """
        here, elsewhere = on_the_loop.enqueue(), plain.enqueue()
        call_command("schedq_worker", "shop.mails*2", "--burst")
        assert backend.get_result(here.id).status == "SUCCESSFUL"
        assert backend.get_result(elsewhere.id).status == "READY"
        """,
        redis,
        tmp_path,
    )

    assert done.returncode == 0, done.stderr


def test_a_program_that_calls_the_worker_continues_with_its_own_signals(redis: Server, tmp_path: Path):
    done = run_site(
        """
        import signal, time
        from schedq.cli import daemon

        def handlers():
            return [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)]

        before, daemon._LINGER_S = handlers(), 0.01
        call_command("schedq_worker", "--burst")
        time.sleep(0.1)
        print(handlers() == before)
        """,
        redis,
        tmp_path,
    )

    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_the_worker_names_the_queues_there_are(redis: Server, tmp_path: Path):
    done = run_site(
        "from django.core.management import execute_from_command_line as run\nrun(['manage.py', 'schedq_worker', 'x'])",
        redis,
        tmp_path,
    )

    assert done.returncode == 2
    assert "TASKS has no queue 'x' of schedq; it has default, shop.mails" in done.stderr
    assert "Traceback" not in done.stderr
