"""The core without its add-ons: a copy from which folders are deleted."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_skillopt
from pytest_skillopt.registry import plugins

ROOT = Path(pytest_skillopt.__file__).parents[1]
FOLDERS = sorted(path.parent.name for path in ROOT.glob("pytest_skillopt/addons/*/__init__.py"))
SHOWN = {
    "added_text": set(),
    "bridges": set(),
    "client_faults": set(),
    "compare": {
        *("--skillopt-aa", "--skillopt-compare", "--skillopt-drift", "--skillopt-try"),
        *("--skillopt-check", "--skillopt-check-strict", "--skillopt-save-baseline"),
        *("skillopt_verify", "skillopt_verify_rule"),
    },
    "doctor": {"doctor"},
    "evals": {"--skillopt-evals"},
    "harness": {
        *("skillopt_harness", "skillopt_harness_env", "skillopt_harness_login"),
        "skillopt_sandbox",
    },
    "increases": {"skillopt_max_cost_increase", "skillopt_max_time_increase"},
    "judging": {"judge"},
    "lanes": {"--skillopt-lanes"},
    "mine": {"init", "mine", "handoff"},
    "near_duplicates": set(),
    "propose": {
        *("propose", "adopt", "job", "schedule", "unschedule"),
        "skillopt_propose_skills",
    },
    "published": {"batch", "strict", "off", "confirm", "margin", "paired", "export"},
    "reports": {"runs", "show", "diff"},
    "shorten": {"shorten", "trials,shorten"},
    "watch": {"watch"},
}
"""Additions of each to the two helps: options, ini keys, choices and commands."""
CORE = (*("tests/test_unused.py", "tests/search/test_together.py", "tests/skill", "tests/edits"),)
"""Tests that stand for those of the core."""
BETWEEN = "the help of the commands:"
HELPS = f"""
import pytest
from pytest_skillopt.cli import main

assert pytest.main(["--help"]) == 0
print({BETWEEN!r})
main(["--help"])
"""
BROKEN = "raise ImportError('half of it is missing')\n"


class Copy:
    """A copy of the package, beside the one that is tested."""

    def __init__(self, root: Path, original: Path = ROOT) -> None:
        self.root = root
        skipped = shutil.ignore_patterns("*.pyc") if original == ROOT else None
        shutil.copytree(original / "pytest_skillopt", root / "pytest_skillopt", ignore=skipped)

    def remove(self, *addons: str) -> None:
        for name in addons:
            shutil.rmtree(self.root / "pytest_skillopt" / "addons" / name)

    def run(self, *arguments: str, cwd: Path | None = None, code: int = 0) -> str:
        environ = os.environ | {"PYTHONPATH": str(self.root), "COLUMNS": "100"}
        for name in ("PYTEST_XDIST_WORKER", "PYTHONDONTWRITEBYTECODE"):
            environ.pop(name, None)
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd or self.root,
            env=environ,
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def words(self) -> set[str]:
        """Options, keys, choices and commands that a user is shown."""
        empty = self.root / "empty"
        empty.mkdir(exist_ok=True)
        told = self.run("-c", HELPS, cwd=empty)
        assert "continues without" not in told
        options, _, commands = told.partition(BETWEEN)
        ours = options[options.index("training of agent skills") :]
        choices = re.findall(r"--skillopt-(?:search|gate)=S\s+([^()]+)", ours)
        listed = re.findall(r"^ {4}([\w-]+)", commands, re.MULTILINE)
        keys = re.findall(r"^  (--skillopt[\w-]*|skillopt_\w+)", ours, re.MULTILINE)
        return {*keys, *listed, *re.findall(r"[\w,]+\w", " ".join(choices))}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Copy, set[str]]:
    """A copy with every add-on, compiled by its first run, and what its helps show."""
    copy = Copy(tmp_path_factory.mktemp("whole"))
    return copy, copy.words()


@pytest.fixture
def everything(whole: tuple[Copy, set[str]]) -> set[str]:
    """Words of the helps with every add-on."""
    return whole[1]


@pytest.fixture
def copy(whole: tuple[Copy, set[str]], tmp_path: Path) -> Copy:
    """A copy of its own, with the compiled modules of the first one."""
    return Copy(tmp_path, whole[0].root)


def test_every_add_on_is_known_here() -> None:
    assert set(SHOWN) >= set(FOLDERS)
    assert set(plugins()) == set(FOLDERS)


GROUPS = 6
_IN = [*itertools.combinations(range(GROUPS), 3)]
"""For each add-on, three groups. Any two are told apart: each is in a group without the other."""


@pytest.mark.parametrize("group", range(GROUPS))
def test_without_its_folder_nothing_is_shown_of_an_add_on(
    copy: Copy, everything: set[str], group: int
) -> None:
    assert len(FOLDERS) <= len(_IN)
    removed = [name for name, groups in zip(FOLDERS, _IN, strict=False) if group in groups]
    copy.remove(*removed)
    words = copy.words()
    assert everything - words == set().union(*(SHOWN[name] for name in removed))
    assert words <= everything


def test_without_any_add_on_the_core_is_whole(copy: Copy) -> None:
    """Its modules are imported, a training is run, and its own tests pass."""
    copy.remove(*FOLDERS)
    assert not copy.words() & set().union(*SHOWN.values())
    for name in ("tests", "docs"):
        skipped = shutil.ignore_patterns("__pycache__", "addons")
        shutil.copytree(ROOT / name, copy.root / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy.root / name)
    told = copy.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE)
    assert re.search(r"^\d+ passed", told, re.MULTILINE), told


def test_without_reports_a_run_ends_with_its_result_in_one_line(copy: Copy) -> None:
    copy.remove(*(name for name in FOLDERS if name == "reports"))
    project = copy.root / "project"
    project.mkdir()
    (project / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\n\nBe kind.\n")
    (project / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.skill_task\ndef test_it(): pass\n"
    )
    arguments = ("-m", "pytest", "-c", os.devnull, "--rootdir", ".", "--skillopt", "test_it.py")
    told = copy.run(*arguments, cwd=project)
    (file,) = project.glob(".skillopt/runs/*/result.json")
    said = "skillopt: measured: SKILL.md: pass rate 100.0% over 1 tasks; see"
    assert f"{said} {file}" in told
    assert "1 passed" in told


@pytest.mark.skipif(not FOLDERS, reason="no add-on is there to be broken")
def test_a_broken_add_on_is_left_out_with_a_warning_but_not_by_a_mode(copy: Copy) -> None:
    declaration = copy.root / "pytest_skillopt" / "addons" / "watch" / "addon.py"
    declaration.write_text(BROKEN)
    told = copy.run("-m", "pytest_skillopt", "--help")
    assert "continues without its add-on 'watch': ImportError('half of it" in told
    assert "propose" in told
    assert "follow a run" not in told
    project = copy.root / "project"
    project.mkdir()
    (project / "test_it.py").write_text("def test_it(): pass\n")
    arguments = ("-m", "pytest", "-c", os.devnull, "--rootdir", ".", "test_it.py")
    assert "1 passed" in copy.run(*arguments, cwd=project)
    told = copy.run(*arguments, "--skillopt-train", cwd=project, code=pytest.ExitCode.USAGE_ERROR)
    assert "cannot import its add-on 'watch': ImportError('half of it is missing')" in told
    assert f"delete {declaration.parent}" in told


def test_an_add_on_is_a_folder_with_one_declaration(copy: Copy) -> None:
    """Settings, a command, a marker argument and a hook, by a new folder and nothing else."""
    folder = copy.root / "pytest_skillopt" / "addons" / "greeter"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "addon.py").write_text(
        """
from dataclasses import dataclass
from pytest_skillopt.addon import AddOn
from pytest_skillopt.settings import AddOnSettings, Settings, setting

@dataclass(frozen=True)
class Greeting(AddOnSettings):
    greeting: str = setting("Hello", "how to greet")

def add_commands(commands):
    commands.add_parser("greet", help="say hello").set_defaults(handle=lambda args: print("Hi"))

ADDON = AddOn(
    settings=Greeting,
    marker={"polite": (lambda value: isinstance(value, bool), "True or False")},
    add_commands=add_commands,
)

def pytest_report_header(config):
    return "greeter: " + Settings.from_config(config).of(Greeting).greeting
"""
    )
    project = copy.root / "project"
    project.mkdir()
    (project / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.skill_task(polite=True)\ndef test_it(): pass\n"
    )
    arguments = ("-m", "pytest", "-c", os.devnull, "-o", "skillopt_greeting=Salut", "test_it.py")
    assert "greeter: Salut" in copy.run(*arguments, cwd=project)
    assert copy.run("-m", "pytest_skillopt", "greet") == "Hi\n"
    (project / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.skill_task(polite='very')\ndef test_it(): pass\n"
    )
    with pytest.raises(AssertionError, match="polite must be True or False"):
        copy.run(*arguments, cwd=project)


def test_an_add_on_declares_a_mode_in_one_place(copy: Copy) -> None:
    """Its option, line at the start, plan, first words of the report, and exit status."""
    folder = copy.root / "pytest_skillopt" / "addons" / "greeter"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "addon.py").write_text(
        """
from pytest_skillopt.addon import AddOn
from pytest_skillopt.options import Mode

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
ADDON = AddOn(modes=(GREET,))
"""
    )
    (folder / "measure.py").write_text(
        """
from pytest_skillopt.modes.measure import of_one_version

def greet(run, display):
    (skill,) = run.documents
    reason = f"{run.mode.argument} was not there"
    found = of_one_version(skill, run.documents[skill], "rejected", reason)
    return run.result("rejected", reason, [found])
"""
    )
    project = copy.root / "project"
    project.mkdir()
    (project / "SKILL.md").write_text("---\nname: s\ndescription: d\n---\n\nBe kind.\n")
    (project / "test_it.py").write_text(
        "import pytest\n\n@pytest.mark.skill_task\ndef test_it(): pass\n"
    )
    arguments = ("-m", "pytest", "-c", os.devnull, "--rootdir", ".", "test_it.py")
    plan = copy.run(*arguments, "--skillopt-greet=Ann", "--collect-only", cwd=project)
    assert "rollouts: about 3, at most 7" in plan
    told = copy.run(*arguments, "--skillopt-greet=Ann", cwd=project, code=1)
    assert "skillopt: greeting SKILL.md on 1 task" in told
    assert "Nobody answers.\nAnn was not there." in told
