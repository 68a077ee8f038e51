"""Draws pages from templates, whole or only their living parts."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from schedq.dashboard.wording import FILTERS, TESTS

_LIVING: Final = "live_"
MEDIA: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


@dataclass(frozen=True, slots=True)
class View:
    """A page, not yet drawn.

    Attributes:
        template: draws it; its blocks `live_…` are drawn anew while somebody looks.
        facts: what it shows.
        status: the HTTP status.
        every_s: seconds between two drawings while somebody looks, at the least.
    """

    template: str
    facts: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    every_s: float = 1.0


class Screens:
    """The templates; whatever is put into them is escaped."""

    def __init__(self, **constants: object) -> None:
        self._templates = Environment(
            loader=PackageLoader("schedq.dashboard"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters |= FILTERS
        self._templates.tests |= TESTS
        self._templates.globals |= constants
        for name in ("parts", "charts"):
            # Here, as a part that is drawn alone does not see what its template imports.
            self._templates.globals[name] = self._templates.get_template(f"{name}.html").module

    def page(self, view: View, **common: object) -> str:
        """The whole page."""
        return self._templates.get_template(view.template).render(**common, **view.facts)

    def living(self, view: View, **common: object) -> dict[str, str]:
        """The page's living parts, by name."""
        template = self._templates.get_template(view.template)
        context = template.new_context({**common, **view.facts})
        return {name: "".join(block(context)) for name, block in template.blocks.items() if name.startswith(_LIVING)}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file that is served as it is.

    Attributes:
        body: what is in it.
        media: its type.
        tag: changes when it does.
    """

    body: bytes
    media: str
    tag: str


def static_files() -> dict[str, StaticFile]:
    """Every file under `static`, by name."""
    found = {}
    for file in resources.files("schedq.dashboard").joinpath("static").iterdir():
        media = MEDIA.get(file.name.rpartition(".")[2])
        if media is not None:
            body = file.read_bytes()
            found[file.name] = StaticFile(body, media, f'"{hashlib.sha256(body).hexdigest()[:16]}"')
    return found
