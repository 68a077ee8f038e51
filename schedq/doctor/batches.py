"""Batches and chains: damaged records, those at which nothing looks, and those that nothing could end.

`schedq.model.groups` says what they are in Redis.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from schedq.doctor.checks import PAGE, Check, Level, asked, known, own_id, plain, scan
from schedq.doctor.workers import Liveness
from schedq.errors import Conflict, SchedqError
from schedq.inspect.display import approximate, count
from schedq.model.groups import OPEN, damage
from schedq.model.keys import QueueKeys
from schedq.model.lifecycle import FINISHED, PENDING
from schedq.model.payload import decoded
from schedq.model.records import score_ms, whole
from schedq.transitions import RoundTrips

_FIELDS: Final = (
    *("status", "generation", "total", "ended", "succeeded", "closed", "chained", "numbered", "adding"),
    *("began_at_ms", "filled_at_ms", "moved_at_ms", "close_within_ms", "stands_for"),
)
_PARTS: Final = {"items": "list", "failed": "list", "counted": "string", "succeeded": "string"}
_LATE_MS: Final = 60_000
"""Each open group is looked at every 10 s."""
_STALLED_MS: Final = 600_000
_UNCLOSED_MS: Final = 3_600_000
_MOST_STALLED: Final = 50
_MOST_CHILDREN: Final = 20
_WORD: Final = 32
_WORDS: Final = 32
"""How many numbers of 32 bits of a bitmap are read from the first child on that has not ended."""
_SEARCHED: Final = 10_000


@dataclass(frozen=True, slots=True)
class ChildFacts:
    """One child that is not counted as ended.

    Attributes:
        state: of its record; '' if there is none.
        since_ms: when something last happened to it.
        is_explained: it runs, waits for its time or a gate, or its task is paused.
        is_in_line: other jobs are before it.
        is_nowhere: its record says that it waits, but no list holds it.
    """

    state: str
    since_ms: int
    is_explained: bool = False
    is_in_line: bool = False
    is_nowhere: bool = False


@dataclass(frozen=True, slots=True)
class BatchScan:
    """The names of the batches and chains of a queue, and how many there are."""

    names: tuple[str, ...]
    total: int
    scanned: int
    is_scanned: bool


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """What is stored of one batch or chain.

    Attributes:
        id: its id.
        now_ms: Redis's clock.
        kind: the type of its record: hash, none, or a wrong one.
        fields: of its record.
        score: the instant of the promoter's next look, ms; None if `groups` does not have it.
        types: of its other keys, by name.
        waiting: how many items it has.
        children: some that are not counted as ended; read only if it may be stalled.
        is_promoted: a promoter is alive.
        has_workers: a worker is alive, and the queue is not paused.
    """

    id: str
    now_ms: int
    kind: str
    fields: Mapping[str, str]
    score: int | None
    types: Mapping[str, str] = field(default_factory=dict)
    waiting: int = 0
    children: tuple[ChildFacts, ...] = ()
    is_promoted: bool = False
    has_workers: bool = False

    @property
    def is_open(self) -> bool:
        """It has not ended."""
        return self.fields.get("status") in OPEN

    @property
    def is_closed(self) -> bool:
        """All of its children are known."""
        return self.fields.get("closed") == "1"

    @property
    def filled_ms(self) -> int:
        """When the last page was added."""
        return whole(self.fields.get("filled_at_ms")) or whole(self.fields.get("began_at_ms"))

    @property
    def problems(self) -> tuple[str, ...]:
        """What is damaged, in words."""
        if self.kind != "hash":
            return () if self.kind == "none" else (f"its record is a {self.kind}, not a hash",)
        found = damage(self.fields)
        found += [f"its {name} are a {kind}" for name, kind in self.types.items() if kind not in (_PARTS[name], "none")]
        return tuple(found) or self._miscounted()

    def _miscounted(self) -> tuple[str, ...]:
        total, ended, succeeded = (whole(self.fields.get(name)) for name in ("total", "ended", "succeeded"))
        if self.score == 0 or self.fields.get("status") == "deleted" or "adding" in self.fields:
            return ()  # the counters are not right yet
        if not succeeded <= ended <= total:
            return (f"{ended:,} of {total:,} children have ended, and {succeeded:,} have completed",)
        is_plain = "chained" not in self.fields and "numbered" not in self.fields
        if self.is_open and is_plain and ended + self.waiting > total:
            return (f"{ended:,} of {total:,} children have ended, and {self.waiting:,} are not jobs yet",)
        return ()

    @property
    def is_left_alone(self) -> bool:
        """The promoter does not look at it in time."""
        if self.score is None or not self.is_open:
            return False
        is_late = self.is_promoted and 0 < self.score < self.now_ms - _LATE_MS
        return is_late or self.score > self.now_ms + _LATE_MS

    @property
    def lost(self) -> int:
        """How many of the children that were looked at are gone, or are nowhere, or have ended and are not counted."""
        return sum(not it.state or it.is_nowhere or it.state in FINISHED for it in self.children)

    @property
    def is_lost(self) -> bool:
        """None of its children could end."""
        return bool(self.children) and self.lost == len(self.children)

    @property
    def is_repaired(self) -> bool:
        """The promoter counts children that are gone, or have ended, when it looks."""
        return self.is_promoted and not any(it.is_nowhere for it in self.children)

    @property
    def still_ms(self) -> int:
        """How long nothing has happened to it; 0 if that is unknown or explained."""
        if not self.children or not self.has_workers or any(it.is_explained for it in self.children):
            return 0
        if all(it.is_in_line for it in self.children):  # behind jobs that are not its own
            return 0
        moved_ms = whole(self.fields.get("moved_at_ms"))
        return self.now_ms - max(self.filled_ms, moved_ms, *(it.since_ms for it in self.children))


def read_batches(keys: QueueKeys, sample: int) -> RoundTrips[BatchScan]:
    """The names of up to `sample` batches, open ones first, and of those that `groups` does not have."""
    (reply,) = yield [plain("ZCARD", keys.groups)]
    total = known(reply, 0)
    names: list[str] = []
    for first in range(0, min(total, sample), PAGE):
        (page,) = yield [plain("ZRANGE", keys.groups, first, min(first + PAGE, sample) - 1)]
        names += known(page, [])
    found, scanned, is_scanned = yield from scan(f"{keys.group_keys}*", 10 * sample)
    records = {key.removeprefix(keys.group_keys) for key in found}
    others = sorted({name for name in records if ":" not in name} - set(names))
    scores = yield from asked([plain("ZSCORE", keys.groups, name) for name in others])
    unlisted = [name for name, score in zip(others, scores, strict=True) if score is None]
    return BatchScan((*names, *unlisted), total, scanned, is_scanned)


def limits(found: BatchScan, sample: int) -> Iterator[str]:
    """What was not examined, in words."""
    if found.total > sample:
        yield f"only {sample:,} of {count(found.total, 'batch=batches')} were read, those that have not ended first"


def read_facts(keys: QueueKeys, alive: Liveness, names: Sequence[str]) -> RoundTrips[list[BatchFacts]]:
    """Read some batches, and of at most 50 that may be stalled some children."""
    replies = yield from asked(
        [query for name in names for query in (plain("HMGET", keys.group(name), *_FIELDS), _score(keys, name))]
    )
    found = [_facts(name, alive, *pair) for name, *pair in zip(names, replies[::2], replies[1::2], strict=True)]
    wrong = [it.id for it in found if it.kind == "?"]
    kinds = dict(zip(wrong, (yield from asked([plain("TYPE", keys.group(name)) for name in wrong])), strict=True))
    open_ones = [it.id for it in found if it.is_open]
    parts = yield from asked([query for name in open_ones for query in _queries(keys, name)])
    each = len(_PARTS) + 1
    of_name = {name: parts[n * each : (n + 1) * each] for n, name in enumerate(open_ones)}
    made = []
    for it in found:
        *kinds_of_parts, waiting = of_name.get(it.id, ["none"] * each)
        types = {name: kind for name, kind in zip(_PARTS, kinds_of_parts, strict=True) if isinstance(kind, str)}
        number = waiting if isinstance(waiting, int) else 0
        made.append(replace(it, kind=known(kinds.get(it.id), it.kind), types=types, waiting=number))
    return (yield from _with_children(keys, alive, made))


def _score(keys: QueueKeys, name: str) -> Any:
    return plain("ZSCORE", keys.groups, name)


def _queries(keys: QueueKeys, name: str) -> list[Any]:
    key = keys.group(name)
    return [*(plain("TYPE", f"{key}:{part}") for part in _PARTS), plain("LLEN", f"{key}:items")]


def _facts(name: str, alive: Liveness, reply: Any, score: Any) -> BatchFacts:
    values = reply if isinstance(reply, list) else []
    fields = {key: value for key, value in zip(_FIELDS, values, strict=False) if value}
    kind = "hash" if fields else "?" if isinstance(reply, Conflict) else "none"
    at = score_ms(score) if isinstance(score, str) else None
    has_workers = bool(alive.workers) and alive.paused_since_ms is None
    return BatchFacts(name, alive.now_ms, kind, fields, at, is_promoted=alive.has_promoter, has_workers=has_workers)


# -- children


def _with_children(keys: QueueKeys, alive: Liveness, found: list[BatchFacts]) -> RoundTrips[list[BatchFacts]]:
    stalled = [it.id for it in found if _may_be_stalled(it)][:_MOST_STALLED]
    (length,) = yield [plain("LLEN", keys.pending)]
    made = []
    for it in found:
        children = (yield from _children(keys, alive, it, known(length, 0))) if it.id in stalled else ()
        made.append(replace(it, children=tuple(children)))
    return made


def _may_be_stalled(it: BatchFacts) -> bool:
    return it.is_open and not it.problems and 0 < it.filled_ms < it.now_ms - _STALLED_MS


def _children(keys: QueueKeys, alive: Liveness, it: BatchFacts, pending: int) -> RoundTrips[list[ChildFacts]]:
    numbers = yield from _uncounted(keys, it)
    ids = [f"{it.id}-{number}-{it.fields.get('generation', '')}" for number in numbers]
    words = ("status", "payload", "gate", "enqueued_at_ms", "promoted_at_ms", "started_at_ms", "run_at_ms")
    replies = yield from asked(
        [
            query
            for child in ids
            for query in (
                plain("HMGET", keys.job(child), *words),
                plain("LPOS", keys.pending, child, "RANK", -1, "MAXLEN", _SEARCHED),
                *(plain("ZSCORE", key, child) for key in (keys.held, keys.delayed, keys.leases)),
            )
        ]
    )
    return [_child(alive, replies[n : n + 5], pending) for n in range(0, len(replies), 5)]


def _uncounted(keys: QueueKeys, it: BatchFacts) -> RoundTrips[list[int]]:
    """The numbers of the first children that are jobs and are not counted."""
    total, counted = whole(it.fields.get("total")), f"{keys.group(it.id)}:counted"
    if "chained" in it.fields:
        done = whole(it.fields.get("ended"))
        return [done] if done < total else []
    end = total if "numbered" in it.fields else total - it.waiting
    (first,) = yield [plain("BITPOS", counted, 0)]
    if not isinstance(first, int) or not 0 <= first < end:
        return []
    from_word = first // _WORD
    gets = [word for n in range(_WORDS) for word in ("GET", f"u{_WORD}", f"#{from_word + n}")]
    (words,) = yield [plain("BITFIELD_RO", counted, *gets)]
    bits = "".join(f"{word:0{_WORD}b}" for word in known(words, []))
    start = from_word * _WORD
    return [start + n for n, bit in enumerate(bits) if bit == "0" and first <= start + n < end][:_MOST_CHILDREN]


def _child(alive: Liveness, replies: Sequence[Any], pending: int) -> ChildFacts:
    record, place, held, delayed, lease = replies
    if not isinstance(record, list) or any(isinstance(reply, SchedqError) for reply in replies):
        return ChildFacts("?", alive.now_ms, is_explained=True)
    state, payload, gate, *instants = record
    since_ms = max([at for at in map(whole, instants) if at <= alive.now_ms], default=0)
    if state != PENDING:
        is_live = bool(state) and state not in FINISHED
        is_nowhere = is_live and delayed is None and lease is None
        return ChildFacts(state or "", since_ms, is_explained=is_live and not is_nowhere, is_nowhere=is_nowhere)
    call = decoded(payload or "")
    is_paused = isinstance(call, dict) and call.get("task") in alive.paused_tasks
    is_in_line = pending > _SEARCHED if place is None else place < pending - 1
    is_nowhere = place is None and held is None and pending <= _SEARCHED
    is_explained = bool(gate) or is_paused or held is not None
    return ChildFacts(state, since_ms, is_explained and not is_nowhere, is_in_line, is_nowhere)


# -- what that means


def _lost_level(it: BatchFacts) -> Level:
    return "note" if it.is_repaired else "error"


def _due(it: BatchFacts) -> str:
    ahead_ms = (it.score or 0) - it.now_ms
    return f"is due in {approximate(ahead_ms)}" if ahead_ms > 0 else "does not come"


def _are(it: BatchFacts) -> str:
    return count(len(it.children), "child that has not ended was=children that have not ended were")


BATCHES: Final[tuple[Check[BatchFacts], ...]] = (
    Check(
        "batch-damaged",
        "error",
        lambda it: it.problems,
        "batch whose record is damaged=batches whose records are damaged",
        lambda it: f"of batch {it.id}, {'; '.join(it.problems)}: it may never end, and what it counts may be wrong",
        "another program or a lost write changed it: delete the record with schedq batches delete ID --queue {queue}, "
        "or with DEL if it is of another type; its jobs stay. Then fill it again under another id",
        own_id,
    ),
    Check(
        "batch-unlisted",
        "error",
        lambda it: it.is_open and it.score is None,
        "open batch that groups does not list=open batches that groups does not list",
        "no promoter looks at it: children that end without a word are not counted, and it may never end",
        "redis-cli ZADD queue:{queue}:groups 0 ID lists it again, and the promoter does what is left",
        own_id,
    ),
    Check(
        "batch-unattended",
        "warning",
        lambda it: it.is_left_alone,
        "open batch that the promoter does not look at=open batches that the promoter does not look at",
        lambda it: (
            f"the promoter's next look at batch {it.id} {_due(it)}; every 10 s is usual. Until then, children that "
            "ended without a word are not counted"
        ),
        "a clock went back, or another program changed the score: redis-cli ZADD queue:{queue}:groups 0 ID has the "
        "promoter look now",
        own_id,
    ),
    Check(
        "batch-without-jobs",
        _lost_level,
        lambda it: it.is_lost,
        "open batch without a job that could end it=open batches without a job that could end them",
        lambda it: (
            f"of batch {it.id}, {_are(it)} looked at, and each of them is gone, in no list, or has ended without being "
            "counted: it does not end"
        ),
        "a promoter of the queue counts those that are gone or have ended: make sure that one is running. For jobs in "
        "no list see the finding orphan; schedq batches cancel ID --queue {queue} ends the batch",
        own_id,
    ),
    Check(
        "batch-stalled",
        "warning",
        lambda it: it.still_ms >= _STALLED_MS,
        "open batch that makes no progress=open batches that make no progress",
        lambda it: (
            f"nothing has happened to batch {it.id} for {approximate(it.still_ms)}, although workers are alive: "
            "none of its jobs runs, and neither a limit nor a pause nor other jobs before them explain it"
        ),
        "schedq batches show ID --queue {queue} shows it, and schedq why names the reason of one of its jobs",
        own_id,
    ),
    Check(
        "batch-unclosed",
        "warning",
        lambda it: (
            it.fields.get("status") == "running"
            and not it.is_closed
            and it.fields.keys().isdisjoint({"close_within_ms", "stands_for"})
            and it.now_ms - it.filled_ms >= _UNCLOSED_MS
        ),
        "batch that was never closed=batches that were never closed",
        lambda it: (
            f"nothing was added to batch {it.id} for {approximate(it.now_ms - it.filled_ms)}, and it can't end before "
            "it is closed; it has no close_within"
        ),
        "run its producer again, which adds the same items and closes it, or schedq batches cancel ID --queue {queue}",
        own_id,
    ),
)
"""The first row that applies to a batch determines its finding."""
