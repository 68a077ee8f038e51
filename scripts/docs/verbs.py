"""Lets the API reference show verbs as calls: with what they return, instead of the request that they make."""

from __future__ import annotations

from typing import Any

import griffe


class Verbs(griffe.Extension):
    """`@verb` and `@stream` of schedq/queue/verb.py, as a reader of the code would explain them."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """`Operation[int]` of a verb becomes `int`, `Listening[str]` of a stream a generator."""
        decorators = {str(decorator.value) for decorator in func.decorators}
        if decorators & {"verb", "stream"} and isinstance(func.returns, griffe.ExprSubscript):
            returned = func.returns.slice
            func.returns = f"Generator[{returned}, None, None]" if "stream" in decorators else returned
