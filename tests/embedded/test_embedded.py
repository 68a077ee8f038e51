"""`embedded://`: a server per folder that starts when it is needed and stops when it is no longer used."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from schedq.embedded import ensure_server, stop_server, watcher
from schedq.errors import StoreUnavailable
from tests.waiting import until

pytestmark = pytest.mark.processes

STARTER = """
import sys
from schedq.embedded import ensure_server
print("ready", flush=True)
sys.stdin.readline()
print(ensure_server(sys.argv[1]), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for data folders, with its own runtime folder; no server is left running in it."""
    with tempfile.TemporaryDirectory(prefix="schedq-", dir="/tmp") as name:
        place = Path(name)
        (place / "run").mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place / "run"))
        monkeypatch.setenv("XDG_DATA_HOME", str(place / "home"))
        monkeypatch.delenv("SCHEDQ_EMBEDDED_IDLE", raising=False)
        yield place
        for lock in place.rglob(watcher.SERVER_LOCK):
            stop_server(lock.parent)
        # The watcher of a server that exited on its own may still be cleaning up.
        until(lambda: not list(place.rglob("*.sock")))


@pytest.fixture
def starter(place: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Makes processes that start the server of a URL once they read a line, print its socket, and wait."""
    processes = []

    def start(url: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", STARTER, url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            process_group=0,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def client(path: str) -> redis.Redis:
    return redis.Redis(unix_socket_path=path, decode_responses=True)


def pid_at(path: str) -> int:
    with client(path) as store:
        return int(store.info("server")["process_id"])


def watcher_of(folder: Path) -> int:
    return int(str(watcher.read_record(folder)["watcher"]))


def log_of(folder: Path) -> Path:
    [log] = [
        *folder.glob("appendonlydir/*.incr.aof"),
        *folder.glob("appendonly.aof"),
    ]  # written since Redis 7, and before it
    return log


def is_held(lock: Path) -> bool:
    descriptor = watcher.try_lock(lock, fcntl.LOCK_SH)
    if descriptor is not None:
        watcher.unlock(descriptor)
    return descriptor is None


def has_ended(folder: Path) -> bool:
    return not is_held(folder / watcher.SERVER_LOCK) and not is_held(folder / watcher.WATCHER_LOCK)


def test_six_processes_that_start_a_server_at_once_share_it(place, starter):
    processes = [starter(f"embedded://{place}/data") for _ in range(6)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 6

    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    paths = {process.stdout.readline().strip() for process in processes}

    assert len(paths) == 1
    assert (place / "data/server.log").read_text().count("Server initialized") == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=["SIGKILL", "Ctrl-C"])
def test_a_server_survives_the_process_that_started_it(place, starter, number):
    process = starter(f"embedded://{place}/data")
    process.stdin.write("\n")
    process.stdin.flush()
    process.stdout.readline()
    path = process.stdout.readline().strip()
    pid = pid_at(path)

    os.killpg(process.pid, number)
    process.wait()

    assert pid_at(path) == pid
    assert os.getsid(pid) not in (process.pid, os.getsid(0))


def test_stored_data_survives_a_sigkill_of_the_server(place):
    path = ensure_server(f"embedded://{place}/data")
    client(path).set("kept", "yes")

    os.kill(pid_at(path), signal.SIGKILL)
    again = ensure_server(f"embedded://{place}/data")

    assert again == path
    assert client(again).get("kept") == "yes"


def test_a_half_written_last_command_is_dropped_and_the_rest_is_kept(place):
    path = ensure_server(place / "data")
    client(path).set("kept", "yes")
    client(path).set("last", "yes")
    log = log_of(place / "data")
    until(lambda: b"last" in log.read_bytes())  # while it saves to a slow disk, a server writes later
    os.kill(pid_at(path), signal.SIGKILL)
    os.truncate(log, log.stat().st_size - 3)

    path = ensure_server(place / "data")

    assert client(path).mget("kept", "last") == ["yes", None]


def test_a_server_stops_once_it_is_no_longer_used_and_not_before(place, monkeypatch):
    monkeypatch.setenv("SCHEDQ_EMBEDDED_IDLE", "3")
    path = ensure_server(place / "data")
    with client(path) as store:
        pid = pid_at(path)
        store.set("kept", "yes")
        store.blpop("nothing", timeout=4)
        assert pid_at(path) == pid

    until(lambda: has_ended(place / "data"))

    assert not os.path.exists(path)
    assert client(ensure_server(place / "data")).get("kept") == "yes"


def test_a_client_that_connects_while_the_server_stops_gets_a_new_one(place, monkeypatch):
    monkeypatch.setenv("SCHEDQ_EMBEDDED_IDLE", "0.1")
    pids: set[int] = set()
    visit = 0

    def has_visited() -> bool:
        path = ensure_server(place / "data")
        try:
            with client(path) as store:
                assert int(store.getset("visit", visit) or 0) in (visit - 1, visit)
                pids.add(store.info("server")["process_id"])
        except redis.ConnectionError:  # this process was stopped for as long as the server may be idle
            return False
        return True

    while visit < 20 or (
        len(pids) == 1 and visit < 200
    ):  # on a busy machine the watcher notices later that the server is idle
        visit += 1
        until(has_visited)
        time.sleep(0.085 + visit * 0.003)  # the idle time, and the time until the watcher notices its end

    assert len(pids) > 1


def test_stopping_waits_until_the_server_has_exited_and_keeps_the_data(place):
    path = ensure_server(place / "data")
    client(path).set("kept", "yes")

    assert stop_server(place / "data")

    assert has_ended(place / "data")
    assert not stop_server(place / "data")
    assert not stop_server(place / "never")
    assert client(ensure_server(place / "data")).get("kept") == "yes"


def test_a_folder_with_a_long_and_strange_name_works(place):
    folder = place / ("long " * 40) / 'ü "%20" #'

    path = ensure_server(f"embedded://{folder}")

    assert len(os.fsencode(folder)) > 107
    assert len(os.fsencode(path)) <= 107
    assert client(path).config_get("dir") == {"dir": str(folder)}


def test_only_the_user_has_access(place):
    path = ensure_server(place / "data")

    modes = [os.stat(each).st_mode & 0o777 for each in (path, os.path.dirname(path), place / "data")]

    assert modes == [0o700, 0o700, 0o700]


def test_jobs_are_never_evicted_and_are_saved_without_waiting_for_a_snapshot(place):
    expected = {"appendonly": "yes", "appendfsync": "everysec", "save": "", "maxmemory-policy": "noeviction"}

    options = client(ensure_server(place / "data")).config_get("*")

    assert {name: options[name] for name in expected} == expected


def test_a_relative_url_starts_at_the_working_folder(place, monkeypatch):
    monkeypatch.chdir(place)

    path = ensure_server("embedded://some/data")

    assert client(path).config_get("dir") == {"dir": f"{place}/some/data"}


def test_a_deleted_socket_is_created_again(place, monkeypatch):
    monkeypatch.setenv("SCHEDQ_EMBEDDED_IDLE", "5")
    path = ensure_server(place / "data")
    client(path).set("kept", "yes")
    until(lambda: any(each["name"] == "schedq-watcher" for each in client(path).client_list()))
    os.unlink(path)

    assert client(ensure_server(place / "data")).get("kept") == "yes"


def test_a_server_whose_folder_was_removed_stops_and_does_not_affect_its_successor(place, monkeypatch):
    monkeypatch.setenv("SCHEDQ_EMBEDDED_IDLE", "1")
    old = ensure_server(place / "data")
    os.rename(place / "data", place / "moved")
    monkeypatch.setenv("SCHEDQ_EMBEDDED_IDLE", "60")
    new = ensure_server(place / "data")
    shutil.rmtree(place / "moved", ignore_errors=True)  # the old server may be about to end, and remove files as well

    until(lambda: not os.path.exists(old))

    assert client(new).ping()


def test_a_killed_watcher_takes_its_server_with_it(place):
    if not sys.platform.startswith("linux"):
        pytest.skip("needs prctl")
    path = ensure_server(place / "data")
    client(path).set("kept", "yes")

    os.kill(watcher_of(place / "data"), signal.SIGKILL)

    until(lambda: has_ended(place / "data"))
    assert client(ensure_server(place / "data")).get("kept") == "yes"


def test_on_other_systems_the_next_process_adopts_the_server_of_a_killed_watcher(place, monkeypatch):
    code = Path(watcher.__file__).read_text()
    (place / "watcher.py").write_text(code.replace('startswith("linux")', 'startswith("no such")'))
    monkeypatch.setattr(watcher, "__file__", str(place / "watcher.py"))
    monkeypatch.setenv("SCHEDQ_EMBEDDED_IDLE", "3")
    pid = pid_at(ensure_server(place / "data"))

    os.kill(watcher_of(place / "data"), signal.SIGKILL)
    until(lambda: not is_held(place / "data" / watcher.WATCHER_LOCK))

    assert pid_at(ensure_server(place / "data")) == pid
    until(lambda: has_ended(place / "data"))


def test_the_log_of_a_server_that_does_not_start_is_quoted(place):
    path = ensure_server(place / "data")
    client(path).set("kept", "yes")
    client(path).set("more", "yes")
    stop_server(place / "data")
    log = log_of(place / "data")
    log.write_bytes(log.read_bytes().replace(b"kept", b"kep", 1))

    with pytest.raises(StoreUnavailable, match=r"data does not start; its log ends: .*Bad file format"):
        ensure_server(place / "data")
