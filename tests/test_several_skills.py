"""Several skills in one suite: each gets its part of the caps, and they are written together."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from chat_server import asked_in, system_of
from greetings import proposal
from patience import PATIENCE
from run_files import latest_result

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import Body, ChatServer

SKILLS = ("farewell", "hello")
RULE = "End every line with an exclamation mark."
TESTS = """
import pytest

@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal".split())
@pytest.mark.skill_task(skill="skills/{skill}/SKILL.md")
def test_{skill}(skill_agent, name):
    reply = skill_agent(f"{skill}: {{name}}")
    assert reply.endswith("!"), f"no exclamation mark: {{reply}}"
"""


def answer(body: Body) -> str:
    """The target follows the rule where the skill states it; the optimizer proposes it."""
    if body["model"] == "thinker":
        return proposal(RULE)
    asked: str = asked_in(body)
    return asked + ("!" if "exclamation" in system_of(body) else ".")


class Project:
    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        self._pytester = pytester
        self.path = pytester.path
        self.server = server
        server.reply = answer
        for skill in SKILLS:
            self.file(skill).parent.mkdir(parents=True)
            self.file(skill).write_text(
                f"---\nname: {skill}\ndescription: Says {skill}.\n---\n# {skill}\n"
            )
            (self.path / f"test_{skill}.py").write_text(TESTS.format(skill=skill))
        pytester.makepyprojecttoml(
            f"""
            [tool.pytest.ini_options]
            skillopt_target = "openai:worker"
            skillopt_optimizer = "openai:thinker"
            skillopt_base_url = "{server.url}"
            skillopt_rollouts = "1"
            skillopt_final_rollouts = "2"
            """
        )

    def file(self, skill: str) -> Path:
        return self.path / "skills" / skill / "SKILL.md"

    def start(self, *arguments: str) -> warm_sessions.Session:
        train = ("--skillopt-train", "-p", "no:xdist")
        return warm_sessions.start(*train, *arguments, cwd=self.path)

    def break_first(self) -> None:
        """Let no test of the first skill be set up."""
        broken = "@pytest.fixture\ndef set_up():\n    raise OSError('no database')\n"
        test = TESTS.format(skill=SKILLS[0]).replace("(skill_agent", "(skill_agent, set_up")
        (self.path / f"test_{SKILLS[0]}.py").write_text(f"{test}\n{broken}")

    def run(self, *arguments: str) -> pytest.RunResult:
        return self._pytester.runpytest_inprocess("-p", "no:xdist", *arguments)

    def train(self, *arguments: str) -> str:
        done = self.run("--skillopt-train", *arguments)
        assert done.ret == 0, done.stdout.str()
        return done.stdout.str()

    @property
    def result(self) -> dict[str, Any]:
        return latest_result(self.path)

    @property
    def improved(self) -> list[str]:
        return [skill for skill in SKILLS if RULE in self.file(skill).read_text()]


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> Project:
    return Project(pytester, chat_server)


def test_a_cap_is_shared_out_so_that_every_last_comparison_is_made(project: Project) -> None:
    cap = 90
    shown = project.train(f"--skillopt-max-rollouts={cap}")
    found = project.result
    for number, skill in enumerate(SKILLS, 1):
        path = f"skills/{skill}/SKILL.md"
        assert f"skillopt: {path}, skill {number} of 2\n" in shown
        assert f"skillopt: {path}: its tasks are not split, since parts of so few (8)" in shown
        assert f"{path}: the search ended early: skillopt_max_rollouts" in str(found["notes"])
    assert [skill["status"] for skill in found["skills"]] == ["accepted", "accepted"], found
    assert found["rollouts"] <= cap
    assert project.improved == list(SKILLS)
    assert any(
        "with skills/farewell/SKILL.md, skills/hello/SKILL.md the pass rate of all" in note
        for note in found["notes"]
    )


def test_a_file_of_two_skills_is_trained_with_one_of_them(
    project: Project, chat_server: ChatServer
) -> None:
    """Else the second could not be written, or would be changed by the first."""
    (project.path / "AGENTS.md").write_text("# House\n")
    train = ("--skillopt-train", "-oskillopt_files=../../AGENTS.md")
    said = "AGENTS.md belongs to skills/farewell/SKILL.md and skills/hello/SKILL.md: *"
    project.run(*train, "--collect-only").stdout.fnmatch_lines([f"{said}; the run would be*"])
    refused = project.run(*train)
    assert refused.ret == pytest.ExitCode.USAGE_ERROR
    refused.stderr.fnmatch_lines([f"ERROR: {said}"])
    assert chat_server.calls == 0
    assert project.run("--skillopt", train[1]).ret == 1
    project.train(train[1], "test_hello.py")
    assert project.improved == ["hello"]


def test_errors_of_one_skill_do_not_end_the_training_of_the_next(project: Project) -> None:
    project.break_first()
    project.run("--skillopt-train")
    first, second = project.result["skills"]
    assert first["status"] == "unmeasured"
    assert "no task can be set up" in first["reason"]
    assert second["status"] == "accepted", second["reason"]
    assert project.improved == ["hello"]


WORDS = "It is important to know that words matter a lot to all who read them."


def test_two_skills_are_made_shorter_in_one_run(project: Project) -> None:
    for skill in SKILLS:
        text = project.file(skill).read_text()
        project.file(skill).write_text(f"{text}\n{WORDS}\n\n{RULE}\n")
    take = {"op": "delete", "target": WORDS, "content": ""}

    def shortening(body: Body) -> str:
        if body["model"] != "thinker":
            return answer(body)
        there = WORDS in str(body["messages"])
        return json.dumps({"reasoning": "nobody needs it", "edits": [take] if there else []})

    project.server.reply = shortening
    many = ("--skillopt-rollouts=3", "-oskillopt_final_rollouts=5")
    shown = project.train("--skillopt-search=shorten", *many)
    found = project.result
    assert [skill["status"] for skill in found["skills"]] == ["accepted", "accepted"], found
    assert all(WORDS not in project.file(skill).read_text() for skill in SKILLS)
    assert project.improved == list(SKILLS)
    assert "final comparisons measured changes by +0.0 points" in " ".join(shown.split())


def test_an_interrupted_training_writes_no_skill_and_a_resumed_one_all(project: Project) -> None:
    running: list[warm_sessions.Session] = []

    def interrupt(body: Body) -> str:
        if "hello" in asked_in(body) and RULE in system_of(body):
            running[0].send_signal(signal.SIGINT)
        return answer(body)

    project.server.reply = interrupt
    running.append(project.start())
    output, _ = running[0].communicate(timeout=PATIENCE)
    assert running[0].returncode == pytest.ExitCode.INTERRUPTED, output
    assert project.improved == []
    found = project.result
    assert found["status"] == "interrupted"
    assert found["resume"] in output
    assert not (project.path / ".skillopt" / "proposal" / "result.json").exists()
    project.server.reply = answer
    project.train(f"--skillopt-resume={found['run']}")
    assert project.improved == list(SKILLS)
    assert project.result["status"] == "accepted"


def test_where_no_skill_is_above_a_test_the_message_names_the_ways_out(
    pytester: pytest.Pytester,
) -> None:
    for name in ("a", "b"):
        (pytester.path / name).mkdir()
        (pytester.path / name / "SKILL.md").write_text("---\nname: s\ndescription: S.\n---\n")
    pytester.makepyfile("import pytest\n@pytest.mark.skill_task\ndef test_it(skill): pass")
    pytester.makeini("[pytest]\n")
    done = pytester.runpytest_inprocess("--skillopt")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines("*2 skills under*: a/SKILL.md, b/SKILL.md; set skillopt_skill*")
