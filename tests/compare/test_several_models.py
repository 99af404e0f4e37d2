"""A change of a skill is checked on every model that uses it: the matrix of the page on CI."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml
from chat_server import system_of
from tables import each_row

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

PAGE = Path(__file__).parents[2] / "docs" / "ci.md"
RULE = "End every greeting with an exclamation mark."
SKILL = f"---\nname: greet\ndescription: Greets.\n---\n# Greeting\n\n{RULE}\n"
TESTS = """
import pytest

@pytest.mark.parametrize("name", ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn"])
@pytest.mark.skill_task
def test_greeting(skill_agent, name):
    reply = skill_agent(f"Greet {name}")
    assert reply.endswith("!"), f"no exclamation mark: {reply}"
"""


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def reply(body: Body) -> str:
    """Only ``gpt-5`` needs to be told of the exclamation mark."""
    told = "exclamation" in system_of(body)
    return "Hello!" if told or body["model"] != "gpt-5" else "Hello."


@pytest.fixture
def matrix() -> tuple[list[str], str]:
    """Models and command of the page."""
    (block,) = re.findall(r"```yaml\n  check:\n.*?```", PAGE.read_text(), re.S)
    job = yaml.safe_load(block.removeprefix("```yaml\n").removesuffix("```"))["check"]
    assert job["strategy"]["fail-fast"] is False
    *_, step = job["steps"]
    assert step["env"]["TARGET"] == "${{ matrix.target }}"
    return job["strategy"]["matrix"]["target"], step["run"]


def test_each_job_of_the_matrix_says_whether_its_model_loses(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    api_key: str,
    monkeypatch: pytest.MonkeyPatch,
    matrix: tuple[list[str], str],
) -> None:
    chat_server.reply = reply
    pytester.makepyfile(test_greeting=TESTS)
    skill = pytester.path / "SKILL.md"
    skill.write_text(SKILL)
    pytester.makeini(
        "[pytest]\naddopts = -p no:xdist -p no:cacheprovider\nskillopt_target = openai:another\n"
        f"skillopt_base_url = {chat_server.url}\nskillopt_prices = gpt-5=1/1, gpt-5-mini=1/1\n"
    )
    git(pytester.path, "init", "--quiet", "--initial-branch=main")
    git(pytester.path, "add", "SKILL.md")
    git(pytester.path, "commit", "--quiet", "--message=Begin")
    remote = pytester.path / "remote.git"
    git(pytester.path, "init", "--quiet", "--bare", str(remote))
    git(pytester.path, "remote", "add", "origin", str(remote))
    git(pytester.path, "push", "--quiet", "origin", "main")
    skill.write_text(SKILL.replace(RULE, "Be kind."))
    targets, command = matrix
    monkeypatch.setenv("BASE", "main")
    ends = {}
    for target in targets:
        monkeypatch.setenv("TARGET", target)
        words = shlex.split(os.path.expandvars(command))
        assert words[0] == "pytest"
        done = pytester.runpytest_inprocess(*words[1:])
        ends[target] = int(done.ret), "Do not merge" in done.stdout.str()
    assert ends == {"openai:gpt-5-mini": (0, False), "openai:gpt-5": (1, True)}
    assert {body["model"] for body in chat_server.bodies} == {"gpt-5", "gpt-5-mini"}


@each_row("key", ["skillopt_verify=openai:gpt-5", "skillopt_verify_rule=report"])
def test_further_targets_are_refused_with_what_to_do(pytester: pytest.Pytester, key: str) -> None:
    done = pytester.runpytest_inprocess("--skillopt-train", "-o", key)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    said = done.stderr.str()
    assert f"{key.partition('=')[0]} no longer exists" in said
    assert "matrix of the CI" in said
    assert "--skillopt-target" in said
