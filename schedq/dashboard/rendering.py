"""Renders pages from templates: formatting of values, whole pages, their live regions, static files.

The templates escape HTML; the filters here make control and direction characters visible.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC
from importlib import resources
from typing import Any, Final
from urllib.parse import quote

from jinja2 import BaseLoader, DictLoader, Environment, PackageLoader, StrictUndefined

from schedq.errors import UsageError
from schedq.inspect import display
from schedq.model import escaping
from schedq.model.gates import checked_gate_name, checked_key
from schedq.model.keys import checked_id, checked_name, checked_schedule_id
from schedq.model.times import span
from schedq.transitions.pause import checked_task

_FOLDER: Final = "schedq.dashboard"
_PACKED: Final = "files.json.bz2"
"""A wheel has this file instead of templates and static files, because it is smaller: see scripts/tools/package.py."""
MOST_SHOWN: Final = 65_536
"""Maximum number of characters of a payload, result or traceback on a page."""
_LIVE: Final = "live_"
MEDIA: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


# -- formatting of values; times are in UTC


def iso(ms: int) -> str:
    """A time for machines, in ISO 8601."""
    found = display.instant(ms, UTC)
    return "" if found is None else f"{found:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def utc(ms: int) -> str:
    """A time in full, to the millisecond."""
    found = display.instant(ms, UTC)
    return display.NOTHING if found is None else f"{found:%Y-%m-%d %H:%M:%S}.{ms % 1000:03d}"


def clock(ms: int, now_ms: int) -> str:
    """A time of day, with the date if it is not today."""
    found, today = display.instant(ms, UTC), display.instant(now_ms, UTC)
    if found is None or today is None:
        return display.NOTHING
    return f"{found:%H:%M:%S}" if found.date() == today.date() else f"{found:%Y-%m-%d %H:%M}"


def shortened(text: str, most: int = MOST_SHOWN) -> str:
    """A text of several lines, cut after `most` characters."""
    cut = escaping.harmless_lines(text[:most])
    return cut + (f"\n… {len(text) - most:,} more characters" if len(text) > most else "")


def pretty(text: str) -> str:
    """Stored JSON, indented and cut after `MOST_SHOWN` characters."""
    return shortened(display.pretty(text) if len(text) <= MOST_SHOWN else text)


def size(amount: int) -> str:
    """An amount of memory."""
    value, unit = float(amount), "B"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < 1000 or unit == "TB":
            break
        value /= 1000
    return f"{display.number(round(value, 1))} {unit}"


def segment(text: str) -> str:
    """A name as a segment of a URL path."""
    return quote(text, safe="")


def _passes(check: Callable[[object], object]) -> Callable[[object], bool]:
    """Make a template test of a check. Stored ids may be invalid, and only valid ones have a page to link to."""

    def passes(value: object) -> bool:
        try:
            check(value)
        except UsageError:
            return False
        return True

    return passes


_FILTERS: Final = {
    "number": display.number,
    "size": size,
    "iso": iso,
    "utc": utc,
    "clock": clock,
    "shortened": shortened,
    "pretty": pretty,
    "error_title": display.error_title,
    "segment": segment,
    "span": span,
    "roundly": display.roundly,
    "apart": display.apart,
    "roughly": display.roughly,
    "clean": escaping.harmless,
    "stored": display.stored,
    "count": display.count,
    "progress": display.progress,
    "percent": display.percent,
}
_TESTS: Final = {
    "job_id": _passes(checked_id),
    "schedule_id": _passes(checked_schedule_id),
    "task_name": _passes(checked_task),
    "gate_name": _passes(checked_gate_name),
    "queue_name": _passes(checked_name),
    "gate_key": _passes(checked_key),
    "printable": str.isprintable,
}


# -- pages


@dataclass(frozen=True, slots=True)
class PageData:
    """A page before rendering.

    Attributes:
        template: name of its template. Blocks named `live_…` are live regions, updated while a browser shows the page.
        context: variables of the template.
        status: the HTTP status.
        every_s: minimum seconds between two updates of the live regions.
        location: the path of another page to go to instead, or ''.
    """

    template: str
    context: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    every_s: float = 1.0
    location: str = ""


class Renderer:
    """Renders the templates; they escape every value."""

    def __init__(self, **constants: object) -> None:
        self._templates = Environment(
            loader=_loader(),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= _FILTERS
        self._templates.tests |= _TESTS
        self._templates.globals |= constants
        for name in ("parts", "charts"):
            # As globals, because a block that is rendered on its own does not see its template's imports.
            self._templates.globals[name] = self._templates.get_template(f"{name}.html").module

    def page(self, data: PageData, **common: object) -> str:
        """The whole page."""
        return self._templates.get_template(data.template).render(**common, **data.context)

    def live_regions(self, data: PageData, **common: object) -> dict[str, str]:
        """The page's live regions by name."""
        template = self._templates.get_template(data.template)
        context = template.new_context({**common, **data.context})
        return {name: "".join(block(context)) for name, block in template.blocks.items() if name.startswith(_LIVE)}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A static file.

    Attributes:
        body: its bytes.
        media: its MIME type.
        tag: its ETag.
    """

    body: bytes
    media: str
    tag: str


def _loader() -> BaseLoader:
    texts = _packed()
    if not texts:
        return PackageLoader(_FOLDER)
    return DictLoader({name.removeprefix("templates/"): text for name, text in texts.items()})


def _packed() -> dict[str, str]:
    """The texts of templates and static files by path, in a wheel; {} in a checkout, which has files."""
    packed = resources.files(_FOLDER).joinpath(_PACKED)
    if not packed.is_file():
        return {}
    try:
        import bz2
    except ImportError as error:
        raise UsageError("this Python was built without bz2, which reads the dashboard's files") from error
    found: dict[str, str] = json.loads(bz2.decompress(packed.read_bytes()))
    return found


def static_files() -> dict[str, StaticFile]:
    """Every file under `static`, by name."""
    bodies = {name.removeprefix("static/"): text.encode() for name, text in _packed().items()}
    if not bodies:
        folder = resources.files(_FOLDER).joinpath("static")
        bodies = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    return {
        name: StaticFile(body, MEDIA[ending], f'"{hashlib.sha256(body).hexdigest()[:16]}"')
        for name, body in bodies.items()
        if (ending := name.rpartition(".")[2]) in MEDIA
    }
