"""One run: processes, a storm of faults, the quiet after it, and the verdict."""

from __future__ import annotations

import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import redis

import schedq
from scripts.tools.chaos import logs, record
from scripts.tools.chaos.app import NAMES
from scripts.tools.chaos.evidence import GONE, MUST_BE_ZERO, Evidence, Verdict
from scripts.tools.chaos.faults import CLOCK, KILLS, NETWORK, OF_PROMISES, SERVER
from scripts.tools.chaos.journal import Journal
from scripts.tools.chaos.quiet import Quiet
from scripts.tools.chaos.record import now
from scripts.tools.chaos.scenes import Scenes
from scripts.tools.chaos.servertime import ServerTime
from scripts.tools.chaos.stage import Stage
from scripts.tools.chaos.stalls import Stalls
from scripts.tools.chaos.storm import Storm
from scripts.tools.chaos.timetable import Timetable
from scripts.tools.chaos.verdict import judge
from scripts.tools.chaos.watch import Size, Watch

STEADY_S: Final = 600
"""Runs of at least this many seconds are checked for growth."""
GROWTH: Final = 0.05
KEY_GROWTH: Final = 0.5
"""The same for keys: killed workers, whose number varies, are remembered for five minutes."""
_TICK_S: Final = 0.02
_PAGE: Final = 1000


@dataclass(frozen=True)
class Options:
    """The options of a run."""

    seconds: float
    seed: int
    rate: float
    faketime: Path | None
    also: Path | None
    keeps: bool
    left_out: tuple[str, ...] = ()

    @property
    def not_done(self) -> frozenset[str]:
        """Faults that are not injected in this run."""
        return frozenset(self.left_out if self.faketime else (*CLOCK, *self.left_out))


def run(options: Options) -> tuple[dict[str, Any], list[str]]:
    """Run it; returns the result and the violations."""
    with Stage(options.rate, options.seed, options.faketime, options.also, options.keeps) as stage:
        timetable = Timetable(stage.server.url, stage.server.client)
        watch = Watch(stage, timetable)
        storm = Storm(stage, options.seed, options.seconds, timetable, options.not_done)
        scenes = Scenes(stage.folder, sorted(options.not_done))
        _start(stage, watch)
        _rage(storm, scenes)
        idle = Quiet(stage, storm, timetable).settle()
        ended = now()
        scenes.join()
        final = _places(stage)
        fired = timetable.fired()
        watch.stop()
        timetable.end()
        _say(f"judging{f'; the records are in {stage.folder}' if options.keeps else ''}")
        journal = Journal.of(record.read(stage.folder))
        stalls = Stalls(
            storm.faults, journal.gaps, [key for key in journal.gaps if key.startswith("director")], watch.stills
        )
        time_shown = ServerTime(watch.samples, stage.steps)
        verdict = judge(
            Evidence(journal, stalls, time_shown, storm.faults, final, watch.audit_log, ended, timetable.plans, fired)
        )
        scenes.judge(verdict)
        verdict.complaints += idle + storm.deaths
        storm.counts.update({kind: verdict.promises[kind].judged for kind in OF_PROMISES if kind in verdict.promises})
        storm.counts.update(scenes.counts)
        result = _result(options, stage, storm, journal, verdict, idle) | {"left_out": sorted(scenes.left_out)}
        _look_at_logs(result, verdict, stage, storm)
        if options.seconds >= STEADY_S:
            _look_at_growth(result, verdict, watch.sizes)
        return result, verdict.complaints


def _start(stage: Stage, watch: Watch) -> None:
    """Start all processes; returns when each is ready."""
    stage.start_all()
    watch.start()
    _until(lambda: all(part.log.exists() and _is_ready(part.log) for part in stage.parts.values()), stage)
    _say(f"ready: {len(stage.parts)} processes")


def _rage(storm: Storm, scenes: Scenes) -> None:
    """Inject faults until the time is up, with the scenes in parallel."""
    scenes.start()
    storm.begin()
    while not storm.is_over:
        storm.turn()
        time.sleep(_TICK_S)
    scenes.stop()
    _say(f"the storm is over: {sum(storm.counts.values())} faults")


def _places(stage: Stage) -> dict[str, str]:
    """The state in Redis of every job stored there."""
    found: dict[str, str] = {}
    with stage.server.client() as client:
        for name in NAMES:
            prefix = f"queue:{name}:job:"
            keys: list[str] = list(client.scan_iter(match=f"{prefix}*", count=_PAGE))
            for start in range(0, len(keys), _PAGE):
                pipe = client.pipeline(transaction=False)
                page = keys[start : start + _PAGE]
                for key in page:
                    pipe.hget(key, "status")
                for key, status in zip(page, pipe.execute(), strict=True):
                    found[key.removeprefix(prefix)] = status or GONE
    return found


def _result(
    options: Options, stage: Stage, storm: Storm, journal: Journal, verdict: Verdict, idle: Sequence[str]
) -> dict[str, Any]:
    counts = {name: value for name, value in asdict(verdict).items() if name not in ("complaints", "again")}
    with stage.server.client() as client:
        info: Any = client.info("server")
    return {
        **counts,
        "refused": journal.refused,
        "idle": len(idle),
        "deaths": len(storm.deaths),
        "kills": sum(storm.counts[kind] for kind in KILLS),
        "network_faults": sum(storm.counts[kind] for kind in NETWORK),
        "faults": dict(storm.counts),
        "again": dict(verdict.again),
        "seconds": round(options.seconds),
        "seed": options.seed,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "versions": {
            "schedq": schedq.__version__,
            "server": f"{info.get('server_name', 'redis')} {info.get('valkey_version') or info['redis_version']}",
            "redis-py": redis.__version__,
            "python": platform.python_version(),
        },
    }


def _look_at_logs(result: dict[str, Any], verdict: Verdict, stage: Stage, storm: Storm) -> None:
    result["repeated_lines"] = result["tracebacks"] = 0
    minutes = Counter((fault.target, int(fault.since // logs.MINUTE_S)) for fault in storm.faults)
    server = Counter(minute for target, minute in minutes.elements() if target == SERVER)
    for path in sorted(stage.folder.glob("*-*.log")):
        found = list(logs.lines(path))
        own = [count for (target, _), count in minutes.items() if target.startswith(f"{path.stem}-")]
        causes = 2 * (
            max(own, default=0) + max(server.values(), default=0)
        )  # a minute of the log may overlap two of these
        for kind, count in logs.repeated(found, causes).items():
            result["repeated_lines"] += 1
            verdict.complaints.append(f"{path.stem} logged {count} times in a minute: {kind}")
        if logs.most_jumps(found) > len(stage.steps):
            result["repeated_lines"] += 1
            verdict.complaints.append(f"{path.stem} reported more than the {len(stage.steps)} steps of the clock")
        for line in found:
            if logs.is_schedqs_own(line):
                result["tracebacks"] += 1
                verdict.complaints.append(f"{path.stem}: {line.text}\n{line.traceback}")


def _look_at_growth(result: dict[str, Any], verdict: Verdict, sizes: Sequence[Size]) -> None:
    """Compare the third quarter of the run with the last."""
    quarter = len(sizes) // 4
    third, last = sizes[2 * quarter : 3 * quarter], sizes[3 * quarter :]
    figures = {"keys other than job records": [_mean(size.keys for size in part) for part in (third, last)]}
    for key in last[-1].rss:
        figures[f"rss of {key.rpartition('-')[0]}, KiB"] = [
            _mean(size.rss[key] for size in part if key in size.rss) for part in (third, last)
        ]
    result["sizes"] = {name: [round(value) for value in pair] for name, pair in figures.items()}
    result["grown"] = 0
    for name, (before, after) in figures.items():
        most = before * (1 + (KEY_GROWTH if name.startswith("keys") else GROWTH))
        if before and after > most:  # a process that crashed is reported elsewhere
            result["grown"] += 1
            verdict.complaints.append(f"{name} grew from {before:.0f} to {after:.0f}")


def _mean(values: Any) -> float:
    found = list(values)
    return sum(found) / len(found) if found else 0.0


def failed(result: dict[str, Any]) -> list[str]:
    """The counters that should be zero but are not."""
    zeros = (*MUST_BE_ZERO, "idle", "deaths", "repeated_lines", "tracebacks", "grown")
    return [name for name in zeros if result.get(name)]


def _is_ready(log: Path) -> bool:
    return "ready" in log.read_text(errors="replace")


def _until(condition: Callable[[], bool], stage: Stage) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError("\n".join(f"{part.name}: {part.log.read_text()}" for part in stage.parts.values()))
        time.sleep(0.05)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
