"""Runs every case with every client; the cases of a module run concurrently, because they mostly wait."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import pytest

from tests.stories.foreign.guide import Client, Guide
from tests.stories.processes.stage import scenes

Act = Callable[[Guide], None]
_AT_A_TIME: Final = 6
"""More would starve each other on two cores, and leases are short."""


class Matrix:
    """Decorates the cases of a module: `@matrix(clients, setting=...)`; the settings are the queue's.

    The first test that runs starts all selected cases. `breaks` marks name the laws that the guide's programs break by
    design; each of them must be broken.
    """

    def __init__(self) -> None:
        self._acts: dict[str, tuple[Act, dict[str, Any]]] = {}
        self._under_way: dict[str, Future[None]] = {}

    def __call__(self, clients: Sequence[Client], **settings: Any) -> Callable[[Act], Callable[..., None]]:
        def decorate(act: Act) -> Callable[..., None]:
            self._acts[act.__name__] = (act, settings)

            def test(client: Client, request: pytest.FixtureRequest) -> None:
                if not self._under_way:
                    self._start(request)
                self._under_way[request.node.name].result()

            test.__name__ = act.__name__
            return pytest.mark.parametrize("client", clients, ids=str)(test)

        return decorate

    def _start(self, request: pytest.FixtureRequest) -> None:
        pool = ThreadPoolExecutor(max_workers=_AT_A_TIME)
        for item in request.session.items:
            if item.path == request.node.path and isinstance(item, pytest.Function) and item.originalname in self._acts:
                self._under_way[item.name] = pool.submit(self._play, item)
        pool.shutdown(wait=False)

    def _play(self, item: pytest.Function) -> None:
        act, settings = self._acts[item.originalname]
        client: Any = item.callspec.params["client"]
        marks = list(item.iter_markers("breaks"))
        assert all(mark.kwargs.get("because") for mark in marks), "say why the law is broken"
        with scenes([law for mark in marks for law in mark.args]) as make_scene:
            act(Guide(make_scene(**settings), client))
