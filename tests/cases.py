"""One test for all cases of a cheap check."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any


def for_each(
    cases: Iterable[Any], name: Callable[[Any], str] = str
) -> Callable[[Callable[[Any], None]], Callable[[], None]]:
    """Make one test that runs a check for every case, and names each case that fails.

    A test costs pytest several milliseconds, and most checks of a file or a name take less than one. Use
    `parametrize` for tests that take fixtures.
    """
    listed = list(cases)

    def decorate(check: Callable[[Any], None]) -> Callable[[], None]:
        @functools.wraps(check)
        def test() -> None:
            failures: dict[str, Exception] = {}
            for case in listed:
                try:
                    check(case)
                except Exception as error:
                    error.add_note(f"case: {name(case)}")
                    failures[name(case)] = error
            if failures:
                raise ExceptionGroup(f"fails for {', '.join(failures)}", list(failures.values()))

        del test.__wrapped__  # pytest would take the check's parameter for a fixture
        assert listed, "no cases"
        return test

    return decorate
