"""The testing kit in Django's own tests, which wrap each test in a transaction or empty the database after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.projects import run

pytestmark = pytest.mark.processes

SETTINGS = """
    SECRET_KEY = "test"
    USE_TZ = True
    INSTALLED_APPS = ["django.contrib.contenttypes", "schedq.integrations.django", "site_app"]
    DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
    ROOT_URLCONF = "site_app.urls"
    BACKEND = "schedq.integrations.django.backend.SchedqBackend"
    OPTIONS = {"redis": "redis://nowhere.invalid:1/0", "retry_for": 0}
    TASKS = {
        "default": {"BACKEND": BACKEND, "OPTIONS": OPTIONS},
        "on-commit": {"BACKEND": BACKEND, "OPTIONS": {**OPTIONS, "on_commit": True}},
    }
"""
MODELS = """
    from django.db import models

    class Order(models.Model):
        paid = models.BooleanField(default=False)
"""
TASKS = """
    from site_app.models import Order
    try:
        from django.tasks import task
    except ImportError:
        from django_tasks import task

    @task
    def pay(order):
        Order.objects.filter(pk=order).update(paid=True)
        return order

    @task
    async def apay(order):
        await Order.objects.filter(pk=order).aupdate(paid=True)
        return order

    @task(takes_context=True)
    def flaky(context):
        if context.attempt < 3:
            raise ConnectionError
        return context.attempt
"""
URLS = """
    from datetime import timedelta
    from django.http import HttpResponse
    from django.urls import path
    from django.utils import timezone
    from site_app.models import Order
    from site_app.tasks import pay

    def order(request):
        made = Order.objects.create()
        pay.using(backend="on-commit").enqueue(made.pk)
        pay.using(run_after=timezone.now() + timedelta(days=1)).enqueue(made.pk)
        return HttpResponse(str(made.pk))

    async def aorder(request):
        made = await Order.objects.acreate()
        await pay.aenqueue(made.pk)
        return HttpResponse(str(made.pk))

    urlpatterns = [path("order", order), path("aorder", aorder)]
"""
TESTS = """
    from django.test import TestCase, TransactionTestCase
    from schedq.testing import eager, queue_tester
    from site_app.models import Order
    from site_app.tasks import apay, flaky, pay

    class Paying:
        def setUp(self):
            self.jobs = self.enterContext(queue_tester())

        def is_paid(self):
            return Order.objects.get().paid

        def test_it_starts_empty(self):
            self.assertEqual((self.jobs.run_due(), Order.objects.count()), (0, 0))

        def test_a_task_runs(self):
            result = pay.enqueue(Order.objects.create().pk)
            self.assertEqual(self.jobs.run_due(), 1)
            self.assertTrue(self.is_paid())
            result.refresh()
            self.assertEqual(result.status, "SUCCESSFUL")

        def test_attempts_are_counted(self):
            result = flaky.enqueue()
            self.jobs.fast_forward()
            result.refresh()
            self.assertEqual(result.return_value, 3)

        def test_an_async_view_enqueues(self):
            self.client.get("/aorder")
            self.assertEqual(self.jobs.run_due(), 1)
            self.assertTrue(self.is_paid())

        def test_an_eager_task_runs(self):
            with eager():
                result = pay.enqueue(Order.objects.create().pk)
                self.assertEqual(flaky.enqueue().return_value, 3)
            self.assertEqual(result.status, "SUCCESSFUL")
            self.assertTrue(self.is_paid())

    class InTransaction(Paying, TestCase):
        def test_a_task_is_enqueued_on_commit(self):
            with self.captureOnCommitCallbacks(execute=True):
                self.client.get("/order")
            self.assertEqual(self.jobs.run_due(), 1)
            self.assertTrue(self.is_paid())

        def test_a_commit_that_never_comes_enqueues_nothing(self):
            self.client.get("/order")
            self.assertEqual(self.jobs.run_due(), 0)

        def test_a_task_runs_on_its_day(self):
            self.client.get("/order")
            self.assertEqual(self.jobs.fast_forward(), 1)
            self.assertTrue(self.is_paid())

        def test_an_async_task_sees_the_transaction(self):
            apay.enqueue(Order.objects.create().pk)
            self.assertEqual(self.jobs.run_due(), 1)
            self.assertTrue(self.is_paid())

        async def test_an_async_test_runs_it(self):
            order = await Order.objects.acreate()
            await pay.aenqueue(order.pk)
            self.assertEqual(await self.jobs.arun_due(), 1)
            await order.arefresh_from_db()
            self.assertTrue(order.paid)

    class WithCommits(Paying, TransactionTestCase):
        def test_a_task_is_enqueued_on_commit(self):
            self.client.get("/order")
            self.assertEqual(self.jobs.run_due(), 1)
            self.assertTrue(self.is_paid())
"""
SITE = {
    "site_settings.py": SETTINGS,
    "site_app/__init__.py": "",
    "site_app/models.py": MODELS,
    "site_app/tasks.py": TASKS,
    "site_app/urls.py": URLS,
    "site_app/tests.py": TESTS,
}


def test_the_tests_of_a_site_pass_in_parallel_processes(tmp_path: Path) -> None:
    command = ["-W", "error", "-m", "django", "test", "--settings", "site_settings", "--parallel", "2"]
    code, output = run(tmp_path, SITE, command)

    assert code == 0, output
    assert "Ran 16 tests" in output
    assert "left behind" not in output
