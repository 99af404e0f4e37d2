"""A promptfoo configuration as a suite: its tests are tasks, its prompt file is the skill."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from made_results import build

from pytest_skillopt.addons.bridges.addon import pytest_skillopt_notes
from pytest_skillopt.cases import read_cases
from pytest_skillopt.run.result import Arm

if TYPE_CHECKING:
    from pathlib import Path

    from chat_server import ChatServer

PROMPT = "Translate into {{ language }}: {{text}}\n"
CONFIG = """
description: Translations
prompts: [file://prompt.md]
providers: [openai:gpt-x]
defaultTest:
  vars: {language: French}
  assert: [{type: not-contains, value: sorry}]
tests:
  - description: greeting
    vars: {text: Hello}
    assert:
      - {type: icontains, value: BONJOUR}
      - {type: regex, value: '^[A-Z]'}
  - vars: {text: 'file://long.txt', language: JSON}
    assert:
      - type: is-json
      - {type: equals, value: '{"said": "Long {{language}}"}'}
      - {type: llm-rubric, value: 'It is polite about {{text}}.'}
"""
SUITE = """
import pytest
from pytest_skillopt.cases import read_cases

@pytest.mark.skill_task
@pytest.mark.parametrize("case", read_cases("promptfooconfig.yaml"))
def test_promptfoo(skill, skill_agent, skill_judge, rollout, case):
    case.check(case.answer(skill, skill_agent), skill_judge, rollout)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    pytester.makepyprojecttoml(
        f"""
        [tool.pytest.ini_options]
        skillopt_model = "openai:m"
        skillopt_base_url = "{chat_server.url}"
        addopts = "-p no:cacheprovider -p no:xdist"
        """
    )
    (pytester.path / "prompt.md").write_text(PROMPT)
    (pytester.path / "long.txt").write_text("A long text")
    (pytester.path / "promptfooconfig.yaml").write_text(CONFIG)
    pytester.makepyfile(test_foo=SUITE)
    return pytester


def test_tests_of_promptfoo_are_run_as_tasks(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    def reply(body: dict[str, Any]) -> str:
        if "response_format" in body:
            grades = [{"number": 1, "holds": True, "evidence": "it is"}]
            return json.dumps({"grades": grades})
        asked = body["messages"][-1]["content"]
        return "Bonjour!" if asked == "Translate into French: Hello" else '{"said": "Long JSON"}'

    chat_server.reply = reply
    result = project.runpytest_inprocess("-v")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*test_promptfoo[[]greeting[]]*", "*test_promptfoo[[]2[]]*"])
    (judged,) = [body for body in chat_server.bodies if "response_format" in body]
    assert "It is polite about A long text." in str(judged["messages"])
    plan = project.runpytest_inprocess("--collect-only", "-q", "--skillopt-train")
    plan.stdout.fnmatch_lines(["*prompt.md*"])


def test_what_does_not_hold_is_named_and_scored(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    chat_server.reply = lambda body: "sorry, Bonjour"
    result = project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "-k", "greeting")
    assert result.ret == 1
    (journal,) = (project.path / ".skillopt" / "runs").glob("*/journal.jsonl")
    (row,) = [
        entry["data"]
        for entry in map(json.loads, journal.read_text().splitlines())
        if entry["kind"] == "rollout"
    ]
    assert row["score"] == pytest.approx(1 / 3)
    assert "2 of 3 do not hold:\n- not-contains: sorry\n- regex: ^[A-Z]" in row["message"]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("type: is-json", "type: cost", "test 2: the assertion 'cost' cannot be read; contains"),
        ("{text: Hello}", "{text: [a, b]}", "test 1: a variable is"),
        ("description: Tr", "scenarios: []\ndescription: Tr", "cannot be read here: scenarios"),
        ("value: BONJOUR}", "value: x, threshold: 1}", "assertion icontains: cannot be read here"),
        ("[file://prompt.md]", "[file://prompt.md, other]", "'prompts' must name one file"),
        ("'^[A-Z]'", "'('", "is not a regular expression"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    project: pytest.Pytester, old: str, new: str, said: str
) -> None:
    file = project.path / "promptfooconfig.yaml"
    assert old in CONFIG
    file.write_text(CONFIG.replace(old, new))
    with pytest.raises(pytest.UsageError) as refused:
        read_cases(file)
    assert said in str(refused.value)


def test_templates_of_another_kind_are_refused(project: pytest.Pytester) -> None:
    (project.path / "prompt.md").write_text("{% if a %}x{% endif %}")
    with pytest.raises(pytest.UsageError, match=r"is filled in, not '{% if a %}'"):
        read_cases(project.path / "promptfooconfig.yaml")


def test_goldens_and_datasets_of_other_tools_are_rows(tmp_path: Path) -> None:
    """As deepeval saves goldens (JSON), and Inspect reads samples (CSV, JSON lines)."""
    golden = {"input": "Hi", "actual_output": None, "expected_output": "Hello", "context": None}
    (tmp_path / "goldens.json").write_text(json.dumps([golden]))
    (tmp_path / "samples.csv").write_text("id,input,target\na,Hi,Hello\n")
    (tmp_path / "samples.jsonl").write_text('{"input": "Hi", "target": ["Hello"], "id": 7}\n')
    (case,) = read_cases(tmp_path / "goldens.json")
    assert (case.values[0].input, case.values[0].expected_output) == ("Hi", "Hello")
    (case,) = read_cases(tmp_path / "samples.csv")
    assert (case.id, case.values[0].target) == ("a", "Hello")
    (case,) = read_cases(tmp_path / "samples.jsonl")
    assert (case.id, case.values[0].target) == ("7", ["Hello"])


def test_a_skipped_task_is_not_counted_with_its_kind() -> None:
    result = build(mode="evaluate", status="measured", tasks=3)
    rows = [row.model_copy(update={"marks": ["kind=long"]}) for row in result.skills[0].tasks]
    rows[0] = rows[0].model_copy(update={"before": Arm(), "after": None, "skipped": True})
    skill = result.skills[0].model_copy(update={"tasks": rows})
    config: Any = None
    said = pytest_skillopt_notes(config, result.model_copy(update={"skills": [skill]}))
    assert said
    assert said.endswith(" (2)")
