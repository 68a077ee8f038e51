"""What Redis's errors mean: which of them are transient, and what the rest are called here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from redis import exceptions

from schedq.errors import Conflict, QueueFull, SchedqError, StoreUnavailable, UsageError

CONNECTION_LOST: Final = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.InvalidResponse, OSError)
"""The connection can no longer be used, and whether the request was executed is unknown."""
_TRANSIENT: Final = (
    "ASK",
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOREPLICAS",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
)
_NO_DATABASE: Final = "DB index is out of range"
_DEMOTED: Final = ("CLUSTERDOWN", "MASTERDOWN", "MOVED", "NOREPLICAS", "READONLY", "UNBLOCKED")
_IN_SCRIPT: Final = re.compile(r"@user_script: ?\d+: -?(?P<error>(?P<code>[A-Z]+) .*)", re.DOTALL)
"""What Redis 6.2 puts before the error of a command in a script; later ones leave the code at its head."""
_DENIED_IN_SCRIPT: Final = ("ACL failure in script", "The user executing the script can't")
"""How servers of different age say NOPERM there."""
_UNKNOWN_COMMAND: Final = re.compile(
    r"(unknown|unsupported) (redis )?command( called|,? [`'\"]?(?P<name>[A-Za-z.|-]+))?", re.IGNORECASE
)
"""How a server says that it lacks a command, or that it was renamed."""
_BAD_CERTIFICATE: Final = re.compile(r"certificate verify failed: (?P<why>.*?)\.? \(_ssl")
"""How Python's ssl module says that it does not trust the other side."""


def is_transient(error: Exception) -> bool:
    """Whether the same request may well succeed a little later, on a new connection."""
    cause = _root_cause(error)
    if isinstance(cause, (QueueFull, UsageError)) or is_refusal(cause):
        return False
    return isinstance(cause, StoreUnavailable) or isinstance(error, CONNECTION_LOST) or _code(error) in _TRANSIENT


def is_refusal(error: Exception) -> bool:
    """Whether the server understood the request and refuses it until somebody changes something."""
    error = _root_cause(error)
    text = str(error)
    return (
        _is_unauthenticated(error)
        or _is_forbidden(error)
        or _NO_DATABASE in text
        or bool(_UNKNOWN_COMMAND.search(text))
    )


def is_unresponsive(error: Exception) -> bool:
    """Whether all that is known is that the server does not answer."""
    error = _root_cause(error)
    return isinstance(error, CONNECTION_LOST) and not is_refusal(error) and not _BAD_CERTIFICATE.search(str(error))


def reason(error: Exception) -> str:
    """Why a server can't be used at the moment, to follow its name in a message."""
    error = _root_cause(error)
    text = _text(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
    if _is_unauthenticated(error):
        return f"it refuses the user name or password: {text}"
    if bad := _BAD_CERTIFICATE.search(text):
        return f"its certificate is refused: {bad['why']}"
    return text


def is_moved(error: Exception) -> bool:
    """Whether a cluster says that the queue is on another node now, which is normal."""
    return _code(error) == "MOVED"


def is_demoted(reply: object) -> bool:
    """Whether the server may not hold the queue any more: by now the address may lead to another one.

    A primary without replicas (NOREPLICAS) may be one that Sentinels have replaced: it learns so seconds later.
    """
    return isinstance(reply, exceptions.ResponseError) and _code(reply) in _DEMOTED


def is_unknown_script(error: Exception) -> bool:
    """Whether the server does not know the script yet."""
    return isinstance(error, exceptions.NoScriptError)


def translate(error: Exception, what: str, where: str, *, is_default: bool = False) -> SchedqError:
    """The error in our words: operation `what` met it at the server `where`; `is_default`: nobody named that one."""
    error = _root_cause(error)
    text = _text(error)
    if isinstance(error, SchedqError):
        return error
    if _is_unauthenticated(error):
        return UsageError(f"{where} refuses the user name or password: {text}")
    if _is_forbidden(error):
        return UsageError(
            f"{what}: the Redis user may not do this on {where}: {text}; `schedq doctor --acl` prints what it needs"
        )
    if _code(error) == "OOM" or "OOM command not allowed" in text:
        return QueueFull(f"{what}: the memory of {where} is full (maxmemory)")
    if lacking := _UNKNOWN_COMMAND.search(text):
        command = f"the command {lacking['name']}" if lacking["name"] else "a command of the script"
        return UsageError(
            f"{what}: {where} does not know {command}; schedq needs all commands of Redis 6.2 or later, or of Valkey"
        )
    if "WRONGTYPE" in text:
        return Conflict(f"{what}: {text[text.index('WRONGTYPE') :]}; another program's data, or damaged data")
    if _NO_DATABASE in text:
        return UsageError(
            f"{where} has no such database; the number at the URL's end must be below the server's `databases`"
        )
    if bad := _BAD_CERTIFICATE.search(text):
        hint = "; a CA of your own is named in the URL, ?ssl_ca_certs=FILE" if "issuer" in text else ""
        return StoreUnavailable(f"{what}: the certificate of {where} is refused: {bad['why']}{hint}")
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailable(f"{what}: {where} is still loading its data")
    if isinstance(error, exceptions.InvalidResponse):
        return StoreUnavailable(f"{what}: {where} does not answer as Redis does (with TLS, it is rediss://): {text}")
    if isinstance(error, CONNECTION_LOST):
        text = text or "it takes too long"
        hint = "; without a server of your own, use embedded://" if is_default else ""
        return StoreUnavailable(f"{what}: {where} does not answer: {text}{hint}")
    code = f"{_code(error)} " if _code(error) in _TRANSIENT and not text.startswith(_code(error)) else ""
    return StoreUnavailable(f"{what}: {where} answers: {code}{text}")


def most_transient(problems: Sequence[SchedqError]) -> SchedqError:
    """The error to report of several servers: a transient one, if there is any."""
    return next((problem for problem in problems if isinstance(problem, StoreUnavailable)), problems[0])


def _root_cause(error: Exception) -> Exception:
    """The underlying error: on a unix socket the asyncio client wraps a failed handshake in a connection error."""
    cause = error.__cause__
    if isinstance(error, exceptions.ConnectionError) and isinstance(cause, (exceptions.RedisError, SchedqError)):
        return cause
    return error


def _is_forbidden(error: Exception) -> bool:
    """Whether the server knows the user, who may not do this."""
    return _code(error) == "NOPERM" or any(words in str(error) for words in _DENIED_IN_SCRIPT)


def _is_unauthenticated(error: Exception) -> bool:
    """Whether the server does not know the user or the password."""
    strange = (exceptions.AuthenticationError, exceptions.AuthorizationError)
    return isinstance(error, strange) or _code(error) == "NOAUTH"


def _text(error: Exception) -> str:
    wrapped = _IN_SCRIPT.search(str(error))
    return wrapped["error"] if wrapped else str(error)


def _code(error: Exception) -> str:
    """The error's first word, which the client library takes out of the text for the codes it knows."""
    if wrapped := _IN_SCRIPT.search(str(error)):
        return wrapped["code"]
    code = getattr(error, "status_code", None)
    return code if isinstance(code, str) else str(error).partition(" ")[0]
