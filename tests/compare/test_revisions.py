"""Revisions of a skill, in a project that is a folder of its repository."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from tables import each_row

from pytest_skillopt.compare.versions import Revision
from pytest_skillopt.skill.read import read_version
from pytest_skillopt.skill.text import SkillError, Text
from pytest_skillopt.skill.trained import Trained

SKILL = "skills/[a] b/SKILL.md"


def git(path: Path, *arguments: str, check: bool = True) -> None:
    subprocess.run(["git", *arguments], cwd=path, check=check, capture_output=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project below the top of its repository, with one committed skill."""
    git(tmp_path, "init", "-q")
    root = tmp_path / "project"
    (root / SKILL).parent.mkdir(parents=True)
    commit(root, "one")
    return root


def commit(root: Path, text: str) -> None:
    (root / SKILL).write_text(text)
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", text)


def test_the_skill_at_a_revision(root: Path) -> None:
    commit(root, "two")
    then = Revision(root, "HEAD~1").skill(SKILL, Trained())
    assert then is not None
    assert then.main.text == "one"
    assert Revision(root, "HEAD").skill("other/SKILL.md", Trained()) is None
    for name in ("nowhere", "HEAD~1...HEAD", ""):
        with pytest.raises(SkillError, match=f"there is no git revision '{name}'$"):
            Revision(root, name)


def test_the_text_that_a_partial_clone_lacks_can_be_fetched(root: Path, tmp_path: Path) -> None:
    commit(root, "two")
    git(root, "config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--filter=blob:none", tmp_path.as_uri(), str(clone))
    with pytest.raises(SkillError, match="this partial clone lacks git object") as refused:
        Revision(clone / "project", "HEAD~1").skill(SKILL, Trained())
    (way_out,) = re.findall("`git (.*)`", str(refused.value))
    git(clone, *way_out.split())
    then = Revision(clone / "project", "HEAD~1").skill(SKILL, Trained())
    assert then is not None
    assert then.main.text == "one"


def test_the_references_of_a_revision_are_those_of_then(root: Path) -> None:
    folder = (root / SKILL).parent / "references"
    folder.mkdir()
    (folder / "a.md").write_text("old")
    (folder / "link.md").symlink_to("a.md")
    (folder / "b.txt").write_text("not trained")
    commit(root, "two")
    (folder / "a.md").write_text("new")
    commit(root, "three")
    then = Revision(root, "HEAD~1").skill(SKILL, Trained("references/*.md"))
    assert then is not None
    assert then.main.text == "two"
    assert then.files == {"references/a.md": Text(b"old")}


def test_line_ends_that_the_checkout_changed_are_no_edit(root: Path) -> None:
    """Git for Windows turns ``core.autocrlf`` on: each line would differ, and be paid for."""
    reference = (root / SKILL).parent / "references" / "a.md"
    reference.parent.mkdir()
    reference.write_text("a\nb\n")
    commit(root, "one\ntwo\n")
    git(root, "config", "core.autocrlf", "true")
    for file in (root / SKILL, reference):
        file.unlink()
        git(root, "checkout", "--", str(file))
    assert (root / SKILL).read_bytes() == b"one\r\ntwo\r\n"
    then = Revision(root, "HEAD").skill(SKILL, Trained("references/*.md"))
    assert then is not None
    assert then.main.data == b"one\r\ntwo\r\n"
    assert then.files == {"references/a.md": Text(b"a\r\nb\r\n")}
    (root / SKILL).write_bytes(b"one\ntwo\n")
    then = Revision(root, "HEAD").skill(SKILL, Trained())
    assert then is not None
    assert then.main.data == b"one\ntwo\n"


@each_row("skill", ["skills/a/SKILL.md", "SKILL.md"])
def test_a_revision_has_the_files_that_a_skill_on_disk_has(root: Path, skill: str) -> None:
    """Else a check would compare with a version that was never on disk."""
    folder = (root / skill).parent
    for name in (
        "SKILL.md",
        "more.md",
        "references/a.md",
        "references/.b.md",
        ".cache/c.md",
        "node_modules/d/e.md",
        "x.egg-info/f.md",
        "sub/g.md",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{name}\n")
    (folder / "references/second.md").symlink_to("a.md")
    (root / "shared.md").write_text("shared\n")
    up = os.path.relpath(root / "shared.md", folder / "references")
    (folder / "references/shared.md").symlink_to(up)
    commit(root, "files")
    trained = Trained("*.md")
    then = Revision(root, "HEAD").skill(skill, trained)
    assert then == read_version(Path(skill), root, trained)
