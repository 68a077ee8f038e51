"""Renew the leases of running jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation

_RENEW: Final = Binding("renew", "held")


def renew(queue: Settings, held: Sequence[tuple[str, str]]) -> Operation[list[str]]:
    """Renew the leases of `held` (id, token); returns OK, STOP or LOST for each. At most 1000."""
    return Operation("renew", *_RENEW(queue, held=[word for pair in held for word in pair]), list)
