"""Programs in other languages on our queues; leftovers of processes can only be found where /proc exists."""

from __future__ import annotations

from pathlib import Path

collect_ignore_glob = [] if Path("/proc/self/stat").exists() else ["test_guide_*.py"]
