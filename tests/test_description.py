"""Training the description of a skill on trigger tasks."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from refusals import assert_refused
from run_files import latest_result
from tables import each_row

from pytest_skillopt.skill.edits import Edit, apply, with_description
from pytest_skillopt.skill.lint import Linter
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chat_server import Body, ChatServer

PAGE = (Path(__file__).parent.parent / "docs" / "more-to-train.md").read_text(encoding="utf-8")
TESTS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)[0]
HEAD = "---\nname: house-greeting\ndescription: {}\nlicense: MIT # ours\n---\n"
START = HEAD.format("For lists.") + "# House greeting\n\nSay hello.\n"
GOOD = "Welcomes visitors of the house: use it when a visitor is to be welcomed."
ALWAYS = "Use it for anything that is asked."
AGENT = """
import pytest

class Agent:
    def __init__(self, skill):
        self.about = skill.text.split("license")[0]

    def trigger(self, prompt):
        return "anything" in self.about or ("welcomed" in self.about and "Greet" in prompt)

@pytest.fixture
def skill_harness(skill):
    return Agent(skill)
"""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    """A skill that nobody asks for, a stand-in for the agent, and an optimizer on loopback."""
    folder = pytester.path / "skills" / "house-greeting"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(START)
    pytester.makepyfile(test_trigger=TESTS)
    pytester.makeconftest(AGENT)
    pytester.makeini(
        "[pytest]\nskillopt_model = openai:thinker\nskillopt_harness = codex\n"
        f"skillopt_base_url = {chat_server.url}\n"
        "skillopt_rollouts = 1\nskillopt_final_rollouts = 2\n"
    )
    return pytester


def train(
    project: pytest.Pytester, server: ChatServer, *arguments: str, edits: Sequence[dict[str, str]]
) -> tuple[str, dict[str, Any]]:
    edits = [{"op": "replace", "target": "", "field": "description", **edit} for edit in edits]
    server.reply = lambda body: json.dumps({"reasoning": "nobody asks", "edits": edits})
    arguments = arguments or ("--skillopt-train=description",)
    project.runpytest_inprocess("-p", "no:xdist", *arguments)
    (skill,) = latest_result(project.path)["skills"]
    return (project.path / "skills/house-greeting/SKILL.md").read_text(), skill


def test_a_description_that_tells_requests_apart_is_written(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    project.run("git", "init", "--quiet")
    project.run("git", "commit", "--quiet", "--allow-empty", "--message=Begin")
    text, skill = train(project, chat_server, edits=[{"content": ALWAYS}, {"content": GOOD}])
    assert skill["written"]
    assert text == START.replace("For lists.", f"'{GOOD}'")
    result = json.loads((project.path / ".skillopt/proposal/result.json").read_text())
    counted = [row for row in result["skills"][0]["tasks"] if row["split"] != "test"]
    assert {row["trigger"] for row in counted} == {True, False}, "propose looks at both"
    accepted = [edit for edit in skill["edits"] if edit["status"] == "accepted"]
    assert [edit["content"] for edit in accepted] == [GOOD], "no skill has two descriptions"
    validator = pytest.importorskip("skills_ref.validator")
    assert validator.validate(project.path / "skills/house-greeting") == []


def test_of_two_descriptions_in_one_update_the_second_is_refused(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    edits = [{"content": GOOD}, {"content": "Do."}]
    batch = ("--skillopt-train=description", "--skillopt-search=batch")
    once = "-oskillopt_published=epochs: 1"
    text, skill = train(project, chat_server, *batch, once, edits=edits)
    assert text == START.replace("For lists.", f"'{GOOD}'")
    told = {edit["content"]: (edit["status"], edit["why"]) for edit in skill["edits"]}
    assert told[GOOD][0] == "accepted"
    assert told["Do."] == ("refused", "an edit before it replaces the description")
    _, skill = train(project, chat_server, *batch, once, edits=edits[:1])
    (again,) = skill["edits"]
    assert again["why"] == "no-op: the document would not change"


def test_a_description_that_always_triggers_is_no_gain(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    """Also where it wins more requests than it loses."""
    tests = TESTS.replace('"Gus", "Hal", "Ida", "Jo", "Kim", "Lea"', '"Gus", "Hal", "Ida"')
    tests = tests.replace(
        '"Eve", "Finn"', '"Eve", "Finn", "Mia", "Nat", "Oda", "Pia", "Ria", "Sue"'
    )
    project.makepyfile(test_trigger=tests)
    text, skill = train(project, chat_server, edits=[{"content": ALWAYS}])
    assert text == START
    assert skill["status"] == "rejected"
    assert "less well where it should not be" in skill["reason"] or "broke" in skill["reason"]


FORBIDDEN = [
    ({"content": "x" * 1025}, "has 1 to 1024 characters, not 1025"),
    ({"content": " "}, "has 1 to 1024 characters, not 0"),
    ({"content": "Use <always>."}, "holds no < or >"),
    ({"content": "Greets\x07 all."}, "and no invisible characters"),
    ({"content": "Greets.", "op": "append"}, "is replaced as a whole"),
    ({"content": "Greets.", "file": "references/a.md"}, "only SKILL.md has a description"),
    ({"content": f"Use {'sk-proj-' + 'a1B2c3D4' * 4}."}, "(secret)"),
]


def test_what_no_description_may_be_is_said(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    budget = f"-oskillopt_published=edit_budget: {len(FORBIDDEN)}"
    edits = [edit for edit, _ in FORBIDDEN]
    text, skill = train(project, chat_server, "--skillopt-train=description", budget, edits=edits)
    assert text == START
    for row, (_, why) in zip(skill["edits"], FORBIDDEN, strict=True):
        assert row["status"] == "refused"
        assert why in row["why"]


def test_no_description_is_trained_unasked(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    text, skill = train(project, chat_server, "--skillopt-train", edits=[{"content": GOOD}])
    assert text == START
    assert {row["status"] for row in skill["edits"]} == {"refused"}


def test_the_setting_does_what_the_flag_does_which_takes_no_path_for_its_value(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    arguments = ("-oskillopt_train_description=yes", "--skillopt-train", "test_trigger.py")
    text, skill = train(project, chat_server, *arguments, edits=[{"content": GOOD}])
    assert GOOD in text
    assert len(skill["tasks"]) == 12


def test_another_value_of_the_flag_is_a_usage_error(project: pytest.Pytester) -> None:
    assert_refused(
        project.runpytest_inprocess("--skillopt-train=body"),
        "*--skillopt-train: ignored explicit argument 'body'*",
    )


def test_requests_that_should_not_ask_for_the_skill_are_missed(project: pytest.Pytester) -> None:
    tests = TESTS.replace("(False, SHOULD_NOT)", "(True, SHOULD_NOT)")
    project.makepyfile(test_trigger=tests)
    few = ("-k", "Ada or Ben or Gus or Hal", "-p", "no:xdist")
    result = project.runpytest_inprocess("--skillopt-train=description", *few)
    said = " ".join(result.stdout.str().split())
    assert "no trigger task has a near miss that should not load the skill" in said
    assert "has a request that should" not in said


NEW = 'Says: "hello", with a #; and more'


@each_row(
    "old",
    [
        "Plain words.",
        "'Quoted: it''s so.'",
        '"Double \\" quoted."',
        "|\n  A block\n  of lines.",
        ">-\n  Folded\n  lines.",
        "Plain over\n  two lines.",
        "Plain # with a comment",
    ],
)
@each_row("newline", ["\n", "\r\n"])
@each_row("mark", ["", "\ufeff"])
def test_only_the_value_of_the_description_changes(old: str, newline: str, mark: str) -> None:
    text = mark + (HEAD.format(old) + "body\n").replace("\n", newline)
    before = Text.from_text(text)
    after = with_description(before, NEW)
    assert after.frontmatter == {"name": "house-greeting", "description": NEW, "license": "MIT"}
    first = text.index(old.replace("\n", newline)[:5])
    end = text.index(f"{newline}license")
    assert after.text.startswith(text[:first])
    assert after.text.endswith(text[end:])
    linter = Linter(description=True)
    other = Text.from_text(after.text.replace("MIT", "GPL"))
    start, described, changed = (Version({"SKILL.md": text}) for text in (before, after, other))
    assert [f.rule for f in linter.check(start, described)] == []
    assert [f.rule for f in Linter().check(start, described)] == ["frontmatter"]
    assert [f.rule for f in linter.check(start, changed)] == ["frontmatter"]
    assert yaml.safe_load(after.text.split("---")[1])["description"] == NEW


def test_a_skill_without_a_description_gets_none() -> None:
    edit = Edit("replace", content="Greets.", field="description")
    for text in ("# Body\n", "---\nname: a\n---\nbody\n"):
        with pytest.raises(SkillError, match="no description to replace"):
            apply(Version.from_text(text), edit)


COMPETING = r"""
import re

import pytest

from pytest_skillopt.plugins.agents.binding import _rivals
from pytest_skillopt.skill.text import Text

WORDS = {"greet": "visitors", "sort": "order"}

def words(text):
    return {WORDS.get(word, word) for word in re.findall(r"\w+", text.lower())}

class Agent:
    def __init__(self, skill, rollout):
        self.name, self.rollout = skill.name, rollout
        root, own = rollout.config.rootpath, rollout.request.skill
        self.all = _rivals(root, own, rollout.content)
        self.all[skill.name] = Text.from_text(skill.text)

    def trigger(self, prompt):
        fits = {n: len(words(prompt) & words(d.description)) for n, d in self.all.items()}
        best = max(fits, key=lambda name: (fits[name], len(self.all[name].description)))
        return best == self.name and fits[best] > 0

@pytest.fixture
def skill_harness(skill, rollout):
    return Agent(skill, rollout)
"""
"""It opens the skill that shares most words with the request, of two the one that says more."""
TRIGGERS = """
import pytest

@pytest.mark.skill_task(skill="skills/{skill}/SKILL.md")
@pytest.mark.parametrize(("asked", "wanted"), [
    pytest.param(f"Please {{verb}} {{name}}", wanted, marks=pytest.mark.skill_task(trigger=wanted))
    for verb, wanted in (({verb!r}, True), ({other!r}, False))
    for name in "Ada Ben Cleo Dan".split()
])
def test_{verb}(skill_harness, asked, wanted):
    assert skill_harness.trigger(asked) is wanted
"""
STOLEN = "For visitors and whenever an order matters to anybody in the house or out of it."


class Repository:
    """Two skills: one greets, the other sorts; the optimizer proposes a description for each."""

    def __init__(self, project: pytest.Pytester, server: ChatServer) -> None:
        self.project = project
        self.path = project.path
        self.server = server
        self.proposed = {"greeting": GOOD, "sorting": ""}
        server.reply = self.reply
        (self.path / "test_trigger.py").unlink()
        project.makeconftest(COMPETING)
        self.write("greeting", "For lists.")
        self.write("sorting", "Puts things in order.")
        for skill, verb, other in (("greeting", "greet", "weigh"), ("sorting", "sort", "paint")):
            test = TRIGGERS.format(skill=f"house-{skill}", verb=verb, other=other)
            (self.path / f"test_{verb}.py").write_text(test)

    def file(self, skill: str) -> Path:
        return self.path / "skills" / f"house-{skill}" / "SKILL.md"

    def write(self, skill: str, description: str) -> None:
        self.file(skill).parent.mkdir(parents=True, exist_ok=True)
        text = f"---\nname: house-{skill}\ndescription: {description}\n---\n# {skill}\n\nDo it.\n"
        self.file(skill).write_text(text)

    def reply(self, body: Body) -> str:
        trained = "greeting" if "# greeting" in str(body["messages"]) else "sorting"
        edit = {"op": "replace", "target": "", "field": "description"}
        edits = [{**edit, "content": self.proposed[trained]}] if self.proposed[trained] else []
        return json.dumps({"reasoning": "nobody asks", "edits": edits})

    def train(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Train; the result of each skill."""
        command = ("--skillopt-train=description", "-p", "no:xdist", *arguments)
        self.project.runpytest_inprocess(*command)
        found = latest_result(self.path)["skills"]
        return {each["name"].removeprefix("house-"): each for each in found}

    def described(self, skill: str) -> str:
        return Version.from_bytes(self.file(skill).read_bytes()).main.description


@pytest.fixture
def repository(project: pytest.Pytester, chat_server: ChatServer) -> Repository:
    return Repository(project, chat_server)


def test_a_description_is_judged_on_the_requests_of_all_skills(repository: Repository) -> None:
    found = repository.train()
    assert repository.described("greeting") == GOOD
    assert found["sorting"]["status"] == "unchanged"
    rows = found["greeting"]["tasks"]
    theirs = [row for row in rows if row["of"] == "skills/house-sorting/SKILL.md"]
    assert (len(rows), len(theirs)) == (16, 8)
    assert {row["trigger"] for row in theirs} == {True, False}
    assert all(row["after"]["passed"] == row["after"]["n"] > 0 for row in rows)
    assert (
        found["greeting"]["after"]
        == Version.from_bytes(repository.file("greeting").read_bytes()).digest
    )


def test_a_description_that_takes_requests_from_another_skill_is_refused(
    repository: Repository,
) -> None:
    """Judged on its own requests only, it is accepted."""
    repository.proposed["greeting"] = STOLEN
    found = repository.train()
    assert found["greeting"]["status"] != "accepted"
    assert repository.described("greeting") == "For lists."
    alone = repository.train("-k", "test_greet")
    assert alone["greeting"]["status"] == "accepted"
    assert repository.described("greeting") == STOLEN


@pytest.mark.parametrize(
    ("description", "accepted"),
    [("Puts rows into an order.", True), (STOLEN, False)],
)
def test_the_next_skill_competes_with_the_new_description(
    repository: Repository, description: str, accepted: bool
) -> None:
    """Nobody opens either skill before, so that only the new one has requests to lose."""
    repository.write("sorting", "For tables.")
    repository.proposed["sorting"] = description
    found = repository.train()
    assert repository.described("greeting") == GOOD, found["greeting"]["reason"]
    assert (found["sorting"]["status"] == "accepted") is accepted, found["sorting"]["reason"]
    assert repository.described("sorting") == (description if accepted else "For tables.")
    assert [each["written"] for each in found.values()] == [True, accepted]


def test_a_description_measured_beside_one_that_cannot_be_written_is_not_written(
    repository: Repository,
) -> None:
    repository.write("sorting", "For tables.")
    repository.proposed["sorting"] = "Puts rows into an order."
    reply = repository.reply
    changed = repository.file("greeting").read_text() + "By hand.\n"

    def meddle(body: Body) -> str:
        if "# sorting" in str(body["messages"]):
            repository.file("greeting").write_text(changed)
        return reply(body)

    repository.reply = meddle  # type: ignore[method-assign]
    repository.server.reply = meddle
    found = repository.train()
    assert [each["status"] for each in found.values()] == ["accepted", "accepted"]
    assert [each["written"] for each in found.values()] == [False, False]
    assert repository.file("greeting").read_text() == changed
    assert repository.described("sorting") == "For tables."
