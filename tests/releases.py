"""Older releases of the package, taken from git: a wheel contains the package's folder and nothing built."""

from __future__ import annotations

import subprocess
from io import BytesIO
from pathlib import Path
from typing import Final
from zipfile import ZipFile

ROOT: Final = Path(__file__).parents[1]
BEFORE: Final = "28b2da2"
"""The previous release. Its workers, promoters and producers share queues with the current one's."""


def unpack(commit: str, folder: Path) -> bool:
    """Extract the package of a commit into a folder; False if git lacks the commit, as in a shallow clone."""
    try:
        packed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "--format=zip", commit, "schedq"],
            capture_output=True,
            check=True,
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    with ZipFile(BytesIO(packed.stdout)) as archive:
        archive.extractall(folder)
    return True
