"""Redis Sentinel: which server is the primary now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from redis.exceptions import RedisError

from schedq.clocks import monotonic
from schedq.connection import faults
from schedq.connection.place import REPLY_S, Place, joined
from schedq.errors import SchedqError, UsageError

_UNKNOWN = "No such master"


@dataclass(frozen=True)
class Sentinels:
    """A primary by the Sentinels that watch it.

    Attributes:
        way: how the primary is reached, wherever it is.
        sentinels: the Sentinels that were named.
        service: what they call the primary.
    """

    way: Place
    sentinels: tuple[Place, ...]
    service: str
    is_default = False

    @property
    def label(self) -> str:
        """The place for messages."""
        hosts = ",".join(joined(one.settings["host"], one.settings["port"]) for one in self.sentinels)
        db = self.way.settings.get("db", 0)
        return f"{self.way.scheme}+sentinel://{hosts}/{self.service}" + (f"/{db}" if db else "")

    def find(self, _key: str) -> Place:
        """The primary. It blocks.

        All Sentinels are asked, and the one with the latest news is believed: one that was cut off from the others
        while they made a replica the primary still names the old one.

        Raises:
            StoreUnavailable: no Sentinel can be asked.
            UsageError: none knows the service, or none lets this user ask.
        """
        found: list[tuple[int, str, int]] = []
        problems: list[SchedqError] = []
        until = monotonic() + REPLY_S
        for sentinel in self.sentinels:
            try:
                found.append(self._asked(sentinel))
            except (RedisError, OSError) as error:
                problems.append(self._named(error))
                if monotonic() > until:
                    break
        if found:
            _, host, port = max(found)
            return replace(self.way.at(host, port), must_show_role=True)
        raise faults.likeliest_to_pass(problems)

    def _named(self, error: Exception) -> SchedqError:
        if _UNKNOWN in str(error):
            return UsageError(f"{self.label}: the Sentinels know no service {self.service!r}")
        return faults.named(error, "SENTINEL", self)

    def _asked(self, sentinel: Place) -> tuple[int, str, int]:
        """The epoch of what a Sentinel knows, and host and port of the primary."""
        facts, where = sentinel.ask(
            ("SENTINEL", "MASTER", self.service), ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        )
        epoch = dict(zip(facts[::2], facts[1::2], strict=True)).get("config-epoch", "0")
        return int(epoch), where[0], int(where[1])
