"""One suite over several models and agents."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from chat_server import asked_in
from tables import each_row

from pytest_skillopt.cli import main
from pytest_skillopt.run.result import Result

if TYPE_CHECKING:
    from chat_server import Body, ChatServer
    from harness_project import Project

TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", ["Ada", "Ben"])
def test_greets(skill_agent, guest):
    assert skill_agent(f"Greet {guest}.") == f"Hello {guest}"
"""
BOTH = ("--skillopt", "--skillopt-target=openai:good,openai:half", "--skillopt-rollouts=2")


@pytest.fixture
def project(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    def reply(body: Body) -> str:
        asked = asked_in(body)
        knows = body["model"] == "good" or "Ada" in asked
        return f"Hello {asked.split()[-1][:-1]}" if knows else "Who?"

    chat_server.reply = reply
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    (pytester.path / "SKILL.md").write_text("---\nname: a\ndescription: A.\n---\n\nSay hello.\n")
    pytester.makepyfile(test_guests=TESTS)
    pytester.makeini(f"[pytest]\nskillopt_base_url = {chat_server.url}\n")
    return pytester


def results(project: pytest.Pytester) -> dict[str, Result]:
    found = sorted(project.path.glob(".skillopt/runs/*/result.json"))
    loaded = [Result.load(path.read_text()) for path in found]
    return {f"{result.mode} {result.models.get('target', '')}".strip(): result for result in loaded}


def test_a_table_of_tasks_by_target(
    project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    done = warm_sessions.run(*BOTH, "-n", "1", cwd=project.path)
    assert done.ret == 1
    found = results(project)
    assert [*found] == ["evaluate openai:good", "evaluate openai:half", "matrix"]
    good, half, matrix = found.values()
    done.stdout.fnmatch_lines(
        [
            "Pass rates: openai:good 100.0 %; openai:half 50.0 %.",
            f"*1  openai:good *100.0 % (*) *{good.run}",
            f"*2  openai:half *50.0 % (*) *{half.run}",
            "* 1 * 2 *task",
            "* 2 of 2  2 of 2  test_guests.py::test_greets[[]Ada[]]",
            "* 2 of 2  0 of 2  test_guests.py::test_greets[[]Ben[]]",
        ]
    )
    names = [f"test_guests.py::test_greets[{guest}]" for guest in ("Ada", "Ben")]
    assert [row.tasks for row in matrix.targets] == [
        dict.fromkeys(names, (2, 2)),
        dict(zip(names, [(2, 2), (0, 2)], strict=True)),
    ]
    assert (matrix.status, matrix.rollouts) == ("measured", 8)
    page = (project.path / ".skillopt" / "runs" / matrix.run / "report.html").read_text()
    page = re.sub("<[^>]*>", "", page)
    for cell in ("openai:half", half.run, names[1], "0 of 2"):
        assert cell in page
    capsys.readouterr()  # what the session has printed
    assert main(["show"]) == 0
    assert f"2 of 2  0 of 2  {names[1]}" in capsys.readouterr().out


def test_caps_hold_for_all_targets_together(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    done = warm_sessions.run(*BOTH, "--skillopt-max-rollouts=6", "-p", "no:xdist", cwd=project.path)
    assert done.ret == 1
    _, half, matrix = results(project).values()
    assert half.rollouts == 2
    assert matrix.rollouts == chat_server.calls == 6
    done = warm_sessions.run(*BOTH, "--skillopt-max-rollouts=4", "-p", "no:xdist", cwd=project.path)
    matrix = results(project)["matrix"]
    assert matrix.targets[1].reason == "skillopt_max_rollouts is reached"
    assert (matrix.status, matrix.targets[1].tasks) == ("unmeasured", {})
    said = " ".join(done.stdout.str().split())
    assert "Pass rates: openai:good 100.0 %; openai:half not measured." in said
    done.stdout.fnmatch_lines(["*2  openai:half * - *skillopt_max_rollouts is reached"])


def test_a_target_that_is_named_twice_is_evaluated_once(project: pytest.Pytester) -> None:
    done = warm_sessions.run(
        "--skillopt",
        "--skillopt-target=openai:good,openai:good",
        "-p",
        "no:xdist",
        cwd=project.path,
    )
    done.stdout.fnmatch_lines(["Pass rates: openai:good 100.0 %."])


def test_a_target_that_cannot_be_used_is_named(project: pytest.Pytester) -> None:
    arguments = ("--skillopt", "--skillopt-target=openai:good,nobody:x", "--skillopt-rollouts=1")
    done = warm_sessions.run(*arguments, "-p", "no:xdist", cwd=project.path)
    assert done.ret == 4
    done.stdout.fnmatch_lines(["*2  nobody:x * - *its session ended with exit status 4"])
    assert results(project)["matrix"].targets[0].status == "measured"


@each_row("mode", ["--skillopt-train", "--skillopt-check=HEAD", "--skillopt-aa"])
def test_other_modes_want_one_target(project: pytest.Pytester, mode: str) -> None:
    done = project.runpytest_inprocess(mode, "--skillopt-target=openai:good,openai:half")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    flag = mode.partition("=")[0]
    done.stderr.fnmatch_lines([f"ERROR: {flag} is for one target: set a single model in *"])
    assert not (project.path / ".skillopt").exists()


def test_an_ordinary_run_wants_one_target(project: pytest.Pytester) -> None:
    done = project.runpytest_inprocess("--skillopt-target=openai:good,openai:half")
    done.assert_outcomes(errors=2)
    done.stdout.fnmatch_lines(["*only --skillopt takes several, for the target"])


def test_a_plan_is_made_for_each_target(project: pytest.Pytester, chat_server: ChatServer) -> None:
    done = warm_sessions.run(*BOTH, "--collect-only", "-q", cwd=project.path)
    assert done.ret == 0
    assert done.stdout.str().count("2 tasks") >= 2
    assert chat_server.calls == 0
    assert not (project.path / ".skillopt").exists()


def test_several_agents(project_of_agent: Project) -> None:
    """Each agent with each model."""
    project = project_of_agent
    stub = (project.path / "stub.py").read_text()
    (project.path / "stub.py").write_text(f"{stub}\nOTHER = AGENT\n")
    project.settings["skillopt_harness"] = "stub:AGENT, stub:OTHER"
    project.settings["skillopt_rollouts"] = 1
    done = project.run("assert skill_harness('Hello.') == 'hi'", "--skillopt", "-p", "no:xdist")
    assert done.ret == 0
    found = sorted(project.path.glob(".skillopt/runs/*/result.json"))
    matrix = json.loads(found[-1].read_text())
    assert [row["target"] for row in matrix["targets"]] == [
        f"stub:{name}, openai:fake-model" for name in ("AGENT", "OTHER")
    ]
    assert [row["tasks"] for row in matrix["targets"]] == [{"test_task.py::test_it": [1, 1]}] * 2


@pytest.fixture
def project_of_agent(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    from harness_project import Project
    from model_server import ModelServer

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    with ModelServer() as server:
        project = Project(pytester, server)
        project.use_stub("call(); say(text='hi')\n")
        yield project
