"""Eval files as a user runs them, against a server on loopback."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import asked_in, system_of
from greetings import proposal
from refusals import assert_refused
from tables import each_row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from chat_server import Body, ChatServer

SKILL = "---\nname: greet\ndescription: Greets people.\n---\n# Greet\n\nSay hello.\n"
NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jo", "Kim", "Lea")
RULE = "End with an exclamation mark."


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    """A project with a skill; ``answer`` of the world: greets, with a mark if the skill says so."""
    (pytester.path / "skills" / "greet" / "evals").mkdir(parents=True)
    (pytester.path / "skills" / "greet" / "SKILL.md").write_text(SKILL)
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_model = "openai:m"
        skillopt_base_url = "{chat_server.url}"
        addopts = "-p no:cacheprovider"
        skillopt_rollouts = 2
        """
    )
    chat_server.reply = world
    return pytester


def world(body: Body) -> str:
    """Target, judge and optimizer of a world in which one rule is missing."""
    system = system_of(body)
    user = asked_in(body)
    if "numbered statements" in system:
        listed = [line for line in user.split("\n") if line[:1].isdigit() and ". " in line]
        answer = user.rpartition("Answer:")[2]
        grades = [
            {
                "number": n,
                "evidence": f"looked at {n}",
                "holds": "mark" not in line or "!" in answer,
            }
            for n, line in enumerate(listed, 1)
        ]
        return json.dumps({"grades": grades})
    if "response_format" in body or "edits" in system:
        return proposal(RULE)
    return f"Hello, {user}" + ("!" if "exclamation" in system else ".")


def write(project: pytest.Pytester, content: Any, name: str = "evals.json") -> Path:
    path = project.path / "skills" / "greet" / "evals" / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def has(text: str) -> dict[str, str]:
    """A statement that a script decides."""
    return {"type": "contains", "value": text}


def judged(chat_server: ChatServer) -> list[dict[str, Any]]:
    return [b for b in chat_server.bodies if "numbered" in system_of(b)]


def test_nothing_is_collected_unless_it_is_asked_for(project: pytest.Pytester) -> None:
    write(project, [{"prompt": "a", "checks": [has("a")]}])
    result = project.runpytest_inprocess("--collect-only", "-q")
    result.stdout.fnmatch_lines(["no tests collected*"])


def test_evals_are_tests_next_to_others(project: pytest.Pytester, chat_server: ChatServer) -> None:
    """An ordinary run: scripts decide without a call of the judge, the rest in one."""
    write(
        project,
        {
            "evals": [
                {"id": 1, "prompt": "Ada", "assertions": [has("Ada")]},
                {
                    "id": 2,
                    "prompt": "Ben",
                    "assertions": [has("Ben"), "Greets", "Has a mark"],
                },
                {"id": "x", "prompt": "Cleo", "must_have": ["Goodbye"]},
            ]
        },
    )
    project.makepyfile(test_other="def test_other(): pass")
    result = project.runpytest_inprocess("--skillopt-evals", "-rA")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*1 of 3 statements do not hold:*",
            "*- Has a mark (looked at 2)*",
            "PASSED skills/greet/evals/evals.json::scripted[[]1-ada]",
            "PASSED test_other.py::test_other",
            "FAILED skills/greet/evals/evals.json::graded[[]2-ben]*",
        ]
    )
    result.stdout.no_fnmatch_line("*traceback entries are hidden*")
    (body,) = judged(chat_server)
    said = asked_in(body)
    assert "1. Greets\n2. Has a mark" in said
    assert "Ben" in said
    assert chat_server.calls == 4
    assert not (project.path / ".skillopt").exists()


def test_the_setting_does_the_same_and_a_share_may_be_enough(project: pytest.Pytester) -> None:
    dot = {"type": "regex", "pattern": r"\.$"}
    write(project, [{"prompt": "Ada", "checks": [has("Ada"), has("x"), dot]}])
    with (project.path / "pyproject.toml").open("a") as file:
        file.write('\nskillopt_evals = true\nskillopt_evals_pass = "0.6"\n')
    project.runpytest_inprocess().assert_outcomes(passed=1)
    assert_refused(
        project.runpytest_inprocess("-o", "skillopt_evals_pass=60"),
        "*skillopt_evals_pass: 60.0 is out of range*at most 1",
    )


def test_files_are_put_before_the_model_as_data(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    folder = project.path / "skills" / "greet" / "evals" / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("the content")
    (folder / "b.bin").write_bytes(b"\xff\x00")
    write(
        project,
        [
            {"prompt": "Read", "checks": [has("content")], "files": ["evals/files/a.txt"]},
            {"prompt": "Look", "checks": [has("x")], "files": ["evals/files/b.bin"]},
        ],
    )
    project.runpytest_inprocess("--skillopt-evals").assert_outcomes(passed=1, skipped=1)
    (body,) = chat_server.bodies
    assert "File evals/files/a.txt:\n[data " in asked_in(body)


@pytest.mark.parametrize("harness", [(), ("-o", "skillopt_harness=codex")])
def test_a_folder_of_files_ends_at_its_links(
    project: pytest.Pytester, chat_server: ChatServer, harness: tuple[str, ...]
) -> None:
    """Their targets outside of the skill are neither sent nor given to an agent."""
    (project.path / "outside").mkdir()
    (project.path / "outside" / "a.txt").write_text("not the skill's")
    folder = project.path / "skills" / "greet" / "evals" / "files"
    folder.mkdir()
    (folder / "own.txt").write_text("the content")
    (folder / "again.txt").symlink_to("own.txt")
    (folder / "loop").symlink_to("loop")
    (folder / "file.txt").symlink_to(project.path / "outside" / "a.txt")
    (folder / "folder").symlink_to(project.path / "outside")
    row = {"prompt": "Read", "files": ["evals/files"]}
    write(project, [{**row, "must_have": ["the content"], "must_not_have": ["not the skill's"]}])
    whole = "(p.read_text() for p in self.workspace.rglob('*') if p.is_file())"
    agent = AGENT.replace(
        "f\"read {(self.workspace / 'evals' / 'files' / 'a.txt').read_text()}\"",
        f"' '.join({whole})",
    )
    assert whole in agent
    project.makeconftest(agent if harness else "")
    project.runpytest_inprocess("--skillopt-evals", *harness).assert_outcomes(passed=1)
    sent = "".join(str(body["messages"]) for body in chat_server.bodies)
    assert "not the skill's" not in sent
    assert harness or sent.count("the content") == 2


@each_row(
    "workers",
    [("-n1",), ("-p", "no:xdist", "--skillopt")],
)
def test_a_broken_file_is_a_usage_error_that_names_the_line(
    project: pytest.Pytester, workers: tuple[str, ...]
) -> None:
    write(project, '[\n{"prompt": "a", "checks": ["x"]},\n{"id": 2\n]')
    result = project.runpytest_inprocess("--skillopt-evals", *workers)
    said = result.stdout.str() + result.stderr.str()
    assert "evals.json:4: this is not JSON: Expecting" in said
    assert "Traceback" not in said
    assert result.ret == 4


def test_what_is_not_understood_is_a_warning(project: pytest.Pytester) -> None:
    """Also where it is an eval as a whole: those of other skills are measured."""
    rows = [{"prompt": name, "checks": [has(name)], "sauce": 1} for name in NAMES]
    write(project, [*rows, {"prompt": "a", "checks": ["x"], "files": ["gone.txt"]}])
    other = project.path / "skills" / "other" / "evals"
    other.mkdir(parents=True)
    (other.parent / "SKILL.md").write_text(SKILL.replace("greet", "other"))
    (other / "evals.json").write_text(json.dumps(rows[:1]))
    result = project.runpytest_inprocess("--skillopt-evals", "-Wdefault", "-n2")
    result.assert_outcomes(passed=13, warnings=3)
    result.stdout.fnmatch_lines_random(
        [
            "*greet/evals/evals.json:0: *the key 'sauce'",
            "*1 of 13 evals are skipped: eval 13: there is no file 'gone.txt'*",
            "*other/evals/evals.json:0: *the key 'sauce'",
        ]
    )


def test_trigger_queries_want_an_agent_that_finds_the_skill(project: pytest.Pytester) -> None:
    path = write(project, [{"query": "Greet Ada", "should_trigger": True}], "eval_queries.json")
    write(project, [{"prompt": "Ada", "checks": [has("Ada")]}])
    result = project.runpytest_inprocess("--skillopt-evals", "-Wdefault")
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [f"*{path}:0: PytestCollectionWarning: 1 of 1 evals *set skillopt_harness*--ignore={path}"]
    )
    project.runpytest_inprocess("--skillopt-evals", f"--ignore={path}").assert_outcomes(passed=1)


def test_skills_in_hidden_folders_are_found(project: pytest.Pytester) -> None:
    (project.path / "skills").rename(project.path / ".claude")
    path = project.path / ".claude" / "greet" / "evals" / "evals.json"
    path.write_text(json.dumps([{"prompt": "Ada", "checks": [has("Ada")]}]))
    (path.parent / "test_not_ours.py").write_text("def test_not_ours(): assert False")
    project.runpytest_inprocess("--skillopt-evals", "-n1").assert_outcomes(passed=1)
    # Whoever names files wants those only, and of a folder all in it, nested ones too.
    (project.path / "part").mkdir()
    (project.path / ".claude").rename(project.path / "part" / ".claude")
    for arguments in ((), (".",), ("part", "-n1")):
        done = project.runpytest_inprocess("--skillopt-evals", *arguments)
        done.assert_outcomes(passed=1)
    project.makepyfile(test_other="def test_other(): pass")
    done = project.runpytest_inprocess("--skillopt-evals", "test_other.py", "-v")
    assert "scripted" not in done.stdout.str()
    # Neither does the setting of pytest's own tests hide them, nor a worker.
    for arguments in ((), ("-n1",)):
        done = project.runpytest_inprocess(
            "--skillopt-evals", "-otestpaths=test_other.py", *arguments
        )
        done.assert_outcomes(passed=2)


def test_evals_train_as_they_stand(project: pytest.Pytester) -> None:
    rows = [{"prompt": name, "checks": [has(name), "Has a mark"]} for name in NAMES[:4]]
    write(project, rows)
    result = project.runpytest_inprocess(
        "--skillopt-evals", "--skillopt-train", "-oskillopt_final_rollouts=2", "-p", "no:xdist"
    )
    assert result.ret == 0, result.stdout.str()
    assert RULE in (project.path / "skills" / "greet" / "SKILL.md").read_text()


def test_the_lift_over_no_skill(project: pytest.Pytester, chat_server: ChatServer) -> None:
    path = project.path / "skills" / "greet" / "SKILL.md"
    path.write_text(f"{SKILL}{RULE}\n")
    write(project, [{"id": n, "prompt": n, "checks": [has("!")]} for n in NAMES[:4]])
    result = project.runpytest_inprocess(
        "--skillopt-evals", "--skillopt-compare", "none", "skills/greet/SKILL.md", "-p", "no:xdist"
    )
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["*version none -> *"])
    assert any(body["messages"][0]["role"] == "user" for body in chat_server.bodies)


def grades(*holds: bool) -> Callable[[dict[str, Any]], str]:
    rows = [{"number": n, "evidence": "", "holds": h} for n, h in enumerate(holds, 1)]
    return lambda body: (
        json.dumps({"grades": rows}) if "numbered" in str(body["messages"][0]) else "Hello"
    )


def test_grades_that_are_too_few_are_no_verdict(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    write(project, [{"prompt": "Ada", "checks": ["Greets", "Is short"]}])
    chat_server.reply = grades(True)
    result = project.runpytest_inprocess("--skillopt-evals", "--skillopt", "--skillopt-rollouts=1")
    result.stdout.fnmatch_lines(["*unreadable judgement: *one entry for each statement*"])
    assert result.ret == 1


AGENT = """
import pytest

class Reply(str):
    diff = "+++ b/made.txt\\n+module a"

class Agent:
    def __init__(self, workspace):
        self.workspace = workspace

    def __call__(self, prompt):
        return Reply(f"read {(self.workspace / 'evals' / 'files' / 'a.txt').read_text()}")

    def trigger(self, prompt):
        return "Greet" in prompt

@pytest.fixture
def skill_harness(skill_workspace):
    return Agent(skill_workspace)
"""


def test_an_agent_works_on_the_files_and_asks_for_the_skill(project: pytest.Pytester) -> None:
    """With a stand-in for the agent."""
    folder = project.path / "skills" / "greet" / "evals" / "files"
    folder.mkdir()
    (folder / "a.txt").write_text("the content")
    row = {"prompt": "Make", "files": ["evals/files/a.txt"]}
    write(project, [{**row, "must_have": ["the content", r"^\+module"]}, {**row, "checks": ["x"]}])
    rows = [
        {"query": "Greet Ada", "should_trigger": True},
        {"query": "Greet Ben", "should_trigger": False},
        {"query": "Sort", "should_trigger": False},
    ]
    write(project, rows, "eval_queries.json")
    project.makeconftest(AGENT)
    result = project.runpytest_inprocess("--skillopt-evals", "-o", "skillopt_harness=codex")
    result.assert_outcomes(passed=4, failed=1)
    result.stdout.fnmatch_lines(["*the agent loaded the skill and should not: Greet Ben"])


def test_a_judge_that_gives_no_grade_says_why(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    """The reason stands in place of a note on hidden frames; a rollout has an error by it."""
    write(project, [{"prompt": "Ada", "checks": ["Greets"]}])
    chat_server.reply = lambda body: '{"grades": ["yes"]}'
    result = project.runpytest_inprocess("--skillopt-evals")
    result.assert_outcomes(failed=1)
    why = "openai:m: unreadable judgement: grades.0: Input should be a valid dictionary; *_judge"
    result.stdout.fnmatch_lines([why, f"FAILED *graded[[]1-ada] - Failed: {why[:10]}*"])
    result.stdout.no_fnmatch_line("*traceback entries are hidden*")
    result = project.runpytest_inprocess("--skillopt-evals", "--skillopt")
    result.stdout.fnmatch_lines(["*2 rollouts, 2 infrastructure errors*"])
