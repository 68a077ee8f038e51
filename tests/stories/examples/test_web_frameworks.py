"""Web applications that enqueue: real frameworks serve them, and real schedq workers run the jobs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.servers import Server
from tests.waiting import until

pytestmark = pytest.mark.processes

EXAMPLES = Path(__file__).parents[3] / "examples"
SHOP = EXAMPLES / "shop_django"
PATIENCE_S = 60.0


class Site:
    """The web server of an example, and its worker."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"

    def ask(self, path: str, body: bytes | None = None, kind: str = "application/json") -> tuple[int, Any]:
        """Status and response; a body is posted."""
        request = urllib.request.Request(
            f"{self.address}{path}", body, headers={} if body is None else {"Content-Type": kind}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code, json.load(refusal)

    def ended(self, job_id: str, has_ended: Callable[[dict[str, Any]], object]) -> Any:
        """A job's state once the condition holds."""
        until(
            lambda: has_ended(self.ask(f"/jobs/{job_id}")[1]), PATIENCE_S, failing=lambda: self.ask(f"/jobs/{job_id}")
        )
        return self.ask(f"/jobs/{job_id}")[1]


@contextmanager
def serving(application: str, url: str, *worker: str) -> Iterator[Site]:
    """The application under uvicorn on any free port, and a worker."""
    environment = os.environ | {
        "SCHEDQ_REDIS_URL": url,
        "PYTHONPATH": os.pathsep.join(map(str, (EXAMPLES.parent, EXAMPLES, SHOP))),
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "PYTHONUNBUFFERED": "1",
    }
    commands = {
        "Uvicorn running on": [sys.executable, "-m", "uvicorn", application, "--port", "0", "--no-access-log"],
        "worker": [sys.executable, "-m", *worker],
    }
    with ExitStack() as stack:
        lines = [stack.enter_context(_ready(command, environment, mark)) for mark, command in commands.items()]
        yield Site(int(lines[0].partition("http://127.0.0.1:")[2].split()[0]))


@contextmanager
def _ready(command: list[str], environment: dict[str, str], mark: str) -> Iterator[str]:
    """The process, once it has printed that it is ready; yields that line."""
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr
            said = []
            for line in process.stderr:
                said.append(line)
                if mark in line:
                    break
            else:
                pytest.fail("".join(said))
            yield said[-1]
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="module")
def redis() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture(scope="module")
def fastapi(redis: Server) -> Iterator[Site]:
    with serving("shop_fastapi:app", redis.url, "schedq", "worker", "shop_fastapi:queue") as site:
        yield site


@pytest.fixture(scope="module")
def django(redis: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("SHOP_DATABASE", str(tmp_path_factory.mktemp("shop") / "shop.sqlite3"))
        subprocess.run(
            [sys.executable, "manage.py", "migrate", "--verbosity", "0"],
            cwd=SHOP,
            env=os.environ | {"PYTHONPATH": str(EXAMPLES.parent)},
            check=True,
        )
        with serving("shop.asgi:application", redis.url, "django", "schedq_worker", "shop-mails") as site:
            yield site


def completed(facts: dict[str, Any]) -> bool:
    return bool(facts["status"] == "completed")


def successful(facts: dict[str, Any]) -> bool:
    return bool(facts["status"] == "SUCCESSFUL")


def test_fastapi_enqueues_from_an_async_route_once_per_order(fastapi: Site):
    ids = {fastapi.ask("/orders/7", b'{"to": "ada@example.org"}')[1]["receipt"] for _ in range(3)}

    assert ids == {"receipt-7"}
    assert fastapi.ended("receipt-7", completed)["result"] == "receipt of order 7 sent to ada@example.org"
    assert fastapi.ask("/orders/7", b'{"to": "eve@example.org"}')[0] == 409


def test_fastapi_enqueues_from_a_plain_route(fastapi: Site):
    _, accepted = fastapi.ask("/orders/8/label", b"")

    assert fastapi.ended(accepted["label"], completed)["result"] == "label of order 8 printed"


def test_fastapi_enqueues_for_later(fastapi: Site):
    _, accepted = fastapi.ask("/orders/9", b'{"to": "ada@example.org", "remind_after": 1}')

    assert fastapi.ended(accepted["reminder"], completed)["attempts"] == 1


def test_fastapi_reports_unknown_jobs(fastapi: Site):
    assert fastapi.ask("/jobs/nothing")[0] == 404


def test_fastapi_asks_its_clients_to_retry_while_redis_is_unavailable():
    with Server() as gone, serving("shop_fastapi:app", gone.url, "schedq", "worker", "shop_fastapi:queue") as site:
        gone.kill()
        status, facts = site.ask("/orders/1/label", b"")
        assert status == 503
        assert facts == {"detail": "the job queue is not available; try again later"}
        gone.start()
        assert site.ask("/orders/1/label", b"")[0] == 202


def test_django_enqueues_from_a_sync_view_now_and_later(django: Site):
    status, accepted = django.ask("/orders/7", b"to=ada@example.org", "application/x-www-form-urlencoded")

    assert status == 202
    assert django.ended(accepted["receipt"], successful)["result"] == "receipt of order 7 sent to ada@example.org"
    assert django.ended(accepted["reminder"], successful)["attempts"] == 1


def test_django_enqueues_from_an_async_view_and_a_task_is_tried_again(django: Site):
    _, accepted = django.ask("/orders/8/tell", b"failures=1", "application/x-www-form-urlencoded")

    assert django.ended(accepted["told"], successful)["result"] == "order 8 told"
    paid = django.ended(accepted["paid"], successful)
    assert paid["result"] == "order 8 paid at attempt 2"
    assert paid["attempts"] == 2


def test_django_shows_which_jobs_failed_for_good_and_why(django: Site):
    _, accepted = django.ask("/orders/9/tell", b"failures=9", "application/x-www-form-urlencoded")

    failed = django.ended(accepted["paid"], lambda facts: facts["status"] == "FAILED")

    assert failed["attempts"] == 3
    assert failed["errors"] == ["builtins.ConnectionError"]


def test_django_reports_unknown_jobs(django: Site):
    assert django.ask("/jobs/nothing")[0] == 404
    assert django.ask("/jobs/no*id")[0] == 404


LOG_IN = """
import django
django.setup()
from django.contrib.auth.models import User
from django.test import Client
client = Client()
client.force_login(User.objects.create_superuser("ada"))
print(client.cookies["sessionid"].value)
"""


def test_the_dashboard_under_django_is_for_those_who_may_see_the_queues(django: Site):
    def status(path: str, cookie: str = "") -> int:
        request = urllib.request.Request(f"{django.address}{path}", headers={"Cookie": cookie})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as page:
                return int(page.status)
        except urllib.error.HTTPError as refusal:
            with refusal:
                return refusal.code

    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent), "DJANGO_SETTINGS_MODULE": "shop.settings"}
    session = subprocess.check_output([sys.executable, "-c", LOG_IN], cwd=SHOP, env=environment, text=True).strip()

    assert status("/ops/schedq/") in (401, 403)
    assert status("/ops/schedq/", f"sessionid={session}") == 200
    assert status("/ops/schedq/queues/shop-mails", f"sessionid={session}") == 200
    assert status("/admin/schedq/sitequeues/", f"sessionid={session}") == 200


def test_the_tests_of_the_shop_pass_with_an_empty_home(tmp_path: Path):
    shutil.copytree(SHOP, tmp_path / "shop", ignore=shutil.ignore_patterns("__pycache__", ".schedq", "*.sqlite3"))
    (tmp_path / "home").mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SCHEDQ_", "REDIS_", "DJANGO_"))}
    done = subprocess.run(
        [sys.executable, "-W", "error", "manage.py", "test"],
        cwd=tmp_path / "shop",
        env=kept | {"HOME": str(tmp_path / "home"), "PYTHONPATH": str(EXAMPLES.parent)},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stderr
    assert "Ran 6 tests" in done.stderr
