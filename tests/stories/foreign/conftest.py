"""Programs of other languages on our queues; where there is no /proc, what processes leave behind can't be read."""

from __future__ import annotations

from pathlib import Path

collect_ignore_glob = [] if Path("/proc/self/stat").exists() else ["test_guide_*.py"]
