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


def test_a_batch_takes_its_ttl_by_the_former_name_too():
    queue = schedq.Queue("etl", redis="redis://127.0.0.1:1")
    task = queue.task(abs)

    with pytest.warns(DeprecationWarning, match="keep= of BatchMethods.batch is now ttl=") as warned:
        batch = queue.batch("b", task, keep=600)  # type: ignore[call-arg]

    assert batch._options.ttl == 600
    assert warned[0].filename == __file__


@pytest.mark.parametrize("kind", [schedq.Queue, schedq.AsyncQueue])
def test_a_former_option_and_its_new_name_together_are_an_error(kind: type[schedq.Queue]):
    queue = kind("etl", redis="redis://127.0.0.1:1")

    with pytest.raises(TypeError, match="give only ttl="):
        queue.batch("b", keep=600, ttl=600)  # type: ignore[call-arg]
