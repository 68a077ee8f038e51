"""Texts that come from users, or from Redis, made fit for a terminal and for a log."""

from __future__ import annotations


def harmless(text: str) -> str:
    """The text on one line, with an escape for whatever could steer a terminal or pass for another line."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def harmless_lines(text: str) -> str:
    """The same with the lines that it has."""
    return "\n".join(harmless(line.expandtabs(4)) for line in text.split("\n"))
