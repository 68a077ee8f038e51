"""The unique keys of calls of a task."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from schedq.errors import UsageError
from schedq.model.payload import encode
from schedq.model.unique import Debounce, Unique, UniqueKey, checked_rule
from schedq.queue.handler import Handler

_LONGEST: Final = 200
_LARGEST: Final = 1 << 20


def checked_for(handler: Handler, given: object) -> Unique | Debounce | None:
    """Return the rule of the option `unique` of a task; None for False.

    Raises:
        UsageError: it is invalid, or names a parameter that the function does not have.
    """
    try:
        rule = checked_rule(given)
        if rule is not None and rule.key is None and (names := [each for each in rule.by if isinstance(each, str)]):
            handler.parameters.check_names(names)
    except UsageError as error:
        raise UsageError(f"task {handler.name!r}: {error}") from None
    return rule


def key_of(handler: Handler, rule: Unique | Debounce, args: Sequence[Any], kwargs: Mapping[str, Any]) -> UniqueKey:
    """Return the unique key of a call with these arguments, which the function accepts.

    Raises:
        UsageError: a value that makes the key is not JSON.
    """
    if rule.key is not None:
        return rule.with_key(rule.key)
    if rule.by and not isinstance(rule.by[0], str):
        value = rule.by[0](*args, **kwargs)
    else:
        found = handler.stored_arguments(args, kwargs)
        value = {str(name): found.get(str(name)) for name in rule.by} if rule.by else found
    encode(value, _LARGEST, f"task {handler.name!r}: what makes it unique")
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    key = f"{handler.name}:{text}"
    if len(key) > _LONGEST or not key.isprintable():
        key = f"{handler.name[:100]}:{hashlib.sha256(key.encode()).hexdigest()[:40]}"
    return rule.with_key(key)
