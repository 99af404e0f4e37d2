"""Skills that compete for a request. The agent is a stub that chooses by the descriptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from harness_project import Project

AGENT = """
import glob

asked, best, most = set(os.environ["PROMPT"].lower().rstrip(".").split()), "", 0
for place in sorted(glob.glob(".agents/skills/*/SKILL.md")):
    text = open(place).read()
    words = set(text.split("description: ")[1].split("\\n")[0].lower().replace(",", "").split())
    if len(words & asked) > most:
        best, most = text, len(words & asked)
call(best or "Nothing fits.")
say(text="Done.")
"""
"""It reads the skill that shares most words of its description with the request."""
TRIGGERS = """
import pytest

@pytest.mark.skill_task(skill="skills/{skill}/SKILL.md")
@pytest.mark.parametrize(("asked", "wanted"), [
    pytest.param(text, wanted, marks=pytest.mark.skill_task(trigger=wanted))
    for text, wanted in {queries}
])
def test_{name}(skill_harness, asked, wanted):
    assert skill_harness.trigger(asked{others}) is wanted
"""
GREET = [("Please greet Ada.", True), ("Please greet Ben.", True), ("Please sort letters.", False)]
SORT = [("Please sort names.", True), ("Please sort Ada.", True), ("Please greet Cleo.", False)]


def skill(project: Project, name: str, description: str, body: str = "") -> None:
    folder = project.path / "skills" / name
    folder.mkdir(parents=True, exist_ok=True)
    body = body or f"# About {name}\n\nEverything there is to know on {name}.\n"
    text = f"---\nname: {name}\ndescription: {description}\n---\n{body}"
    (folder / "SKILL.md").write_text(text)


def triggers(project: Project, name: str, queries: Any, others: str = "") -> None:
    test = TRIGGERS.format(skill=name, name=name.replace("-", "_"), queries=queries, others=others)
    (project.path / f"test_{name.replace('-', '_')}.py").write_text(test)


@pytest.fixture
def repository(project: Project) -> Project:
    """Two skills with trigger tasks; the second one's description takes what the first should."""
    project.use_stub(AGENT)
    project.settings |= {"skillopt_sandbox": "none", "skillopt_rollouts": 1}
    skill(project, "house-greeting", "Use to greet guests")
    skill(project, "house-sorting", "Use to please, sort, greet and order")
    triggers(project, "house-greeting", GREET)
    triggers(project, "house-sorting", SORT)
    return project


def rates(project: Project) -> dict[str, float]:
    skills = project.result["skills"]
    return {found["name"]: found["suite"]["before"]["rate"] for found in skills}


def test_all_skills_of_the_repository_compete(repository: Project) -> None:
    repository.pytest("--skillopt", "-p", "no:xdist")
    wanted = {"house-greeting": pytest.approx(1 / 3), "house-sorting": pytest.approx(2 / 3)}
    assert rates(repository) == wanted


def test_a_test_may_ask_for_no_competitors(repository: Project) -> None:
    triggers(repository, "house-greeting", GREET, others=", others=()")
    repository.pytest("--skillopt", "-p", "no:xdist")
    assert rates(repository) == {"house-greeting": 1.0, "house-sorting": pytest.approx(2 / 3)}


def test_a_competitor_is_known_by_what_only_it_says(repository: Project) -> None:
    """Skills made from one template share most of their lines."""
    for name, use in (("house-greeting", "greet guests"), ("house-sorting", "sort and order")):
        body = f"# Read this first\n\nAlways be polite to everybody.\n\nFor {name} only.\n"
        skill(repository, name, f"Use to {use}", body)
    assert repository.pytest("--skillopt", "-p", "no:xdist").ret == 0
    assert {each["suite"]["before"]["rate"] for each in repository.result["skills"]} == {1.0}
