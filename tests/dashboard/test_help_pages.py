"""The dashboard shows the handbook, without anything from another machine."""

from __future__ import annotations

import re

import pytest

from schedq import handbook
from tests.dashboard.conftest import Visitor

NAMES = [topic.name for topic in handbook.topics()]


def test_every_page_links_to_the_handbook(visitor: Visitor):
    assert '<a href="/help">Handbook</a>' in visitor.page("/")


def test_the_handbook_lists_its_pages(visitor: Visitor):
    assert re.findall(r'<li><a href="/help/([\w-]+)">', visitor.page("/help")) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_shown_with_links_that_lead_to_headings(name: str, visitor: Visitor):
    text = visitor.page(f"/help/{name}")

    assert f"{handbook.read(name).partition(chr(10))[0].removeprefix('# ')}</h1>" in text
    assert "style=" not in text
    assert ".md" not in re.sub("<code.*?</code>", "", text, flags=re.DOTALL)
    for path, anchor in re.findall(r'href="(/help/[\w-]+)(?:#([\w-]+))?"', text):
        assert f'id="{anchor}"' in visitor.page(path) or not anchor


def test_the_pictures_of_a_page_are_there(visitor: Visitor):
    pictures = [path for name in NAMES for path in re.findall(r'<img src="([^"]+)"', visitor.page(f"/help/{name}"))]

    assert len(pictures) == 3
    for path in pictures:
        found = visitor.get(f"/help/{path}")
        assert (found.headers["content-type"], found.text[:4]) == ("image/svg+xml", "<svg")


@pytest.mark.parametrize("name", ["nothing", "nothing.svg", "..%2Flife-of-a-job.svg", "..%2FREADME", "index"])
def test_an_unknown_page_is_not_found(name: str, visitor: Visitor):
    assert visitor.get(f"/help/{name}").status_code == 404
