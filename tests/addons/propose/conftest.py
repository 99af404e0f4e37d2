"""Projects with a remote, and a GitHub on loopback; see ``tests/_support``."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
from fake_github import TOKEN, FakeGitHub
from skill_project import BEFORE, Project, run_git

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    """A GitHub on loopback, named in the environment as in GitHub Actions, with a token."""
    server = FakeGitHub()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_REPOSITORY", "octo/repo")
    monkeypatch.setenv("GITHUB_API_URL", server.url)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``project`` and ``remote.git`` as every test finds them: made once, copied often."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "empty").mkdir()
    bare = ["init", "--quiet", "--initial-branch=main", f"--template={folder / 'empty'}"]
    run_git(folder, *bare, "--bare", "remote.git")
    run_git(folder, *bare, "project")
    made = Project(folder / "project", folder / "remote.git")
    made.git("remote", "add", "origin", str(made.remote))
    made.skill.parent.mkdir()
    made.skill.write_bytes(BEFORE)
    (made.root / "other.txt").write_text("untouched\n")
    (made.root / ".gitignore").write_text(".skillopt/\n")
    (made.root / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nskillopt_skill = "skills/SKILL.md"\n'
    )
    made.git("add", "--all")
    made.git("commit", "--quiet", "-m", "Start")
    made.push()
    return folder


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Project:
    """A project on ``main`` whose one commit is pushed."""
    for name in ("project", "remote.git"):
        shutil.copytree(template / name, tmp_path / name, symlinks=True)
    config = tmp_path / "project" / ".git" / "config"
    config.write_text(config.read_text().replace(str(template), str(tmp_path)))
    return Project(tmp_path / "project", tmp_path / "remote.git")
