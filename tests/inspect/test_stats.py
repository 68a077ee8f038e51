"""Totals and depths: a dict for programs that serialize it, attributes for those that are type-checked."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest

from schedq import Stats
from tests.doors import Handle


def test_every_entry_is_an_attribute_too(queue: Handle):
    queue.enqueue_many(range(3))
    queue.enqueue(1, delay=60)

    stats = queue.stats()

    assert {name: getattr(stats, name) for name in stats} == stats
    assert (stats.pending_depth, stats.delayed_depth, stats.enqueued_total) == (3, 1, 4)
    assert stats.next_due_ms == stats["next_due_ms"] > stats.now_ms
    assert stats.paused_since_ms is stats["paused_since_ms"] is None


def test_stats_are_still_a_dict(queue: Handle):
    stats = queue.stats()

    assert isinstance(stats, dict)
    assert json.loads(json.dumps(stats)) == stats == dict(stats)
    assert repr(stats) == repr(dict(stats))
    assert pickle.loads(pickle.dumps(stats)) == copy.deepcopy(stats) == stats
    assert {**stats, "more": 1}.keys() == {*stats, "more"}


def test_a_misspelled_attribute_is_named(queue: Handle):
    stats: Any = queue.stats()

    with pytest.raises(AttributeError, match="'Stats' object has no attribute 'pending_dept'"):
        stats.pending_dept  # noqa: B018 - it must fail
    with pytest.raises(KeyError, match="pending_dept"):
        stats["pending_dept"]


def test_attributes_are_read_only_and_follow_the_dict(queue: Handle):
    stats: Any = queue.stats()

    with pytest.raises(AttributeError, match="pending_depth is read-only"):
        stats.pending_depth = 5
    with pytest.raises(AttributeError):
        stats.something_else = 5
    stats["pending_depth"] = 7
    assert stats.pending_depth == 7
    del stats["pending_depth"]
    with pytest.raises(AttributeError, match="pending_depth"):
        stats.pending_depth  # noqa: B018 - it must fail


def test_the_class_names_every_entry(queue: Handle):
    assert list(Stats.__annotations__) == sorted(queue.stats(), key=list(Stats.__annotations__).index)
