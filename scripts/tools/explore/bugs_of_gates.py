"""Bugs in what scripts do with gates."""

from __future__ import annotations

from typing import Final

from scripts.tools.explore.bug import Bug

_TWO_CLAIMS: Final = "gates: two claims at a key with one place"
_FULL_KEY: Final = "gates: enqueue ∥ complete of a full key"
_RATE: Final = "gates: rouse ∥ claim ∥ enqueue at a rate"
_LIMITS: Final = "gates: limits lowered ∥ raised ∥ claim ∥ complete"
_RETURN: Final = "gates: release ∥ enqueue ∥ claim in order"
_RETRY: Final = "gates: retry ∥ promote ∥ enqueue in order"
_RECLAIM: Final = "gates: complete ∥ reclaim in order"

GATE_BUGS: Final = (
    Bug(
        "a claim takes no place",
        "claim",
        "redis.call('ZADD', gate.running, unpack(gate.members))",
        "0",
        _TWO_CLAIMS,
    ),
    Bug(
        "a claim does not count the places of a key",
        "claim",
        "entry.room = gate.key_concurrency and gate.key_concurrency - entry.running or FOREVER",
        "entry.room = FOREVER",
        _LIMITS,
    ),
    Bug(
        "a claim leaves a full key ready",
        "claim",
        "redis.call('ZREM', gate.ready, unpack(gone))",
        "",
        _TWO_CLAIMS,
    ),
    Bug(
        "a gate has one place too many",
        "claim",
        "gate.concurrency - gate.counts[gate.running] or FOREVER",
        "gate.concurrency + 1 - gate.counts[gate.running] or FOREVER",
        _TWO_CLAIMS,
    ),
    Bug(
        "a start is not charged",
        "claim",
        "if entry.starts > 0 then charge(gate.key_rates, entry.tats, ' ' .. entry.key, entry.starts, words) end",
        "",
        _RATE,
    ),
    Bug(
        "a rate allows one start too many",
        "claim",
        "math.floor((now - base) / rate.spacing + 1e-9) + rate.burst))",
        "math.floor((now - base) / rate.spacing + 1e-9) + rate.burst + 1))",
        _RATE,
    ),
    Bug(
        "a rate rounds down what it allows",
        "claim",
        "math.floor((now - base) / rate.spacing + 1e-9)",
        "math.floor((now - base) / rate.spacing - 1e-9)",
        _RATE,
    ),
    Bug(
        "a job that was claimed stays in its lane",
        "claim",
        "if gate then from_lanes[#from_lanes + 1] = id end",
        "",
        _TWO_CLAIMS,
    ),
    Bug(
        "a key that rests forgets its turn",
        "claim",
        "redis.pcall('ZADD', gate.tags, unpack(tags))",
        "",
        _RATE,
    ),
    Bug(
        "a released job goes to the end of its lane",
        "settle",
        "entered[#entered + 1] = {id, gate.name, gate_key, true}\nelse",
        "entered[#entered + 1] = {id, gate.name, gate_key, false}\nelse",
        _RETURN,
    ),
    Bug(
        "a job of a gate in order is retried in delayed",
        "settle",
        "local is_in_order = gate and gate.serial",
        "local is_in_order = false",
        _RETRY,
    ),
    Bug(
        "the end of a job wakes no key",
        "settle",
        "if gate.key_concurrency then look_again_at(gate, keys) end",
        "",
        _FULL_KEY,
    ),
    Bug(
        "a job that has ended keeps its place",
        "settle",
        "redis.pcall('ZREM', gate.running, unpack(gone))",
        "",
        _FULL_KEY,
    ),
    Bug(
        "a job that lost its lease keeps its place",
        "reclaim",
        "redis.pcall('ZREM', gate.running, unpack(gone))",
        "",
        _RECLAIM,
    ),
    Bug(
        "no worker is woken for a free place",
        "settle",
        "if opened and not claims and not is_queue_full() then wake_worker() end",
        "",
        _FULL_KEY,
    ),
    Bug(
        "a key whose rest is over gets no turn",
        "claim",
        "for gate, entries in each_gate(keys) do place(gate, entries) end",
        "",
        _RATE,
    ),
    Bug(
        "a gate without starts left does not rest",
        "claim",
        "if at ~= FOREVER then rest({at, gate.name}) end",
        "",
        _RATE,
    ),
    Bug(
        "enqueue leaves a key with its first job nowhere",
        "enqueue_unique",
        "lane.changes = lane.changes or lane.ends.is_empty or is_next",
        "lane.changes = lane.changes or is_next",
        _FULL_KEY,
    ),
    Bug(
        "a claim that leaves ready keys wakes no worker",
        "claim",
        "local has_more = (#ids >= math.min(wanted, most) or is_cut or has_entered)",
        "local has_more = false",
        "gates: two gates and plain jobs",
    ),
    Bug(
        "a late end frees the place without the token",
        "settle",
        "if not job.err and job[1] == 'processing' and job[2] == token then\ngate,",
        "gate, gate_key = gate_of_key(ARGV[i + 8])\n"
        "if gate then redis.call('ZREM', gate.running, gate_key .. ' ' .. id) end\n"
        "if not job.err and job[1] == 'processing' and job[2] == token then\ngate,",
        _RECLAIM,
    ),
    Bug(
        "after a cancellation no script looks at the key",
        "cancel",
        "redis.pcall('ZADD', resting, stamp, found[1] .. ' ' .. (found[2] or ''))",
        "local _ = found",
        "gates: cancel ∥ claim ∥ complete in order",
    ),
    Bug(
        "the promoter does not look at the lanes when limits have changed",
        "define_gate",
        "redis.call('HSET', gate_turns, ' look', '1')",
        "",
        "gates: a definition whose writer dies ∥ complete",
    ),
    Bug(
        "a hold shortens a longer one",
        "hold_gate",
        "'GT', 'CH',",
        "'CH',",
        "gates: pause of a key ∥ claim ∥ resume",
    ),
    Bug(
        "keys that enter are in the order of their names",
        "enqueue_unique",
        "math.max(gate.present, gate.entrant + 1), true",
        "gate.present, true",
        "gates: keys that enter ∥ claim",
    ),
    Bug(
        "a claim of a full queue is said to get more",
        "claim",
        "return (has_more or may_rouse_more) and not is_full, is_full,",
        "return has_more or may_rouse_more, false,",
        "gates: a full queue ∥ foreign end ∥ promote",
    ),
    Bug(
        "a key whose suspect is passed over stays ready",
        "claim",
        "and FOREVER or entry.stopped == 'suspect' and now + 1000 or entry.early",
        "and FOREVER or entry.early",
        "gates: one suspect, two holders",
    ),
    Bug(
        "a claim loses a job of a gate that it meets in pending",
        "claim",
        "to_enter[#to_enter + 1] = {id",
        "local lost = {id",
        "gates: a job of a gate in pending ∥ foreign worker ∥ claim",
    ),
    Bug(
        "a purge leaves the places of running jobs",
        "purge",
        "redis.pcall('ZREM', running, key .. ' ' .. id)",
        "",
        "gates: purge ∥ enqueue ∥ claim",
    ),
)
