"""The verdict on scenes: those that took too long, failed, or can't be played."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.tools.chaos import scenes
from scripts.tools.chaos.evidence import Verdict
from scripts.tools.chaos.faults import SCENES
from scripts.tools.chaos.scenes import Found, Scenes

WITHOUT = [kind for kind in SCENES if kind != "old_release"]


def test_slow_or_failed_scenes_are_reported(tmp_path: Path):
    played, verdict = Scenes(tmp_path, SCENES), Verdict()
    played.found = [Found("fleet_kill", 1.5, 4.0, "the takeover"), Found("fleet_kill", 4.5, 4.0, "the takeover")]
    played.complaints = ["empty_store: AssertionError: the worker ended"]

    played.judge(verdict)

    promise = verdict.promises["fleet_kill"]
    assert (promise.judged, promise.broken, promise.most_ms, verdict.broken) == (2, 1, 4500, 2)


def test_without_the_old_release_in_git_its_scene_is_skipped_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(scenes, "OLD", "0" * 40)

    played = Scenes(tmp_path, WITHOUT)

    assert played.left_out == set(SCENES)
    assert "old releases are not tested" in capsys.readouterr().err


def test_a_scene_that_fails_is_a_finding_and_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def fails(_: Scenes) -> None:
        raise AssertionError("not within 60 s")

    for kind in SCENES:
        monkeypatch.setattr(Scenes, f"_{kind}", fails)
    played = Scenes(tmp_path, ["old_release"])
    played.stop()
    played.run()

    assert len(played.complaints) == len(SCENES) - 1
    assert [kind for kind in SCENES if not played.counts[kind]] == ["old_release"]
