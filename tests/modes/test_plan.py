"""``--collect-only``: what a mode would do and cost, as a user sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tables import each_row

if TYPE_CHECKING:
    from chat_server import ChatServer

TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("n", range({tasks}))
def test_n({fixture}, n):
    assert {fixture}
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    (pytester.path / "SKILL.md").write_text("---\nname: a\ndescription: A.\n---\nSay ok.\n")
    pytester.makepyfile(TESTS.format(tasks=12, fixture="skill_agent"))
    pytester.makepyprojecttoml('[tool.pytest.ini_options]\nskillopt_model = "openai:gpt-5-mini"')
    return pytester


def planned(project: pytest.Pytester, *arguments: str) -> str:
    result = project.runpytest_inprocess("--collect-only", "-q", *arguments)
    assert result.ret == 0
    return result.stdout.str().partition("skillopt plan")[2]


def test_a_training_tells_what_is_usual_and_what_is_the_most(project: pytest.Pytester) -> None:
    said = planned(project, "--skillopt-train")
    assert "rollouts: about 392, at most 858;" in said
    assert "optimizer calls: about 65, at most 81;" in said
    assert "a rollout, if it takes 1,500 tokens in and 500 out" in said
    assert "money: about $0.73, about $1.42 for the most rollouts; not capped" in said
    said = planned(project, "--skillopt-train", "--skillopt-max-cost=0.7")
    assert "money: about $0.70, about $1.42 for the most rollouts; at most $0.70 (skill" in said
    said = planned(project, "--skillopt-train", "--skillopt-max-rollouts=300")
    assert "these 90 rollouts of the final comparison show a gain of 23 points in four" in said
    assert "nothing would be trained" not in said


def test_a_comparison_takes_more_samples_of_each_task_of_a_small_suite(
    project: pytest.Pytester,
) -> None:
    for arguments in (("--skillopt-compare", "none", "SKILL.md"), ("--skillopt-try=SKILL.md",)):
        assert "rollouts: about 212, at most 450;" in planned(project, *arguments)


def test_the_most_is_the_most_of_all_skills_and_under_a_cap(project: pytest.Pytester) -> None:
    capped = planned(project, "--skillopt-train", "--skillopt-max-rollouts=100")
    assert "rollouts: 100;" in capped
    assert "optimizer calls: about 17, at most 30;" in capped
    project.makepyfile(
        """
        import pytest

        def marked(n):
            return pytest.mark.skill_task(skill="ab"[n % 2] + ".md", split=("train", "val")[n // 8])

        @pytest.mark.parametrize("n", [pytest.param(n, marks=marked(n)) for n in range(16)])
        def test_n(skill_agent, n):
            assert skill_agent
        """
    )
    said = planned(project, "--skillopt-train")
    assert "a.md: 8 tasks (4 train, 4 val)" in said
    assert "rollouts: about 769, at most 1,444;" in said
    assert "optimizer calls: 108;" in said


def test_a_judge_is_in_the_plan_too(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS.format(tasks=12, fixture="skill_judge"))
    said = planned(project, "--skillopt", "--skillopt-rollouts=2")
    assert "judge calls: 24, if a rollout of a task with skill_judge makes one" in said
    assert "a rollout for its judge, if it takes 1,500 tokens in and 200 out" in said


def test_an_agents_run_is_priced_by_its_calls(project: pytest.Pytester) -> None:
    (project.path / "own.py").write_text(
        "import sys\nfrom pytest_skillopt.plugins.agents.known import Harness\n"
        "AGENT = Harness('own', '{executable} {prompt}', lambda event, trace: None, '', "
        "executable=sys.executable, tested='1')\n"
    )
    project.makepyfile(TESTS.format(tasks=12, fixture="skill_harness"))
    options = ("-oskillopt_harness=own:AGENT", "-opythonpath=.", "--skillopt-rollouts=1")
    said = planned(project, "--skillopt", *options)
    assert (
        "if it takes 100,000 tokens in and 3,000 out (an assumption: 10,000 in and 300 out" in said
    )
    assert "often 10 to 50 model calls" in said
    task = TESTS.format(tasks=12, fixture="skill_harness")
    project.makepyfile(task.replace("skill_task", "skill_task(trigger=True)"))
    said = planned(project, "--skillopt", *options)
    assert "if it takes 30,000 tokens in and 900 out (an assumption: 10,000 in and 300" in said
    assert "often 10 to 50 model calls" not in said


def test_a_price_is_what_earlier_runs_of_the_same_tasks_took(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    served = (f"-oskillopt_base_url={chat_server.url}", "-oskillopt_prices=gpt-5-mini=1/1")
    source = TESTS.format(tasks=6, fixture="skill_agent")
    source = source.replace("assert skill_agent", "assert skill_agent('one two three')")
    project.makepyfile(source)
    assert project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", *served).ret == 0
    used = [
        sum(len(str(message["content"]).split()) for message in body["messages"])
        for body in chat_server.bodies
    ]
    assert len(used) == 6
    said = planned(project, "--skillopt", *served)
    assert f"{used[0]} tokens in and 1 out (as in earlier runs of these tasks)" in said


def test_without_a_price_no_money_is_named(project: pytest.Pytester) -> None:
    mine = ("--skillopt-train", "--skillopt-model=openai:mine")
    assert "money:" not in planned(project, *mine)
    assert "no price is known" not in planned(project, *mine)
    refused = "no price is known for mine, which is in no figure above (see skillopt_prices); "
    assert f"{refused}skillopt_max_cost needs one" in planned(
        project, *mine, "--skillopt-max-cost=1"
    )


def test_a_model_without_a_price_beside_one_with_is_named(project: pytest.Pytester) -> None:
    said = planned(project, "--skillopt-train", "--skillopt-optimizer=openai:thinker")
    assert "money: about $" in said
    assert "no price is known for thinker, which is in no figure above" in said


def test_a_price_below_the_smallest_that_is_shown_reads_well(project: pytest.Pytester) -> None:
    said = planned(project, "--skillopt", "-oskillopt_prices=gpt-5-mini=0.00001/0.00001")
    assert "price: below $0.0001 a rollout" in said
    assert "money: below $0.0001; not capped" in said


def test_faults_of_skill_and_prices_are_said_before_the_run_is_refused(
    project: pytest.Pytester,
) -> None:
    said = planned(project, "--skillopt", "-oskillopt_prices=gpt-5-mini=nan/1")
    assert "'gpt-5-mini=nan/1' is not of the form MODEL=IN/OUT" in said
    assert "e.g. qwen2.5:7b=0.10/0.40; the run would be refused\n" in said
    (project.path / "SKILL.md").unlink()
    refused = "SKILL.md: no such file; set skillopt_skill or skill= on the marker"
    assert refused in planned(project, "--skillopt-train", "-oskillopt_skill=SKILL.md")


@each_row(
    ("text", "words"),
    [
        (
            "---\nname: a\ndescription: A.\n---\nRun:\n```sh\nmake\n",
            "block opened on line 6 is never",
        ),
        ("Say ok.\n", "no frontmatter: agents do not load such a skill"),
        (
            "\n---\nname: a\ndescription: A.\n---\nSay ok.\n",
            "not closed, or not at the top: agents",
        ),
        ("---\nname: a\ndescription: A.\n\nSay ok.\n", "not closed, or not at the top: agents"),
        ("---\nname: a\ndescription: A: B\n---\nSay ok.\n", "not valid YAML (mapping values"),
        ("---\n- a\n---\nSay ok.\n", "the frontmatter is not a mapping"),
        ("---\ntitle: a\n---\nSay ok.\n", "the frontmatter has no name and no description: agents"),
        (
            "---\nname: a\ndescription: 7\n---\nSay ok.\n",
            "the frontmatter has no description: agents",
        ),
    ],
)
def test_what_hinders_the_training_of_a_skill_is_said_before_anything_is_paid(
    project: pytest.Pytester, chat_server: ChatServer, text: str, words: str
) -> None:
    (project.path / "SKILL.md").write_text(text)
    said = planned(project, "--skillopt-train")
    assert "SKILL.md: " in said
    assert words in said
    assert "the run would be refused" not in said
    given = ("--skillopt", "--skillopt-max-rollouts=1", f"-oskillopt_base_url={chat_server.url}")
    assert words in project.runpytest_inprocess(*given).stdout.str()


def test_a_reference_that_takes_no_edit_is_named(project: pytest.Pytester) -> None:
    (project.path / "references").mkdir()
    (project.path / "references" / "how.md").write_text("Run:\n~~~\nmake\n")
    with (project.path / "SKILL.md").open("a") as file:
        file.write("See [how](references/how.md).\n")
    said = planned(project, "--skillopt-train", "-oskillopt_files=references/*.md")
    assert "SKILL.md: references/how.md: the code block opened on line 2 is never closed" in said


def test_nothing_hinders_a_sound_skill_and_an_ordinary_document(project: pytest.Pytester) -> None:
    said = planned(project, "--skillopt-train")
    assert "do not load" not in said
    assert "never closed" not in said
    (project.path / "AGENTS.md").write_text("Say ok.\n")
    said = planned(project, "--skillopt-train", "-oskillopt_skill=AGENTS.md")
    assert "do not load" not in said


def test_one_is_one(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS.format(tasks=1, fixture="skill_agent"))
    said = planned(project, "--skillopt", "--skillopt-rollouts=1")
    assert "SKILL.md: 1 task\n" in said
    assert "rollouts: 1;" in said
    assert "1 tasks" not in said


def test_nothing_is_said_of_the_turns_of_an_agent_of_ones_own(project: pytest.Pytester) -> None:
    project.makepyfile(TESTS.format(tasks=2, fixture="skill"))
    said = planned(project, "--skillopt")
    assert "turn" not in said
    assert "2 tasks without skill_agent: report their tokens by rollout.usage" in said
