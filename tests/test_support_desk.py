"""The support desk of the example: conversations with a simulated customer, trained offline."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from example_copy import answer_at_once, copy_example
from patience import PATIENCE, wait_until
from sessions import clean_environment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRAIN = ("desk_tests", "--skillopt-train", "-n2", "-p", "no:cacheprovider")
SKILL = "skills/support-desk/SKILL.md"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    example = copy_example(tmp_path / "example_project")
    answer_at_once(example)
    return example


def start(desk: Path, *arguments: str) -> warm_sessions.Session:
    return warm_sessions.start(*arguments, cwd=desk, env=clean_environment())


def entries(desk: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a kind in the journal of the only run."""
    for journal in desk.glob(".skillopt/runs/*/journal.jsonl"):
        for line in journal.read_text(encoding="utf-8").split("\n")[:-1]:
            entry = json.loads(line)
            if entry["kind"] == kind:
                yield entry["data"]


def test_a_training_that_was_killed_ends_above_nine_tenths(desk: Path) -> None:
    """With two workers of two lanes each, killed among conversations, for what the plan named."""
    lanes = (*TRAIN, "--skillopt-lanes=2")
    first = start(desk, *lanes)
    wait_until(lambda: len(list(entries(desk, "rollout"))) >= 50)
    first.kill()
    first.communicate(PATIENCE)
    paid = {json.dumps(data["request"]) for data in entries(desk, "rollout")}
    (run,) = (path.name for path in (desk / ".skillopt" / "runs").iterdir())
    second = start(desk, *lanes, f"--skillopt-resume={run}")
    said, _ = second.communicate(PATIENCE)
    assert second.returncode == 0, said
    result = json.loads(next(desk.glob(".skillopt/runs/*/result.json")).read_text())
    assert result["status"] == "accepted", said
    taken = Counter(json.dumps(data["request"]) for data in entries(desk, "rollout"))
    assert paid <= taken.keys()
    assert set(taken.values()) == {1}
    plan = next(entries(desk, "plan"))
    assert len(taken) <= 1.2 * plan["typical"]
    (skill,) = result["skills"]
    assert skill["suite"]["before"]["rate"] < 0.5

    measured = start(desk, "desk_tests", "--skillopt", "--skillopt-rollouts=10", "-n2")
    said, _ = measured.communicate(PATIENCE)
    latest = max(desk.glob(".skillopt/runs/*/result.json"), key=lambda path: path.parent.name)
    (skill,) = json.loads(latest.read_text())["skills"]
    assert skill["suite"]["before"]["rate"] > 0.9, said
