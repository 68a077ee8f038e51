"""Flask: an application context for each attempt."""

from __future__ import annotations

from contextlib import AbstractContextManager

try:
    from flask import Flask
except ImportError as error:
    raise ImportError("schedq.integrations.flask needs Flask: pip install flask") from error

from schedq.observer import AttemptFacts


class FlaskContext:
    """Gives each attempt an application context of its own: `queue.around(FlaskContext(app))`.

    It is pushed and popped where the task runs, so `current_app`, `flask.g` and extensions work in tasks and in their
    dependencies. Functions of `teardown_appcontext` are called when the attempt ends, with its error.

    Args:
        app: the application; None if `init_app` follows.
    """

    def __init__(self, app: Flask | None = None) -> None:
        self._app = app

    def init_app(self, app: Flask) -> None:
        """Set the application, in a function that creates it. The last one counts."""
        self._app = app

    def __call__(self, attempt: AttemptFacts, /) -> AbstractContextManager[object]:
        """Return the context of one attempt.

        Raises:
            RuntimeError: it has no application.
        """
        if self._app is None:
            raise RuntimeError(f"task {attempt.task}: FlaskContext has no application; call its init_app(app)")
        return self._app.app_context()
