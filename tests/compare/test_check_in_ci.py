"""A check stops a spoiled skill by whatever way it is reached, and whatever the change writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from tables import each_row

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REAL = "skills/notes/SKILL.md"
SKILL = "---\nname: notes\ndescription: Notes.\n---\n# Notes\n\nEnd with a full stop.\n"
SPOILED = SKILL.replace("End with a full stop.", "Write as you like.")
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("word", ["one", "two", "three", "four", "five", "six"])
def test_notes(skill, word):
    assert "full stop" in skill.text
"""


class Project:
    def __init__(self, pytester: pytest.Pytester) -> None:
        self._pytester = pytester
        self.root = pytester.path
        self.write(REAL, SKILL)
        pytester.makepyfile(test_notes=TESTS)
        self.configure(REAL)
        self.write(".gitignore", ".skillopt\n__pycache__\n")
        self.git("init", "--quiet")

    def configure(self, skill: str) -> None:
        self._pytester.makeini(
            f"[pytest]\naddopts = -p no:xdist -p no:cacheprovider\nskillopt_skill = {skill}\n"
        )

    def write(self, name: str, text: str) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def link(self, name: str, target: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)

    def git(self, *arguments: str, cwd: Path | None = None) -> None:
        who = (
            "-c",
            "user.name=Ada",
            "-c",
            "user.email=a@b.example",
            "-c",
            "protocol.file.allow=always",
        )
        subprocess.run(
            ["git", *who, *arguments], cwd=cwd or self.root, check=True, capture_output=True
        )

    def commit(self) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message=One")

    def run(self, *arguments: str) -> tuple[int, str]:
        done = self._pytester.runpytest_inprocess(*arguments)
        return int(done.ret), " ".join((done.stdout.str() + done.stderr.str()).split())

    def check(self, ref: str = "HEAD") -> tuple[int, str]:
        return self.run(f"--skillopt-check={ref}")

    @property
    def result(self) -> dict[str, Any]:
        *_, latest = sorted((self.root / ".skillopt" / "runs").glob("*/result.json"))
        found: dict[str, Any] = json.loads(latest.read_text())
        return found


@pytest.fixture
def project(pytester: pytest.Pytester) -> Project:
    return Project(pytester)


def twice(project: Project) -> None:
    project.link("b", "skills")
    project.link("a", "b")


LINKS: dict[str, tuple[str, Callable[[Project], None]]] = {
    "file": (
        ".claude/skills/notes/SKILL.md",
        lambda p: p.link(".claude/skills/notes/SKILL.md", "../../../skills/notes/SKILL.md"),
    ),
    "other name": ("AGENTS.md", lambda p: p.link("AGENTS.md", REAL)),
    "twice": ("a/notes/SKILL.md", twice),
    "not normal": ("skills/../skills/notes/./SKILL.md", lambda p: None),
}


@pytest.mark.parametrize("kind", LINKS)
def test_a_skill_that_is_reached_by_a_link_is_compared(project: Project, kind: str) -> None:
    path, make = LINKS[kind]
    make(project)
    project.configure(path)
    project.commit()
    assert project.check()[0] == 0, "unchanged"
    project.write(REAL, SPOILED)
    status, shown = project.check()
    assert status == 1, shown
    assert "Do not merge" in shown
    if kind != "other name":
        (skill,) = project.result["skills"]
        assert skill["path"] == REAL


def test_a_link_that_the_change_makes_is_compared_with_the_real_file_of_then(
    project: Project,
) -> None:
    project.commit()
    project.link(".claude/skills/notes", "../../skills/notes")
    project.configure(".claude/skills/notes/SKILL.md")
    project.write(REAL, SPOILED)
    assert project.check()[0] == 1


def test_a_skill_that_was_moved_is_compared_with_its_old_place(project: Project) -> None:
    project.write("skills/other/SKILL.md", SKILL.replace("name: notes", "name: other"))
    project.commit()
    new = "prompts/memo/SKILL.md"
    (project.root / "prompts").mkdir()
    shutil.move(project.root / "skills" / "notes", project.root / "prompts" / "memo")
    project.configure(new)
    project.write(new, SPOILED)
    project.git("add", "-A")
    status, shown = project.check()
    assert (status, project.result["skills"][0]["path"]) == (1, new)
    assert f"{new} is compared with {REAL} at HEAD" in shown


@pytest.mark.parametrize("new", ["skills/memo/SKILL.md", "skills/notes/Skill.md"])
def test_a_skill_that_was_copied_is_compared_with_the_original(project: Project, new: str) -> None:
    """The settings name a copy now, or a file whose name differs by case."""
    project.commit()
    if new.startswith("skills/notes/"):
        (project.root / REAL).unlink()
    project.write(new, SPOILED)
    project.configure(new)
    project.git("add", "-A")
    status, shown = project.check()
    assert status == 1, shown
    assert f"{new} is compared with {REAL} at HEAD" in shown


@pytest.mark.parametrize("link", ["folder", "file"])
def test_a_link_that_points_elsewhere_now_is_compared_with_what_it_pointed_to(
    project: Project, link: str
) -> None:
    place = ".claude/skills/notes"
    up = "../.."
    target = "skills/{}"
    if link == "file":
        place = f"{place}/SKILL.md"
        up = "../../.."
        target = "skills/{}/SKILL.md"
    project.link(place, f"{up}/{target.format('notes')}")
    project.configure(".claude/skills/notes/SKILL.md")
    project.commit()
    project.write("skills/memo/SKILL.md", SPOILED)
    (project.root / place).unlink()
    project.link(place, f"{up}/{target.format('memo')}")
    project.git("add", "-A")
    status, shown = project.check()
    assert status == 1, shown
    assert f"is compared with {REAL} at HEAD" in shown


def test_a_skill_that_was_moved_and_renamed_is_compared_with_the_most_similar_that_has_gone(
    project: Project,
) -> None:
    project.write("skills/other/SKILL.md", "---\nname: other\n---\nPaint it black.\n")
    project.commit()
    shutil.rmtree(project.root / "skills")
    new = "prompts/memo/SKILL.md"
    project.write(new, SPOILED.replace("name: notes", "name: memo"))
    project.configure(new)
    project.git("add", "-A")
    status, shown = project.check()
    assert status == 1, shown
    assert f"{new} is compared with {REAL} at HEAD" in shown


@pytest.mark.parametrize("end", ["raise ConnectionError()", "pytest.skip('later')"])
def test_a_skill_under_which_nothing_can_be_measured_does_not_pass(
    project: Project, end: str
) -> None:
    spoiled = f"    if 'as you like' in skill.text:\n        {end}\n"
    project.write("test_notes.py", TESTS.replace("    assert", f"{spoiled}    assert"))
    project.commit()
    project.write(REAL, SPOILED)
    status, shown = project.check()
    assert (status, project.result["status"]) == (1, "unmeasured"), shown


def test_a_folder_that_became_a_link_is_compared(project: Project) -> None:
    """At the revision the file stood where there is a link now."""
    old = ".claude/skills/notes/SKILL.md"
    project.write(old, SKILL)
    shutil.rmtree(project.root / "skills")
    project.configure(old)
    project.commit()
    (project.root / "skills").mkdir()
    shutil.move(project.root / ".claude/skills/notes", project.root / "skills" / "notes")
    project.link(".claude/skills/notes", "../../skills/notes")
    project.write(REAL, SPOILED)
    project.git("add", "-A")
    assert project.check()[0] == 1


def test_a_new_skill_has_nothing_to_be_compared_with(project: Project) -> None:
    project.write("skills/other/SKILL.md", SKILL.replace("name: notes", "name: other"))
    shutil.rmtree(project.root / "skills" / "notes")
    project.commit()
    project.write(REAL, SPOILED)
    status, shown = project.check()
    assert (status, "there is nothing to compare it with" in shown) == (0, True)


def test_a_skill_in_a_submodule_is_refused_with_the_reason(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    module = tmp_path_factory.mktemp("module")
    shutil.move(project.root / "skills" / "notes", module / "notes")
    project.git("init", "--quiet", cwd=module)
    project.git("add", "--all", cwd=module)
    project.git("commit", "--quiet", "--message=One", cwd=module)
    shutil.rmtree(project.root / "skills")
    project.git("submodule", "--quiet", "add", str(module), "skills")
    project.commit()
    project.write(REAL, SPOILED)
    status, shown = project.check()
    assert status == pytest.ExitCode.USAGE_ERROR
    assert "skills is a submodule" in shown
    assert "another repository" in shown


@each_row("why", ["ignored", "nested"])
def test_a_skill_that_no_revision_can_hold_is_refused(project: Project, why: str) -> None:
    if why == "ignored":
        project.write(".gitignore", "skills\n")
    else:
        project.git("init", "--quiet", cwd=project.root / "skills")
        project.write(".git/info/exclude", "skills\n")
    project.commit()
    status, shown = project.check()
    assert status == pytest.ExitCode.USAGE_ERROR
    said = "git ignores it" if why == "ignored" else "it lies in another repository"
    assert said in shown


def test_a_linked_reference_counts_now_and_then(project: Project) -> None:
    """Files and folders are followed inside of the project; the others are named."""
    project.write(
        "test_notes.py", TESTS.replace("skill.text", "skill.files['references/style.md']")
    )
    shared = project.write("shared/style.md", "End with a full stop.\n")
    project.write("shared/more/deep.md", "Deep.\n")
    project.link("skills/notes/references/style.md", "../../../shared/style.md")
    project.link("skills/notes/references/more", "../../../shared/more")
    project.link("skills/notes/references/all", "..")
    project.link("skills/notes/references/away.md", "/etc/hostname")
    # pytest itself would follow links in circles.
    only = "testpaths = test_notes.py"
    project.configure(f"{REAL}\n{only}\nskillopt_files = references/*.md, references/more/*.md")
    project.commit()
    status, shown = project.run("--skillopt")
    assert status == 0, shown
    assert "left out, references/away.md is a link to /etc/hostname, not inside" in shown
    assert "references/away.md is a link" in project.run("--skillopt", "--collect-only")[1]
    shared.write_text("As you like.\n")
    status, shown = project.check()
    assert status == 1, shown
    assert "references/style.md" in project.result["skills"][0]["patch"]


def test_a_patch_is_compared_with_a_folder(project: Project) -> None:
    project.commit()
    project.write(REAL, SPOILED)
    patch = subprocess.run(["git", "diff"], cwd=project.root, check=True, capture_output=True)
    project.write("spoils.patch", patch.stdout.decode())
    project.write(REAL, SKILL)
    project.write("other/SKILL.md", SKILL)
    status, shown = project.run("--skillopt-compare", "other", "spoils.patch")
    assert (status, project.result["status"]) == (0, "rejected"), shown
    assert "-End with a full stop." in project.result["skills"][0]["patch"]


def test_a_skill_on_disk_may_not_be_a_pipe(project: Project) -> None:
    project.commit()
    (project.root / REAL).unlink()
    os.mkfifo(project.root / REAL)
    status, shown = project.check()
    assert (status, "is not a regular file" in shown) == (4, True)
