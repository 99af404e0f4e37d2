"""The support desk of the example, with a simulated customer, and its releases, with stubs."""

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

LANES = ("--skillopt-train", "-n2", "--skillopt-lanes=2", "-p", "no:cacheprovider")


@pytest.fixture
def example(tmp_path: Path) -> Path:
    copy = copy_example(tmp_path / "example_project")
    answer_at_once(copy)
    return copy


def start(example: Path, *arguments: str) -> warm_sessions.Session:
    return warm_sessions.start(*arguments, cwd=example, env=clean_environment())


def entries(example: Path, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the whole lines of a kind in the journal of the only run."""
    for journal in example.glob(".skillopt/runs/*/journal.jsonl"):
        for line in journal.read_text(encoding="utf-8").split("\n")[:-1]:
            entry = json.loads(line)
            if entry["kind"] == kind:
                yield entry["data"]


@pytest.mark.parametrize("tests", ["desk_tests", "release_tests"])
def test_a_training_that_was_killed_ends_above_nine_tenths(example: Path, tests: str) -> None:
    """With two workers of two lanes each, killed among rollouts, for what the plan named."""
    first = start(example, tests, *LANES)
    wait_until(lambda: len(list(entries(example, "rollout"))) >= 50)
    first.kill()
    first.communicate(PATIENCE)
    paid = {json.dumps(data["request"]) for data in entries(example, "rollout")}
    (run,) = (path.name for path in (example / ".skillopt" / "runs").iterdir())
    second = start(example, tests, *LANES, f"--skillopt-resume={run}")
    said, _ = second.communicate(PATIENCE)
    assert second.returncode == 0, said
    result = json.loads(next(example.glob(".skillopt/runs/*/result.json")).read_text())
    assert result["status"] == "accepted", said
    taken = Counter(json.dumps(data["request"]) for data in entries(example, "rollout"))
    assert paid <= taken.keys()
    assert set(taken.values()) == {1}
    plan = next(entries(example, "plan"))
    assert len(taken) <= 1.2 * plan["typical"]
    (skill,) = result["skills"]
    assert skill["suite"]["before"]["rate"] < 0.5

    measured = start(example, tests, "--skillopt", "--skillopt-rollouts=5", "-n2")
    said, _ = measured.communicate(PATIENCE)
    latest = max(example.glob(".skillopt/runs/*/result.json"), key=lambda path: path.parent.name)
    (skill,) = json.loads(latest.read_text())["skills"]
    assert skill["suite"]["before"]["rate"] > 0.9, said
