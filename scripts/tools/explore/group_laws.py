"""What a step and the end of a schedule say of groups, beyond the laws of states."""

from __future__ import annotations

from collections.abc import Iterator

from schedq.model.lifecycle import COMPLETED, FINISHED
from tests.groups import Groups
from tests.state import State


def of_step(state: State) -> Iterator[str]:
    """No script is cut short here, so a bit is set if and only if the child has ended, and tells how it did."""
    found = Groups(state)
    for name, fields in found.fields.items():
        if fields.get("status") not in ("running", "cancelling"):
            continue
        counted, succeeded = found.counted(name), found.counted(name, "succeeded")
        for number, (job_id, status) in found.members.get(name, {}).items():
            if number in counted and status not in FINISHED:
                yield f"{job_id} is {status}, but counted"
            elif number in counted and (number in succeeded) != (status == COMPLETED):
                yield f"{job_id} is {status}, but its group counts it as the opposite"


def at_the_end(state: State) -> Iterator[str]:
    """Every closed group has ended, and has counted all of its children."""
    found = Groups(state)
    for name, fields in found.fields.items():
        if fields.get("closed") == "1" and fields.get("status") in ("running", "cancelling"):
            yield f"group {name} is {fields['status']} for good"
        total, counted = int(fields.get("total", 0)), found.counted(name)
        if fields.get("status") == "completed" and len(counted) != total:
            yield f"group {name} is completed, with {len(counted)} of {total} children"


def running(state: State) -> list[str]:
    """The groups that have not ended."""
    fields = Groups(state).fields if "groups" in state.keys else {}
    return [name for name, each in fields.items() if each.get("status") in ("running", "cancelling")]


def called_off(before: State, after: State) -> Iterator[str]:
    """A group that is called off makes no more children."""
    running = Groups(before)
    for job_id in new_jobs(before, after):
        name = after.job(job_id).get("group", "").partition(" ")[0]
        if running.fields.get(name, {}).get("status") == "cancelling":
            yield f"{job_id} was made, although {name} had been called off"


def new_jobs(before: State, after: State) -> list[str]:
    """The jobs that a group has made."""
    new = after.jobs().keys() - before.jobs().keys() if "groups" in after.keys else ()
    return [job_id for job_id in new if "group" in after.job(job_id) or "-then-" in job_id]


def expires_ms(fields: dict[str, str], now_ms: int) -> int:
    """When a job that a group has just made expires; 0 for never."""
    expires = fields.get("expires", "")
    return now_ms + int(expires[1:]) if expires.startswith("+") else 0


def filled(name: str, end: int, total: int | None, before: State, run: str, token: str) -> Iterator[str]:
    """A page whose last item is the one before `end` is added once, and whole; for a run, only under its job's claim.

    `total` is None if the page was refused because the claim had ended.
    """
    if run and (before.job(run).get("claim_token") == token) == (total is None):
        yield f"group {name} was {'refused to' if total is None else 'filled by'} the claim {token} of {run}"
    if total is None:
        return
    earlier = int(before.holds(f"group:{name}", "hash").get("total", 0))
    if total != max(earlier, end):
        yield f"group {name} has {total} items, after {earlier} and a page up to {end}"
