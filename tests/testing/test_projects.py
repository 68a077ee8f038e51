"""The testing kit in projects of users, with the libraries that their tests use."""

from __future__ import annotations

import re
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.testing.projects import SHOP, outcomes, pytest_command, run

pytestmark = pytest.mark.processes

PLUGINS = ["pytest_asyncio.plugin", "anyio.pytest_plugin"]
CASES = {
    "plain": """
        import pytest
        import shop
        from shop import inspector, queue, remind, send, sent
        from schedq import Queue

        @pytest.mark.parametrize("number", range(2))
        def test_each_test_begins_with_an_empty_server(schedq_tester, number):
            job = send.enqueue("ada", subject="x")
            assert inspector.timeline(job.id) is not None
            assert schedq_tester.run_due() == 1
            assert schedq_tester.run_due() == 0
            assert job.result(timeout=0) == "ada"
            assert queue.stats()["completed_total"] == 1

        def test_fast_forward_reaches_every_day_until_nothing_is_left(schedq_tester):
            start = schedq_tester.clock()
            remind.enqueue(3)
            schedq_tester.fast_forward()
            assert abs(schedq_tester.clock() - start - 3 * 86400) < 1

        def test_schedules_fire_in_the_time_that_passes(schedq_tester):
            sent.clear()
            schedq_tester.run_due()
            assert schedq_tester.fast_forward(3 * 86400) == 3
            assert sent == ["report"] * 3

        def test_schedules_fire_on_the_way_to_the_last_job(schedq_tester):
            sent.clear()
            schedq_tester.run_due()
            send.options(delay=2 * 86400).enqueue("ada")
            schedq_tester.fast_forward()
            assert sorted(sent) == ["ada", "report", "report"]

        def test_time_stands_still_until_it_is_moved(schedq_tester):
            assert schedq_tester.clock() == schedq_tester.clock()

        def test_retries_run_to_their_end(schedq_tester):
            job = shop.flaky.enqueue(2)
            schedq_tester.fast_forward()
            assert job.result(timeout=0) == 3

        def test_a_paused_queue_ends_it(schedq_tester):
            send.options(delay=60).enqueue("ada")
            queue.pause()
            assert schedq_tester.fast_forward() == 0

        def test_a_job_that_never_ends_is_named(schedq_tester, monkeypatch):
            monkeypatch.setattr("schedq.testing.tester._MOST_JUMPS", 5)
            shop.forever.enqueue()
            with pytest.raises(shop.UsageError, match="still due after 5 jumps.*task forever waits next.*say how far"):
                schedq_tester.fast_forward()
            with pytest.raises(shop.UsageError, match="task forever waits next.*pass a shorter duration"):
                schedq_tester.fast_forward(86400)

        def test_a_schedule_that_fires_too_often_is_named_and_can_be_paused(schedq_tester, monkeypatch):
            monkeypatch.setattr("schedq.testing.tester._MOST_JUMPS", 5)
            queue.schedules.upsert("poll", every=3, task="send", args=["ada"])
            job = send.options(delay=1800).enqueue("eve")
            with pytest.raises(shop.UsageError, match="poll of queue mail has 1,200 slots until then.*schedules.pause"):
                schedq_tester.fast_forward(3600)
            assert job.status() == "delayed"
            with pytest.raises(shop.UsageError, match="poll of queue mail fired.*schedules.pause"):
                schedq_tester.fast_forward()

            queue.schedules.pause("poll")
            schedq_tester.fast_forward(1800)
            assert job.status() == "completed"

        def test_what_was_enqueued_is_compared_as_the_function_receives_it(schedq_tester):
            send.options(delay=60).enqueue("ada", "hello")
            schedq_tester.assert_enqueued(send, ["ada"], delay=60)
            schedq_tester.assert_enqueued(send, kwargs={"address": "ada", "subject": "hello"})
            for args, delay in ((["bob"], None), (["ada"], 61)):
                with pytest.raises(AssertionError, match=r"mail: send\\('ada', 'hello'\\), delay=60"):
                    schedq_tester.assert_enqueued(send, args, delay=delay)

        def test_any_arguments_may_do_and_none_may_have_been_enqueued(schedq_tester):
            schedq_tester.assert_not_enqueued(send)
            send.enqueue("ada", "hello")
            assert schedq_tester.assert_enqueued(send, ...).args == ["ada", "hello"]
            schedq_tester.assert_not_enqueued(send, ["bob"])
            for given in ({}, {"args": ["ada", "hello"]}, {"kwargs": {"address": "ada", "subject": "hello"}}):
                with pytest.raises(AssertionError, match="was enqueued:[^a-z]+mail: send"):
                    schedq_tester.assert_not_enqueued(send, **given)

        def test_jobs_of_a_queue_without_tasks_are_logged(schedq_tester, caplog):
            shop.Queue("elsewhere").enqueue({"n": 1})
            assert schedq_tester.run_due() == 0
            assert any(text.startswith("queue elsewhere: nothing here can run its 1 job") for text in caplog.messages)

        def test_it_defines_its_own_task(schedq_queue, schedq_tester):
            @schedq_queue.task
            def add(a, b):
                return a + b

            job = add.options(delay=60).enqueue(1, 2)
            assert schedq_tester.fast_forward() == 1
            assert job.result(timeout=0) == 3

        def test_a_task_of_the_test_before_is_forgotten(schedq_queue, schedq_tester):
            @schedq_queue.task
            def add(a, b):
                return "mine"

            job = add.enqueue(1, 2)
            schedq_tester.run_due()
            assert job.result(timeout=0) == "mine"

        def test_queues_with_one_name_run_the_tasks_of_all(schedq_tester):
            other = Queue("mail")

            @other.task
            def only_here():
                return "other"

            jobs = only_here.enqueue(), send.enqueue("ada"), other.job(send.enqueue("bob").id)
            assert schedq_tester.run_due() == 3
            assert [job.result(timeout=0) for job in jobs] == ["other", "ada", "bob"]

        def test_a_queue_that_its_application_closed_is_open_in_the_next_test(schedq_tester):
            queue.close()
    """,
    "asyncio": """
        import asyncio
        import pytest
        from shop import queue, send

        @pytest.mark.asyncio
        @pytest.mark.parametrize("number", range(2))
        async def test_each_test_has_its_own_loop(schedq_tester, number):
            job = await send.aenqueue("ada")
            assert await schedq_tester.arun_due() == 1
            assert await job.aresult(timeout=0) == "ada"

        @pytest.mark.asyncio(loop_scope="module")
        @pytest.mark.parametrize("number", range(3))
        async def test_tests_share_a_loop(schedq_tester, number):
            assert (await queue.aio.stats())["enqueued_total"] == 0
            job = await send.options(delay=60).aenqueue("ada")
            assert await schedq_tester.afast_forward() == 1
            assert await job.aresult(timeout=0) == "ada"

        @pytest.mark.asyncio
        async def test_what_would_block_the_loop_says_so(schedq_tester):
            with pytest.raises(Exception, match="write: await arun_due"):
                schedq_tester.run_due()

        @pytest.mark.asyncio
        async def test_an_eager_job_runs_while_it_is_awaited(schedq_eager):
            job = await send.aenqueue("ada")
            assert await job.aresult() == "ada"
            assert await job.astatus() == "completed"
            assert send.enqueue("bob").result() == "bob"

        def test_several_loops_one_after_the_other(schedq_tester):
            for _ in range(3):
                asyncio.run(send.aenqueue("ada"))
            assert schedq_tester.run_due() == 3
    """,
    "anyio": """
        import pytest
        from shop import send

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.anyio
        @pytest.mark.parametrize("number", range(2))
        async def test_each_test_has_its_own_loop(schedq_tester, number):
            job = await send.options(delay=60).aenqueue("ada")
            assert await schedq_tester.afast_forward(60) >= 1
            assert await job.aresult(timeout=0) == "ada"
    """,
    "clocks": """
        import time
        import time_machine
        from freezegun import freeze_time
        from shop import send

        def test_freezegun(schedq_tester):
            with freeze_time("2026-03-01 12:00") as frozen:
                send.options(delay=60).enqueue("ada")
                assert schedq_tester.run_due() == 0
                frozen.tick(60)
                assert schedq_tester.run_due() == 1

        def test_time_machine(schedq_tester):
            with time_machine.travel("2026-03-01 12:00Z", tick=False) as traveller:
                send.options(delay=60).enqueue("ada")
                assert schedq_tester.run_due() == 0
                traveller.shift(60)
                assert schedq_tester.run_due() == 1

        @freeze_time("2026-03-01 12:00")
        def test_freezegun_as_a_decorator(schedq_tester):
            job = send.options(delay=60).enqueue("ada")
            assert schedq_tester.clock() == time.time()
            assert schedq_tester.fast_forward() == 1
            assert job.record().completed_at_ms // 1000 == 1772366460

        @time_machine.travel("2026-03-01 12:00Z", tick=False)
        def test_time_machine_as_a_decorator(schedq_tester):
            send.options(delay=60).enqueue("ada")
            assert schedq_tester.clock() == time.time()
            assert schedq_tester.fast_forward() == 1
    """,
    "unittests": """
        import unittest
        from schedq.testing import eager, queue_tester
        from shop import send

        class MailTest(unittest.TestCase):
            def setUp(self):
                self.jobs = self.enterContext(queue_tester())

            def test_it_runs(self):
                send.enqueue("ada")
                self.assertEqual(self.jobs.run_due(), 1)

            def test_it_starts_empty(self):
                self.assertEqual(self.jobs.run_due(), 0)

        class AsyncMailTest(unittest.IsolatedAsyncioTestCase):
            async def test_it_runs(self):
                with queue_tester() as jobs:
                    await send.aenqueue("ada")
                    self.assertEqual(await jobs.arun_due(), 1)

        class EagerTest(unittest.TestCase):
            def test_it_runs(self):
                with eager() as jobs:
                    self.assertEqual(send.enqueue("ada").result(), "ada")
                    jobs.assert_enqueued(send, ["ada"])
    """,
    "web": """
        import pytest
        from fastapi import FastAPI
        from starlette.applications import Starlette
        from starlette.responses import JSONResponse
        from starlette.routing import Route
        from starlette.testclient import TestClient
        from shop import queue, send

        api = FastAPI()

        @api.post("/mails")
        def enqueue(address: str) -> str:
            return send.enqueue(address).id

        @api.post("/async-mails")
        async def aenqueue(address: str) -> str:
            return (await send.aenqueue(address)).id

        async def mail(request):
            return JSONResponse((await send.aenqueue(request.query_params["address"])).id)

        site = Starlette(routes=[Route(path, mail, methods=["POST"]) for path in ("/mails", "/async-mails")])

        @pytest.mark.parametrize("app", [api, site], ids=["fastapi", "starlette"])
        @pytest.mark.parametrize("path", ["/mails", "/async-mails"])
        def test_jobs_of_a_request_run(schedq_tester, app, path):
            for _ in range(2):  # each client has its own event loop
                with TestClient(app) as client:
                    job = queue.job(client.post(path, params={"address": "ada"}).json())
                assert schedq_tester.run_due() == 1
                assert job.result(timeout=0) == "ada"

        @pytest.mark.parametrize("app", [api, site], ids=["fastapi", "starlette"])
        @pytest.mark.parametrize("path", ["/mails", "/async-mails"])
        def test_jobs_of_a_request_run_eagerly(schedq_eager, app, path):
            with TestClient(app) as client:
                job = queue.job(client.post(path, params={"address": "ada"}).json())
            assert job.result() == "ada"
    """,
    "eagerly": """
        import pytest
        import shop
        from schedq import Conflict, JobFailed, UsageError, Worker
        from shop import queue, send

        pytestmark = pytest.mark.usefixtures("schedq_eager")

        def test_a_job_runs_at_once_whatever_its_delay():
            job = send.options(delay=3600).enqueue("ada")
            assert (job.status(), job.result(), job.record().attempts) == ("completed", "ada", 1)

        def test_a_job_that_another_enqueues_runs_within_it():
            assert queue.job(shop.receipt.enqueue(1).result()).result() == "order-1"

        def test_an_async_job_runs():
            assert shop.remind.enqueue(2).status() == "completed"

        def test_retries_follow_at_once_and_progress_is_kept():
            job = shop.flaky.enqueue(2)
            assert job.result() == 3
            assert job.progress().done == 3
            assert [attempt["outcome"] for attempt in job.record().history] == ["retry", "retry", "completed"]

        def test_a_job_that_fails_is_failed():
            job = shop.flaky.enqueue(3)
            assert job.status() == "failed"
            with pytest.raises(JobFailed, match="the bank is down"):
                job.result()

        def test_many_jobs_run():
            jobs = send.enqueue_many([send.with_args("ada"), send.with_args("bob")])
            assert queue.gather_results(jobs) == ["ada", "bob"]
            assert queue.enqueue_many([{"task": "send", "args": ["eve"]}])

        def test_an_id_of_ones_own_runs_once():
            shop.sent.clear()
            jobs = [send.options(job_id="one").enqueue("ada") for _ in range(2)]
            assert ([job.created for job in jobs], shop.sent) == ([True, False], ["ada"])
            with pytest.raises(Conflict):
                send.options(job_id="one").enqueue("bob")
            with pytest.raises(Conflict):
                send.options(job_id="one", must_create=True).enqueue("ada")
            assert send.options(job_id="one", reuse_id=True).enqueue("bob").result() == "bob"

        @pytest.mark.parametrize("call", [
            queue.stats, queue.pause, lambda: queue.inspector.pulse(), lambda: queue.schedules.trigger("report"),
            lambda: send.enqueue("ada").cancel(), lambda: next(queue.events()), queue.claim,
        ])
        def test_what_needs_redis_says_so(call):
            with pytest.raises(UsageError, match="needs Redis, and eager mode has none"):
                call()

        def test_a_worker_says_so():
            import asyncio
            with pytest.raises(UsageError, match="needs Redis, and eager mode has none"):
                asyncio.run(Worker([queue], burst=True).run())

        def test_a_result_that_never_comes_says_why():
            for job, why in (
                (shop.snoozes.enqueue(), "it snoozed"),
                (queue.job(queue.enqueue({"task": "elsewhere", "args": []})), "no task"),
            ):
                with pytest.raises(UsageError, match=why):
                    job.result()

        def test_a_job_that_enqueues_itself_again_says_so(monkeypatch):
            monkeypatch.setattr("schedq.testing.eager_mode._DEEPEST", 4)
            with pytest.raises(UsageError, match="never ends"):
                shop.forever.enqueue()
            assert send.enqueue("ada").result() == "ada"
    """,
    "afterwards": """
        import os
        import pytest
        from schedq import Queue, UsageError
        from schedq.testing import queue_tester
        from shop import queue, send

        before = queue.address, queue.settings, queue.aio.settings, os.environ.get("SCHEDQ_REDIS_URL")
        clients = queue.connections.blocking, queue.connections.aio

        @pytest.mark.parametrize("fixture", ["schedq_tester", "schedq_eager"])
        def test_the_queue_is_replaced(request, fixture):
            request.getfixturevalue(fixture)
            assert queue.connections.blocking not in clients
            send.enqueue("ada")

        def test_the_queue_has_its_own_server_and_clock_back():
            assert (queue.address, queue.settings, queue.aio.settings, os.environ.get("SCHEDQ_REDIS_URL")) == before
            assert (queue.connections.blocking, queue.connections.aio) == clients
            assert queue.connections.before_enqueue == ()

        @pytest.mark.parametrize("url", ["redis://localhost:6379/0", "unix:///run/redis.sock", "embedded://", "embedded://mine"])
        def test_a_server_that_the_tests_did_not_start_is_refused_and_keeps_its_data(url, schedq_server):
            mine = Queue("mine", redis="embedded://mine")
            kept = mine.enqueue("a job of yours")
            with pytest.raises(UsageError, match="tests delete all data of their server"), queue_tester(url):
                pass
            assert mine.job(kept).status() == "pending"

        def test_a_forked_process_does_not_empty_the_server_of_its_parent(schedq_tester, schedq_server):
            job = send.enqueue("ada")
            child = os.fork()
            if not child:
                try:
                    with queue_tester(schedq_server):
                        os._exit(1)
                except UsageError:
                    os._exit(0)
                finally:
                    os._exit(2)
            assert os.waitpid(child, 0)[1] == 0
            assert job.status() == "pending"

        def test_last_the_folder_is_stopped():
            from schedq.embedded import stop_server
            assert stop_server("mine")
    """,
}


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What pytest prints about all cases, which run in one process."""
    files = {f"test_{name}.py": text for name, text in CASES.items()}
    command = pytest_command("-o", "asyncio_default_fixture_loop_scope=function", plugins=PLUGINS)
    return run(tmp_path_factory.mktemp("shop"), {"shop.py": SHOP, **files}, command)[1]


def names() -> list[str]:
    """The name of each test, as in the cases."""
    lines = [(case, line.strip()) for case, text in CASES.items() for line in text.splitlines()]
    words = ("def test_", "async def test_")
    return [f"{case}-{line.partition('def ')[2].partition('(')[0]}" for case, line in lines if line.startswith(words)]


@pytest.mark.parametrize("name", names())
def test_the_tests_of_a_user_pass(output: str, name: str) -> None:
    case, _, test = name.partition("-")
    found = {
        full: word
        for full, word in outcomes(output).items()
        if full.startswith(f"test_{case}.py::") and full.rpartition("::")[2].partition("[")[0] == test
    }

    assert set(found.values()) == {"PASSED"}, section(output, test) or output


def section(output: str, test: str) -> str:
    """What pytest printed about the failure of one test."""
    parts = re.split(r"^(?=_{3,} .* _{3,}$|={3,} )", output, flags=re.MULTILINE)
    return "".join(part for part in parts if re.match(rf"_+ (\S*\.)?{test}\b", part))


def test_they_leave_no_server_and_no_folder(output: str) -> None:
    assert "left behind" not in output
    assert "error" not in output.splitlines()[-1], output


def test_processes_of_xdist_have_a_server_each(tmp_path: Path) -> None:
    test = """
        import os, pytest
        from pathlib import Path
        from shop import queue, send

        @pytest.mark.parametrize("number", range(6))
        def test_it_runs_only_its_own_jobs(schedq_server, schedq_tester, number):
            Path(f"server-{os.environ['PYTEST_XDIST_WORKER']}").write_text(schedq_server)
            send.enqueue_many([send.with_args(str(number))] * 5)
            assert queue.stats()["pending_depth"] == 5
            assert schedq_tester.run_due() == 5
    """
    command = pytest_command("-n", "2", plugins=["xdist.plugin"])
    code, output = run(tmp_path, {"shop.py": SHOP, "test_shop.py": test}, command)

    assert code == 0, output
    assert "left behind" not in output
    assert len({path.read_text() for path in tmp_path.glob("server-*")}) == 2


def test_the_plugin_imports_only_the_lazy_package_until_a_fixture_is_used(tmp_path: Path) -> None:
    test = """
        import sys

        def test_nothing_more_is_imported():
            loaded = {name for name in sys.modules if name.partition(".")[0] in ("schedq", "redis")}
            lazy = {"schedq", "schedq.aliases", "schedq.errors"}
            assert loaded == lazy | {"schedq.integrations", "schedq.integrations.pytest"}
    """
    code, output = run(tmp_path, {"test_shop.py": test}, pytest_command())

    assert code == 0, output


def test_pytest_finds_the_plugin_in_an_installed_package() -> None:
    found = {(entry.name, entry.value) for entry in entry_points(group="pytest11")}

    assert ("schedq", "schedq.integrations.pytest") in found, "installed from an older tree? pip install -e . again"
