"""An earlier comparison with ``none`` stands in the report of a training."""

from __future__ import annotations

import shutil
import subprocess
from statistics import fmean
from typing import TYPE_CHECKING

import pytest
from chat_server import system_of
from greetings import greet, proposal
from run_files import latest_result

from pytest_skillopt.run.directory import JOURNAL
from pytest_skillopt.run.journal import Journal, entries_of

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

TESTS = """
import pytest

NAMES = "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jo Kim Lea".split()

@pytest.mark.skill_task
@pytest.mark.parametrize("name", NAMES)
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.").endswith("!")

@pytest.mark.skill_task
def test_polite(skill_agent):
    assert "Hello" in skill_agent("Greet Mia.")
"""
RULE = "End with an exclamation mark."


def world(body: Body) -> str:
    if "response_format" in body or "edits" in system_of(body):
        return proposal(RULE)
    return greet(body)


def test_none_before_and_after_side_by_side(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    chat_server.reply = world
    pytester.makefile(".md", SKILL="---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
    pytester.makepyfile(test_greeting=TESTS)
    pytester.makeini(
        f"""
        [pytest]
        skillopt_model = openai:m
        skillopt_base_url = {chat_server.url}
        skillopt_final_rollouts = 3
        skillopt_rollouts = 1
        addopts = -p no:xdist -p no:cacheprovider
        """
    )
    compared = pytester.runpytest_inprocess("--skillopt-compare", "none", "SKILL.md")
    assert compared.ret == 0
    told = " ".join(compared.stdout.str().split()).partition("Tasks that told nothing: ")[2]
    assert told.startswith("never passed (test_greeting.py::test_greeting[Ada]")
    assert "always passed (test_greeting.py::test_polite)" in told
    assert "fell from" not in compared.stdout.str(), "what was measured on one side alone"
    before = chat_server.calls
    # A later comparison, by a version of the package that kept other things of a rollout.
    (run,) = (pytester.path / ".skillopt" / "runs").iterdir()
    later = run.with_name(f"{run.name}-later")
    shutil.copytree(run, later)
    data = next(d for _, d in entries_of(run / JOURNAL, "rollout") if not d["score"])
    with Journal(later / JOURNAL) as journal:
        journal.write("rollout", {**data, "unheard_of": 1}, key="x")
    done = pytester.runpytest_inprocess("--skillopt-train")
    assert done.ret == 0, done.stdout.str()
    done.stdout.fnmatch_lines(
        [
            "*fresh *7.7 %*(*) *100.0 %*(*) *+92.3 *13 tasks*",
            "*pass rate *passed *failed *unknown*",
            "  without the skill *7.7 % *",
            "  before *7.7 % *",
            "  after *100.0 % *",
        ]
    )
    words = " ".join(done.stdout.str().split())
    assert "Without any skill: as run " in words
    told = words.partition("Tasks that told nothing")[2]
    assert "always passed (test_greeting.py::test_polite)" in told
    run = max((pytester.path / ".skillopt" / "runs").iterdir())
    result = latest_result(pytester.path)
    (skill,) = result["skills"]
    assert result["rollouts"] <= chat_server.calls - before, "nothing was sampled without a skill"
    without = [row["none"]["passed"] / row["none"]["n"] for row in skill["tasks"]]
    assert fmean(without) == pytest.approx(1 / 13)
    page = (run / "report.html").read_text()
    assert "without the skill" in page
    assert "A pass rate is the mean over the tasks" in page
    summary = (run / "summary.md").read_text()
    assert "| without the skill | 7" in summary
    unsampled = pytester.runpytest_inprocess("--skillopt-train", "--skillopt-max-rollouts=1")
    assert "Without any skill" not in unsampled.stdout.str(), "no task is shown"
    # Another model is another measurement.
    few = ("--skillopt-rollouts=1", "-oskillopt_final_rollouts=1")
    other = ("--skillopt-train", "--skillopt-target=openai:other", *few)
    again = pytester.runpytest_inprocess(*other)
    assert "without the skill" not in again.stdout.str()


def test_a_check_shows_three_arms_at_the_price_of_one_more(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    """The replies of the changed skill are those of the check against no skill."""
    chat_server.reply = world
    text = f"---\nname: greet\ndescription: Greets.\n---\nSay hello. {RULE}\n"
    skill = pytester.makefile(".md", SKILL=text)
    pytester.makepyfile(test_greeting=TESTS)
    pytester.makeini(
        f"[pytest]\nskillopt_model = openai:m\nskillopt_base_url = {chat_server.url}\n"
        "addopts = -p no:xdist -p no:cacheprovider\n"
    )
    who = ("-c", "user.name=Ada", "-c", "user.email=a@b.example")
    for words in (("init", "--quiet"), ("add", "-A"), (*who, "commit", "--quiet", "-m", "One")):
        subprocess.run(["git", *words], cwd=pytester.path, check=True)
    skill.write_text(text.replace("Say hello.", "Say hello at once."))
    assert pytester.runpytest_inprocess("--skillopt-check=none").ret == 0
    both = chat_server.calls
    checked = pytester.runpytest_inprocess("--skillopt-check=HEAD", "--junitxml=junit.xml")
    checked.stdout.fnmatch_lines(
        [
            "*without the skill*7.7 % * 3 *36 *0",
            "  base *100.0 % *",
            "  edited *100.0 % *",
            "*Without any skill: as run*",
        ]
    )
    assert (pytester.path / "junit.xml").read_text().count('name="skillopt_pass_rate_none"') == 13
    assert chat_server.calls - both == both / 2


def test_a_task_that_failed_in_the_search_did_not_always_pass(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    """All samples of the run count, not only the fresh ones that decide."""
    chat_server.reply = lambda body: proposal("End with an exclamation mark.")
    pytester.makefile(".md", SKILL="---\nname: greet\ndescription: Greets.\n---\nSay hello.\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skill_task
        @pytest.mark.parametrize("n", range(8))
        def test_it(skill, rollout, n):
            fresh = rollout.request.stream.startswith("final")
            assert "exclamation" in skill.text or n > 3 and (fresh or rollout.index % 2)
        """
    )
    pytester.makeini(
        f"[pytest]\nskillopt_model = openai:m\nskillopt_base_url = {chat_server.url}\n"
        "addopts = -p no:xdist -p no:cacheprovider\n"
    )
    done = pytester.runpytest_inprocess("--skillopt-train")
    assert done.ret == 0, done.stdout.str()
    rows = latest_result(pytester.path)["skills"][0]["tasks"]
    assert all(row["samples"] >= row["before"]["n"] + row["after"]["n"] for row in rows)
    failed = [row["id"] for row in rows if row["passed"] < row["samples"]]
    assert len(failed) >= 4
    said = done.stdout.str().partition("told nothing")[2]
    assert not [name for name in failed if name in said]
