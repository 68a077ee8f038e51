"""An application that can't be imported."""

from __future__ import annotations

1 / 0  # noqa: B018 - that is the point
