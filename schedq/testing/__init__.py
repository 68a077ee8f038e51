"""Helpers for testing an application: the test moves the clock and decides when jobs run.

    from freezegun import freeze_time
    from schedq.testing import run_due, wall_clock

    queue = Queue("mail", redis=url, clock=wall_clock)

    def test_the_reminder_goes_out_after_three_days():
        with freeze_time("2026-03-01") as frozen:
            remind.options(delay=timedelta(days=3)).enqueue("ada@example.org")
            assert run_due(queue) == 0
            frozen.tick(timedelta(days=3))
            assert run_due(queue) == 1

The Lua scripts run on a real Redis (`embedded://` is enough); only the time is simulated.
"""

from schedq.testing.eager_mode import EagerQueues, eager
from schedq.testing.runner import as_job, override, run_due, wall_clock
from schedq.testing.tester import QueueTester, queue_tester

__all__ = ["EagerQueues", "QueueTester", "as_job", "eager", "override", "queue_tester", "run_due", "wall_clock"]
