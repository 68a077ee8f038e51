"""What scripts/demo says to try next works when it is pasted, without a Redis."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from schedq import Queue, embedded
from tests.servers import reserve_port
from tests.stories.deployment.test_starting import get
from tests.waiting import until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
FIRST, PAGE, INSTALL, DASHBOARD = re.findall(r"^  (\S.+)$", (ROOT / "scripts" / "demo").read_text(), re.MULTILINE)
DATA = "embedded://.venv/data"


@contextmanager
def pasted(line: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A command line, with this environment's programs and its data in a folder of the test."""
    command = line.replace(DATA, f"embedded://{folder}").replace(".venv/bin/", f"{Path(sys.executable).parent}/")
    with subprocess.Popen(
        ["bash", "-c", f"exec env {command}"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()


def test_the_first_job_is_explained(tmp_path: Path) -> None:
    with pasted(FIRST, tmp_path) as process:
        assert process.stdout is not None
        said = process.stdout.read()

    assert process.returncode == 0
    assert "The first job" in said


def test_what_is_to_be_installed_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]

    assert {*re.findall(r"'\.\[(\w+)\]'", INSTALL)} == {"dashboard"} <= extras.keys()


def test_the_page_and_the_dashboard_show_the_same_queue(tmp_path: Path) -> None:
    page, dashboard = reserve_port(), reserve_port()
    default = re.search(r"default=(\d+)", (ROOT / "examples" / "demo_server.py").read_text())
    assert default
    assert default[1] != DASHBOARD.partition("--port ")[2]  # both may run at a time

    try:
        with (
            pasted(f"{PAGE} --port {page}", tmp_path),
            pasted(DASHBOARD.replace("8091", str(dashboard)), tmp_path),
        ):
            until(lambda: get(page, "/")[0] == 200)
            with Queue("demo-server", redis=f"embedded://{tmp_path}") as queue:
                queue.enqueue({"n": 1})
            until(lambda: "/queues/demo-server" in get(dashboard, "/")[1])
    finally:
        embedded.stop_server(tmp_path)
