"""Where Redis is: a URL, or a client object that is taken for its connection settings."""

from __future__ import annotations

import os
from typing import Final

from schedq.connection import clients, urls
from schedq.connection.cluster import Cluster
from schedq.connection.place import Place
from schedq.connection.sentinel import Sentinels
from schedq.errors import UsageError

DEFAULT_URL: Final = "redis://localhost:6379/0"


class Address:
    """Where a queue's Redis is, without a connection to it.

    Attributes:
        label: the place for messages; never holds a password.
        is_default: nobody named a place.
    """

    def __init__(self, place: object = None) -> None:
        """Take a URL, a redis-py client, or None for the environment's URL, else localhost.

        Raises:
            UsageError: the URL's scheme is unknown or the URL can't be read.
        """
        self.is_default = False
        if place is None:
            place = os.environ.get("SCHEDQ_REDIS_URL") or os.environ.get("REDIS_URL")
            self.is_default = place is None
        if place is None or isinstance(place, str):
            self._where = urls.read(DEFAULT_URL if place is None else place)
        elif isinstance(place, clients.CLIENTS):
            self._where = clients.read(place)
        else:
            raise UsageError(f"redis must be a URL or a redis-py client, got {type(place).__name__}")
        self.label = self._where.label

    def __repr__(self) -> str:
        return f"Address({self.label!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and self._where == other._where

    def __hash__(self) -> int:
        return hash(self.label)

    @property
    def is_cluster(self) -> bool:
        """Whether it is a Redis Cluster: keys are on several servers, a queue's on one, and not for ever."""
        return isinstance(self._where, Cluster)

    @property
    def db(self) -> int:
        """The number of the database.

        Raises:
            UsageError: a client object names one that is no number.
        """
        way = self._where.way if isinstance(self._where, Sentinels) else self._where
        db = way.settings.get("db") or 0 if isinstance(way, Place) else 0
        if not str(db).isdecimal():
            raise UsageError(f"the database must be a number, got {db!r}")
        return int(db)

    @property
    def is_found_by_asking(self) -> bool:
        """Whether `find` may block."""
        return not isinstance(self._where, Place)

    def find(self, key: str) -> Place:
        """The server that holds `key` now: to be asked anew for each connection.

        It blocks, for about ten seconds at most, unless `is_found_by_asking` is false; an embedded server is started.

        Raises:
            StoreUnavailable: it can't be found, or not be started.
            UsageError: the ones that know it refuse to say.
        """
        return self._where if isinstance(self._where, Place) else self._where.find(key)

    def enlist(self, queue: str, *, again: bool = False) -> None:
        """On a cluster, add a name to the list of queues; elsewhere the greeting does. It does not block.

        Once per process, unless it is to be done `again`.
        """
        if isinstance(self._where, Cluster):
            self._where.enlist(queue, again=again)

    def queues(self, *, scan: bool) -> list[str]:
        """On a cluster, what `directory.names` is elsewhere: no one server knows them all. It blocks.

        Raises:
            StoreUnavailable, UsageError: as `find`.
        """
        assert isinstance(self._where, Cluster)
        return self._where.queues(scan=scan)
