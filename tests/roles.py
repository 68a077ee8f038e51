"""Which tests verify which role: `scripts/test --role NAME` runs them as users with that role's rules.

The server's default user is then disabled. Methods of the role reach Redis as the role's user; everything else that a
test does, for example to prepare data, runs as the tests' own user.
"""

from __future__ import annotations

import os
import sys
from typing import Final

ROLE: Final = os.environ.get("SCHEDQ_TEST_ROLE", "")
"""The role under which the tests run, or ''."""

_ANYBODYS: Final = frozenset({"get_job", "events", "load_settings"})
_PRODUCERS: Final = _ANYBODYS | {"enqueue", "enqueue_many", "cancel", "wait", "result", "gather_results"}
VERBS: Final = {
    "producer": _PRODUCERS,
    "worker": _PRODUCERS
    | {"claim", "complete", "fail", "snooze", "release", "renew", "settle"}
    | {"promote_due", "reclaim_stuck", "stats"},
    "viewer": _ANYBODYS
    | {"stats", "list_pending", "list_delayed", "list_processing", "list_completed", "list_failed"}
    | {"list_cancelled", "list_broken", "list_workers", "list_queues"},
}
"""The methods of each role; all others run as the tests' own user."""
LOOKS: Final = frozenset(
    {"find", "why", "timeline", "forecast", "pulse", "samples", "task_stats", "errors", "log", "follow"}
    | {"list", "get", "keys"}
)
"""The methods of the inspector and of gates for a viewer; actions are reserved for operators, who may do everything."""
WITHOUT_REDIS: Final = frozenset({"job", "task", "handler", "gate", "close", "aclose"})

FILES: Final = {
    "producer": (
        "tests/transitions/test_enqueue.py",
        "tests/transitions/test_enqueue_many.py",
        "tests/transitions/test_own_ids.py",
        "tests/queue/test_results.py",
        "tests/transitions/test_cancel.py",
        "tests/queue/test_tasks.py",
    ),
    "worker": (
        "tests/transitions/test_adopt.py",
        "tests/transitions/test_claim.py",
        "tests/transitions/test_claim_bad_data.py",
        "tests/queue/test_claim_waits.py",
        "tests/transitions/test_endings.py",
        "tests/transitions/test_enqueue.py",
        "tests/transitions/test_fencing.py",
        "tests/transitions/test_pause.py",
        "tests/transitions/test_promote.py",
        "tests/transitions/test_reclaim.py",
        "tests/transitions/test_recover.py",
        "tests/transitions/test_reports.py",
        "tests/queue/test_progress.py",
        "tests/queue/test_results.py",
        "tests/transitions/test_retention.py",
        "tests/background",
        "tests/worker",
    ),
    "viewer": (
        "tests/cli/test_forecast.py",
        "tests/cli/test_looking.py",
        "tests/cli/test_tail.py",
        "tests/cli/test_top.py",
        "tests/cli/test_why.py",
        "tests/inspect/test_act.py",
        "tests/inspect/test_errors.py",
        "tests/inspect/test_find.py",
        "tests/inspect/test_follow.py",
        "tests/inspect/test_gates.py",
        "tests/inspect/test_history.py",
        "tests/inspect/test_pulse.py",
        "tests/inspect/test_samples.py",
        "tests/inspect/test_views.py",
    ),
}
"""The tests for each role."""

_NO_USER: Final = "it uses a proxy's address, which names no user"
_OWN_SERVER: Final = "it fills its own server, which has only the role's user"
EXEMPT: Final[dict[str, dict[str, str]]] = {
    "producer": {
        "tests/queue/test_results.py::test_only_callers_that_wait_for_a_job_are_notified_of_it": (
            "it counts requests, and the tests' own user sends more of them"
        ),
    },
    "worker": {
        "tests/worker/test_faults.py::test_a_lost_reply_costs_no_job_an_attempt": _NO_USER,
        "tests/worker/test_later_claims.py::test_a_job_whose_claim_lost_its_reply_starts": _NO_USER,
        "tests/worker/test_queues.py::test_requests_of_the_application_get_their_replies": _NO_USER,
        "tests/worker/test_later_claims.py::test_a_job_claimed_on_a_connection_that_only": _NO_USER,
        "tests/worker/test_later_claims.py::test_a_running_job_is_not_started_again": _NO_USER,
        "tests/worker/test_later_claims.py::test_a_job_whose_lease_ended_before_the_reply": _NO_USER,
        "tests/worker/test_later_claims.py::test_a_job_claimed_for_a_worker_at_its_stop": _NO_USER,
        "tests/worker/test_faults.py::test_jobs_of_a_lost_reply_are_released": _NO_USER,
        "tests/worker/test_heartbeat.py::test_a_claim_in_progress_does_not_count_as_a_running_job": _NO_USER,
        "tests/worker/test_leases.py::test_a_renewal_whose_connection_hangs_leaves_time_for_another_one": _NO_USER,
    },
    "viewer": {
        "tests/cli/test_tail.py::test_it_continues_after_a_lost_connection_and_says_so": _OWN_SERVER,
        "tests/cli/test_top.py::test_a_redis_that_does_not_respond_is_reported_and_the_screen_stays": _OWN_SERVER,
        "tests/cli/test_top.py::test_keys_act_in_a_terminal_and_the_terminal_is_restored": "it performs actions",
    },
}
"""Tests in those files that can't run under the role, with the reason."""


def is_beyond(name: str) -> bool:
    """Whether a queue's method is not one of the tested role's."""
    from schedq import Queue

    if not ROLE or name in WITHOUT_REDIS or name in VERBS[ROLE]:
        return False
    if name in ("_ask", "_drive"):
        return ROLE != "worker"  # only workers send these requests
    return not name.startswith("_") and callable(getattr(Queue, name, None))


def is_act(name: str) -> bool:
    """Whether a method of `queue.inspector` or `queue.gates` is not one of the tested role's."""
    return bool(ROLE) and (ROLE != "viewer" or name not in LOOKS)


def arguments(role: str) -> list[str]:
    """The pytest arguments for a role's tests."""
    return [*FILES[role], *(f"--deselect={test}" for test in EXEMPT[role])]


if __name__ == "__main__":
    if sys.argv[1:2] not in ([role] for role in FILES):
        sys.exit(f"scripts/test --role: one of {', '.join(FILES)}")
    print(*arguments(sys.argv[1]), sep="\n")
