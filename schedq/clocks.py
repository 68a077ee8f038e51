"""The machine's own clocks, held so that nothing can stand in for them.

Waits and timeouts must pass in real time also in a test that has frozen the clock. Such tools replace every module
attribute that is a clock function; a partial is none. Redis's time, which decides what is due, is not here.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Final

monotonic: Final = partial(time.monotonic)
"""Seconds on a clock that never steps."""
sleep: Final = partial(time.sleep)
"""Do nothing for some seconds."""
wall: Final = partial(time.time)
"""Unix seconds, for people; never compared with Redis's."""
wall_ns: Final = partial(time.time_ns)
"""The same in nanoseconds."""
