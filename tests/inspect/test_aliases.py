"""Former public names still work and name their successors."""

from __future__ import annotations

import pytest

import schedq


def test_a_former_name_is_the_new_one_and_warns():
    with pytest.warns(DeprecationWarning, match="schedq.Step is now schedq.TimelineEvent"):
        from schedq import Step

    assert Step is schedq.TimelineEvent


def test_a_former_name_in_a_documented_module_is_the_new_one_too():
    with pytest.warns(DeprecationWarning, match="schedq.Vital is now schedq.QueueHealth"):
        from schedq.observer import Vital

    assert Vital is schedq.QueueHealth


def test_a_worker_has_its_former_methods():
    queue = schedq.Queue("mail", redis="redis://127.0.0.1:1")
    queue.handler(lambda payload: payload)
    worker = schedq.Worker([queue])

    with pytest.warns(DeprecationWarning, match="Worker.vitals is now Worker.health"):
        assert worker.vitals() == []
    with pytest.warns(DeprecationWarning, match="Worker.stir is now Worker.wake"):
        worker.stir()
