"""A change that was made elsewhere: judged by the one gate, with one alpha for a day's tries."""

from __future__ import annotations

import json
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import compared_project
import pytest
from chat_server import asked_in
from compared_project import PLACE, ComparedProject, has_rule
from tables import each_row

from pytest_skillopt import cli
from pytest_skillopt.compare import tries as measure
from pytest_skillopt.compare.versions import with_change
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.skill.edits import Edit
from pytest_skillopt.skill.read import read_version
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from types import ModuleType

    from chat_server import Body, ChatServer

NAMES = ["Ada", "Ben", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hal", "Ida", "Jo", "Kim", "Lea"]
TESTS = f"""
import pytest

SPLITS = ["train", "val", "train", "test"] * 3
TASKS = [
    pytest.param(name, marks=pytest.mark.skill_task(split=split))
    for name, split in zip({NAMES}, SPLITS, strict=True)
]

@pytest.mark.parametrize("name", TASKS)
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {{name}}.").endswith("!"), "it should end with !"
"""
SKILL = compared_project.SKILL.format("Say hello.")
RULE = "Greetings end with an exclamation mark.\n"
BRIEFLY = ("--skillopt-max-calls=2",)
"""A probe and a rollout, which are enough for a try to have its number."""


class Project(ComparedProject):
    def __init__(self, pytester: pytest.Pytester, server: ChatServer) -> None:
        keys = "skillopt_model = openai:m\n"
        super().__init__(pytester, server, text=SKILL, tests=TESTS, keys=keys)
        self.asked: list[str] = []
        server.reply = self.reply

    def reply(self, body: Body) -> str:
        self.asked.append(asked_in(body))
        return "Hello!" if has_rule(body) else "Hello."

    def propose(self, text: str, name: str = "better.md") -> str:
        """Write a change outside of the skill, and return its name."""
        self.write(text, name)
        return name

    def attempt(self, name: str, *arguments: str) -> tuple[int, dict[str, Any], str]:
        """Run a try; exit status, the result of its skill, and what the terminal shows."""
        before = set(self.runs())
        status, shown = self.compare(f"--skillopt-try={name}", *arguments)
        found: dict[str, Any] = {"skills": [{}]}
        for run in set(self.runs()) - before if status in (0, 1) else ():
            found = json.loads((run / "result.json").read_text())
        return status, found["skills"][0], shown


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> Project:
    return Project(pytester, chat_server)


def samples_of(tried: dict[str, Any]) -> int:
    """Return the number of samples that the verdict of a try counts."""
    counts = ("incumbent_samples", "candidate_samples")
    return sum(tried["verdict"][name] for name in counts)


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)
    return done.stdout.decode()


def test_a_gain_is_accepted_on_train_and_val_tasks_only(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name = project.propose(SKILL + RULE)
    status, found, shown = project.attempt(name)
    assert (status, found["status"]) == (0, "accepted"), shown
    assert "Accepted" in shown
    assert " ".join(shown.split()).count(" points)") == 1, "the rise is said once"
    (run,) = (project.root / ".skillopt" / "runs").iterdir()
    assert found["reason"].endswith(f"pytest-skillopt show --patch {run.name} | git apply")
    assert found["verdict"]["alpha"] == pytest.approx(0.025)
    assert {row["split"] for row in found["tasks"]} == {"train", "val"}
    measured = {row["id"].partition("[")[2][:-1] for row in found["tasks"]}
    asked = {prompt.split()[-1].rstrip(".") for prompt in project.asked}
    assert asked == measured
    assert len(set(NAMES) - asked) == 3, "the test split stays closed"

    git(project.root, "init", "-q")
    monkeypatch.chdir(project.root)
    capsys.readouterr()
    assert cli.main(["show", "--patch"]) == 0
    (project.root / "it.patch").write_text(capsys.readouterr().out)
    git(project.root, "apply", "it.patch")
    assert project.skill.read_text() == SKILL + RULE


def test_the_same_change_is_one_try_in_whatever_form(project: Project) -> None:
    """As a file, a folder, a patch of git and one of another tool, of a folder above."""
    better = project.propose(SKILL + RULE)
    _, first, _ = project.attempt(better)
    calls = len(project.asked)
    folder = project.propose(SKILL + RULE, "elsewhere/SKILL.md").removesuffix("/SKILL.md")
    git(project.root, "init", "-q")
    git(project.root, "add", PLACE)
    git(project.root, "commit", "-qm", "Begin")
    project.skill.write_text(SKILL + RULE)
    patch = git(project.root, "diff")
    project.skill.write_text(SKILL)
    plain = "\n".join(line for line in patch.split("\n") if not line.startswith(("diff", "index")))
    deeper = plain.replace("a/skills", "a/monorepo/skills").replace("b/skills", "b/monorepo/skills")
    forms = [folder, project.propose(patch, "1.patch"), project.propose(deeper, "2.patch")]
    for form in forms:
        status, found, shown = project.attempt(form)
        assert status == 0, shown
        assert found["verdict"] == first["verdict"]
        assert found["reason"].split("; apply")[0] == first["reason"].split("; apply")[0]
    assert len(project.asked) == calls, "the second time is free"


def test_all_tries_of_a_day_share_one_alpha(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    polite, kind = (project.propose(f"{SKILL}\nBe {w}.\n", f"{w}.md") for w in ("polite", "kind"))
    half = ("-k", " or ".join(NAMES[:6]))
    status, found, shown = project.attempt(polite, *half)
    assert (status, found["status"]) == (1, "rejected")
    assert "Keep the skill as it is" in shown
    assert found["verdict"]["alpha"] == pytest.approx(0.05 / 2)
    _, second, _ = project.attempt(kind, *half, *BRIEFLY)
    better = project.propose(SKILL + RULE)
    _, third, _ = project.attempt(better, *half, *BRIEFLY)
    _, again, _ = project.attempt(polite, *half, *BRIEFLY)
    for number, alpha, tried in (
        (1, "0.025", found),
        (2, "0.0083", second),
        (3, "0.0042", third),
        (1, "0.025", again),
    ):
        assert re.search(rf"\(try {number} of [-\d]{{10}}, alpha {alpha}\)", tried["reason"])
    calls = len(project.asked)

    class Tomorrow(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(UTC) + timedelta(days=1)

    monkeypatch.setattr(measure, "datetime", Tomorrow)
    _, next_day, _ = project.attempt(better, *half)
    assert next_day["verdict"]["alpha"] == pytest.approx(0.05 / 2)
    assert len(project.asked) - calls == samples_of(next_day), "another day draws its own"


def test_another_selection_of_tasks_is_another_try(project: Project) -> None:
    name = project.propose(SKILL + RULE)
    project.attempt(name, *BRIEFLY)
    _, found, _ = project.attempt(name, *BRIEFLY, "-k", " or ".join(NAMES[:9]))
    assert "try 2 of " in found["reason"]


def test_what_changes_nothing_is_free(project: Project) -> None:
    status, found, _ = project.attempt(project.propose(SKILL))
    assert (status, found["status"], project.asked) == (0, "unchanged", [])


def test_what_the_lint_refuses_is_refused_before_anything_is_run(project: Project) -> None:
    key = "sk-proj-" + "a1B2c3D4" * 4
    status, found, _ = project.attempt(project.propose(f"{SKILL}\nUse {key}.\n"))
    assert (status, found["status"], project.asked) == (1, "rejected", [])
    assert "(secret)" in found["reason"]
    assert key not in found["reason"]
    _, found, _ = project.attempt(project.propose(SKILL + RULE), *BRIEFLY)
    assert "try 1 of " in found["reason"], "it spent no alpha"


PATCH = "--- a/{0}\n+++ b/{0}\n@@ -7 +7 @@\n-Say hello.\n+Say it.\n"
ALSO = "--- /dev/null\n+++ b/tests/new.py\n@@ -0,0 +1 @@\n+x\n"
WRONG = [
    ("missing.md", "", "there is no such file or folder"),
    ("a.patch", PATCH.format("other/SKILL.md"), "the patch does not change skills/greet/SKILL.md"),
    ("a.patch", PATCH.format(PLACE).replace("Say hello", "Say bye"), "git apply failed"),
    ("a.patch", PATCH.format(PLACE) + ALSO, "it changes tests/new.py, outside of the skill"),
    ("dir/scripts/run.sh", "x", "--skillopt-try=dir: the folder has no SKILL.md"),
]


def test_a_wrong_change_is_said(project: Project) -> None:
    for name, text, said in WRONG:
        if text:
            project.propose(text, name)
        status, _, shown = project.attempt(name.partition("/")[0])
        assert status == pytest.ExitCode.USAGE_ERROR, said
        assert said in shown
    assert project.asked == []


def test_a_folder_may_not_change_what_is_not_trained(project: Project) -> None:
    project.propose(SKILL + RULE, "dir/SKILL.md")
    project.propose("x", "dir/scripts/run.sh")
    status, _, shown = project.attempt("dir")
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "it changes scripts/run.sh, outside of skillopt_files" in shown


def test_several_skills_are_refused(project: Project) -> None:
    project.add_skill()
    status, _, shown = project.attempt(project.propose(SKILL + RULE))
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "--skillopt-try changes one skill" in shown


def test_the_plan_counts_no_test_task(project: Project) -> None:
    name = project.propose(SKILL + RULE)
    done = project.pytester.runpytest_inprocess(f"--skillopt-try={name}", "--collect-only")
    done.stdout.fnmatch_lines(["rollouts: about *, at most 450;*"])
    assert project.asked == []


KEY = "kappa-7f3Qz91Lm-x02Vbn8"


def why_refused(toy: ModuleType, before: str, after: str) -> str:
    """Return why the checks of a try refuse a version; empty if they do not."""
    old = Version.from_text(before)
    new = Version.from_text(after)
    found = toy.make_context(version=old).vetting.check(old, new, Edit("replace"))
    return found.why if isinstance(found, Refusal) else ""


PIECES = [
    KEY,
    f"{KEY[:9]}\n{KEY[9:]}",
    " ".join(KEY),
    f"**{KEY[:9]}** `{KEY[9:]}`",
    f"- {KEY[:9]}\n- {KEY[9:]}",
    f"> {KEY[:5]}\n> {KEY[5:]}",
    f"| {KEY[:9]} | {KEY[9:]} |",
    f"{KEY[:9]}<b>{KEY[9:]}</b>",
    f'<i title="{KEY[:9]} {KEY[9:]}">x</i>',
    f"{KEY[:9]}\u200b{KEY[9:]}",
    f"{KEY[:9]}&#8203;{KEY[9:]}",
    f"{KEY[:9]}\u3164{KEY[9:]}",
]


def test_the_pieces_of_a_secret_are_found(toy: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", KEY)
    refusals = {
        form: why_refused(toy, SKILL, f"{SKILL}{RULE}Log in with {form}\n") for form in PIECES
    }
    missed = [form for form, why in refusals.items() if "the value of DEPLOY_TOKEN" not in why]
    assert missed == []


def test_words_and_figures_are_no_secret_in_pieces(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("exclamation-mark-at-the-end", "2026-01-31-2026-01-31", "a1b2c3d4"):
        monkeypatch.setenv("DEPLOY_TOKEN", value)
        text = f"{SKILL}{RULE}Write {' '.join(value.split('-'))}, or a1 b2 c3 d4.\n"
        assert why_refused(toy, SKILL, text) == "", value


def test_a_value_that_the_skill_had_is_its_own(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", KEY)
    before = f"{SKILL}Not {KEY[:9]} {KEY[9:]}!\n"
    assert why_refused(toy, before, before + RULE) == ""


@each_row("place", ["skills/a/SKILL.md", "SKILL.md"])
def test_a_changed_copy_keeps_all_that_is_trained(tmp_path: Path, place: str) -> None:
    """Files beside the skill, and a document outside of its folder, which no copy has."""
    trained = Trained("*.md" if place == "SKILL.md" else "*.md, ../AGENTS.md")
    root = tmp_path / "project"
    skill = tmp_path / "project" / place
    for folder in (skill.parent, tmp_path / "copy"):
        for name in ("SKILL.md", "more.md", "references/a.md"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(f"{name}\n")
    (skill.parent.parent / "AGENTS.md").write_text("Be brief.\n")
    now = read_version(Path(place), root, trained)
    assert with_change(root, place, now, str(tmp_path / "copy"), trained) == now
    (tmp_path / "copy/references/a.md").write_text("changed\n")
    after = with_change(root, place, now, str(tmp_path / "copy"), trained)
    assert after == now | {"references/a.md": Text(b"changed\n")}
    (tmp_path / "copy/references/a.md").unlink()
    with pytest.raises(SkillError, match=r"it changes references/a\.md"):
        with_change(root, place, now, str(tmp_path / "copy"), trained)
