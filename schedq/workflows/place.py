"""Where the jobs of an operation are: the id of their group, and its generation."""

from __future__ import annotations

import hashlib
from typing import Final, NamedTuple

from schedq.model.runs import Run, group_of
from schedq.transitions import groups
from schedq.workflows.recorder import Recorder

_AGE: Final = 2


class Place(NamedTuple):
    """The group of an operation.

    Attributes:
        id: its id.
        age: the first characters of its generation, which say how often the run had been requeued.
        retry: the generation in which what failed runs again; the same in each attempt, so that one continues another.
    """

    id: str
    age: str
    retry: str

    @classmethod
    def of(cls, job_id: str, record: Recorder, name: str) -> Place:
        """The group of the operation of this name."""
        group_id = group_of(job_id, Run(record.version, record.began_ms, life=record.life), name)
        age = f"{record.requeued % 256:02x}"
        return cls(group_id, age, age + _digest(f"{group_id}/{record.requeued}", 4))

    def fresh(self) -> str:
        """A new generation, for a new group: jobs of one that was deleted do not count for it."""
        return self.age + groups.new_generation()[_AGE:]

    def is_of(self, generation: str) -> bool:
        """Whether a group of this generation works for the run as it is now, and not as it was before a requeue."""
        return generation.startswith(self.age)


def _digest(text: str, digits: int) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:digits]
