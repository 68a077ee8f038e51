"""The contents of Redis at one instant, and whether they obey the design's laws."""

from __future__ import annotations

import fnmatch
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import redis

from schedq.model.keys import QueueKeys
from schedq.model.lifecycle import (
    BROKEN,
    CANCELLED,
    COMPLETED,
    DELAYED,
    FAILED,
    FINISHED,
    JOB_STATES,
    PENDING,
    PROCESSING,
)
from tests import runs
from tests.gates import Gates
from tests.groups import Groups

LAWS: Final = (
    "places",
    "status",
    "leases",
    "tokens",
    "totals",
    "ttl",
    "layout",
    "caps",
    "paused",
    "schedules",
    "unique",
    "gates",
    "runs",
    "run_counts",
    "groups",
)

LAYOUT: Final = {
    "pending": "list",
    "processing": "list",
    "completed": "list",
    "failed": "list",
    "cancelled": "list",
    "broken": "list",
    "delayed": "zset",
    "leases": "zset",
    "suspects": "zset",
    "held": "zset",
    "lanes": "hash",
    "unique_keys": "hash",
    "gates": "hash",
    "open_gates": "zset",
    "resting": "zset",
    "gate_holds": "zset",
    "gate_turns": "hash",
    "gate:*": "zset",
    "groups": "zset",
    "undos": "zset",
    "group:*:items": "list",
    "group:*:failed": "list",
    "group:*:counted": "string",
    "group:*:succeeded": "string",
    "group:*:results:*": "hash",
    "group:*": "hash",
    "paused_tasks": "hash",
    "wake": "zset",
    "wake_held": "zset",
    "wake:*": "zset",
    "stats": "hash",
    "log": "stream",
    "settings": "hash",
    "tasks": "hash",
    "promoter": "string",
    "standbys": "hash",
    "asleep": "hash",
    "task_stats": "hash",
    "samples": "list",
    "paused": "string",
    "workers": "zset",
    "worker:*": "hash",
    "job:*": "hash",
    "schedules": "zset",
    "schedule:*:slots": "list",
    "schedule:*": "hash",
}
_PATTERNS: Final = {re.compile(fnmatch.translate(name)): kind for name, kind in LAYOUT.items() if "*" in name}
_LONG_PENDING: Final = 10_000

# A script is atomic: nothing changes while it reads.
_SNAPSHOT: Final = """
local found = {}
for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
  local kind, holds = redis.call('TYPE', key).ok, {}
  if kind == 'list' then holds = redis.call('LRANGE', key, 0, -1)
  elseif kind == 'zset' then holds = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'hash' then holds = redis.call('HGETALL', key)
  elseif kind == 'string' then
    local value = redis.call('GET', key)
    local function hex(one) return string.format('%02x', string.byte(one)) end
    holds = {string.find(value, '[^ -~]') and 'hex:' .. string.gsub(value, '.', hex) or value}  -- a bitmap is no text
  end
  found[#found + 1] = {key, kind, redis.call('PTTL', key), holds}
end
return found
"""


@dataclass(frozen=True)
class Key:
    """One key: its type, ms to live (-1: forever), and contents (list: oldest first)."""

    kind: str
    ttl_ms: int
    holds: Any


@dataclass(frozen=True)
class State:
    """All keys of one queue at one instant, by name without the prefix."""

    keys: dict[str, Key] = field(default_factory=dict)

    @classmethod
    def of(cls, client: redis.Redis, keys: QueueKeys) -> State:
        """Read it from Redis."""
        found = {}
        for name, kind, ttl_ms, holds in client.execute_command("EVAL", _SNAPSHOT, 0, keys.prefix):
            if kind in ("hash", "zset"):
                holds = dict(zip(holds[::2], holds[1::2], strict=True))
            elif kind == "list":
                holds = holds[::-1]
            found[name.removeprefix(keys.prefix)] = Key(kind, ttl_ms, holds)
        return cls(found)

    def holds(self, name: str, kind: str) -> Any:
        """The contents of a key; empty if it is missing or of another type."""
        key = self.keys.get(name)
        return key.holds if key is not None and key.kind == kind else {"list": [], "string": [""]}.get(kind, {})

    def ids(self, place: str) -> list[str]:
        """Ids in a state: lists oldest first, `delayed` by due instant. Held jobs are pending, before all others."""
        if place == BROKEN:
            ids = [json.loads(note)["id"] for note in self.holds(place, "list")]
            return [job_id for job_id in ids if not job_id.startswith("schedule:")]
        held = self.holds("held", "zset") if place == PENDING else ()
        return [*held, *self.holds(place, LAYOUT[place])]

    def places(self) -> dict[str, list[str]]:
        """The ids in every non-empty state."""
        return {place: ids for place in JOB_STATES if (ids := self.ids(place))}

    def jobs(self) -> dict[str, Key]:
        """The keys of jobs, by id."""
        return self._jobs

    @cached_property
    def _jobs(self) -> dict[str, Key]:
        return {name.removeprefix("job:"): key for name, key in self.keys.items() if name.startswith("job:")}

    def job(self, job_id: str) -> dict[str, str]:
        """The fields of one job."""
        fields: dict[str, str] = self.holds(f"job:{job_id}", "hash")
        return fields

    def totals(self) -> dict[str, int]:
        """The running totals counted so far."""
        return {name: int(value) for name, value in self.holds("stats", "hash").items() if value.isdigit()}

    def broken_laws(self) -> dict[str, list[str]]:
        """All violations, by law; empty if there are none."""
        found = {law: list(getattr(self, f"_{law}")()) for law in LAWS}
        return {law: complaints for law, complaints in found.items() if complaints}

    # -- the laws

    @cached_property
    def _entries(self) -> list[tuple[str, str]]:
        is_long = len(self.ids(PENDING)) > _LONG_PENDING
        return [
            (job_id, place)
            for place in JOB_STATES
            for job_id in self.ids(place)
            if not (is_long and place == PENDING and self.job(job_id).get("status") == CANCELLED)
        ]

    @cached_property
    def _records(self) -> dict[str, dict[str, str]]:
        """The fields of jobs that have a record of a run, or parts of one. Only names in a record have a colon."""
        return {
            job_id: key.holds
            for job_id, key in self.jobs().items()
            if key.kind == "hash" and ("run" in key.holds or "waits" in key.holds or ":" in "".join(key.holds))
        }

    def _places(self) -> Iterator[str]:
        """Every id is in exactly one state, once."""
        seen = Counter(self._entries)
        for (job_id, place), count in seen.items():
            if count > 1:
                yield f"{job_id} is in {place} {count} times"
        for job_id, count in Counter(job_id for job_id, _ in seen).items():
            if count > 1:
                yield f"{job_id} is in {' and '.join(place for entry, place in seen if entry == job_id)}"
        somewhere = {job_id for job_id, _ in seen}
        yield from (f"{job_id} is in no state" for job_id in self.jobs() if job_id not in somewhere)

    def _status(self) -> Iterator[str]:
        """`status` names the state; only a finished job's record may have expired."""
        for job_id, place in self._entries:
            status = self.job(job_id).get("status")
            if place == BROKEN or (place in FINISHED and f"job:{job_id}" not in self.keys):
                continue
            if status != place:
                yield f"{job_id} is in {place} with status {status}"

    def _leases(self) -> Iterator[str]:
        """`leases` has exactly the ids of `processing`."""
        leases, processing = set(self.holds("leases", "zset")), set(self.ids(PROCESSING))
        yield from (f"{job_id} is running without a lease" for job_id in processing - leases)
        yield from (f"{job_id} has a lease but is not running" for job_id in leases - processing)

    def _tokens(self) -> Iterator[str]:
        """`claim_token` exists exactly while a job is running."""
        running = set(self.ids(PROCESSING))
        for job_id, key in self.jobs().items():
            if key.kind == "hash" and (job_id in running) != bool(key.holds.get("claim_token")):
                yield f"{job_id} {'runs without' if job_id in running else 'rests with'} a claim token"

    def _totals(self) -> Iterator[str]:
        """Totals match the stored jobs, if nothing was trimmed and no other program took part."""
        count = Counter({place: len(self.ids(place)) for place in JOB_STATES})
        totals = Counter(self.totals())
        there = len({job_id for job_id, _ in self._entries})
        if totals["enqueued_total"] != there + totals["purged_total"]:
            yield f"{totals['enqueued_total']} enqueued, {there} there, {totals['purged_total']} purged"
        if totals["purged_total"]:
            return
        if totals["completed_total"] != count[COMPLETED]:
            yield f"{totals['completed_total']} completed, {count[COMPLETED]} there"
        ended = totals["failed_total"] + totals["cancelled_total"]
        if ended != count[FAILED] + count[CANCELLED] + totals["requeued_total"]:
            yield f"{ended} failed or cancelled, {count[FAILED]} and {count[CANCELLED]} there"
        notes = len(self.holds("broken", "list"))
        if totals["broken_total"] != notes:
            yield f"{totals['broken_total']} broken, {notes} there"

    def _ttl(self) -> Iterator[str]:
        """Completed jobs, workers, what promoters agree on, unused suspects and markers of lanes expire.

        Nothing else does. A failed or cancelled job does if it, its task or the queue has a `failed_ttl`.
        """
        may_be_others = "own_ttls" in self.holds("stats", "hash") or self.holds("settings", "hash").get("failed_ttl")
        for name, key in self.keys.items():
            job = self.job(name[4:]) if name.startswith("job:") else {}
            if job.get("status") in (FAILED, CANCELLED) and (may_be_others or "failed_ttl_ms" in job):
                continue
            expires = name in ("promoter", "standbys", "asleep", "suspects", "wake_held") or name.startswith(
                ("worker:", "wake:")
            )
            expires = expires or job.get("status") == COMPLETED
            if expires != (key.ttl_ms >= 0):
                yield f"{name} {'never expires' if expires else f'expires in {key.ttl_ms} ms'}"

    def _layout(self) -> Iterator[str]:
        """Every key is documented, and has the documented type."""
        for name, key in self.keys.items():
            # Most keys are jobs: there is no need to compare their names with all patterns.
            kind = LAYOUT.get("job:*" if name.startswith("job:") else name)
            kind = kind or next((found for known, found in _PATTERNS.items() if known.fullmatch(name)), None)
            if kind != key.kind:
                yield f"{name} is a {key.kind}, " + (f"not a {kind}" if kind else "which is not documented")

    def _caps(self) -> Iterator[str]:
        """Everything that grows automatically has a limit."""
        for job_id, key in self.jobs().items():
            if key.kind == "hash" and len(key.holds.get("history", "").splitlines()) > 10:
                yield f"{job_id} has more than 10 lines of history"
        if len(self.ids(BROKEN)) > 1000:
            yield "broken has more than 1000 notes"

    def _schedules(self) -> Iterator[str]:
        """Every schedule has an entry and a definition; a fired slot has one job, and is recorded once."""
        entries, there = set(self.holds("schedules", "zset")), set()
        for name, key in self.keys.items():
            parts = name.split(":")
            if parts[0] == "schedule" and len(parts) == 2 and key.kind == "hash":
                there.add(parts[1])
            if parts[0] == "schedule" and len(parts) == 3 and key.kind == "list":
                told = [json.loads(line)["slot_ms"] for line in key.holds]
                if sorted(set(told)) != told:
                    yield f"{parts[1]} has slots that are recorded twice or out of order: {told}"
        yield from (f"schedule {name} has no definition" for name in entries - there)
        yield from (f"schedule {name} has no entry" for name in there - entries)

    def _paused(self) -> Iterator[str]:
        """There is no wake marker while the queue is paused."""
        if "paused" in self.keys and "wake" in self.keys:
            yield "paused, but there is a wake marker"

    def _gates(self) -> Iterator[str]:
        """The jobs of gates wait in their lanes, those that run have places, and each has a reason to wait."""
        yield from Gates(self).broken() if "gates" in self.keys else ()

    def _run_counts(self) -> Iterator[str]:
        """The memos of a run are counted."""
        for job_id, fields in self._records.items():
            yield from runs.miscounted(job_id, fields)

    def _runs(self) -> Iterator[str]:
        """The memos of a run can be read, no message is lost, and no suspended run is forgotten."""
        for job_id, fields in self._records.items():
            yield from runs.broken(job_id, fields)
            yield from runs.unfinished(job_id, fields, self.holds("undos", "zset"))

    def _groups(self) -> Iterator[str]:
        """Children that ended are counted, and while a group runs, something of it waits or runs."""
        yield from Groups(self).broken() if "groups" in self.keys else ()

    def _unique(self) -> Iterator[str]:
        """Of the jobs with a unique key, at most one waits or runs, or awaits its first claim. The index names it."""
        holders: dict[str, list[str]] = {}
        for job_id, key in self.jobs().items():
            if key.kind != "hash" or not (unique := key.holds.get("unique")):
                continue
            waits, has_started = key.holds.get("status") in (PENDING, DELAYED), "started_at_ms" in key.holds
            until_start = key.holds.get("unique_rule", "").startswith("start ")
            if (waits and not (until_start and has_started)) or (
                key.holds.get("status") == PROCESSING and not until_start
            ):
                holders.setdefault(unique, []).append(job_id)
        named = {note.partition(" ")[2] for note in self.holds("unique_keys", "hash").values()}
        for unique, ids in holders.items():
            # One that has expired holds no key, whatever its state.
            ids = [it for it in ids if it in named or "expires" not in self.job(it)]
            noted = self.holds("unique_keys", "hash").get(unique, "").partition(" ")[2]
            if ids and ids != [noted]:
                yield f"{unique} is the key of {' and '.join(sorted(ids))}, and the index names {noted or 'no job'}"
