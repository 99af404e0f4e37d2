"""The files that a training leaves for ``propose``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from skill_project import leave, sha256
from tables import each_row

from pytest_skillopt.cli import main
from pytest_skillopt.run.result import Arm, Result, RolloutSample, SkillResult, TaskRow
from pytest_skillopt.skill.find import slug, unnamed

if TYPE_CHECKING:
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


def test_transcripts_stay_at_home(project: Project) -> None:
    task = TaskRow(id="t", split="val", before=Arm(n=1), after=Arm(n=1, passed=1))
    sample = RolloutSample(outcome="passed", message="private words")
    task = task.model_copy(update={"after": Arm(n=1, passed=1, sample=sample)})
    change = {"status": "accepted", "tasks": [task]}
    skill = nothing_accepted().skills[0].model_copy(update=change)
    result = nothing_accepted().model_copy(update={"skills": [skill]})
    assert leave(project.root, result, {"0" * 64: b"# One\n"})
    assert "private words" not in (project.proposal / "result.json").read_text()


@pytest.mark.usefixtures("no_umask")
def test_a_proposal_is_for_its_owner(project: Project) -> None:
    assert project.propose().stat().st_mode & 0o777 == 0o700
    files = [path for path in project.proposal.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}


def test_new_proposal_replaces_the_old_one_whole(project: Project) -> None:
    project.propose()
    (project.proposal / "leftover").write_text("x")
    project.propose(project.skill.read_bytes() + b"\nAnother.\n")
    assert not (project.proposal / "leftover").exists()
    assert b"Another." in (project.proposal / "invoices" / "SKILL.md").read_bytes()
    assert [p.name for p in project.proposal.parent.iterdir() if p.name.startswith(".")] == []


def test_old_proposal_goes_when_nothing_was_accepted(project: Project) -> None:
    project.propose()
    assert not leave(project.root, nothing_accepted(), {})
    assert not project.proposal.exists()


def test_two_skills_of_one_name_get_a_branch_each(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = ["a/SKILL.md", "b/SKILL.md"]
    for path in paths:
        (project.root / path).parent.mkdir()
        (project.root / path).write_text("# One\n\nFirst.\n")
    project.commit("Two skills", *paths)
    project.configure(f"skillopt_propose_skills = {paths}")
    project.push()
    before = b"# One\n\nFirst.\n"
    after = b"# One\n\nFirst.\nSecond.\n"
    task = TaskRow(id="t", split="train", before=Arm(passed=0, n=3), after=Arm(passed=3, n=3))
    skills = [
        SkillResult(
            path=path,
            name="One",
            before=sha256(before),
            after=sha256(after),
            status="accepted",
            reason="better",
            tasks=[task],
        )
        for path in paths
    ]
    accepted = {"status": "accepted", "skills": skills}
    result = nothing_accepted().model_copy(update=accepted)
    assert leave(project.root, result, {sha256(after): after})
    monkeypatch.chdir(project.root)

    assert main(["propose", "--no-forge"]) == 0

    for path in paths:
        branch = f"skillopt/{path[0]}-{sha256(path.encode())[:8]}"
        assert project.remote_git("diff", "--name-only", "main", branch) == path


def test_symlink_in_place_of_the_proposal_is_not_followed(project: Project, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_text("x")
    project.proposal.parent.mkdir()
    project.proposal.symlink_to(elsewhere)
    project.propose()
    assert not project.proposal.is_symlink()
    assert (elsewhere / "precious").exists()


@given(st.text(max_size=100))
def test_slug_is_always_a_name(name: str) -> None:
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,62}[a-z0-9])?", slug(name))


@each_row(
    ("path", "name"),
    [
        ("skills/invoices/SKILL.md", "invoices"),
        ("AGENTS.md", "agents"),
        ("docs/House rules.md", "house-rules"),
        ("SKILL.md", "skill"),
    ],
)
def test_a_skill_without_a_name_is_called_by_its_place(path: str, name: str) -> None:
    assert slug(unnamed(Path(path))) == name
