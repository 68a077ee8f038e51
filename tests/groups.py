"""The laws of groups: what is counted, what is made, and what continues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from schedq.model.lifecycle import FINISHED
from schedq.model.runs import RunWait

if TYPE_CHECKING:
    from tests.state import State

ENDED: Final = ("completed", "failed", "cancelled")


def bits(text: str) -> set[int]:
    """The numbers of the bits that are set, of a bitmap as `State` has it."""
    found = bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode()
    return {8 * n + bit for n, byte in enumerate(found) for bit in range(8) if byte >> (7 - bit) & 1}


class Groups:
    """What a state says of groups."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.marks = state.holds("groups", "zset")
        self.fields = {
            name.removeprefix("group:"): key.holds
            for name, key in state.keys.items()
            if name.startswith("group:") and name.count(":") == 1 and key.kind == "hash"
        }
        self.members: dict[str, dict[int, tuple[str, str]]] = {}  # of this generation: number -> id, status
        for job_id, key in state.jobs().items():
            if key.kind == "hash" and (tag := key.holds.get("group", "")).count(" ") == 2:
                name, number, generation = tag.split(" ")
                if (
                    job_id == f"{name}-{number}-{generation}"
                    and self.fields.get(name, {}).get("generation") == generation
                ):
                    self.members.setdefault(name, {})[int(number)] = (job_id, key.holds.get("status", ""))

    def counted(self, name: str, bitmap: str = "counted") -> set[int]:
        """The children that have ended, or those that `succeeded`."""
        return bits(self.state.holds(f"group:{name}:{bitmap}", "string")[0])

    def broken(self) -> Iterator[str]:
        """All complaints."""
        yield from self._awaited()
        yield from (f"group {name} has no entry in groups" for name in self.fields.keys() - self.marks.keys())
        for name, fields in self.fields.items():
            if fields.get("status") in ("running", "cancelling"):
                yield from self._counted(name)
                if self.marks.get(name, "0") != "0":
                    yield from self._settled(name, fields)
            elif fields.get("status") in ENDED:
                yield from self._ended(name, fields)

    def _awaited(self) -> Iterator[str]:
        """No run stays suspended for a group that has ended."""
        for job_id, key in self.state.jobs().items():
            if key.kind != "hash" or key.holds.get("status") != "delayed":
                continue
            for wait in RunWait.read(key.holds.get("waits")):
                status = self.fields.get(wait.group, {}).get("status", "gone")
                if wait.group and status not in ("running", "cancelling") and self.marks.get(wait.group, "1") != "0":
                    yield f"{job_id} waits for group {wait.group}, which is {status}"

    def _counted(self, name: str) -> Iterator[str]:
        """A child that has ended is counted."""
        counted = self.counted(name)
        for number, (job_id, status) in self.members.get(name, {}).items():
            if status in FINISHED and number not in counted:
                yield f"{job_id} is {status}, but not counted"

    def _settled(self, name: str, fields: dict[str, str]) -> Iterator[str]:
        """Without a mark the counters are right, there are not too many children, and something waits or runs."""
        counted, succeeded = self.counted(name), self.counted(name, "succeeded")
        if int(fields["ended"]) != len(counted) or int(fields["succeeded"]) != len(succeeded & counted):
            yield f"group {name} counts {fields['ended']} and {fields['succeeded']}, not {counted} and {succeeded}"
        live = [job_id for job_id, status in self.members.get(name, {}).values() if status not in FINISHED]
        most = 1 if fields.get("chained") == "1" else int(fields.get("concurrency") or 1000)
        if len(live) > most:
            yield f"group {name} has {len(live)} children at a time: {live}"
        if not live and fields.get("closed") == "1":
            yield f"group {name} is {fields['status']}, but nothing of it waits or runs"

    def _ended(self, name: str, fields: dict[str, str]) -> Iterator[str]:
        """What has completed has no children left, and its call was made once."""
        counted, members = self.counted(name), self.members.get(name, {})
        live = [
            job_id for number, (job_id, status) in members.items() if status not in FINISHED and number not in counted
        ]
        if "becomes" not in fields and (live or fields.get("closed") != "1"):
            yield f"group {name} is {fields['status']}, but {live} have not ended, or it is not closed"
        follows = {"completed": "then", "failed": "otherwise"}.get(fields["status"], "")
        job_id = f"{name}-then-{fields['generation']}"
        if fields.get(follows) and f"job:{job_id}" not in self.state.keys and "purged_total" not in self.state.totals():
            yield f"group {name} is {fields['status']}, but {job_id} was not made"
