"""Real servers for tests: your own Redis or Valkey to fill, freeze, kill and restart."""

from __future__ import annotations

import fcntl
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
"""The topology of servers unless a test chooses one: `single`, or `cluster` with one node."""


SILENCE_S: Final = 10.0
"""Seconds without output after which a server counts as hanging when it is started or asked for its version."""


class ServerError(AssertionError):
    """A server is missing, does not start or hangs; the text names it and says why."""


def environment_now() -> dict[str, str]:
    """A copy of this process's environment. Tests start programs in threads while pytest changes it in the main one."""
    while True:
        try:
            return dict(os.environ)
        except (KeyError, RuntimeError):
            continue  # a variable went, or came, in between


class Server:
    """A server with a unix socket, a loopback port and its data in a temporary folder.

    Options are those of redis.conf, with `_` for `-` and True and False for yes and no:
    `Server(maxmemory="50mb", appendonly=True)`. Nothing is stored on disk by default. Folder and port survive
    `kill()` and `start()`. The program is the one of `chosen()`.

    `users` are names and their ACL rules; each password is the name. Only they and the tests' own user can log in.
    `SCHEDQ_TEST_ROLE` names the user for queues unless a test chooses one.

    With `topology="cluster"` it is a cluster of one node; the default is `SCHEDQ_TEST_TOPOLOGY`.

    Attributes:
        environment: additional environment variables for the program, used by the next `start()`.
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
        self._lasting: redis.Redis | None = None

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
        """Whether it has been started, and neither stopped nor killed since."""
        return self._process is not None

    @property
    def url(self) -> str:
        """The TCP address, with the password if there is one."""
        if self.is_cluster:
            return f"redis+cluster://{self._user}127.0.0.1:{self.port}"
        return f"redis://{self._user}127.0.0.1:{self.port}/0"

    @property
    def unix_url(self) -> str:
        """The unix socket's address; a cluster has only TCP."""
        if self.is_cluster:
            return self.url
        return f"unix://{self._user}{self.socket_path}?db=0"

    @property
    def own_url(self) -> str:
        """The address for the tests' own user, who may do everything; differs from `url` only under a role."""
        return self.url_as("tests") if self._own_user == _login("tests") else self.unix_url

    def url_as(self, user: str) -> str:
        """The address for a user whose password is the name."""
        login = _login(user)
        if self.is_cluster:
            return f"redis+cluster://{login}127.0.0.1:{self.port}"
        return f"unix://{login}{self.socket_path}?db=0"

    def start(self) -> None:
        """Start or restart it, and wait until it responds and has loaded its data.

        Raises:
            ServerError: it exits, or prints nothing for `SILENCE_S`.
        """
        assert self._process is None, "the server is already running"
        for _ in range(1 if self.port else 20):
            port = self.port or reserve_port()
            if self._comes_up(port):
                self.port = port
                if self.is_cluster:
                    self._take_all_slots()
                return
        raise ServerError(f"{self.binary} does not start: no free port:\n{self.log()}")

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
        """Start it on a port and wait; False if another program uses the port."""
        log_path = self.folder / "server.log"
        with log_path.open("ab") as log:
            began_at = log.tell()
            self._process = subprocess.Popen(
                self._command(port),
                env=environment_now() | SERVER_ENVIRONMENT | self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches only the tests, which then stop it
            )
        until = time.monotonic() + SILENCE_S
        while time.monotonic() < until and self._process.poll() is None:
            if reply := self._reply_to_ping():
                if not reply.startswith(b"-LOADING"):
                    return True
                until = time.monotonic() + SILENCE_S
            time.sleep(0.002)
        code = self._process.poll()
        self.kill()
        said = log_path.read_bytes()[began_at:].decode(errors="replace")
        if code is not None and "Address already in use" in said:
            return False
        how = f"hangs: no response for {SILENCE_S:.0f} s" if code is None else f"does not start (exit code {code})"
        raise ServerError(f"{self.binary} {how}{_in(self.environment)}:\n{said[-3000:]}")

    def _reply_to_ping(self) -> bytes:
        """The reply on the unix socket; on the port, another program may reply."""
        try:
            with socket.socket(socket.AF_UNIX) as wire:
                wire.settimeout(1)
                wire.connect(self.socket_path)
                wire.sendall(b"PING\r\n")
                reply = wire.recv(100)
                return reply if reply.startswith((b"+PONG", b"-NOAUTH", b"-LOADING")) else b""
        except OSError:
            return b""

    def _take_all_slots(self) -> None:
        with self.client() as client:
            if not client.execute_command("CLUSTER SLOTS"):
                client.execute_command("CLUSTER ADDSLOTS", *range(16384))
            # The server waits for two seconds before it accepts requests.
            until(lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", 30, failing=self.log)

    def stop(self) -> None:
        """Stop it and remove its folder; may be called repeatedly."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        if self.port:
            release_port(self.port)

    def kill(self) -> None:
        """Send SIGKILL: unwritten data is lost. The folder is kept for `start()`."""
        if self._process:
            self._process.kill()
            self._process.wait()
            self._process = None
        if self._lasting is not None:
            self._lasting.close()

    def freeze(self) -> None:
        """Send SIGSTOP: connections stay open, but there are no replies."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def client(self, **options: Any) -> redis.Redis:
        """A plain client that sends each command once.

        It does not send its version to Redis, which would take longer than everything else in most tests.
        """
        given: dict[str, Any] = {"decode_responses": True, "retry": Retry(NoBackoff(), 0), "socket_timeout": 30}
        given |= {"driver_info": None} | options
        return redis.Redis.from_url(f"redis://{self._own_user}127.0.0.1:{self.port}/0", **given)

    @property
    def lasting_client(self) -> redis.Redis:
        """A plain client for all tests on this server, as creating one takes longer than many a test."""
        if self._lasting is None:
            self._lasting = self.client(encoding_errors="surrogateescape")
        return self._lasting

    def log(self) -> str:
        """The end of the server's log."""
        with suppress(FileNotFoundError):
            return (self.folder / "server.log").read_text(errors="replace")[-3000:]
        return ""

    @contextmanager
    def requests(self) -> Iterator[list[Request]]:
        """The requests of clients while this is open, in order; complete once it is closed.

        A script is one request; the commands that it calls are left out.
        """
        for thread in threading.enumerate():
            if thread.name == "schedq-enlist":  # left over from an earlier connection
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
                thread.join(60)
                late = thread.is_alive()
                monitor.shutdown(socket.SHUT_RDWR)
                thread.join()
        assert not late, "MONITOR has not reported the last command"

    def _wire(self) -> socket.socket:
        wire = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        if self._own_user:
            wire.sendall(f"AUTH {self._own_user.strip(':@').replace(':', ' ')}\r\n".encode())
            assert wire.recv(100) == b"+OK\r\n"
        wire.settimeout(None)
        return wire


@dataclass(frozen=True, slots=True)
class Request:
    """One command of a client, as MONITOR reports it; an unprintable byte stays as `\\x..`."""

    at: float
    client: str
    words: tuple[str, ...]

    @property
    def name(self) -> str:
        """The command's name: `EVALSHA`, `BZPOPMIN`, …"""
        return self.words[0].upper()

    def __str__(self) -> str:
        return " ".join(self.words)


def chosen(environment: Mapping[str, str] | None = None) -> Path:
    """The server for tests and tools: the one in SCHEDQ_TEST_SERVER, else the default of `embedded://`.

    Args:
        environment: variables with which it will run.

    Raises:
        ServerError: it is missing or does not run here, as far as that is visible without starting it.
    """
    return _known(os.environ.get("SCHEDQ_TEST_SERVER", ""), tuple(sorted((environment or {}).items())))[0]


def announced(tool: str, environment: Mapping[str, str] | None = None) -> Path:
    """The server for a tool; prints it on standard error, or exits with the reason why there is none."""
    try:
        path = chosen(environment)
    except ServerError as error:
        sys.exit(f"{tool}: {error}")
    print(f"server: {described()}", file=sys.stderr, flush=True)
    return path


def described() -> str:
    """A description of the server of `chosen()`."""
    path, version = _known(os.environ.get("SCHEDQ_TEST_SERVER", ""), ())
    return f"{version} ({path})"


@lru_cache
def _known(given: str, environment: tuple[tuple[str, str], ...]) -> tuple[Path, str]:
    """The program and its version. Cached, because every server of a test asks for it."""
    try:
        path = Path(given) if given else server_binary()
    except StoreUnavailable as error:
        raise ServerError(str(error)) from error
    also = dict(environment)
    try:
        process = subprocess.Popen(
            [path, "--version"],
            env=environment_now() | SERVER_ENVIRONMENT | also,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise ServerError(f"{path} does not run: {error.strerror}; set SCHEDQ_TEST_SERVER to a server") from error
    try:
        said = process.communicate(timeout=SILENCE_S / 2)[0].decode(errors="replace")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise ServerError(f"{path} --version hangs{_in(also)}; set SCHEDQ_TEST_SERVER to another server") from None
    found = re.search(r"(\w+) server v=([\d.]+)", said)
    if not found:
        raise ServerError(f"{path} is not a server or does not run here; --version printed {said.strip()!r}")
    return path, f"{found[1]} {found[2]}"


def _in(environment: Mapping[str, str]) -> str:
    said = " ".join(f"{name}={value}" for name, value in sorted(environment.items()))
    return f" with {said}" if said else ""


_reserving = threading.Lock()
_reserved: set[int] = set()


@lru_cache
def _reservations() -> int:
    """A descriptor of a file. Its byte N is locked by the process that has reserved port N, until that ends."""
    return os.open(Path(tempfile.gettempdir()) / f"schedq-ports-{os.getuid()}", os.O_RDWR | os.O_CREAT, 0o600)


def reserve_port() -> int:
    """A free loopback port that no other test gets, in this process or another, even while nothing listens there.

    Two servers that start at the same time would otherwise choose the same port now and then, and a server that a test
    has killed would find its port in use when it is started again.
    """
    # Below the range of outgoing ports (32768 on Linux, 49152 on macOS): within it, a client that retries a dead
    # server's port may connect to itself, and then the server can't restart on that port.
    while True:
        port = random.randrange(20_000, 32_000)
        with _reserving, socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _reserved:
                fcntl.lockf(_reservations(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
                _reserved.add(port)
                return port


def release_port(port: int) -> None:
    """Let others have a reserved port."""
    with _reserving:
        _reserved.discard(port)
        fcntl.lockf(_reservations(), fcntl.LOCK_UN, 1, port)


def _login(user: str) -> str:
    return f"{user}:{user}@"


def _spelt(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


# 1735689600.123456 [0 127.0.0.1:50000] "SET" "a \"b\"" "\x00"; the address of a script's call is `lua`.
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
