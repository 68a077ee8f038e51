"""Cancel one job."""

from __future__ import annotations

from typing import Final

from schedq.model.ids import new_request
from schedq.model.keys import checked_id
from schedq.model.lifecycle import Cancellation
from schedq.model.settings import Settings
from schedq.transitions import Binding, Operation

_CANCEL: Final = Binding("cancel", "request", "id", "state")


def cancel(queue: Settings, job_id: str, state: str = "") -> Operation[Cancellation]:
    """Cancel a waiting job, or ask a running one to stop; if `state` is given, only a job in that state."""
    return Operation(
        "cancel",
        *_CANCEL(queue, request=new_request(), id=checked_id(job_id), state=state),
        lambda reply: reply,
    )
