"""The pre-commit hook of docs/ci.md: it stops a commit that makes a skill worse."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"
SKILL = "---\nname: a\ndescription: A.\n---\n# A\n\nSay ok.\n"
CONFTEST = """
from pytest_skillopt import Completion

class Canned:
    name, fingerprint, simulated = "canned:1", "1", True

    def complete(self, messages, *, sample, **details):
        return Completion("ok" if "Say ok." in str(messages) else "no")

def pytest_skillopt_client(config, role):
    return Canned()
"""
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("number", range(8))
def test_it(skill_agent, number):
    assert skill_agent(f"Case {number}") == "ok"
"""


@pytest.fixture
def hook() -> dict[str, Any]:
    (block,) = re.findall(r"```yaml\n# \.pre-commit-config\.yaml\n(.*?)```", PAGE.read_text(), re.S)
    (repository,) = yaml.safe_load(block)["repos"]
    (hook,) = repository["hooks"]
    return dict(hook)


@pytest.mark.parametrize(("text", "status"), [("Say no.", 1), ("Say ok. Be brief.", 0)])
def test_the_hook_stops_a_commit_that_makes_the_skill_worse(
    pytester: pytest.Pytester, hook: dict[str, Any], text: str, status: int
) -> None:
    skill = pytester.path / "SKILL.md"
    skill.write_text(SKILL)
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS)
    for command in (("init", "-q"), ("add", "SKILL.md"), ("commit", "-q", "-m", "Begin")):
        subprocess.run(("git", *command), cwd=pytester.path, check=True)
    skill.write_text(SKILL.replace("Say ok.", text))
    program, *words = shlex.split(hook["entry"])
    assert program == "pytest"
    prices = ("-o", "skillopt_prices=canned:1=0/0", "-p", "no:xdist")
    assert pytester.runpytest_inprocess(*words, *prices).ret == status


def test_the_hook_runs_for_what_is_trained_only(hook: dict[str, Any]) -> None:
    assert hook["pass_filenames"] is False
    changes = re.compile(hook["files"])
    for path in ("SKILL.md", "skills/a/SKILL.md", "skills/a/references/dates.md"):
        assert changes.search(path)
    for path in ("README.md", "tests/test_a.py", "skills/a/scripts/run.sh"):
        assert not changes.search(path)
