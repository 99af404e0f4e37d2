"""What a training leaves for ``propose``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from pytest_skillopt.propose.manifest import SkillName, blob_id, slug, write_proposal
from pytest_skillopt.report.result import Result, SkillResult

if TYPE_CHECKING:
    from pathlib import Path

    from skill_project import Project


def nothing_accepted() -> Result:
    skill = SkillResult(
        path="skills/SKILL.md",
        name="invoices",
        before="0" * 64,
        after="0" * 64,
        status="rejected",
        reason="no better",
    )
    return Result(
        mode="train",
        run="r",
        started="2026-01-01T00:00:00Z",
        seconds=1.0,
        status="rejected",
        reason="no better",
        command=["pytest"],
        skills=[skill],
    )


def test_proposal_names_what_it_rests_on(project: Project) -> None:
    project.propose()
    manifest = json.loads((project.proposal / "manifest.json").read_bytes())
    assert manifest["schema"] == "skillopt-proposal/1"
    assert manifest["base_commit"] == project.git("rev-parse", "HEAD")
    assert manifest["branch"] == "main"
    (skill,) = manifest["skills"]
    assert skill["base_blob"] == project.git("rev-parse", "HEAD:skills/SKILL.md")
    assert [row["after_passed"] for row in skill["evidence"]["final"]] == [3, 3, 3]
    assert set(manifest["files"]) == {
        "body.md",
        "report.html",
        "invoices/SKILL.md",
        "invoices/skill.patch",
    }
    project.git("apply", "--check", ".skillopt/proposal/invoices/skill.patch")


def test_new_proposal_replaces_the_old_one_whole(project: Project) -> None:
    project.propose()
    (project.proposal / "leftover").write_text("x")
    project.propose(project.skill.read_bytes() + b"\nAnother.\n")
    assert not (project.proposal / "leftover").exists()
    assert b"Another." in (project.proposal / "invoices" / "SKILL.md").read_bytes()
    assert [p.name for p in project.proposal.parent.iterdir() if p.name.startswith(".")] == []


def test_old_proposal_goes_when_nothing_was_accepted(project: Project) -> None:
    project.propose()
    before = project.skill.read_bytes()
    skills = [("skills/SKILL.md", before, before + b"x")]
    assert not write_proposal(project.proposal, nothing_accepted(), skills, None, "", None)
    assert not project.proposal.exists()


def test_symlink_in_place_of_the_proposal_is_not_followed(project: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    project.proposal.parent.mkdir()
    project.proposal.symlink_to(elsewhere)
    project.propose()
    assert not project.proposal.is_symlink()
    assert (elsewhere / "precious").exists()


def test_blob_id_is_that_of_git(project: Project) -> None:
    data = project.skill.read_bytes()
    assert blob_id(data, like="0" * 40) == project.git("hash-object", "skills/SKILL.md")


@given(st.text(max_size=100))
def test_slug_is_always_a_name(name: str) -> None:
    assert TypeAdapter(SkillName).validate_python(slug(name)) == slug(name)
