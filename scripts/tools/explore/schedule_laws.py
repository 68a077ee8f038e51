"""What a state says of schedules, beyond the laws of states."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.state import State


def unaccounted(state: State) -> Iterator[str]:
    """Slots of ended schedules that have no record, or lack the job that their record names."""
    for name, key in state.keys.items():
        parts = name.split(":")
        if parts[0] != "schedule" or len(parts) != 2:
            continue
        known = [json.loads(line) for line in state.holds(f"{name}:slots", "list")]
        slots = [
            slot for line in known for slot in range(line["slot_ms"], line["to_ms"] + 1, int(key.holds["every_ms"]))
        ]
        if slots and slots != list(range(slots[0], slots[-1] + 1, int(key.holds["every_ms"]))):
            yield f"of the slots of {parts[1]}, {slots} are recorded"
        fired = [line["job_id"] for line in known if line["outcome"] == "fired"]
        if len(fired) != int(key.holds.get("runs", 0)):
            yield f"{parts[1]} ran {key.holds.get('runs')} times, but {fired} are recorded"
        jobs = [job_id for job_id in state.jobs() if state.job(job_id).get("schedule") == parts[1]]
        if sorted(fired) != sorted(jobs):
            yield f"{parts[1]} created {sorted(jobs)}, but {fired} are recorded"


def advanced(before: State, after: State) -> Iterator[str]:
    """Schedules only go forward, and one that has fired a slot has another next one."""
    seen, now = (state.holds("schedules", "zset") for state in (before, after))
    for name, slot in seen.items():
        if float(now.get(name, "inf")) < float(slot):
            yield f"schedule {name} went back from slot {slot} to {now[name]}"
        if after.job(f"{name}-{slot}") and now.get(name) == slot:
            yield f"schedule {name} has fired slot {slot}, but it is still the next one"
