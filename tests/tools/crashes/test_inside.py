"""A script that fails at any of its calls of Redis leaves nothing that is not repaired automatically."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from schedq.transitions import scripts
from scripts.tools.crashes import matrix
from scripts.tools.crashes.inside import Stage
from scripts.tools.crashes.scene import Scene
from scripts.tools.crashes.scenes import SCENES
from scripts.tools.explore.bug import changed
from tests.laws.test_scripts import SCRIPTS
from tests.servers import Server

ZREM = "redis.call('ZREM', leases, id)\n"
UNLINK = "delete_record(jobs .. id, entry_left)"
TAKE = "if #ids > 0 then redis.call('LPUSH', processing"
HSET_ONE = "redis.call('HSET', key, 'id', id, 'payload', ARGV[i + 1], 'status', 'pending')\n"
HSET = "for _, n in ipairs(new) do store(keys[n], starts[n], status[n], run_at[n]) end\n"
LOST = "local text, undoes = 'lease expired '"
HOLD = "hold(to_hold)\n"
FROM_LANES = "if #from_lanes > 0 then redis.call('ZREM', held, unpack(from_lanes)) end"
PUT_BACK = "redis.call('RPUSH', pending, unpack(ids))\n"
NOTE = "if job then redis.call('RPUSH', pending, id) else to_broken(id, reason) end\nredis.call('ZREM', held, id)"
BUGS = [
    # scene, script, shipped code, replacement
    ("claim, all kinds of entries", "claim", TAKE, f"redis.call('RPOP', pending, looked_at)\n{TAKE}"),
    ("promote, by hand", "promote", "allow_when_full(delayed)", "redis.call('ZREM', delayed, unpack(ids))"),
    ("enqueue, now", "enqueue", "local length = redis", f"{HSET_ONE}local length = redis"),
    ("enqueue, many", "enqueue", "if #now_ids > 0 then redis", f"{HSET}if #now_ids > 0 then redis"),
    ("complete", "settle", "local length = ended", "redis.call('ZREM', leases, unpack(gone))\nlocal length = ended"),
    ("fail, attempts left", "settle", "\ntake_claimed(id, job[5])", f"\n{ZREM}take_claimed(id, job[5])"),
    ("reclaim, ended leases", "reclaim", LOST, f"{ZREM}{LOST}"),
    ("release", "reclaim", "returned[#returned + 1] = {id, whole(job[9]), job[16]}", ""),
    ("fail, none left", "reclaim", "redis.call('LPUSH', history, id)", ""),
    ("complete", "reclaim", "is_completed and HOUR or failed_ttl_ms", "failed_ttl_ms"),
    ("cancel, pending", "cancel", "if not runs then mark_in_transit(id) end", ""),
    ("cancel, delayed", "cancel", "or was_marked", ""),
    ("requeue", "requeue", "mark_in_transit(id)\n", "\n"),
    ("claim, a paused task", "claim", HOLD, f"redis.call('RPOP', pending, looked_at)\nlooked_at = 0\n{HOLD}"),
    ("claim, held jobs", "claim", TAKE, f"{FROM_LANES}\n{TAKE}"),
    ("resume task", "resume_task", PUT_BACK, f"redis.call('ZREM', held, unpack(ids))\n{PUT_BACK}"),
    ("run now", "reschedule", "allow_when_full(delayed)", "redis.call('ZREM', delayed, id)"),
    ("enqueue, gates", "reclaim", NOTE, "number = number + 1"),
    ("purge, pending", "purge", UNLINK, f"redis.call('LREM', place, -1, id)\n{UNLINK}"),
]


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with Server() as server:  # a server of its own, because its memory gets full
        stage = Stage(server, "crash-inside")
        yield stage
        stage.close()


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_an_error_at_any_call_is_repaired(stage: Stage, scene: Scene):
    points = list(stage.points(scene))

    print(f"{len(points)} points")
    assert points
    assert [str(point) for point in points if point.wrong] == []
    assert matrix.of_points(points) == matrix.known()["inside"][scene.name]


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.name)
def test_a_key_of_the_wrong_type_and_a_full_memory_leave_nothing_half_done(stage: Stage, scene: Scene):
    types, memory = matrix.of_types(stage.wrong_types(scene)), matrix.of_memory(stage.full_memory(scene))

    assert types == matrix.known()["types"][scene.name] != "partly done"
    assert memory == matrix.known()["memory"][scene.name] != "partly done"


def test_every_script_is_cut(stage: Stage):
    readers = {"gates", "open_batches", "why_gate"}  # they write nothing
    assert {stage.script_of(scene) for scene in SCENES} == set(SCRIPTS) - readers


@pytest.mark.parametrize(("name", "script", "old", "new"), BUGS, ids=[f"{bug[0]}: {bug[2][:30]}" for bug in BUGS])
def test_a_wrong_order_of_writes_is_noticed(stage: Stage, name: str, script: str, old: str, new: str):
    scene = next(scene for scene in SCENES if scene.name == name)
    wrong, load = changed(script, old, new), scripts.load

    with patch.object(scripts, "load", lambda asked: wrong if asked == script else load(asked)):
        assert any(point.wrong for point in stage.points(scene))
