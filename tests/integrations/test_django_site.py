"""A Django site around its tasks: languages and time zones, the admin page, the worker and its reloading."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schedq import Queue
from tests.servers import Server
from tests.testing.projects import run
from tests.waiting import until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
SETTINGS = """
    import os

    SECRET_KEY = "test"
    USE_TZ = True
    TIME_ZONE = "UTC"
    LANGUAGES = [("en", "English"), ("de", "German"), ("fr", "French")]
    ALLOWED_HOSTS = ["*"]
    ROOT_URLCONF = "site_app.urls"
    INSTALLED_APPS = [
        "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages",
        "django.contrib.sessions", "schedq.integrations.django", "schedq.integrations.django.outbox", "site_app",
    ]
    MIDDLEWARE = [
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ]
    TEMPLATES = [{
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {"context_processors": [
            "django.template.context_processors.request",
            "django.contrib.auth.context_processors.auth",
            "django.contrib.messages.context_processors.messages",
        ]},
    }]
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.sqlite", "CONN_MAX_AGE": 0}}
    BACKEND = "schedq.integrations.django.backend.SchedqBackend"
    OPTIONS = {"redis": os.environ["SITE_REDIS"], "max_attempts": 1, "language": True, "time_zone": True}
    TASKS = {
        "default": {"BACKEND": BACKEND, "QUEUES": ["default", "shop.mails"], "OPTIONS": OPTIONS},
        "on-commit": {"BACKEND": BACKEND, "QUEUES": ["default"], "OPTIONS": {**OPTIONS, "on_commit": True}},
        "outbox": {"BACKEND": BACKEND, "QUEUES": ["default"], "OPTIONS": {**OPTIONS, "outbox": True}},
        "plain": {"BACKEND": BACKEND, "QUEUES": ["plain"], "OPTIONS": {"redis": os.environ["SITE_REDIS"]}},
    }
    SCHEDQ = {"DASHBOARD_URL": "https://ops.example.org/schedq/"}
"""
TASKS = """
    import os
    from asgiref.sync import sync_to_async
    from django.db import connection
    from django.utils import timezone, translation
    try:
        from django.tasks import task
    except ImportError:
        from django_tasks import task

    def active():
        return [translation.get_language(), timezone.get_current_timezone_name()]

    @task
    def tell():
        return active()

    @task
    async def atell():
        return [active(), await sync_to_async(active)()]

    def files():
        return [os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd")
                if os.path.exists(f"/proc/self/fd/{name}")]

    @task
    def look():
        before = [path for path in files() if "site.sqlite" in path]
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM sqlite_master")
        return [os.getpid(), before, active(), [path for path in files() if "site.sqlite" in path] != []]
"""
URLS = """
    from django.contrib import admin
    from django.urls import path

    urlpatterns = [path("admin/", admin.site.urls)]
"""
TESTS = """
    import json
    from datetime import timedelta, timezone as fixed
    from io import StringIO
    from zoneinfo import ZoneInfo

    from django.contrib.auth.models import Permission, User
    from django.core.management import call_command
    from django.db import transaction
    from django.test import TestCase, override_settings
    from django.utils import timezone, translation

    from asgiref.sync import async_to_sync
    from schedq import Queue, UsageError
    from schedq.integrations.django.headers import job_headers
    from schedq.integrations.django.locale import locale_headers, locale_of_job
    from schedq.testing import eager, queue_tester
    from site_app.tasks import active, atell, tell
    try:
        from django.tasks import default_task_backend as backend
    except ImportError:
        from django_tasks import default_task_backend as backend

    class Locale(TestCase):
        def setUp(self):
            self.jobs = self.enterContext(queue_tester())

        def value(self, result):
            self.jobs.run_due()
            return backend.get_result(result.id).return_value

        def test_tasks_run_in_the_language_and_the_time_zone_of_the_code_that_enqueues(self):
            with translation.override("de"), timezone.override("Asia/Tokyo"):
                results = [tell.enqueue(), atell.enqueue()]
            self.assertEqual(self.value(results[0]), ["de", "Asia/Tokyo"])
            self.assertEqual(self.value(results[1]), [["de", "Asia/Tokyo"]] * 2)
            self.assertEqual(active(), ["en-us", "UTC"])

        def test_that_of_the_call_counts_and_not_that_of_the_commit(self):
            with self.captureOnCommitCallbacks(execute=True), translation.override("fr"):
                result = tell.using(backend="on-commit").enqueue()
            self.assertEqual(self.value(result)[0], "fr")

        def test_a_fixed_offset_is_a_time_zone_too(self):
            with timezone.override(fixed(timedelta(hours=5, minutes=30))):
                self.assertEqual(self.value(tell.enqueue())[1], "UTC+05:30")

        def test_an_unknown_language_or_zone_does_not_fail_the_job(self):
            queue = backend.queue("default")
            unknown = [("language", "xx-yy"), *(("time_zone", name) for name in ("Mars/Phobos", "../x", "+x"))]
            for headers in ({name: value} for name, value in unknown):
                with self.assertLogs("schedq", "WARNING"):
                    job = queue.enqueue({"task": "site_app.tasks.tell", "args": [], "kwargs": {}}, headers=headers)
                    self.jobs.run_due()
                self.assertEqual(queue.get_job(job).status, "completed")

        def test_without_the_options_there_are_no_headers(self):
            result = tell.using(backend="plain", queue_name="plain").enqueue()
            from schedq.integrations.django.backend import task_backends
            self.assertEqual(task_backends["plain"].queue("plain").get_job(result.id).headers, {})

        def test_tasks_that_are_enqueued_in_a_block_have_its_headers(self):
            with self.captureOnCommitCallbacks(execute=True), translation.override("fr"):
                with job_headers({"tenant": "acme", "by": "Ada"}):
                    with job_headers({"tenant": "other"}):
                        inner = tell.enqueue()
                    late = tell.using(backend="on-commit").enqueue()
                    awaited = async_to_sync(atell.aenqueue)()
                after = tell.enqueue()
            found = [self.record(result).headers for result in (inner, late, awaited, after)]
            own = {"language": "fr", "time_zone": "UTC"}
            self.assertEqual(found, [
                {**own, "tenant": "other", "by": "Ada"}, *[{**own, "tenant": "acme", "by": "Ada"}] * 2, own])
            for wrong in ({"tenant": 7}, "acme"):
                with self.assertRaises(UsageError), job_headers(wrong):
                    self.fail()

        def record(self, result):
            return backend.queue("default").get_job(result.id)

        def test_a_queue_of_its_own_may_have_them_too(self):
            queue = Queue("own")
            queue.before_enqueue(locale_headers(time_zone=False))
            task = queue.task(name="tell")(locale_of_job()(active))
            with translation.override("de"), timezone.override("Asia/Tokyo"):
                job = task.enqueue()
            self.jobs.run_due()
            self.assertEqual(job.result(timeout=0), ["de", "UTC"])

        def test_eager_tasks_run_in_them(self):
            with eager(), translation.override("de"):
                self.assertEqual(tell.enqueue().return_value[0], "de")

    URL = "/admin/schedq/sitequeues/"

    class Admin(TestCase):
        def log_in(self, **facts):
            user = User.objects.create_user("ada", is_staff=True, **facts)
            self.client.force_login(user)
            return user

        def test_those_with_the_permission_see_figures_and_links(self):
            self.enterContext(queue_tester())
            user = self.log_in()
            user.user_permissions.add(Permission.objects.get(codename="view_queues"))
            tell.enqueue()
            page = self.client.get(URL)
            self.assertContains(page, 'href="https://ops.example.org/schedq/queues/shop.mails">shop.mails</a>')
            self.assertContains(page, "<td>1</td>")
            self.assertContains(page, "queues/default", 1)  # although three backends have it
            self.assertContains(self.client.get("/admin/"), URL)
            for method in (self.client.post, self.client.put, self.client.delete):
                self.assertEqual(method(URL).status_code, 405)
            for path in ("add/", "1/change/", "1/delete/", "1/history/"):
                self.assertEqual(self.client.get(URL + path).status_code, 404)

        def test_others_do_not(self):
            self.log_in()
            self.assertEqual(self.client.get(URL).status_code, 403)
            self.assertNotContains(self.client.get("/admin/"), URL)
            self.client.logout()
            self.assertEqual(self.client.get(URL).status_code, 302)

        def test_there_is_no_permission_to_write(self):
            found = Permission.objects.filter(content_type__app_label__startswith="schedq")
            self.assertEqual([each.codename for each in found], ["view_queues"])

        def test_while_redis_is_unavailable_it_says_so(self):
            self.log_in(is_superuser=True)
            away = Queue("away", redis="redis://127.0.0.1:1", retry_for=0)
            with self.settings(TASKS={}), self.subTest(), patched(away):
                page = self.client.get(URL)
            self.assertContains(page, "127.0.0.1:1")
            self.assertContains(page, "errornote")

        @override_settings(SCHEDQ={})
        def test_without_an_address_there_is_no_link(self):
            self.enterContext(queue_tester())
            self.log_in(is_superuser=True)
            self.assertNotContains(self.client.get(URL), "/queues/default")

        @override_settings(SCHEDQ={"DASHBORD": "x"})
        def test_a_mistake_in_the_setting_is_named(self):
            self.log_in(is_superuser=True)
            with self.assertRaisesMessage(Exception, "SCHEDQ has DASHBORD; it may have DASHBOARD_URL"):
                self.client.get(URL)

        def test_data_can_be_dumped_and_no_migration_is_missing(self):
            for options in ({}, {"use_base_manager": True}):
                call_command("dumpdata", stdout=StringIO(), **options)
            call_command("makemigrations", "--check", "--dry-run", stdout=StringIO())

    def patched(queue):
        from unittest.mock import patch
        return patch("schedq.integrations.django.admin.site_queues", lambda: [queue, queue])
"""
SITE = {
    "site_settings.py": SETTINGS,
    "site_app/__init__.py": "",
    "site_app/tasks.py": TASKS,
    "site_app/urls.py": URLS,
    "site_app/tests.py": TESTS,
    "manage.py": """
        import os
        import sys
        from django.core.management import execute_from_command_line

        if __name__ == "__main__":
            os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
            execute_from_command_line(sys.argv)
    """,
}


@pytest.fixture
def redis() -> Iterator[Server]:
    with Server() as server:
        yield server


def test_the_tests_of_a_site(redis: Server, tmp_path: Path) -> None:
    code, output = run(tmp_path, SITE, ["-W", "error", "manage.py", "test", "-v", "2"], SITE_REDIS=redis.url)

    assert code == 0, output


MANAGE = """
    import os
    import sys
    import django
    from django.core.management import execute_from_command_line

    if __name__ == "__main__":
        os.environ.setdefault("DJANGO_SETTINGS_MODULE", "site_settings")
        if "SCHEDQ_PARENT_FD" not in os.environ:
            django.setup()
            from django.db import connection
            connection.cursor().execute("CREATE TABLE t (x)")  # it is open when processes start
        execute_from_command_line(sys.argv)
"""
ENQUEUE = """
    import django
    django.setup()
    from django.utils import translation
    from site_app.tasks import look

    with translation.override("fr"):
        print(look.enqueue().id)  # one, because another thread's connection would count as inherited
"""
CHECK = """
    import sys
    import django
    django.setup()
    from site_app.tasks import look

    pid, before, active, is_open = look.get_result(sys.argv[1]).return_value
    assert before == [], f"inherited: {before}"
    assert active[0] == "fr", active
    assert is_open, "it opened no connection of its own"
"""


@pytest.mark.parametrize("options", [["--pool", "process"], ["--processes", "1"]])
def test_processes_of_a_worker_share_no_connection(redis: Server, tmp_path: Path, options: list[str]) -> None:
    files = SITE | {"manage.py": MANAGE, "enqueue.py": ENQUEUE, "check.py": CHECK}
    settings = {"SITE_REDIS": redis.url, "DJANGO_SETTINGS_MODULE": "site_settings"}
    _, job = run(tmp_path, files, ["enqueue.py"], **settings)

    work = ["manage.py", "schedq_worker", "default", "--burst", "--no-outbox", *options]
    code, output = run(tmp_path, files, work, **settings)
    assert code == 0, output
    code, output = run(tmp_path, files, ["check.py", job.strip()], **settings)
    assert code == 0, output


def start(folder: Path, redis: Server, log: Path, *words: str) -> subprocess.Popen[bytes]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SCHEDQ_")}
    environment = {**plain, "PYTHONPATH": str(ROOT), "SITE_REDIS": redis.url, "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as out:
        command = [sys.executable, "manage.py", *words, "--settings=site_settings"]
        return subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT, env=environment)


def test_the_relay_runs_alone_until_a_signal(redis: Server, tmp_path: Path) -> None:
    enqueue = """
        import django
        django.setup()
        from site_app.tasks import tell

        tell.using(backend="outbox").enqueue()
    """
    settings = {"SITE_REDIS": redis.url, "DJANGO_SETTINGS_MODULE": "site_settings"}
    assert run(tmp_path, SITE | {"enqueue.py": enqueue}, ["manage.py", "migrate"], **settings)[0] == 0
    log = tmp_path / "log"
    relay = start(tmp_path, redis, log, "schedq_outbox")
    try:
        assert run(tmp_path, {}, ["enqueue.py"], **settings) == (0, "")
        with Queue("default", redis=redis.url) as queue:
            until(lambda: queue.stats().pending_depth == 1, failing=log.read_text)
    finally:
        relay.terminate()
        code = relay.wait(60)

    assert code == 0, log.read_text()


def save(file: Path, text: str) -> None:
    draft, before_ns = file.with_suffix(".draft"), file.stat().st_mtime_ns
    draft.write_text(text)
    os.utime(draft, ns=(before_ns ^ 1, before_ns ^ 1))
    draft.replace(file)


def test_a_worker_that_reloads_runs_the_new_code_and_one_signal_ends_all(redis: Server, tmp_path: Path) -> None:
    run(tmp_path, SITE, ["-c", ""], SITE_REDIS=redis.url)
    log, tasks = tmp_path / "log", tmp_path / "site_app" / "tasks.py"
    worker = start(tmp_path, redis, log, "schedq_worker", "default", "--reload", "--no-outbox")
    try:
        until(lambda: log.read_text().count("ready for") == 1, failing=log.read_text)
        save(tasks, tasks.read_text() + "\nprint('version', 'two')\n")
        until(lambda: "version two" in log.read_text(), failing=log.read_text)
        until(lambda: log.read_text().count("ready for") == 2, failing=log.read_text)
        assert f"schedq_worker: {tasks.resolve()} has changed, restarting the worker" in log.read_text()
    finally:
        worker.send_signal(signal.SIGINT)
        code = worker.wait(60)

    assert code == 0
    assert log.read_text().rstrip().endswith("stopped")
