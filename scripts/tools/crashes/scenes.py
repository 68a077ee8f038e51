"""A scene for each path through each script."""

from __future__ import annotations

from typing import Final

from scripts.tools.crashes import (
    scenes_of_gates,
    scenes_of_groups,
    scenes_of_jobs,
    scenes_of_operators,
    scenes_of_runs,
    scenes_of_schedules,
)

SCENES: Final = (
    *scenes_of_jobs.SCENES,
    *scenes_of_gates.SCENES,
    *scenes_of_runs.SCENES,
    *scenes_of_groups.SCENES,
    *scenes_of_operators.SCENES,
    *scenes_of_schedules.SCENES,
)
