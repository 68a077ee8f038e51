"""The doctor's requests are bounded: it reads pages, and says when it has only sampled."""

from __future__ import annotations

from typing import Any

from schedq import Queue
from tests.doctor.conftest import Examine
from tests.servers import Server

PAGE = 500
SCANNED = 2500


def test_both_ends_of_a_long_queue_are_examined_and_that_is_reported(mail: Queue, diagnosis: Examine, client: Any):
    ids = mail.enqueue_many(range(3000))
    client.rpush("queue:mail:pending", ids[5])
    client.lpush("queue:mail:pending", ids[-5])

    found = diagnosis("mail", sample=100)

    assert found["listed-twice"].examples == tuple(sorted([ids[5], ids[-5]]))
    said = [words.removesuffix("; --sample N reads more") for words in found.report.limits]
    assert said[0] == "queue mail: only 100 of 3,002 entries of pending were read, at both ends"
    assert said[1].startswith("queue mail: only 1,000 of 3,00")
    assert said[2].endswith("jobs could not be judged, because the lists that may hold them were not read completely")
    assert "orphan" not in found.codes


def test_a_sample_that_is_large_enough_is_not_mentioned(mail: Queue, diagnosis: Examine):
    mail.enqueue_many(range(3000))

    found = diagnosis("mail", sample=3000)

    assert found.report.limits == []


def test_the_requests_are_pages_and_their_number_is_bounded(mail: Queue, diagnosis: Examine, client: Any, ward: Server):
    mail.enqueue_many(range(20_000))
    mail.enqueue_many(range(20_000), delay=600)

    with ward.requests() as requests:
        diagnosis("mail", sample=1000)

    ours = [request for request in requests if request.client != "lua"]
    assert len(ours) < 14 * 1000  # also of each hash that is met in the key space the status is asked
    for request in ours:
        assert request.name not in {"KEYS", "SMEMBERS", "SORT", "LINDEX"}
        if request.name in {"LRANGE", "ZREVRANGE"} or (request.name == "ZRANGE" and "BYSCORE" not in request.words):
            first, last = map(int, request.words[2:4])
            assert (first < 0) == (last < 0)
            assert last - first < PAGE
        if request.name == "ZRANGE" and "BYSCORE" in request.words:
            assert "LIMIT" in request.words
        if request.name == "SCAN":
            assert int(request.words[request.words.index("COUNT") + 1]) <= SCANNED
        if request.name == "LPOS":
            assert "MAXLEN" in request.words


def test_many_suspects_are_reported_as_at_least_a_number(mail: Queue, diagnosis: Examine, client: Any):
    ids = mail.enqueue_many(range(400))
    client.lpush("queue:mail:pending", *ids)

    found = diagnosis("mail")

    assert found["listed-twice"].says == "at least 200 ids that are listed twice"
    assert len(found["listed-twice"].examples) == 5
