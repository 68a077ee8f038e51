"""Classifies Redis's errors as transient or permanent, and translates them into schedq's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from redis import exceptions

from schedq.errors import Conflict, QueueFull, SchedqError, StoreUnavailable, UsageError

CONNECTION_LOST: Final = (exceptions.ConnectionError, exceptions.TimeoutError, exceptions.InvalidResponse, OSError)
"""After these the connection can no longer be used, and it is unknown whether the request was executed."""
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
_NO_ADDRESS: Final = "; REDIS_URL was not set when the queue was created; if you run no server, use embedded://FOLDER"
_NO_DATABASE: Final = "DB index is out of range"
_DEMOTED: Final = ("CLUSTERDOWN", "MASTERDOWN", "MOVED", "NOREPLICAS", "READONLY", "UNBLOCKED")
# Compiled on first use, because most programs meet no error.
_IN_SCRIPT: Final = r"(?s)@user_script: ?\d+: -?(?P<error>(?P<code>[A-Z]+) .*)"
"""What Redis 6.2 prepends to the error of a command in a script; later releases keep the error code in front."""
_DENIED_IN_SCRIPT: Final = ("ACL failure in script", "The user executing the script can't")
"""The texts of NOPERM errors inside a script, in older and in newer releases."""
_UNKNOWN_COMMAND: Final = r"(?i)(unknown|unsupported) (redis )?command( called|,? [`'\"]?(?P<name>[A-Za-z.|-]+))?"
"""The texts of errors about a command that is missing or was renamed."""
_BAD_CERTIFICATE: Final = r"certificate verify failed: (?P<why>.*?)\.? \(_ssl"
"""The text of errors of Python's ssl module about an untrusted certificate."""
_WAIT_ON_REPLICA: Final = "cannot be used with replica instances"
"""In the errors of WAIT and WAITAOF on a replica, which have no code of their own."""


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed a little later, on a new connection."""
    cause = _root_cause(error)
    if isinstance(cause, (QueueFull, UsageError)) or is_refusal(cause):
        return False
    return isinstance(cause, StoreUnavailable) or isinstance(error, CONNECTION_LOST) or _code(error) in _TRANSIENT


def is_refusal(error: Exception) -> bool:
    """Whether the server understood the request and rejects it until a setting is changed."""
    error = _root_cause(error)
    text = str(error)
    return (
        _is_unauthenticated(error)
        or _is_forbidden(error)
        or _NO_DATABASE in text
        or bool(re.search(_UNKNOWN_COMMAND, text))
    )


def is_unresponsive(error: Exception) -> bool:
    """Whether the server does not respond, for an unknown reason."""
    error = _root_cause(error)
    return isinstance(error, CONNECTION_LOST) and not is_refusal(error) and not re.search(_BAD_CERTIFICATE, str(error))


def reason(error: Exception) -> str:
    """Return why a server can't be used at the moment, as text to follow its name in a message."""
    error = _root_cause(error)
    text = _text(error) or ("no reply in time" if isinstance(error, TimeoutError) else type(error).__name__)
    if _is_unauthenticated(error):
        return f"it rejects the user name or password: {text}"
    if bad := re.search(_BAD_CERTIFICATE, text):
        return f"its certificate is not trusted: {bad['why']}"
    return text


def is_moved(error: Exception) -> bool:
    """Whether a cluster reports that the queue is on another node now, which is normal."""
    return _code(error) == "MOVED"


def is_demoted(reply: object) -> bool:
    """Whether the server may no longer hold the queue, so that the address must be resolved again.

    A primary without replicas (NOREPLICAS) may have been replaced by the Sentinels; it notices only seconds later.
    """
    return isinstance(reply, exceptions.ResponseError) and (_code(reply) in _DEMOTED or _WAIT_ON_REPLICA in str(reply))


def is_unknown_command(error: Exception) -> bool:
    """Whether the server lacks the command, or it was renamed."""
    return bool(re.search(_UNKNOWN_COMMAND, _text(error)))


def is_unknown_script(error: Exception) -> bool:
    """Whether the server does not know the script yet."""
    return isinstance(error, exceptions.NoScriptError)


def translate(error: Exception, what: str, where: str, *, is_default: bool = False) -> SchedqError:
    """Translate the error of operation `what` at the server `where`; `is_default`: no address was configured."""
    error = _root_cause(error)
    text = _text(error)
    if isinstance(error, SchedqError):
        return error
    if _is_unauthenticated(error):
        return UsageError(f"{where} rejects the user name or password: {text}")
    if _is_forbidden(error):
        return UsageError(
            f"{what}: the Redis user may not do this on {where}: {text}; `schedq doctor --acl` prints what it needs"
        )
    if _code(error) == "OOM" or "OOM command not allowed" in text:
        return QueueFull(f"{what}: the memory of {where} is full (maxmemory)")
    if lacking := re.search(_UNKNOWN_COMMAND, text):
        command = f"the command {lacking['name']}" if lacking["name"] else "a command of the script"
        return UsageError(
            f"{what}: {where} does not know {command}; schedq needs all commands of Redis 6.2 or later, or of Valkey"
        )
    if "WRONGTYPE" in text:
        return Conflict(f"{what}: {text[text.index('WRONGTYPE') :]}; the data is damaged or belongs to another program")
    if _NO_DATABASE in text:
        return UsageError(
            f"{where} has no such database; the number at the end of the URL must be below the server's `databases`"
        )
    if bad := re.search(_BAD_CERTIFICATE, text):
        hint = "; to trust your own CA, add ?ssl_ca_certs=FILE to the URL" if "issuer" in text else ""
        return StoreUnavailable(f"{what}: the certificate of {where} is not trusted: {bad['why']}{hint}")
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailable(f"{what}: {where} is still loading its data")
    if isinstance(error, exceptions.InvalidResponse):
        return StoreUnavailable(f"{what}: {where} does not speak Redis's protocol (with TLS, use rediss://): {text}")
    if isinstance(error, CONNECTION_LOST):
        text = text or "timed out"
        hint = _NO_ADDRESS if is_default else ""
        return StoreUnavailable(f"{what}: {where} does not respond: {text}{hint}")
    code = f"{_code(error)} " if _code(error) in _TRANSIENT and not text.startswith(_code(error)) else ""
    return StoreUnavailable(f"{what}: {where} replied: {code}{text}")


def most_transient(problems: Sequence[SchedqError]) -> SchedqError:
    """Return which error of several servers to report: a transient one, if there is any."""
    return next((problem for problem in problems if isinstance(problem, StoreUnavailable)), problems[0])


def _root_cause(error: Exception) -> Exception:
    """Return the underlying error. On a unix socket, redis-py's asyncio client wraps login errors in another one."""
    cause = error.__cause__
    if isinstance(error, exceptions.ConnectionError) and isinstance(cause, (exceptions.RedisError, SchedqError)):
        return cause
    return error


def _is_forbidden(error: Exception) -> bool:
    """Whether the user has logged in but lacks a permission."""
    return _code(error) == "NOPERM" or any(words in str(error) for words in _DENIED_IN_SCRIPT)


def _is_unauthenticated(error: Exception) -> bool:
    """Whether the server does not know the user or the password."""
    strange = (exceptions.AuthenticationError, exceptions.AuthorizationError)
    return isinstance(error, strange) or _code(error) == "NOAUTH"


def _text(error: Exception) -> str:
    wrapped = re.search(_IN_SCRIPT, str(error))
    return wrapped["error"] if wrapped else str(error)


def _code(error: Exception) -> str:
    """Return the error code, the first word of the error. redis-py removes the codes that it knows from the text."""
    if wrapped := re.search(_IN_SCRIPT, str(error)):
        return wrapped["code"]
    code = getattr(error, "status_code", None)
    return code if isinstance(code, str) else str(error).partition(" ")[0]
