"""`python -m scripts.tools.startup`: what it compares; measuring is not tested."""

from __future__ import annotations

import pytest

from scripts.tools import startup


def test_each_limit_is_a_multiple_of_something_that_is_measured() -> None:
    assert startup.LIMITS.keys() | {other for other, _ in startup.LIMITS.values()} <= startup.PROGRAMS.keys()


def test_a_median_is_compared_with_its_limit() -> None:
    medians = {"import redis": 100.0, "import schedq": 116.0}

    assert startup.limit("import schedq", medians) == pytest.approx(115)
    assert startup.limit("import redis", medians) == 100.0
    assert startup.compared("import schedq", medians) == "   1.16 of 'import redis', at most 1.15"
    assert startup.compared("import redis", medians) == ""
