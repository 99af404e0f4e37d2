from __future__ import annotations

import os
from pathlib import Path

import pytest
from tables import each_row

from pytest_skillopt.skill import read
from pytest_skillopt.skill.find import AGENT_FOLDERS, find_skill, project_path, skill_paths
from pytest_skillopt.skill.read import read_skill, skill_files
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.skill.trained import Trained
from pytest_skillopt.skill.version import Version
from pytest_skillopt.skill.write import materialise, write_version


def put(path: Path, data: bytes = b"text\n") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def found(root: Path, start: str = "") -> Path:
    """The skill of tests in a folder of the project."""
    return find_skill(root, root / start, skill_paths(root))


def test_the_one_skill_is_found(tmp_path: Path) -> None:
    skill = put(tmp_path / "skills/invoices/SKILL.md")
    for other in (
        ".hidden/SKILL.md",
        "node_modules/x/SKILL.md",
        "tests/skills/x/SKILL.md",
        "tests/.claude/skills/x/SKILL.md",
        "invoices/fixtures/SKILL.md",
        ".claude/worktrees/a/skills/x/SKILL.md",
        "build/lib/SKILL.md",
        "myenv/lib/SKILL.md",
        "x.egg-info/SKILL.md",
        "skills/skill.md.txt",
    ):
        put(tmp_path / other)
    put(tmp_path / "myenv/pyvenv.cfg")
    assert found(tmp_path) == skill
    assert found(tmp_path, "tests/unit") == skill


def test_a_skill_may_be_called_like_a_folder_that_is_left_out(tmp_path: Path) -> None:
    for name in ("test", "build"):
        skill = put(tmp_path / name / ".claude/skills" / name / "SKILL.md")
        assert skill_paths(tmp_path / name) == [skill]


def test_a_link_inside_of_the_project_is_followed(tmp_path: Path) -> None:
    target = put(tmp_path / "real/SKILL.md", b"old")
    target.chmod(0o640)
    link = tmp_path / "SKILL.md"
    link.symlink_to(target)
    assert read_skill(link, tmp_path).data == b"old"
    write_version(
        tmp_path, "SKILL.md", Version.from_bytes(b"old"), Version.from_bytes(b"new"), Trained()
    )
    assert link.is_symlink()
    assert target.read_bytes() == b"new"
    assert target.stat().st_mode & 0o777 == 0o640


def test_what_cannot_be_trained_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "project"
    root.mkdir()
    outside = put(tmp_path / "outside.md")
    (root / "out.md").symlink_to(outside)
    (root / "loop.md").symlink_to(root / "loop.md")
    (root / "dangling.md").symlink_to(root / "nothing.md")
    (root / "folder").mkdir()
    os.mkfifo(root / "pipe.md")
    put(root / "latin.md", b"caf\xe9")
    put(root / "empty.md", b"")
    put(root / "large.md", b"x" * 20)
    monkeypatch.setattr(read, "MAX_SKILL_BYTES", 10)
    for name, message in {
        "missing.md": "no such file; set skillopt_skill or skill= on the marker to the path of a",
        "out.md": "lies outside of the project",
        "../outside.md": f"outside of the project .*, or run pytest with --rootdir={tmp_path}$",
        "loop.md": "cannot be resolved",
        "nul\0.md": "cannot be resolved .*embedded null",
        "missing/" + "y" * 5000: "no such file",
        "dangling.md": "dangling.md: a link to .*nothing.md, which does not exist; correct",
        "folder": "is not a regular file",
        "pipe.md": "is not a regular file",
        "latin.md": "byte 0xe9 at offset 3",
        "empty.md": "empty.md: empty",
        "large.md": "20 bytes, at most 10",
    }.items():
        with pytest.raises(SkillError, match=message):
            read_skill(Path(project_path(name, root)), root)


def test_the_write_is_complete_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = put(tmp_path / "SKILL.md", b"old")
    path.chmod(0o664)
    write_version(
        tmp_path, "SKILL.md", Version.from_bytes(b"old"), Version.from_bytes(b"new\r\n"), Trained()
    )
    assert path.read_bytes() == b"new\r\n"
    assert path.stat().st_mode & 0o777 == 0o664
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_read_only_is_left(tmp_path: Path) -> None:
    path = put(tmp_path / "SKILL.md", b"old")
    path.chmod(0o444)
    old = Version.from_bytes(b"old")
    new = Version.from_bytes(b"new")
    with pytest.raises(SkillError, match="is read-only; allow it by chmod u"):
        write_version(tmp_path, "SKILL.md", old, new, Trained())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_write_leaves_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "SKILL.md", b"old")

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SkillError, match="No space left on device"):
        write_version(
            tmp_path, "SKILL.md", Version.from_bytes(b"old"), Version.from_bytes(b"new"), Trained()
        )
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_whole_skill_folder_is_sent(tmp_path: Path) -> None:
    skill = put(tmp_path / "s/SKILL.md", b"skill")
    put(tmp_path / "s/scripts/run.py", b"#!/usr/bin/env python\n")
    put(tmp_path / "s/.git/config")
    put(tmp_path / "s/__pycache__/x.pyc")
    put(tmp_path / "s/.env")
    put(tmp_path / "shared/style.md", b"style")
    (tmp_path / "s/link.txt").symlink_to("/etc/hostname")
    (tmp_path / "s/near.txt").symlink_to(skill)
    (tmp_path / "s/style.md").symlink_to("../shared/style.md")
    (tmp_path / "s/references").symlink_to("../shared")
    (tmp_path / "s/assets").symlink_to("..")
    assert skill_files(skill, tmp_path) == {
        "SKILL.md": b"skill",
        "near.txt": b"skill",
        "references/style.md": b"style",
        "scripts/run.py": b"#!/usr/bin/env python\n",
        "style.md": b"style",
    }


@pytest.mark.parametrize("name", ["SKILL.md", "docs/AGENTS.md"])
def test_beside_other_files_only_resources_are_sent(name: str, tmp_path: Path) -> None:
    skill = put(tmp_path / name)
    put(skill.parent / "other.py")
    put(skill.parent / "references/rates.md", b"rates")
    assert skill_files(Path(name), tmp_path) == {
        skill.name: b"text\n",
        "references/rates.md": b"rates",
    }


def test_a_folder_that_is_too_large_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    skill = put(tmp_path / "s/SKILL.md")
    put(tmp_path / "s/a.txt", b"x" * 100)
    with monkeypatch.context() as patch:
        patch.setattr(read, "MAX_TOTAL_BYTES", 50)
        with pytest.raises(SkillError, match="50 bytes; move the skill into a folder"):
            skill_files(skill, tmp_path)
    monkeypatch.setattr(read, "MAX_FILES", 1)
    with pytest.raises(SkillError, match="more than 1 files"):
        skill_files(skill, tmp_path)


def test_a_version_is_laid_out_with_its_files(tmp_path: Path) -> None:
    materialise(tmp_path, {"SKILL.md": b"new", "scripts/run.sh": b"#!/bin/sh\n", "a/b.txt": b"b"})
    assert (tmp_path / "SKILL.md").read_bytes() == b"new"
    assert (tmp_path / "a/b.txt").read_bytes() == b"b"
    assert os.access(tmp_path / "scripts/run.sh", os.X_OK)


@each_row("name", ["../x", "/etc/x", "a/../../x", "", "a\\..\\x"])
def test_no_file_leaves_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(SkillError, match="not a path inside"):
        materialise(tmp_path / "v", {name: b""})


@each_row("folder", AGENT_FOLDERS)
def test_the_folders_of_agents_are_searched_beside_the_visible_ones(
    tmp_path: Path, folder: str
) -> None:
    root = tmp_path / folder.replace("/", "-")
    hidden = put(root / folder / "skills/review/SKILL.md")
    put(root / ".cache/SKILL.md")
    assert found(root) == hidden
    put(root / "skills/invoices/SKILL.md")
    with pytest.raises(SkillError, match="2 skills under"):
        found(root)
