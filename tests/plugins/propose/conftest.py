"""Projects with a remote, and a GitHub on loopback; see ``tests/_support``."""

from __future__ import annotations

import copy
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from fake_github import TOKEN, FakeGitHub, write_gh
from skill_project import BEFORE, Project, run_git

from pytest_skillopt.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from refusals import Refusal


@pytest.fixture
def github(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGitHub]:
    """A GitHub on loopback with its command on PATH, and the environment of GitHub Actions."""
    server = start_github(monkeypatch, tmp_path / "gh")
    yield server
    server.stop()


@pytest.fixture
def gh_log(tmp_path: Path) -> Path:
    """The file with the arguments of each call of the command, one list a line."""
    return tmp_path / "gh" / "gh.log"


def start_github(monkeypatch: pytest.MonkeyPatch, folder: Path) -> FakeGitHub:
    server = FakeGitHub()
    write_gh(folder, server.port)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_REPOSITORY", "octo/repo")
    monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    return server


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


def copied(folder: Path, target: Path) -> Project:
    shutil.copytree(folder, target, symlinks=True, dirs_exist_ok=True)
    for name in ("project", "someone"):
        config = target / name / ".git" / "config"
        if config.exists():
            config.write_text(config.read_text().replace(str(folder), str(target)))
    return Project(target / "project", target / "remote.git")


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A project on ``main`` whose one commit is pushed, worked in."""
    made = copied(template, tmp_path)
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture(scope="session")
def published(
    template: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[dict[str, Any]]]:
    """The same with a proposal, its branch and a clone of somebody else; the request for it."""
    folder = tmp_path_factory.mktemp("published")
    made = copied(template, folder)
    made.propose()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made.root)
        server = start_github(patch, tmp_path_factory.mktemp("gh"))
        assert main(["propose"]) == 0
        server.stop()
    made.someone()
    return folder, server.pulls


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Refusal:
    """Run a command that is refused, and return why."""

    def run(*words: str) -> str:
        assert main([*words]) in (1, 4)
        return capsys.readouterr().err

    return run


@pytest.fixture
def proposed(
    published: tuple[Path, list[dict[str, Any]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Project:
    """A project with a proposal whose branch is pushed, worked in."""
    made = copied(published[0], tmp_path)
    monkeypatch.chdir(made.root)
    return made


@pytest.fixture
def asked(github: FakeGitHub, published: tuple[Path, list[dict[str, Any]]]) -> FakeGitHub:
    """The server with the request for the proposal of ``proposed``."""
    github.pulls = copy.deepcopy(published[1])
    return github
