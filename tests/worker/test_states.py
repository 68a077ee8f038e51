"""The tables of an attempt's states and of a fetcher's: every state can be reached, and nothing else is legal."""

from __future__ import annotations

from itertools import product

import pytest

from schedq.model.records import ClaimedJob
from schedq.worker import attempt, fetcher
from schedq.worker.attempt import Attempt, AttemptState, IllegalTransition, Transition, targets
from schedq.worker.fetcher import FetchState

TABLES: dict[str, tuple[tuple[Transition, ...], tuple[str, ...], str, set[str]]] = {
    "attempt": (attempt.TRANSITIONS, tuple(AttemptState), attempt.CLAIMED, {attempt.SETTLED, attempt.ABANDONED}),
    "fetcher": (fetcher.TRANSITIONS, tuple(FetchState), fetcher.READY, {fetcher.CLOSED}),
}


@pytest.mark.parametrize("what", TABLES)
def test_every_state_can_be_reached_and_leads_to_an_end(what: str):
    table, states, first, ends = TABLES[what]
    reached: set[str] = {first}
    ending = set(ends)
    for _ in states:
        reached |= {each.target for each in table if reached & set(each.sources)}
        ending |= {source for each in table if each.target in ending for source in each.sources}

    assert reached == ending == set(states)


@pytest.mark.parametrize("what", TABLES)
def test_transitions_have_unique_names(what: str):
    table = TABLES[what][0]

    assert len({each.name for each in table}) == len(table)


def test_a_table_lists_what_may_follow_each_state():
    table = (Transition("open", ("shut",), "ajar"), Transition("shut", ("ajar", "shut"), "shut"))

    assert targets(table) == {"shut": {"ajar", "shut"}, "ajar": {"shut"}}


@pytest.mark.parametrize(("source", "target"), list(product(AttemptState, repeat=2)))
def test_an_attempt_changes_only_as_its_table_allows(source: AttemptState, target: AttemptState):
    one = Attempt(ClaimedJob("a", None, 1, "r.1"), state=source)
    if any(source in each.sources and target == each.target for each in attempt.TRANSITIONS):
        one.become(target)
        assert one.state is target
    else:
        with pytest.raises(IllegalTransition, match=f"attempt at job a: {source} can't become {target}"):
            one.become(target)
        assert one.state is source


@pytest.mark.parametrize(("source", "target"), list(product(FetchState, repeat=2)))
def test_a_fetcher_changes_only_as_its_table_allows(source: FetchState, target: FetchState):
    one = object.__new__(fetcher.Fetcher)
    one.state = source
    one._settings = type("Settings", (), {"name": "mail"})()
    if any(source in each.sources and target == each.target for each in fetcher.TRANSITIONS):
        one._become(target)
        assert one.state is target
        assert one.is_ready == (target in (fetcher.READY, fetcher.CLAIMING))
    else:
        with pytest.raises(IllegalTransition, match=f"fetcher of queue mail: {source} can't become {target}"):
            one._become(target)
        assert one.state is source
