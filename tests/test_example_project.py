"""The example project as a user meets it, always with the skill that it starts from."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from example_copy import ROOT, SKILL, START, answer_at_once, copy_example
from patience import PATIENCE
from run_files import latest_result
from sessions import clean_environment
from simulation import serve

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Rules that a colleague from accounts payable would add by hand after an afternoon with the tests.
HOUSE_RULES = """
## House rules

- The ledger knows suppliers by name only, so leave out GmbH, Ltd and other legal forms.
- We and our suppliers are in Europe: 03/04/2025 is 3 April.
- PO numbers: digits only.
- What isn't on the document is null.
- Credit notes have negative amounts.
- Don't count shipping, freight, postage, packing or handling as line items.
- Without a printed due date, call `add_days` with the issue date and the days of the terms.
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    example = copy_example(tmp_path / "example_project")
    answer_at_once(example)
    return example


def run(project: Path, *args: str, expect: Sequence[int] = (0,), **env: str) -> str:
    """Return the output of a session in a process of its own."""
    session = warm_sessions.start(*args, cwd=project, env=clean_environment(**env))
    said, _ = session.communicate(PATIENCE)
    assert session.returncode in expect, said
    return said


def result(project: Path) -> dict[str, Any]:
    return latest_result(project)


def test_a_plain_run_is_an_ordinary_test_run(project: Path) -> None:
    said = run(
        project, "-p", "no:xdist", "-q", "--no-header", expect=[pytest.ExitCode.TESTS_FAILED]
    )
    last = said.strip().splitlines()[-1]
    failed, passed = (int(part.split()[0]) for part in last.split(" in ")[0].split(", "))
    assert failed + passed == 45
    assert 0 < passed < 27
    assert not (project / ".skillopt").exists()


def test_rules_written_by_hand_are_followed(project: Path) -> None:
    with (project / SKILL).open("a", encoding="utf-8") as skill:
        skill.write(HOUSE_RULES)
    run(project, "--skillopt", "--skillopt-rollouts=1", "-p", "no:xdist", expect=(0, 1))
    (skill,) = result(project)["skills"]
    assert len(skill["tasks"]) == 45
    assert skill["suite"]["before"]["rate"] > 0.9


def test_a_training_ends_accepted_and_above(project: Path) -> None:
    before = (project / SKILL).read_text(encoding="utf-8")
    few = ("--skillopt-rollouts=2", "-oskillopt_final_rollouts=2")
    said = run(project, "--skillopt-train", "-n2", *few)
    found = result(project)
    (skill,) = found["skills"]
    assert found["simulated"]
    head = f"skillopt: training {SKILL} on 45 tasks (23 train, 11 val, 11 test), K=2; "
    assert f"{head}target and optimizer offline:sim (simulated)\n" in said
    assert (found["status"], skill["written"]) == ("accepted", True), found["reason"]
    assert 0.2 < skill["suite"]["before"]["rate"] < 0.6
    assert skill["suite"]["after"]["rate"] > 0.85
    assert skill["test"]["after"]["rate"] > skill["test"]["before"]["rate"]
    after = (project / SKILL).read_text(encoding="utf-8")
    assert after != before
    assert after.split("---")[1] == before.split("---")[1]


def test_one_setting_switches_to_another_model(project: Path) -> None:
    """Any server will do: here the offline one, reached as a stranger would reach it."""
    model = ("-oskillopt_model=openai:sim-steady", f"-oskillopt_base_url={serve()}")
    few = ("--skillopt-rollouts=1", "-ktest_total", "-pno:xdist")
    run(project, "--skillopt", *model, *few, OPENAI_API_KEY="not-a-key")
    found = result(project)
    assert not found["simulated"]
    assert found["models"]["target"] == "openai:sim-steady"


def test_the_kept_copy_is_the_skill_of_the_last_commit() -> None:
    name = f"HEAD:example_project/{SKILL}"
    try:
        shown = subprocess.run(["git", "show", name], cwd=ROOT, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("git is not installed")
    if shown.returncode:
        pytest.skip("not a git checkout")
    assert shown.stdout == START.read_bytes()
