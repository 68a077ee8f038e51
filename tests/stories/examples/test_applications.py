"""The applications under examples/, started as their documentation says, and their own tests."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scripts.tools.handbook import all_blocks
from tests.pages import page
from tests.servers import Server, environment_now
from tests.waiting import until

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
PATIENCE_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the applications, with an empty HOME."""
    for name in ("bookshop", "orders", "checksums", "mandelbrot", "limits", "workflows", "guide"):
        shutil.copytree(ROOT / "examples" / name, tmp_path / name)
    (tmp_path / "home").mkdir()
    return tmp_path


OTHERS = (
    "cacheprovider",
    "valkey",
    "anyio",
    "hypothesispytest",
    "time_machine",
    "timeout",
    "xdist",
    "xdist.looponfail",
)
"""Plugins of pytest that an application's tests don't use; half of the time of a short run is for importing them."""


def environment(folder: Path, url: str = "") -> dict[str, str]:
    kept = {
        key: value for key, value in environment_now().items() if not key.startswith(("SCHEDQ_", "REDIS_", "PYTEST"))
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), kept["PATH"]])
    return (
        kept
        | {"HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "PATH": path}
        | ({"REDIS_URL": url} if url else {})
    )


def documented(package: Path) -> list[str]:
    """The commands in the docstring of an application, in order."""
    text = ast.get_docstring(ast.parse((package / "__init__.py").read_text())) or ""
    return [
        line.strip().removesuffix("&").strip()
        for line in re.sub(r"\\\n\s*", "", text).splitlines()
        if line[:4] == " " * 4
    ]


@contextmanager
def running(command: str, mark: str, folder: Path, url: str) -> Iterator[str]:
    """A documented command, once it has printed that it is ready; yields that line."""
    with subprocess.Popen(
        command.split(), cwd=folder, env=environment(folder, url), stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
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


@pytest.mark.parametrize("name", ["bookshop", "orders", "checksums", "mandelbrot", "limits", "workflows"])
def test_an_application_passes_its_own_tests(folder: Path, name: str):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *(word for plugin in OTHERS for word in ("-p", f"no:{plugin}")), name],
        cwd=folder, env=environment(folder), capture_output=True, text=True, timeout=PATIENCE_S * 3,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_page_about_fastapi_has_the_files_of_the_bookshop():
    saved = {block.path: block.code for block in all_blocks(page("fastapi.md")) if block.path}
    files = (ROOT / "examples" / "bookshop").glob("*.py")

    assert saved == {f"bookshop/{path.name}": path.read_text() for path in files if path.name != "__init__.py"}


def test_the_documented_commands_take_and_confirm_an_order_of_a_book(folder: Path):
    _, _, worker, web, post, get = documented(folder / "bookshop")
    with (
        Server() as server,
        running(worker, "ready", folder, server.url),
        running(f"{web} --port 0", "Uvicorn running on", folder, server.url) as line,
    ):
        port = line.partition("http://127.0.0.1:")[2].split()[0]
        status, order = curl(post, port)
        assert (status, order["number"]) == (202, 1)

        until(lambda: curl(get, port)[1]["status"] == "confirmed", PATIENCE_S)


def test_the_documented_commands_take_and_confirm_an_order(folder: Path):
    _, worker, web, post, get = documented(folder / "orders")
    with (
        Server() as server,
        running(worker, "ready", folder, server.url),
        running(f"{web} --port 0", "Uvicorn running on", folder, server.url) as line,
    ):
        port = line.partition("http://127.0.0.1:")[2].split()[0]
        status, order = curl(post, port)
        assert (status, order) == (202, {"number": 1, "status": "new", "note": ""})

        until(lambda: curl(get, port)[1]["status"] == "confirmed", PATIENCE_S)

    assert curl_headers(post)["X-Tenant"] == "acme"


def curl_headers(command: str) -> dict[str, str]:
    return dict(re.findall(r"-H '([^:']+): ([^']+)'", command))


def curl(command: str, port: str) -> tuple[int, Any]:
    """Send the request of a documented curl command to this port."""
    body = re.search(r"-d '([^']+)'", command)
    address = command.split()[-1].replace(":8000", f":{port}")
    request = urllib.request.Request(address, body[1].encode() if body else None, curl_headers(command))
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, json.load(refusal)


def test_the_documented_commands_render_a_picture(folder: Path):
    _, worker, script = documented(folder / "mandelbrot")
    with Server() as server, running(worker, "ready", folder, server.url):
        done = subprocess.run(
            script.split(),
            cwd=folder,
            env=environment(folder, server.url),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 3,
        )

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("whole.png: ")
    assert (folder / "whole.png").read_bytes().startswith(b"\x89PNG")


def test_the_documented_commands_run_jobs_under_limits(folder: Path):
    _, _, enqueue, worker = documented(folder / "limits")
    with Server() as server:
        said = [
            subprocess.run(
                command.split(), cwd=folder, env=environment(folder, server.url), capture_output=True, text=True,
                timeout=PATIENCE_S * 3, check=True,
            ).stdout
            for command in (enqueue, worker)
        ]  # fmt: skip

    assert said[0] == "1 job for 5 edits of document 17\n"
    assert "export of small, month 1" in said[1]
    sent = sorted(re.findall(r"sent acme \d", said[1]))  # several threads print at a time, sometimes on one line
    assert sent == [f"sent acme {number}" for number in range(5)]


def test_the_documented_commands_run_a_workflow_of_each_kind(folder: Path, monkeypatch: pytest.MonkeyPatch):
    _, _, days, worker, script = documented(folder / "workflows")
    monkeypatch.setenv(*days.removeprefix("export ").split("="))
    with Server() as server, running(worker, "ready", folder, server.url):
        done = subprocess.run(
            script.split(), cwd=folder, env=environment(folder, server.url), capture_output=True, text=True,
            timeout=PATIENCE_S * 3,
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "order: track-parcel-1",
        "expense: paid, approved by Grace",
        "research: Lima is warmer",
        "letters: 4",
        "night: model of 7000 rows",
        "season: spring e1: 3 sizes e2: 3 sizes",
        "chord: trip: small photo-0, small photo-1, small photo-2, small photo-3, small photo-4",
        "chain: small photo-7 in the hall",
        "files: {'lines': 20000, 'cents': 99990000}",
    ]


def test_checksums_are_those_of_sha256sum(folder: Path):
    _, worker, script, check = documented(folder / "checksums")
    command, _, output = script.partition(" > ")
    with Server() as server, running(worker, "ready", folder, server.url):
        done = subprocess.run(
            command.split(),
            cwd=folder,
            env=environment(folder, server.url),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )

    assert (done.returncode, done.stderr) == (0, "")
    (folder / output).write_text(done.stdout)
    subprocess.run(check.split(), cwd=folder, check=True)
    assert len(done.stdout.splitlines()) == sum(path.is_file() for path in (folder / "guide").rglob("*"))
