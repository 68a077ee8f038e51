"""Real servers for tests: one's own Redis or Valkey, to fill, freeze, kill and start again."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from schedq.doctor.roles import ROLES
from schedq.embedded import SERVER_ENVIRONMENT, server_binary
from schedq.errors import StoreUnavailable
from tests.roles import ROLE
from tests.waiting import until

TOPOLOGY: Final = os.environ.get("SCHEDQ_TEST_TOPOLOGY", "single")
"""What a server is unless a test says otherwise: `single`, or `cluster`, of one node."""


SILENCE_S: Final = 10.0
"""Seconds without a word after which a server that was started, or asked for its version, counts as hanging."""


class ServerError(AssertionError):
    """A server is not there, does not start or hangs; the text names it and says why."""


class Server:
    """A server of its own on a unix socket and a loopback port, with its data in a temporary folder.

    Options are those of redis.conf, with `_` for `-` and True and False for yes and no:
    `Server(maxmemory="50mb", appendonly=True)`. It stores nothing on disk unless told to, and keeps folder
    and port over `kill()` and `start()`. The program is the one of `chosen()`.

    With `users`, names and what ACL SETUSER says of each, it has those, whose password is their name, and the tests'
    own, and lets in nobody else; `SCHEDQ_TEST_ROLE` names one that queues then are, if nothing else is said.

    With `topology="cluster"` it is a cluster of one node; without one, `SCHEDQ_TEST_TOPOLOGY` says which.

    Attributes:
        environment: variables that the program gets beside those of this process, at the next `start()`.
    """

    def __init__(
        self,
        binary: str | os.PathLike[str] | None = None,
        *,
        topology: str | None = None,
        users: Mapping[str, str] | None = None,
        **options: object,
    ) -> None:
        self.is_cluster = (topology or TOPOLOGY) == "cluster"
        if self.is_cluster:
            options = {"cluster_enabled": True} | options
        self.binary = Path(binary or chosen())
        self.folder = Path(tempfile.mkdtemp(prefix="schedq-", dir="/tmp"))
        self.socket_path = str(self.folder / "server.sock")
        self.port = 0
        self.options = {name.replace("_", "-"): _spelt(value) for name, value in options.items()}
        self.environment: dict[str, str] = {}
        self._user = self._own_user = f":{self.options['requirepass']}@" if "requirepass" in self.options else ""
        if ROLE and not self._user and users is None:
            self._user, users = _login(ROLE), {ROLE: ROLES[ROLE].rules()}
        if users is not None:
            self._own_user = _login("tests")
            known = "".join(f"user {name} on >{name} {rules}\n" for name, rules in users.items())
            (self.folder / "users.acl").write_text(f"user default off\nuser tests on >tests ~* &* +@all\n{known}")
            self.options["aclfile"] = str(self.folder / "users.acl")
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        assert self._process, "the server is not running"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def url(self) -> str:
        """Over TCP, with the password if it has one."""
        if self.is_cluster:
            return f"redis+cluster://{self._user}127.0.0.1:{self.port}"
        return f"redis://{self._user}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """Over the unix socket; a cluster is found over TCP only."""
        if self.is_cluster:
            return self.url
        return f"unix://{self._user}{self.socket_path}?db=0"

    @property
    def own_url(self) -> str:
        """The same for the tests' own user, who may do everything; it differs where they are run under a role."""
        return self.url_as("tests") if self._own_user == _login("tests") else self.unix_url

    def url_as(self, user: str) -> str:
        """The same for a user whose password is the name."""
        login = _login(user)
        if self.is_cluster:
            return f"redis+cluster://{login}127.0.0.1:{self.port}"
        return f"unix://{login}{self.socket_path}?db=0"

    def start(self) -> None:
        """Start it, again too, and wait until it answers and has read its data.

        Raises:
            ServerError: it ends, or says nothing for `SILENCE_S`.
        """
        assert self._process is None, "the server is running"
        for _ in range(1 if self.port else 20):
            port = self.port or _free_port()
            if self._comes_up(port):
                self.port = port
                if self.is_cluster:
                    self._take_all_slots()
                return
        raise ServerError(f"{self.binary} does not start: every port is taken:\n{self.log()}")

    def _command(self, port: int) -> list[str]:
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "unixsocket": self.socket_path,
            "dir": str(self.folder),
            "save": "",
            "appendonly": "no",
        } | self.options
        words = (word for name, value in options.items() for word in (f"--{name}", *(value.split() or [""])))
        return [str(self.binary), *words]

    def _comes_up(self, port: int) -> bool:
        """Start it on a port and wait; False if somebody else has the port."""
        log_path = self.folder / "server.log"
        with log_path.open("ab") as log:
            began_at = log.tell()
            self._process = subprocess.Popen(
                self._command(port),
                env=os.environ | SERVER_ENVIRONMENT | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the tests, which then stop it
            )
        until = time.monotonic() + SILENCE_S
        while time.monotonic() < until and self._process.poll() is None:
            if reply := _reply_to_ping(port):
                if not reply.startswith(b"-LOADING"):
                    return True
                until = time.monotonic() + SILENCE_S
            time.sleep(0.002)
        code = self._process.poll()
        self.kill()
        said = log_path.read_bytes()[began_at:].decode(errors="replace")
        if code is not None and "Address already in use" in said:
            return False
        how = f"hangs: no answer for {SILENCE_S:.0f} s" if code is None else f"does not start (exit code {code})"
        raise ServerError(f"{self.binary} {how}{_in(self.environment)}:\n{said[-3000:]}")

    def _take_all_slots(self) -> None:
        with self.client() as client:
            if not client.execute_command("CLUSTER SLOTS"):
                client.execute_command("CLUSTER ADDSLOTS", *range(16384))
            # It lets two seconds pass before it serves.
            until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 30, failing=self.log)

    def stop(self) -> None:
        """End it and remove its folder; more than once does no harm."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def kill(self) -> None:
        """SIGKILL: what it has not written is lost. Its folder stays, for `start()`."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nobody answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        """A plain client that sends each command once.

        It does not tell Redis its version, which costs it more than all else that it does in most tests.
        """
        given: dict[str, Any] = {"decode_responses": True, "retry": Retry(NoBackoff(), 0), "socket_timeout": 30}
        given |= {"driver_info": None} | options
        return redis.Redis.from_url(f"redis://{self._own_user}127.0.0.1:{self.port}/0", **given)

    def log(self) -> str:
        """The end of what it wrote."""
        with suppress(FileNotFoundError):
            return (self.folder / "server.log").read_text(errors="replace")[-3000:]
        return ""

    @contextmanager
    def requests(self) -> Iterator[list[Request]]:
        """The requests that clients make while this is open, in order; complete once it is closed.

        A script is one request: what it calls is left out.
        """
        for thread in threading.enumerate():
            if thread.name == "schedq-enlist":  # who has connected before, and is not of interest
                thread.join(10)
        found: list[Request] = []
        mark = uuid.uuid4().hex
        with self._wire() as monitor, monitor.makefile("rb") as lines, self._wire() as other:
            monitor.sendall(b"MONITOR\r\n")
            assert lines.readline() == b"+OK\r\n"
            thread = threading.Thread(target=_gather, args=(lines, mark, found), daemon=True)
            thread.start()
            try:
                yield found
            finally:
                other.sendall(f"ECHO {mark}\r\n".encode())
                thread.join(10)
                late = thread.is_alive()
                monitor.shutdown(socket.SHUT_RDWR)
                thread.join()
        assert not late, "the server has not reported the last command"

    def _wire(self) -> socket.socket:
        wire = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        if self._own_user:
            wire.sendall(f"AUTH {self._own_user.strip(':@').replace(':', ' ')}\r\n".encode())
            assert wire.recv(100) == b"+OK\r\n"
        wire.settimeout(None)
        return wire


@dataclass(frozen=True, slots=True)
class Request:
    """One command of a client, as MONITOR shows it; an unprintable byte is left as its `\\x..`."""

    at: float
    client: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """`EVALSHA`, `BZPOPMIN`, …"""
        return self.words[0].upper()

    def __str__(self) -> str:
        return " ".join(self.words)


def chosen(environment: Mapping[str, str] | None = None) -> Path:
    """The server of tests and tools: the one that SCHEDQ_TEST_SERVER names, else what `embedded://` takes by itself.

    Args:
        environment: variables that it is to run with.

    Raises:
        ServerError: there is none, or it does not run here, as far as it can be known without starting it.
    """
    return _known(os.environ.get("SCHEDQ_TEST_SERVER", ""), tuple(sorted((environment or {}).items())))[0]


def announced(tool: str, environment: Mapping[str, str] | None = None) -> Path:
    """The server of a tool, which says on standard error which it is, or ends with the reason why there is none."""
    try:
        path = chosen(environment)
    except ServerError as error:
        sys.exit(f"{tool}: {error}")
    print(f"server: {described()}", file=sys.stderr, flush=True)
    return path


def described() -> str:
    """The server of `chosen()`, in words."""
    path, version = _known(os.environ.get("SCHEDQ_TEST_SERVER", ""), ())
    return f"{version} ({path})"


@lru_cache
def _known(given: str, environment: tuple[tuple[str, str], ...]) -> tuple[Path, str]:
    """The program and its version, asked for once: every server of a test asks which program it is to run."""
    try:
        path = Path(given) if given else server_binary()
    except StoreUnavailable as error:
        raise ServerError(str(error)) from error
    also = dict(environment)
    try:
        process = subprocess.Popen(
            [path, "--version"],
            env=os.environ | SERVER_ENVIRONMENT | also,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ServerError(f"{path} does not run: {error.strerror}; SCHEDQ_TEST_SERVER names the server") from error
    try:
        said = process.communicate(timeout=SILENCE_S / 2)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise ServerError(f"{path} --version hangs{_in(also)}; name another server by SCHEDQ_TEST_SERVER") from None
    found = re.search(r"(\w+) server v=([\d.]+)", said)
    if not found:
        raise ServerError(f"{path} is no server, or does not run here; asked for its version it says {said.strip()!r}")
    return path, f"{found[1]} {found[2]}"


def _in(environment: Mapping[str, str]) -> str:
    said = " ".join(f"{name}={value}" for name, value in sorted(environment.items()))
    return f" with {said}" if said else ""


def _reply_to_ping(port: int) -> bytes:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as wire:
            wire.sendall(b"PING\r\n")
            reply = wire.recv(100)
            return reply if reply.startswith((b"+PONG", b"-NOAUTH", b"-LOADING")) else b""
    except OSError:
        return b""


def _free_port() -> int:
    # Below the ports of outgoing connections (32768 on Linux, 49152 on macOS): in that range, a client that
    # knocks long enough at a dead server's port gets connected to itself, and the server can't return.
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def _login(user: str) -> str:
    return f"{user}:{user}@"


def _spelt(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


# 1735689600.123456 [0 127.0.0.1:50000] "SET" "a \"b\"" "\x00"; `lua` for the address of what a script calls.
_REPORT = re.compile(r"\+?(?P<at>[\d.]+) \[\d+ (?P<client>[^]]*)\] (?P<words>.*)")
_WORD = re.compile(r'"((?:[^"\\]|\\.)*)"')


def _gather(lines: BinaryIO, mark: str, found: list[Request]) -> None:
    for line in lines:
        report = _REPORT.match(line.decode(errors="replace"))
        if not report or report["client"] == "lua":
            continue
        words = tuple(re.sub(r'\\(["\\])', r"\1", word) for word in _WORD.findall(report["words"]))
        if words[-1] == mark:
            return
        found.append(Request(float(report["at"]), report["client"], words))
