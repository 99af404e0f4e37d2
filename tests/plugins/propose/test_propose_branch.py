"""The branch algorithm against a bare repository: its five cases and the concurrent push."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import pytest
from skill_project import BRANCH, bare
from tables import each_row

from pytest_skillopt.errors import UserError
from pytest_skillopt.git import Clone
from pytest_skillopt.plugins.propose.base import read_base
from pytest_skillopt.plugins.propose.errors import BranchMoved, Refused
from pytest_skillopt.plugins.propose.publish import Plan, plan
from pytest_skillopt.plugins.propose.validate import load, validate
from pytest_skillopt.skill.text import Text
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skill_project import Project

    from pytest_skillopt.plugins.propose.git import Repository


@contextlib.contextmanager
def look(project: Project) -> Iterator[tuple[Repository, Plan]]:
    """Fetch, check the proposal, plan."""
    with bare(project.root) as git:
        base = read_base(git, git.fetch("main"))
        (skill,) = validate(load(project.proposal), base)
        yield git, plan(base, skill, "Train invoices")


def check(project: Project) -> None:
    """Check the proposal against what is committed here."""
    validate(load(project.proposal), read_base(Clone(project.root), "HEAD"))


def push(git: Repository, made: Plan) -> None:
    if made.action not in ("keep", "human"):
        git.push(made.commit, BRANCH, seen=made.seen)


def go(project: Project) -> Plan:
    with look(project) as (git, made):
        push(git, made)
        return made


def test_new_branch_is_a_single_commit_that_changes_only_the_skill(project: Project) -> None:
    project.propose()
    main = project.branches()["main"]
    before = project.git("status", "--porcelain"), project.git("write-tree")

    assert go(project).action == "create"

    tip = project.branches()[BRANCH]
    assert project.remote_git("rev-parse", f"{tip}^") == main
    assert project.remote_git("diff", "--name-only", main, tip) == "skills/SKILL.md"
    assert project.remote_git("cat-file", "-p", f"{tip}:skills/SKILL.md").encode() == (
        (project.proposal / "invoices" / "SKILL.md").read_bytes().rstrip(b"\n")
    )
    assert (project.git("status", "--porcelain"), project.git("write-tree")) == before
    assert project.git("branch", "--list") == "* main"


@pytest.mark.parametrize("how", ["commit", "amend", "amend-message", "rebase", "merge"])
def test_branch_that_a_human_worked_on_is_left_alone(proposed: Project, how: str) -> None:
    ada = proposed.someone()
    ada.git("checkout", "--quiet", BRANCH)
    if how in ("rebase", "merge"):
        (proposed.root / "other.txt").write_text("moved on\n")
        proposed.commit("Unrelated", "other.txt")
        proposed.push()
        ada.git("fetch", "--quiet")
        ada.git(how, "--quiet", "origin/main")
    elif how == "amend-message":
        message = ada.git("log", "-1", "--format=%B").replace("Train", "Change")
        ada.git("commit", "--quiet", "--amend", "-m", message)
    else:
        ada.skill.write_bytes(ada.skill.read_bytes() + b"By hand.\n")
        ada.git("add", "skills")
        amend = ["--amend", "--no-edit"] if how == "amend" else ["-m", "Better words"]
        ada.git("commit", "--quiet", *amend)
    ada.git("push", "--quiet", "--force", "origin", BRANCH)
    theirs = proposed.branches()[BRANCH]

    assert go(proposed).action == "human"
    assert proposed.branches()[BRANCH] == theirs


@pytest.mark.parametrize("case", ["create", "update", "delete"])
def test_concurrent_push_is_never_lost(proposed: Project, case: str) -> None:
    if case == "create":
        proposed.remote_git("update-ref", "-d", f"refs/heads/{BRANCH}")
    if case == "update":
        proposed.propose(proposed.skill.read_bytes() + b"\nRound to cents.\n")
    if case == "delete":
        proposed.skill.write_bytes((proposed.proposal / "invoices" / "SKILL.md").read_bytes())
        proposed.commit("Merge by hand", "skills")
        proposed.push()
    with look(proposed) as (git, made):
        assert made.action == case
        ada = proposed.someone()
        ada.git("commit", "--quiet", "--allow-empty", "-m", "At the same moment")
        ada.git("push", "--quiet", "--force", "origin", f"HEAD:refs/heads/{BRANCH}")

        with pytest.raises(BranchMoved, match="their push was kept"):
            push(git, made)

    assert proposed.branches()[BRANCH] == ada.git("rev-parse", "HEAD")
    assert go(proposed).action == "human"


def test_branch_deleted_at_the_same_moment_is_not_brought_back(proposed: Project) -> None:
    proposed.propose(proposed.skill.read_bytes() + b"\nRound to cents.\n")
    with look(proposed) as (git, made):
        proposed.remote_git("update-ref", "-d", f"refs/heads/{BRANCH}")

        with pytest.raises(BranchMoved):
            push(git, made)

    assert BRANCH not in proposed.branches()


def test_a_branch_that_the_remote_protects_is_named_with_the_way_out(project: Project) -> None:
    project.propose()
    refuse = "echo 'GH006: Protected branch update failed.' >&2\nexit 1\n"
    project.hook("pre-receive", refuse)
    said = (
        f"the remote origin refused {BRANCH}: GH006: Protected branch update failed.; pre-receive "
        "hook declined: a rule for branches of that name, or missing rights of the token"
    )
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        go(project)


def test_file_mode_is_kept(project: Project) -> None:
    project.skill.chmod(0o755)
    project.commit("Executable", "skills")
    project.push()
    project.propose()
    go(project)

    assert project.remote_git("ls-tree", BRANCH, "skills/SKILL.md").startswith("100755 ")


def test_a_skill_with_references_is_proposed_whole(project: Project) -> None:
    style = project.skill.parent / "references" / "style.md"
    style.parent.mkdir()
    style.write_text("Be brief.\n")
    text = project.skill.read_text() + "\nSee [more](references/more.md).\n"
    project.skill.write_text(text)
    project.commit("A reference", "skills")
    project.push()
    before = Version.from_bytes(text.encode()) | {"references/style.md": Text(b"Be brief.\n")}
    more = {"references/style.md": Text(b"Be kind.\n"), "references/more.md": Text(b"And more.\n")}
    after = before | more
    project.propose(after.packed, before=before.packed)

    assert go(project).action == "create"

    project.git("fetch", "origin", BRANCH)
    changed = project.git("diff", "--name-only", "main", "FETCH_HEAD")
    assert changed.split() == ["skills/references/more.md", "skills/references/style.md"]


@pytest.mark.parametrize("setting", ["skillopt_skill", "skillopt_propose_skills"])
def test_a_skill_that_the_base_branch_names_by_a_link_is_proposed(
    project: Project, setting: str
) -> None:
    link = project.root / ".claude" / "skills" / "invoices"
    link.parent.mkdir(parents=True)
    link.symlink_to("../../skills")
    named = f'{setting} = ".claude/skills/invoices/SKILL.md"\n'
    config = project.root / "pyproject.toml"
    config.write_text(f"[tool.pytest.ini_options]\n{named}")
    project.commit("A link", ".claude", "pyproject.toml")
    project.push()
    project.propose()
    assert go(project).action == "create"


def _propose_style(project: Project) -> None:
    """Push the skill, which has a style as its reference, and propose another style."""
    project.push()
    skill = Version.from_bytes(project.skill.read_bytes())
    before = skill | {"references/style.md": Text(b"Be brief.\n")}
    after = skill | {"references/style.md": Text(b"Be kind.\n")}
    project.propose(after.packed, before=before.packed)


@pytest.mark.parametrize("folder", [False, True])
def test_a_linked_reference_is_proposed_in_its_place(project: Project, folder: bool) -> None:
    shared = project.root / "shared" / "style.md"
    shared.parent.mkdir()
    shared.write_text("Be brief.\n")
    link = project.skill.parent / "references"
    if folder:
        link.symlink_to("../shared")
    else:
        link.mkdir()
        (link / "style.md").symlink_to("../../shared/style.md")
    project.commit("A link", "shared", "skills")
    _propose_style(project)
    assert go(project).action == "create"
    project.git("fetch", "origin", BRANCH)
    assert project.git("diff", "--name-only", "main", "FETCH_HEAD").split() == ["shared/style.md"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("../../test_it.py", "only text documents are trained"),
        ("../../../outside.md", "not a regular file|has no such file"),
    ],
)
def test_a_link_to_what_is_not_trained_is_refused(project: Project, target: str, said: str) -> None:
    (project.root / "test_it.py").write_text("Be brief.\n")
    link = project.skill.parent / "references" / "style.md"
    link.parent.mkdir()
    link.symlink_to(target)
    project.commit("A link", "test_it.py", "skills")
    _propose_style(project)
    with pytest.raises(Refused, match=said):
        go(project)


def _with_memory(project: Project) -> Version:
    """Commit a memory document, and settings that train it with the skill."""
    (project.root / "AGENTS.md").write_text("Be brief.\n")
    project.commit("A memory document", "AGENTS.md")
    project.configure('skillopt_files = "scripts/*.py, ../AGENTS.md"')
    return Version.from_bytes(project.skill.read_bytes()) | {"../AGENTS.md": Text(b"Be brief.\n")}


def test_a_memory_document_is_proposed(project: Project) -> None:
    before = _with_memory(project)
    project.push()
    after = before | {"../AGENTS.md": Text(b"Kind.\n")}
    project.propose(after.packed, before=before.packed)
    assert go(project).action == "create"
    assert project.remote_git("show", f"{BRANCH}:AGENTS.md") == "Kind."


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("scripts/run.py", "only text documents are trained"),
        ("../README.md", "README.md is not trained with the skill"),
        ("../../etc.md", "etc.md is not trained with the skill"),
    ],
)
def test_what_the_settings_of_the_base_branch_do_not_train_is_refused(
    project: Project, name: str, why: str
) -> None:
    before = _with_memory(project)
    after = before | {name: Text(b"Mine.\n")}
    project.propose(after.packed, before=before.packed)
    with pytest.raises(Refused, match=why):
        check(project)


@each_row(
    ("name", "why"),
    [
        ("scripts/run.py", "is not trained with the skill"),
        ("../SKILL.md", "is not trained with the skill"),
    ],
)
def test_a_proposal_names_no_file_that_the_base_branch_does_not(
    project: Project, name: str, why: str
) -> None:
    before = Version.from_bytes(project.skill.read_bytes())
    after = Version.from_bytes(before.main.data + b"\nMore.\n") | {name: Text(b"x\n")}
    project.propose(after.packed, before=before.packed)
    with pytest.raises(Refused, match=why):
        check(project)
