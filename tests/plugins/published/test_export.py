"""``pytest-skillopt export``: a training in the layout of another tool."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from greetings import proposal

from pytest_skillopt.cli import main

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

RULE = "Answer in capitals."
HEAD = "---\nname: names\ndescription: Repeats names.\n---\nRepeat the name.\n"
GUIDANCE = "<!-- skillopt:guidance -->\nGo slow.\n<!-- /skillopt:guidance -->\n"
SLOW_UPDATE = "<!-- SLOW_UPDATE_START -->\nGo slow.\n<!-- SLOW_UPDATE_END -->\n"
SKILL = f"{HEAD}\n{GUIDANCE}"


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    """A finished training that accepted a rule."""
    pytester.makefile(".md", SKILL=SKILL)
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_model = "openai:m"
        skillopt_base_url = "{chat_server.url}"
        skillopt_final_rollouts = 3
        skillopt_search = "batch"
        skillopt_rollouts = 1
        skillopt_published = "patience: 1"
        addopts = "-p no:cacheprovider -p no:xdist"
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        @pytest.mark.parametrize("name", [f"name{n}" for n in range(8)])
        def test_name(skill_agent, name):
            assert skill_agent(name) == name.upper()
        """
    )

    def reply(body: Body) -> str:
        if "response_format" in body:
            return proposal(RULE)
        system, user = (str(body["messages"][i]["content"]) for i in (0, -1))
        return user.upper() if "capitals" in system else user

    chat_server.reply = reply
    assert pytester.runpytest_inprocess("--skillopt-train").ret == 0
    return pytester


def test_a_training_is_laid_out_as_the_other_tools_do(
    project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not over an existing folder, and nothing but a training."""
    (run,) = (project.path / ".skillopt" / "runs").iterdir()
    assert main(["export", run.name, "--format", "skillopt", "--output", "theirs"]) == 0
    top = project.path / "theirs"
    history = json.loads((top / "history.json").read_text())
    assert history[0]["action"] == "accept_new_best"
    assert {row["best_step"] for row in history} == {1}
    assert history[0]["rollout_hard"] == 0
    assert RULE in (top / "best_skill.md").read_text()
    theirs = f"{HEAD}\n{SLOW_UPDATE}".rstrip("\n")
    assert (top / "skills" / "skill_v0000.md").read_text() == theirs
    assert SLOW_UPDATE.strip() in (top / "best_skill.md").read_text()
    assert RULE in (top / "skills" / "skill_v0001.md").read_text()
    step = top / "steps" / "step_0001"
    assert RULE in (step / "candidate_skill.md").read_text()
    (edit,) = json.loads((step / "ranked_edits.json").read_text())["edits"]
    assert (edit["op"], edit["content"]) == ("append", RULE)
    summary = json.loads((top / "summary.json").read_text())
    assert (summary["total_accepts"], summary["total_steps"]) == (1, len(history))
    assert json.loads((top / "config.json").read_text())["search"] == "batch"

    assert main(["export", "--format", "skillrl"]) == 0
    other = project.path / f"skillrl-{run.name}"
    assert {path.name for path in other.iterdir()} == {
        "history.json", "best_skill.md", "current_skill.md", "runtime_state.json", "skills",
        "steps",
    }  # fmt: skip
    assert json.loads((other / "runtime_state.json").read_text())["best_step"] == 1

    assert main(["export", "--format", "skillopt", "--output", "theirs"]) == 4
    assert "choose another --output" in capsys.readouterr().err
    project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1")
    assert main(["export", "--format", "skillopt"]) == 1
    assert "is not a training" in capsys.readouterr().err
