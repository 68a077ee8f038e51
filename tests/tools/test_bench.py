"""`scripts/bench`: its options and reports; the measurements themselves are not tested."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from scripts.tools.bench import page as bench_page
from scripts.tools.bench import quiet, report, rules
from scripts.tools.bench.__main__ import continued, main
from scripts.tools.bench.arena import Mark, Used
from scripts.tools.bench.entries import CONTESTANTS, SCHEDQ
from scripts.tools.bench.environments import Environments, MissingEnvironmentError
from scripts.tools.bench.rows import ROWS, Row
from scripts.tools.bench.session import Session
from scripts.tools.bench.throughput import limit, rate
from scripts.tools.bench.timing import spread

APPS = Path(report.__file__).with_name("contestants")


def found(**figures: dict[str, Any]) -> dict[str, Any]:
    """Results of a run; `row={"contestant": figures of one run}`."""
    return {
        "date": "2026-01-01 00:00 UTC",
        "machine": {"cores": 2, "cpu": "a CPU", "memory_gib": 4, "system": "an OS", "python": "3.11.7"},
        "server": "redis-server 7.0.15",
        "quick": True,
        "versions": {"schedq": {"redis": "8.1.0"}},
        "figures": {
            row.replace("_", "-"): {name: [run] for name, run in names.items()} for row, names in figures.items()
        },
        "left_out": [],
        "troubles": [],
    }


def run(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def verdicts(**figures: dict[str, Any]) -> dict[str, bool]:
    """Target → whether it was met."""
    return {verdict.bound.who or verdict.rule.title: verdict.is_met for verdict in rules.judge(found(**figures))}


def test_help_names_every_row_and_every_contestant():
    said = "".join(run("--help").output.split())

    assert all(name in said for name in (*ROWS, *CONTESTANTS, "--peers", "--quick", "--scale", "--handbook"))


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--only", "speed"), "no row 'speed'; available: enqueue,"),
        (("--contestants", "schedq,sidekiq"), "no contestant 'sidekiq'; available: schedq,"),
        (("--quick", "--peers"), "--quick measures schedq alone"),
        (("--runs", "0"), "0 is not in the range"),
        (("--server", "/nowhere/redis-server"), "does not exist"),
    ],
)
def test_a_mistake_is_named_and_nothing_is_measured(words: tuple[str, ...], complaint: str):
    result = run(*words)

    assert (result.exit_code, complaint in result.output) == (2, True), result.output


def test_an_earlier_run_is_shown_again_as_tables(tmp_path: Path):
    earlier = tmp_path / "earlier.json"
    figures = {"jobs/s": 9000.0, "commands/job": 19.0, "redis us/job": 33.0}
    earlier.write_text(json.dumps(found(enqueue={"schedq": figures, "huey": figures | {"jobs/s": 9500.0}})))

    result = run("--from", earlier)

    assert result.exit_code == 0
    assert "redis-server 7.0.15. Medians of 1 run (quick)." in " ".join(result.output.split())
    assert "| enqueue one by one, jobs/s | 9,000 | ≥ 0.9 × huey | huey 9,500 | 0.95 | met | ≥ huey |" in result.output
    table = result.output.partition("**Enqueue one by one**")[2]
    assert table.index("| huey | **9,500** | 19.0 | 33.0 |") < table.index("| schedq | 9,000 | 19.0 | 33.0 |")


def test_runs_of_the_same_machine_and_versions_are_added_to_earlier_ones():
    before = found(enqueue={"schedq": {"jobs/s": 9000.0}})
    again = found() | {"versions": {"schedq": {"redis": "8.1.0"}, "huey": {"huey": "3.5.4"}}}

    both = continued(before, again)

    assert both["figures"] == before["figures"]
    assert both["versions"] == again["versions"]


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"server": "redis-server 6.2"}, "server 'redis-server 7.0.15', this one has 'redis-server 6.2'"),
        ({"quick": False}, "quick True, this one has False"),
        ({"versions": {"schedq": {"redis": "9.0.0"}}}, "9.0.0"),
        ({"machine": {"cores": 64}}, "{'cores': 64}"),
    ],
)
def test_runs_that_can_not_be_compared_are_not_added(other: dict[str, Any], named: str):
    with pytest.raises(click.ClickException) as refusal:
        continued(found(), found() | other)

    assert named in refusal.value.message


def test_the_heading_says_how_often_was_measured():
    once, thrice = ({"schedq": [{"jobs/s": 9000.0}] * count} for count in (1, 3))
    mixed = found() | {"figures": {"enqueue": thrice, "memory": once}}

    assert "Medians of 1 to 3 runs (quick)" in " ".join(report.heading(mixed).split())


def test_the_heading_says_how_quiet_the_machine_was():
    runs = [{"load": 0.12, "steal %": 0.0}, {"load": 0.29, "steal %": 1.25}]

    said = " ".join(report.heading(found() | {"quiet": runs}).split())

    assert "Load before each run: 0.12, 0.29; at most 1.2 % of a run's time was stolen." in said


class Hours:
    """A clock that only sleeping advances."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize(
    ("busy_until_s", "waits_s", "says"),
    [(0, 60, []), (100, 160, []), (1e9, 900, ["the machine does not become quiet: load 2.00"])],
)
def test_a_run_begins_when_the_machine_has_been_quiet_for_a_minute(
    busy_until_s: float, waits_s: float, says: list[str]
):
    clock, said = Hours(), list[str]()

    quiet.wait(said.append, lambda: 2.0 if clock.now < busy_until_s else 0.29, clock)

    assert (clock.now, said) == (pytest.approx(waits_s, abs=4), says)


def test_with_peers_every_row_is_measured_in_each_run_and_saved_after_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quiet, "wait", lambda _: 0.1)
    results, saved = found(), list[int]()
    once = Row("once", "once", (), lambda make: {"s": 1.0}, lambda make: {"s": 2.0}, is_once=True)
    session = Session(Environments(Path(), print), Path(), results, lambda _: None, is_quick=False)

    for who in ([SCHEDQ], [SCHEDQ, CONTESTANTS["huey"]]):
        session.measure([once], who, 3, lambda: saved.append(len(results["figures"]["once"]["schedq"])))

    assert {who: len(runs) for who, runs in results["figures"]["once"].items()} == {"schedq": 4, "huey": 3}
    assert saved == [1, 1, 1, 2, 3, 4]
    assert [run["load"] for run in results["quiet"]] == [0.1] * 3


def test_a_skipped_contestant_is_named(tmp_path: Path):
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(found() | {"left_out": ["bullmq_node is skipped: npm and node not on PATH"]}))

    result = run("--from", earlier)

    assert result.exit_code == 0
    assert "- bullmq_node is skipped: npm and node not on PATH" in result.output


def test_a_problem_is_reported_and_ends_the_run_with_an_error(tmp_path: Path):
    earlier = tmp_path / "earlier.json"
    earlier.write_text(json.dumps(found() | {"troubles": ["burst: rq: waited 60 s for a job\n    its log"]}))

    result = run("--from", earlier)

    assert result.exit_code == 1
    assert "- burst: rq: waited 60 s for a job\n\n" in result.output


def test_a_contestant_without_its_programs_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(MissingEnvironmentError, match="npm and node not on PATH"):
        Environments(tmp_path, print).make(CONTESTANTS["bullmq_node"])


@pytest.mark.skipif(not shutil.which("npm"), reason="there is no npm")
def test_an_install_that_fails_is_left_out_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))

    with pytest.raises(MissingEnvironmentError, match="ECONNREFUSED"):
        Environments(tmp_path, print).make(CONTESTANTS["bullmq_node"])


def test_results_and_handbook_show_the_stored_run():
    shown = {report.BLOCK: report.text(report.known()), bench_page.BLOCK: bench_page.text(report.known())}

    assert {block: block.read() for block in shown} == shown, (
        "run: scripts/bench --from scripts/tools/bench/found.json --handbook"
    )


def test_schedq_is_held_against_the_best_of_those_peers_in_the_same_run():
    peers = {"dramatiq": {"jobs/s": 2000.0}, "bullmq_py": {"jobs/s": 2500.0}, "bullmq_node": {"jobs/s": 9000.0}}

    assert verdicts(drain_async={"schedq": {"jobs/s": 10_000.0}, **peers}) == {
        "best Python peer": True,
        "BullMQ on Node": True,
    }
    assert verdicts(drain_async={"schedq": {"jobs/s": 9_950.0}, **peers}) == {
        "best Python peer": False,
        "BullMQ on Node": True,
    }


def test_without_peers_their_known_figures_are_used_and_marked():
    (first, second) = rules.judge(found(enqueue={"schedq": {"jobs/s": 9000.0}}))

    assert (first.peer, first.peers_figure, first.is_known, first.is_met) == ("huey", 9665, True, True)
    assert (second.peer, second.is_known) == ("dramatiq", True)
    assert "huey 9,665†" in report.verdicts(found(enqueue={"schedq": {"jobs/s": 9000.0}}))


def test_a_weak_peer_alone_does_not_lower_the_bar():
    (verdict,) = rules.judge(found(drain_plain={"schedq": {"jobs/s": 4000.0}, "rq": {"jobs/s": 300.0}}))

    assert (verdict.peer, verdict.is_known, verdict.is_met) == ("huey", True, False)


def test_less_is_better_where_it_is():
    peers = {"bullmq_node": {"max ms": 1000.0}}

    assert verdicts(burst={"schedq": {"max ms": 499.0}, **peers}) == {"BullMQ on Node": True}
    assert verdicts(burst={"schedq": {"max ms": 501.0}, **peers}) == {"BullMQ on Node": False}


def test_a_missed_figure_is_also_compared_with_its_reference_peer():
    slow = {"latency": {"schedq": {"p50 ms": 1.2, "p99 ms": 4.0}, "huey": {"p50 ms": 1.3, "p99 ms": 3.0}}}

    p50, p99 = rules.judge(found(**slow))

    assert (p50.is_met, p50.is_met_as_ratio, p99.is_met, p99.is_met_as_ratio) == (False, True, False, False)
    assert "huey 1.30 | 0.92 | **not met** (yet within 1 × huey of this run)" in report.verdicts(found(**slow))


def test_a_latency_that_a_bare_hop_does_not_reach_is_missed_and_marked():
    slow = found(latency_sparse={"schedq": {"p50 ms": 1.5, "p99 ms": 4.7}})
    shown = {bare: report.verdicts(slow | {"hop": {"latency-sparse": {"p99 ms": bare}}}) for bare in (1.0, 4.4)}

    assert "**not met** (a bare hop takes 4.40)" in shown[4.4]
    assert "**not met** |" in shown[1.0]


def test_one_early_job_is_enough_to_fail():
    on_time = {"p50 ms": 1.0, "p99 ms": 2.0, "earliest ms": 0.0}

    assert set(verdicts(delayed={"schedq": on_time}).values()) == {True}
    assert verdicts(delayed={"schedq": on_time | {"earliest ms": -0.1}})["the same: the earliest, ms late"] is False


def test_a_job_that_never_came_back_was_not_in_time():
    lost = {"crash": {"schedq": {"s": "no (waited 100 s)"}}}

    assert verdicts(**lost) == {"killed worker's job again, defaults, s": False}
    assert "| never | ≤ 11.5 |" in report.verdicts(found(**lost))


def test_of_several_runs_the_median_counts():
    assert rules.median([{"jobs/s": 1.0}, {"jobs/s": 100.0}, {"jobs/s": 2.0}], "jobs/s") == 2.0


def test_two_processes_are_measured_while_both_are_at_work():
    first = [Mark(n, 0.0, n * 0.1, 1) for n in range(101)]
    second = [Mark(n, 0.0, 5 + n * 0.1, 2) for n in range(101)]
    marks = sorted([*first, *second], key=lambda mark: mark.at)

    assert rate(marks, 2) == pytest.approx(20, rel=0.05)
    assert rate(first, 1) == pytest.approx(10)


@pytest.mark.parametrize(
    ("redis_s", "workers_s", "machine_s", "said"),
    [
        (0.95, 0.5, 1.5, "Redis's core"),
        (0.5, 1.9, 1.99, "the workers' cores"),
        (0.6, 1.0, 1.9, "the machine's 2 cores: Redis 60%, workers 100%, others 30%"),
        (0.3, 0.4, 0.8, "neither: the machine's 2 cores are 40% busy, and they wait for each other"),
    ],
)
def test_the_limiting_factor_is_named(redis_s: float, workers_s: float, machine_s: float, said: str):
    window = Used(at=1.0, cpu_s=workers_s, redis_cpu_s=redis_s, machine_cpu_s=machine_s, commands=0)

    assert limit(window, count=2, cores=2) == said


def test_a_run_on_a_busy_machine_is_marked():
    quiet, busy = ({"drain_async": {"schedq": {"jobs/s": 9000.0, "others %": others}}} for others in (8.0, 150.0))

    assert "took up to 150 % of a core" in " ".join(report.heading(found(**busy)).split())
    assert "Other work" not in report.heading(found(**quiet))


def test_quantiles_are_of_all_values():
    assert spread([float(n) for n in range(100, 0, -1)]) == {"p50 ms": 50.5, "p99 ms": 100.0, "max ms": 100.0}


@pytest.mark.parametrize("name", CONTESTANTS)
def test_every_contestant_has_an_application_and_a_description_of_its_settings(name: str):
    contestant = CONTESTANTS[name]

    assert (APPS / f"{contestant.app}{'.py' if contestant.is_python else '.js'}").exists()
    assert contestant.set_up
    assert any(row.suits(contestant) for row in ROWS.values())


def test_every_rule_is_about_a_row_that_is_measured():
    assert {row for rule in rules.RULES for row in rule.rows} <= {*ROWS, "scale"}
    assert all(set(bound.peers) <= set(CONTESTANTS) - {SCHEDQ.name} for rule in rules.RULES for bound in rule.bounds)
