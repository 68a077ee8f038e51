"""A primary, its replica and the Sentinels that monitor them: real servers on loopback ports."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Self

import redis

from tests.servers import Server
from tests.stories.topologies.cluster import PATIENCE_S, ask, info, stop_all
from tests.waiting import until

SERVICE = "main"


class Sentinel(Server):
    """A Sentinel that monitors one server."""

    def __init__(self, watched: Server, quorum: int) -> None:
        super().__init__(topology="single")
        self._watched = watched
        self._quorum = quorum

    def _command(self, port: int) -> list[str]:
        path = self.folder / "sentinel.conf"
        if not path.exists():
            path.write_text(
                f"bind 127.0.0.1\ndir {self.folder}\n"
                f"sentinel monitor {SERVICE} 127.0.0.1 {self._watched.port} {self._quorum}\n"
                f"sentinel down-after-milliseconds {SERVICE} 2500\nsentinel failover-timeout {SERVICE} 1500\n"
            )
        own = ["--port", str(port), "--unixsocket", self.socket_path]
        return [str(self.binary), str(path), "--sentinel", *own]


class Watched:
    """A primary and a replica, monitored by several Sentinels.

    Attributes:
        servers: both of them, the initial primary first.
        sentinels: all of them.
    """

    def __init__(self, sentinels: int = 3) -> None:
        self.servers = [Server(topology="single", repl_diskless_sync_delay=0) for _ in range(2)]
        self.sentinels = [Sentinel(self.servers[0], sentinels // 2 + 1) for _ in range(sentinels)]
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.callback(stop_all, *self.sentinels, *self.servers)
            for server in self.servers:
                server.start()
            primary, replica = self.servers
            ask(replica, "REPLICAOF", "127.0.0.1", primary.port)
            until(lambda: info(replica, "replication")["master_link_status"] == "up", within=PATIENCE_S)
            for sentinel in self.sentinels:
                sentinel.start()
            until(lambda: all(map(self._sees_all, self.sentinels)), within=PATIENCE_S)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        """A URL with all Sentinels."""
        return url_of(*self.sentinels)

    def primary(self) -> Server:
        """The server that is currently the primary."""
        (found,) = until(lambda: [server for server in self.servers if self.agree_on(server)], PATIENCE_S)
        return found

    def replica(self) -> Server:
        """The other one."""
        primary = self.primary()
        (found,) = (server for server in self.servers if server is not primary)
        return found

    def agree_on(self, server: Server) -> bool:
        """Whether all Sentinels name this server, and it is the primary."""
        named: set[int] = {int(ask(one, "SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for one in self.sentinels}
        return named == {server.port} and role(server) == "master"

    def hand_over(self, new: Server) -> bool:
        """Promote the replica without a period with two primaries; False if the servers don't support that (Redis)."""
        return self._fail_over(new, "COORDINATED")

    def replace_primary(self, new: Server) -> None:
        """Promote the replica; the old primary is informed about ten seconds later."""
        assert self._fail_over(new)

    def _fail_over(self, new: Server, *how: str) -> bool:
        for _ in range(10):
            try:
                ask(self.sentinels[0], "SENTINEL FAILOVER", SERVICE, *how)
            except redis.ResponseError as error:
                if not any(word in str(error) for word in ("INPROG", "NOGOOD", "already in progress")):
                    return False
            # The others vote within the failover's timeout; otherwise it has ended and may be requested again.
            with suppress(AssertionError):
                return until(lambda: self.agree_on(new), within=4)
        raise AssertionError("the Sentinels elect no primary")

    def _sees_all(self, sentinel: Server) -> bool:
        facts = ask(sentinel, "SENTINEL MASTER", SERVICE)
        return (facts["num-slaves"], facts["num-other-sentinels"]) == (1, len(self.sentinels) - 1)


def url_of(*sentinels: Server, db: int = 0) -> str:
    """A URL with some Sentinels."""
    hosts = ",".join(f"127.0.0.1:{one.port}" for one in sentinels)
    return f"redis+sentinel://{hosts}/{SERVICE}/{db}"


def role(server: Server) -> str:
    """The role that a server reports: master or slave; '' while a Sentinel closes its connections."""
    try:
        return str(info(server, "replication")["role"])
    except redis.ConnectionError:
        return ""
