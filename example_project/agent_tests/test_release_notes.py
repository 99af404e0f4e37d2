"""Release notes from a git history, written by a coding agent in a scratch repository."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.skill_task(skill="skills/release-notes/SKILL.md")
HISTORIES = {
    "scanner": [
        "feat: read QR codes on invoices",
        "ci: run the tests on arm64",
        "fix!: refuse files of more than 20 MB",
        "fix: keep umlauts in names of suppliers",
    ],
    "ledger": [
        "chore: bump the linter",
        "fix: round half cents to even",
        "feat: export accounts as CSV",
        "feat!: drop the XML import",
    ],
    "portal": [
        "test: cover the login page",
        "feat: show the due date in the list",
        "feat!: ask for a second factor at login",
        "fix: sort the list by amount",
    ],
    "mailbox": [
        "fix: read attachments without a name",
        "feat: sort messages by supplier",
        "chore: rename an internal module",
        "fix!: reject mail without a signature",
    ],
}
QUIET = ("chore", "ci", "test")
NOBODY = {f"GIT_{who}_NAME": "desk" for who in ("AUTHOR", "COMMITTER")}
NOBODY |= {f"GIT_{who}_EMAIL": "desk@example.com" for who in ("AUTHOR", "COMMITTER")}
NOBODY |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
each_history = pytest.mark.parametrize("name", HISTORIES)


@pytest.fixture
def notes(skill_harness: Callable[[str], Any], skill_workspace: Path) -> Callable[[str], list[str]]:
    """Have the agent write the notes of a repository; gives their lines."""

    def write(name: str) -> list[str]:
        git(skill_workspace, "init", "-q")
        for subject in ("feat: begin", *HISTORIES[name]):
            git(skill_workspace, "commit", "-q", "--allow-empty", "-m", subject)
            if subject == "feat: begin":
                git(skill_workspace, "tag", "1.0")
        reply = skill_harness("Write the release notes of version 1.1.")
        assert reply.files == {"NOTES.md": "added"}, f"NOTES.md alone is wanted: {reply.files}"
        return (skill_workspace / "NOTES.md").read_text(encoding="utf-8").splitlines()

    return write


def git(folder: Path, *arguments: str) -> None:
    """Run git without anybody's settings."""
    folder.mkdir(exist_ok=True)
    subprocess.run(["git", *arguments], cwd=folder, env={**os.environ, **NOBODY}, check=True)


def said(kind: str, name: str) -> set[str]:
    """The list items that commits of a kind should have become."""
    subjects = [subject.split(": ") for subject in HISTORIES[name]]
    return {f"- {text}" for prefix, text in subjects if prefix == kind}


@each_history
def test_what_users_do_not_notice(notes: Callable[[str], list[str]], name: str) -> None:
    """Leaves out what nobody notices who uses the program."""
    noise = [line for line in notes(name) if line in set().union(*(said(k, name) for k in QUIET))]
    assert not noise, f"this is of no use to users: {noise}"


@each_history
def test_sections(notes: Callable[[str], list[str]], name: str) -> None:
    """Tells what is new from what is mended."""
    lines = notes(name)
    wanted = [("## Added", "feat"), ("## Fixed", "fix")]
    for heading, kind in wanted:
        assert heading in lines, f"the section {heading!r} is missing"
        start = lines.index(heading) + 1
        under = set(lines[start : start + len(said(kind, name))])
        assert under == said(kind, name), f"other lines are under {heading!r}: {under}"


@each_history
def test_breaking_changes(notes: Callable[[str], list[str]], name: str) -> None:
    """Puts what breaks somebody's habits where it is seen."""
    items = [line for line in notes(name) if line.startswith("- ")]
    first = said("feat!", name) | said("fix!", name)
    assert items[0] in first, f"a breaking change should be the first item, not {items[0]!r}"
