"""A suite that says something: what a task tells of the skill, and small suites that grow."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.cli import main

if TYPE_CHECKING:
    from chat_server import ChatServer

COMPARE = ("--skillopt-compare", "none", "words/SKILL.md")
BRIEFLY = ("-o", "skillopt_final_rollouts=1")
SUITE = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("word", ["always", "never", "told", "flaky"])
def test_word(skill_agent, word):
    assert skill_agent(word) == "yes"

@pytest.mark.skill_task
def test_judged(skill_agent, skill_judge):
    assert skill_judge("It is polite.", skill_agent("told")).score >= 0.5
"""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    """A model that answers by the asked word, with and without the skill."""
    folder = pytester.mkdir("words")
    (folder / "SKILL.md").write_text("---\nname: words\n---\nSay yes.\n")
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_model = "openai:m"
        skillopt_base_url = "{chat_server.url}"
        addopts = "-p no:cacheprovider -p no:xdist"
        """
    )
    turns = itertools.cycle(["yes", "no"])

    def reply(body: dict[str, Any]) -> str:
        text = str(body["messages"])
        if "draft tests" in text:
            drafts = [
                {"number": 0, "name": f"Case {n}", "prompt": prompt, "statements": ["Says yes"]}
                for n, prompt in enumerate(["Say yes to tea, please", "Say yes now", "Ask Ann"])
            ]
            return json.dumps({"drafts": drafts, "should_trigger": [], "near_misses": []})
        if "response_format" in body:
            return json.dumps({"score": 1.0, "reason": "polite"})
        asked = body["messages"][-1]["content"]
        told = "yes" if "Say yes" in text else "no"
        return {"always": "yes", "never": "no", "told": told}.get(asked) or next(turns)

    chat_server.reply = reply
    return pytester


def test_a_comparison_with_no_skill_gives_each_task_a_verdict(project: pytest.Pytester) -> None:
    project.makepyfile(test_words=SUITE)
    result = project.runpytest_inprocess(*COMPARE, "-o", "skillopt_final_rollouts=4")
    said = " ".join(result.stdout.str().split())
    note = said[said.index("note: what a task tells") :]
    for verdict in (
        "tells the skill from no skill (1): test_words.py::test_word[told] - keep it",
        "always passes (2): test_words.py::test_judged, test_words.py::test_word[always] - make it",
        "never passes (1): test_words.py::test_word[never] - check the test itself",
        "is flaky (1): test_words.py::test_word[flaky] - pin what varies",
        "asks the judge in each sample (1): test_words.py::test_judged - check what a script can",
    ):
        assert verdict in note


JUDGED = """
import pytest

def polite(judge, reply):
    return judge("It is polite.", reply).score >= 0.5

@pytest.mark.skill_task
def test_in_a_helper(skill_agent, skill_judge):
    assert polite(skill_judge, skill_agent("always"))

@pytest.mark.skill_task
def test_on_statements(skill_agent, skill_judge):
    grades = skill_judge.statements(["It is polite."], skill_agent("always"))
    assert all(holds for holds, _ in grades)

@pytest.mark.skill_task
def test_plain_before(skill_agent, skill_judge):
    reply = skill_agent("never")
    assert reply == "yes"
    assert polite(skill_judge, reply)

@pytest.mark.skill_task
def test_no_judge(skill_agent):
    assert skill_agent("never") == "yes"
"""


def test_a_task_that_asks_the_judge_in_each_sample_is_named(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    answer = chat_server.reply

    def reply(body: dict[str, Any]) -> Any:
        if "response_format" not in body:
            return answer(body)
        grade = {"number": 1, "evidence": "it is rude", "holds": False}
        statements = "grades" in json.dumps(body["response_format"])
        return json.dumps({"grades": [grade]} if statements else {"score": 0.1, "reason": "rude"})

    chat_server.reply = reply
    project.makepyfile(test_words=JUDGED)
    run = project.runpytest_inprocess(*COMPARE, *BRIEFLY)
    said = " ".join(run.stdout.str().split())
    names = ("in_a_helper", "on_statements")
    listed = ", ".join(f"test_words.py::test_{name}" for name in names)
    assert f"asks the judge in each sample (2): {listed} - check what a script can" in said
    again = " ".join(project.runpytest_inprocess(*COMPARE, *BRIEFLY).stdout.str().split())
    assert f"asks the judge in each sample (2): {listed}" in again  # replies from the cache


def evals(project: pytest.Pytester, count: int) -> Any:
    file = project.path / "words" / "evals" / "evals.json"
    file.parent.mkdir(exist_ok=True)
    rows = [
        {"id": n, "prompt": f"Say yes {'again ' * n}", "assertions": ["Says yes"]}
        for n in range(1, count + 1)
    ]
    file.write_text(json.dumps({"skill_name": "words", "evals": rows}))
    return file


def test_init_grows_a_small_evals_file_with_drafts_marked_for_review(
    project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    file = evals(project, 2)
    assert main(["init", "words", "--yes"]) == 0
    assert "3 drafts added to" in capsys.readouterr().out
    found = json.loads(file.read_text())
    assert found["skill_name"] == "words"
    assert [row["id"] for row in found["evals"]] == [1, 2, 3, 4, 5]
    assert [row["prompt"] for row in found["evals"][2:]][-1] == "Ask Ann"
    assert all(row["assertions"] == ["Says yes"] for row in found["evals"])
    assert ["notes" in row for row in found["evals"]] == [False, False, True, True, True]
    assert not (project.path / "tests").exists()
    plan = project.runpytest_inprocess("--collect-only", "-q", "--skillopt-evals")
    plan.stdout.fnmatch_lines(["*5 tests collected*"])


@pytest.mark.parametrize("count", [1, 12])
def test_init_leaves_other_evals_files_as_they_are(project: pytest.Pytester, count: int) -> None:
    file = evals(project, count)
    before = file.read_bytes()
    assert main(["init", "words", "--yes"]) == 0
    assert file.read_bytes() == before
    assert (project.path / "tests" / "test_words.py").exists()


@pytest.mark.parametrize("content", ["{", '["Say yes", "Say no"]'])
def test_init_reads_the_evals_before_it_pays_a_model(
    project: pytest.Pytester,
    chat_server: ChatServer,
    content: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    evals(project, 2).write_text(content)
    assert main(["init", "words", "--yes"]) == 1
    assert "evals.json: " in capsys.readouterr().err
    assert chat_server.calls == 0


def test_init_leaves_evals_without_a_new_draft_as_they_are(
    project: pytest.Pytester, capsys: pytest.CaptureFixture[str]
) -> None:
    file = evals(project, 2)
    assert main(["init", "words", "--yes"]) == 0
    before = file.read_bytes()
    capsys.readouterr()
    assert main(["init", "words", "--yes"]) == 0
    assert "no draft is new" in capsys.readouterr().out
    assert file.read_bytes() == before
