"""Places as client objects of redis-py: taken for where they lead, never used."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import redis
import redis.asyncio.connection as async_connections
import redis.asyncio.sentinel as async_sentinel
import redis.connection as connections
import redis.sentinel

from schedq.connection.cluster import Cluster
from schedq.connection.place import Place
from schedq.connection.sentinel import Sentinels
from schedq.connection.urls import REDIS_PORT, WHERE, WHO, taken
from schedq.errors import UsageError

CLIENTS: Final = (redis.Redis, redis.asyncio.Redis, redis.RedisCluster, redis.asyncio.RedisCluster)


def read(client: Any) -> Place | Cluster | Sentinels:
    """What a client leads to.

    Raises:
        UsageError: it is of a kind whose settings can't be read, or leads to replicas.
    """
    if isinstance(client, (redis.RedisCluster, redis.asyncio.RedisCluster)):
        return _cluster(client)
    pool = client.connection_pool
    if isinstance(pool, (redis.sentinel.SentinelConnectionPool, async_sentinel.SentinelConnectionPool)):
        return _sentinels(pool)
    return _single(pool)


def _single(pool: Any, where: frozenset[str] = WHERE) -> Place:
    kind = pool.connection_class
    for name in ("UnixDomainSocketConnection", "SSLConnection", "Connection"):
        if issubclass(kind, (getattr(connections, name), getattr(async_connections, name))):
            return Place(name, taken(pool.connection_kwargs, WHO | where))
    raise UsageError(f"the client's connections are of an unknown class, {kind.__name__}; pass a URL instead")


def _sentinels(pool: Any) -> Sentinels:
    if not pool.is_master:
        raise UsageError("the client leads to replicas; pass one of Sentinel.master_for, or a redis+sentinel:// URL")
    way = _single(pool)
    way = replace(way, settings={"db": 0, **way.settings}, label="")
    sentinels = [
        _single(client.connection_pool, frozenset({"host", "port"})) for client in pool.sentinel_manager.sentinels
    ]
    return Sentinels(way, tuple(sentinels), pool.service_name)


def _cluster(client: Any) -> Cluster:
    given = client.get_connection_kwargs()
    is_tls = given.get("ssl") or issubclass(
        given.get("connection_class", connections.Connection),
        (connections.SSLConnection, async_connections.SSLConnection),
    )
    seeds = [(str(node.host), int(node.port or REDIS_PORT)) for node in client.startup_nodes]
    return Cluster(Place("SSLConnection" if is_tls else "Connection", taken(given, WHO)), tuple(seeds))
