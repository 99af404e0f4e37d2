"""Add-ons are folders: one may be missing, broken or new, and the rest works as before."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_skillopt

ROOT = Path(pytest_skillopt.__file__).parents[1]
BROKEN = "raise ImportError('half of it is missing')\n"


class Copy:
    """A copy of the package, beside the one that is tested, and a project with one task."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.addons = root / "pytest_skillopt" / "addons"
        skipped = shutil.ignore_patterns("*.pyc")
        shutil.copytree(ROOT / "pytest_skillopt", root / "pytest_skillopt", ignore=skipped)
        self.project = root / "project"
        self.project.mkdir()
        (self.project / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\n\nBe kind.\n")
        self.write_task("@pytest.mark.skill_task")

    def write_task(self, mark: str) -> None:
        text = f"import pytest\n\n{mark}\ndef test_it(): pass\n"
        (self.project / "test_it.py").write_text(text)

    def write_addon(self, text: str, **modules: str) -> None:
        folder = self.addons / "greeter"
        folder.mkdir()
        for name, source in {"__init__": "", "addon": text, **modules}.items():
            (folder / f"{name}.py").write_text(source)

    def pytest(self, *arguments: str, code: int = 0) -> str:
        return self.run("-m", "pytest", "-c", os.devnull, "--rootdir", ".", *arguments, code=code)

    def run(self, *arguments: str, code: int = 0) -> str:
        environ = os.environ | {"PYTHONPATH": str(self.root), "COLUMNS": "100"}
        environ.pop("PYTEST_XDIST_WORKER", None)
        command = [sys.executable, *arguments]
        done = subprocess.run(
            command, cwd=self.project, env=environ, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_without_any_add_on_the_core_measures_and_says_so_in_one_line(copy: Copy) -> None:
    for folder in copy.addons.iterdir():
        if folder.is_dir():
            shutil.rmtree(folder)
    told = copy.pytest("--skillopt", "test_it.py")
    (file,) = copy.project.glob(".skillopt/runs/*/result.json")
    said = "skillopt: measured: SKILL.md: pass rate 100.0% over 1 tasks; see"
    assert f"{said} {file}" in told
    assert "1 passed" in told
    shown = copy.pytest("--help")
    assert "--skillopt-train" in shown
    assert "--skillopt-check" not in shown


def test_a_broken_add_on_is_left_out_with_a_warning_but_not_by_a_mode(copy: Copy) -> None:
    declaration = copy.addons / "watch" / "addon.py"
    declaration.write_text(BROKEN)
    told = copy.run("-m", "pytest_skillopt", "--help")
    assert "continues without its add-on 'watch': ImportError('half of it" in told
    assert "propose" in told
    assert "follow a run" not in told
    assert "1 passed" in copy.pytest("test_it.py")
    told = copy.pytest("--skillopt-train", "test_it.py", code=pytest.ExitCode.USAGE_ERROR)
    assert "cannot import its add-on 'watch': ImportError('half of it is missing')" in told
    assert f"delete {declaration.parent}" in told


def test_an_add_on_is_a_folder_with_one_declaration(copy: Copy) -> None:
    """Settings, a command, a marker argument and a mode, by a new folder and nothing else."""
    copy.write_addon(
        """
from dataclasses import dataclass
from pytest_skillopt.addon import AddOn
from pytest_skillopt.options import Mode
from pytest_skillopt.settings import AddOnSettings, setting

@dataclass(frozen=True)
class Greeting(AddOnSettings):
    greeting: str = setting("Hello", "how to greet")

def add_commands(commands):
    commands.add_parser("greet", help="say hello").set_defaults(handle=lambda args: print("Hi"))

GREET = Mode(
    name="greet",
    flag="--skillopt-greet",
    help="greet the skill",
    function="pytest_skillopt.addons.greeter.measure:greet",
    doing="greeting",
    samples=lambda task, settings: 7,
    option={"metavar": "NAME"},
    answers={"rejected": ("Nobody answers", "bad")},
    fails=("rejected",),
)
ADDON = AddOn(
    settings=Greeting,
    modes=(GREET,),
    marker={"polite": (lambda value: isinstance(value, bool), "True or False")},
    add_commands=add_commands,
)
""",
        measure="""
from pytest_skillopt.addons.greeter.addon import Greeting
from pytest_skillopt.modes.measure import of_one_version

def greet(run, display):
    (skill,) = run.documents
    reason = f"{run.settings.of(Greeting).greeting}, {run.mode.argument}"
    found = of_one_version(skill, run.documents[skill], "rejected", reason)
    return run.result("rejected", reason, [found])
""",
    )
    copy.write_task("@pytest.mark.skill_task(polite=True)")
    plan = copy.pytest("--skillopt-greet=Ann", "--collect-only", "test_it.py")
    assert "rollouts: about 3, at most 7" in plan
    arguments = ("--skillopt-greet=Ann", "-o", "skillopt_greeting=Salut", "test_it.py")
    told = copy.pytest(*arguments, code=1)
    assert "skillopt: greeting SKILL.md on 1 task" in told
    assert "Nobody answers.\nSalut, Ann." in told
    assert copy.run("-m", "pytest_skillopt", "greet") == "Hi\n"
    copy.write_task("@pytest.mark.skill_task(polite='very')")
    assert "polite must be True or False" in copy.pytest("test_it.py", code=1)
