"""What the address of a page asks for; what makes no sense reads as not asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from starlette.requests import Request

SIZES: Final = (50, 100, 500)
"""Rows that a page may have."""


def whole(request: Request, name: str, default: int = 0, most: int = 10**9) -> int:
    """A whole number."""
    text = request.query_params.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 16 else default


def one_of(request: Request, name: str, choices: Mapping[str, object] | tuple[str, ...], default: str) -> str:
    """One of some words."""
    text = request.query_params.get(name, "")
    return text if text in choices else default


def size(request: Request) -> int:
    """How many rows."""
    asked = whole(request, "limit", SIZES[0])
    return asked if asked in SIZES else SIZES[0]


def query(fields: Mapping[str, object]) -> str:
    """The end of an address that asks for this; what is empty is left out."""
    said = urlencode({name: str(value) for name, value in fields.items() if value not in ("", None)})
    return f"?{said}" if said else ""
