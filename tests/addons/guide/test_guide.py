"""The skill for coding agents: valid, installed where agents look, and true."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest
import warm_sessions
from example_copy import ROOT
from sessions import clean_environment

from pytest_skillopt import cli
from pytest_skillopt.addons.guide.addon import PLACES, SOURCE
from pytest_skillopt.run.result import Result, SkillResult

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TEXT = (SOURCE / "SKILL.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"`(pytest[ -][^`\n]+)`", TEXT)


def install(*arguments: str) -> int:
    return cli.main(["skill", "install", *arguments])


def copies(root: Path) -> Iterator[str]:
    for path in sorted(root.rglob("SKILL.md")):
        assert path.read_text(encoding="utf-8") == TEXT
        yield path.relative_to(root).as_posix()


def test_the_skill_is_valid() -> None:
    validator = pytest.importorskip("skills_ref.validator")
    assert validator.validate(SOURCE) == []


def test_every_agent_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert install() == 0
    assert list(copies(tmp_path)) == [".agents/skills/pytest-skillopt/SKILL.md"]
    assert install(*(f"--for={agent}" for agent in PLACES)) == 0
    assert list(copies(tmp_path)) == [
        ".agents/skills/pytest-skillopt/SKILL.md",
        ".claude/skills/pytest-skillopt/SKILL.md",
    ]
    assert capsys.readouterr().out.splitlines() == [
        "wrote .agents/skills/pytest-skillopt/SKILL.md",
        "wrote .claude/skills/pytest-skillopt/SKILL.md",
        ".agents/skills/pytest-skillopt/SKILL.md is up to date",
    ]


def test_a_changed_copy_is_kept_unless_it_is_forced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    install()
    (path,) = tmp_path.rglob("SKILL.md")
    path.write_text("mine")
    assert install("--for=claude", "--for=codex") == cli.USAGE_ERROR
    assert "--force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert not (tmp_path / ".claude").exists(), "all or nothing is installed"
    assert install("--force") == 0
    assert path.read_text(encoding="utf-8") == TEXT


def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".agents").write_text("a file")
    assert install() == cli.USAGE_ERROR
    assert ".agents" in capsys.readouterr().err


def test_it_is_never_trained_in_place_of_the_projects_skill(pytester: pytest.Pytester) -> None:
    """A test finds the only other skill; a skill that is named may be any."""
    assert install() == 0
    (pytester.mkdir("skills") / "SKILL.md").write_text("---\nname: mine\n---\nGreet.\n")
    pytester.makepyfile(
        """
        import pytest

        def test_mine(skill):
            assert skill.name == "mine"

        @pytest.mark.skill_task(skill=".agents/skills/pytest-skillopt/SKILL.md")
        def test_named(skill):
            assert skill.name == "pytest-skillopt"
        """
    )
    pytester.runpytest_inprocess("-p", "no:cacheprovider").assert_outcomes(passed=2)


def test_every_command_it_names_is_understood(pytester: pytest.Pytester) -> None:
    assert len(COMMANDS) > 15
    for name in ("SKILL.md", "better.md"):
        (pytester.path / name).write_text("---\nname: mine\n---\nGreet.\n")
    pytester.makepyfile(
        "import pytest\n@pytest.mark.skill_task\ndef test_it(skill_agent): skill_agent('Hi')\n"
    )
    for command in COMMANDS:
        program, *words = shlex.split(command)
        if program == "pytest":
            words = [word for word in words if not word.endswith("-q") and word != "none"]
            words = ["SKILL.md" if word == "skills/NAME/SKILL.md" else word for word in words]
            if "--skillopt-compare" in words:
                words.insert(words.index("--skillopt-compare") + 1, "none")
            plan = [*words, "--collect-only", "--skillopt-model=openai:m", "-n0"]
            result = pytester.runpytest_inprocess(*plan)
            assert result.ret == 0, command
        else:
            parse(words)


def parse(words: list[str]) -> None:
    try:
        cli._parser(words).parse_args(words, argparse.Namespace())
    except SystemExit:
        pytest.fail(f"pytest-skillopt {shlex.join(words)} is not understood")


def test_every_name_it_uses_is_there(pytester: pytest.Pytester) -> None:
    helped = pytester.runpytest_inprocess("--help").stdout.str()
    options = set(re.findall(r"--skillopt[\w-]*", TEXT))
    settings = set(re.findall(r"skillopt_\w+", TEXT))
    assert options
    settings = {name for name in settings if f"--{name.replace('_', '-')}" not in helped}
    assert {name for name in options | settings if name not in helped} == set()
    fixtures = pytester.runpytest_inprocess("--fixtures", "-q").stdout.str()
    assert {n for n in re.findall(r"`(skill_\w+)\(", TEXT) if n not in fixtures} == set()
    table = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    fields = {*Result.model_fields, *SkillResult.model_fields}
    assert {"status", "reason", "resume", "written"} <= fields
    assert table == ["status", "accepted", "rejected", "unmeasured", "interrupted"]


def test_the_example_tests_the_skill_that_is_installed() -> None:
    copy = ROOT / "example_project/.agents/skills/pytest-skillopt/SKILL.md"
    assert copy.read_text(encoding="utf-8") == TEXT, "run pytest-skillopt skill install there"


@pytest.mark.parametrize("whole", [True, False])
def test_its_own_suite_passes_with_it_only(tmp_path: Path, whole: bool) -> None:
    project = tmp_path / "example"
    hidden = shutil.ignore_patterns(".skillopt", ".pytest_cache", "__pycache__")
    shutil.copytree(ROOT / "example_project", project, ignore=hidden)
    skill = project / ".agents/skills/pytest-skillopt/SKILL.md"
    if not whole:
        skill.write_text(TEXT.split("## Rules")[0], encoding="utf-8")
    command = ("guide_tests", "-q", "-p", "no:cacheprovider")
    said, _ = warm_sessions.start(*command, cwd=project, env=clean_environment()).communicate()
    assert ("24 passed" if whole else "24 failed") in said, said
