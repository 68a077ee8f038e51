"""Makes the API reference show verbs as method calls: with their results instead of the requests they create."""

from __future__ import annotations

from typing import Any

import griffe


class Verbs(griffe.Extension):
    """Interprets `@verb` and `@stream` of schedq/queue/verb.py."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Turn `Operation[int]` of a verb into `int`, and `Listening[str]` of a stream into a generator."""
        decorators = {str(decorator.value) for decorator in func.decorators}
        if decorators & {"verb", "stream"} and isinstance(func.returns, griffe.ExprSubscript):
            returned = func.returns.slice
            func.returns = f"Generator[{returned}, None, None]" if "stream" in decorators else returned
