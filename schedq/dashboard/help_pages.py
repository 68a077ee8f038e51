"""The handbook's pages, served by the dashboard because its browsers may have no internet access."""

from __future__ import annotations

import re
from itertools import groupby, pairwise
from typing import Final

from markdown_it import MarkdownIt
from starlette.requests import Request

from schedq import handbook
from schedq.dashboard.queue_pool import QueuePool
from schedq.dashboard.rendering import PageData
from schedq.dashboard.security import Refusal, base

_MARKDOWN: Final = MarkdownIt("commonmark", {"html": False}).enable("table")
_LINK: Final = re.compile(r"\]\(([\w-]+)\.md(#[\w-]+)?\)")


async def contents(request: Request, pool: QueuePool) -> PageData:  # noqa: ARG001 - a page's signature
    """The list of pages."""
    sections = [(section, list(topics)) for section, topics in groupby(handbook.topics(), lambda topic: topic.section)]
    return PageData("handbook.html", {"sections": sections})


async def topic(request: Request, pool: QueuePool) -> PageData:  # noqa: ARG001
    """A page of the handbook."""
    name = request.path_params["topic"]
    known = {topic.name: topic for topic in handbook.topics()}
    if name not in known:
        raise Refusal(404, "The handbook has no such page.")
    text = _LINK.sub(lambda link: f"]({base(request)}/help/{link[1]}{link[2] or ''})", handbook.read(name))
    return PageData("handbook_page.html", {"topic": known[name], "html": _html(text)})


def _html(text: str) -> str:
    """A page's Markdown as HTML: headings can be linked to, and figures are aligned without inline styles."""
    tokens = _MARKDOWN.parse(text)
    for token, content in pairwise(tokens):
        if token.type == "heading_open":
            token.attrSet("id", re.sub(r"[^\w\- ]", "", content.content.lower()).replace(" ", "-"))
        elif token.attrs.pop("style", "") == "text-align:right":
            token.attrSet("class", "n")
    return str(_MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {}))
