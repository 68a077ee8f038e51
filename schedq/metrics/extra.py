"""The package that the extra `metrics` brings."""

from __future__ import annotations

from schedq.errors import UsageError


def needed() -> None:
    """See that it is there.

    Raises:
        UsageError: it is not; the message says how to get it.
    """
    try:
        import prometheus_client  # noqa: F401 - whether it is there
    except ImportError as error:
        text = "metrics need the package prometheus-client; get it by: pip install 'schedq[metrics]'"
        raise UsageError(text) from error
