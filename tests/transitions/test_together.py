"""Several requests in the same round trips."""

from __future__ import annotations

from schedq.errors import Conflict, SchedqError
from schedq.transitions import Operation, RoundTrips, identity, together, unwrap


def asks(*words: str) -> list[Operation[str]]:
    return [Operation("ask", None, (), (word,), identity) for word in words]


def request(*steps: str) -> RoundTrips[str]:
    """Send one round trip for each text, an operation for each of its letters, and return all replies."""
    found = ""
    for step in steps:
        replies: list[str | SchedqError] = yield asks(*step)
        found += "".join(unwrap(reply) for reply in replies)
    return found


def sent(requests: RoundTrips[list[str | SchedqError]]) -> tuple[list[list[object]], list[str | SchedqError]]:
    """The round trips, each operation of which gets its own word as its reply, except `!`, which gets an error."""
    trips: list[list[object]] = []
    replies: list[object] | None = None
    try:
        while True:
            step = requests.send(replies)
            trips.append([word for operation in step for word in operation.args])
            replies = [Conflict("damaged") if word == "!" else word for word in trips[-1]]
    except StopIteration as stop:
        return trips, stop.value


def test_requests_share_their_round_trips_and_each_gets_its_own_replies():
    trips, found = sent(together([request("ab", "c"), request(), request("d", "", "ef")]))

    assert trips == [["a", "b", "d"], ["c"], ["e", "f"]]
    assert found == ["abc", "", "def"]


def test_an_error_of_one_request_ends_only_that_one():
    trips, found = sent(together([request("a!", "b"), request("c", "d")]))

    assert trips == [["a", "!", "c"], ["d"]]
    assert [str(each) for each in found] == ["damaged", "cd"]


def test_no_requests_need_no_round_trip():
    assert sent(together([])) == ([], [])
