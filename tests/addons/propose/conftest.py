"""Projects with a remote, and a GitHub on loopback; see ``tests/_support``."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fake_github import FakeGitHub
    from skill_project import Project

_SUPPORT = Path(__file__).parents[2] / "_support"


def _load(name: str) -> None:
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _SUPPORT / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


_load("skill_project")
_load("fake_github")


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGitHub]:
    """A GitHub on loopback, named in the environment as in GitHub Actions, with a token."""
    from fake_github import TOKEN, FakeGitHub

    server = FakeGitHub()
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_REPOSITORY", "octo/repo")
    monkeypatch.setenv("GITHUB_API_URL", server.url)
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    yield server
    server.stop()


@pytest.fixture(autouse=True)
def git_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration and no token of the machine reaches a test."""
    for name in list(os.environ):
        if name.startswith(("GIT_", "GITHUB_", "GITLAB_", "CI_")) or name in ("GH_TOKEN", "CI"):
            monkeypatch.delenv(name)
    config = tmp_path / "gitconfig"
    config.write_text(
        "[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"
        "[advice]\ndetachedHead = false\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``project`` and ``remote.git`` as every test finds them: made once, copied often."""
    from skill_project import BEFORE, Project, run_git

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
    identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
    made.git(*identity, "commit", "--quiet", "-m", "Start")
    made.push()
    return folder


@pytest.fixture
def project(template: Path, tmp_path: Path) -> Project:
    """A project on ``main`` whose one commit is pushed."""
    from skill_project import Project

    for name in ("project", "remote.git"):
        shutil.copytree(template / name, tmp_path / name, symlinks=True)
    made = Project(tmp_path / "project", tmp_path / "remote.git")
    made.git("remote", "set-url", "origin", str(made.remote))
    return made
