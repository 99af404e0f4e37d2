"""The options that turn a mode on: which there are, and whether any was given.

Apart from ``mode.py`` because this much is needed in every pytest session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import pytest

Name = Literal["evaluate", "train", "check", "compare", "aa"]

FLAGS: tuple[tuple[str, str, Name], ...] = (
    ("--skillopt", "skillopt_evaluate", "evaluate"),
    ("--skillopt-train", "skillopt_train", "train"),
    ("--skillopt-check", "skillopt_check", "check"),
    ("--skillopt-compare", "skillopt_compare", "compare"),
    ("--skillopt-aa", "skillopt_aa", "aa"),
)
"""Option, its name in the namespace, and the mode that it turns on."""
COMPANIONS: tuple[tuple[str, str, tuple[Name, ...]], ...] = (
    ("--skillopt-check-strict", "skillopt_check_strict", ("check",)),
    ("--skillopt-init", "skillopt_init", ("train",)),
    ("--skillopt-save-baseline", "skillopt_save_baseline", ("evaluate",)),
    ("--skillopt-resume", "skillopt_resume", ("train",)),
)
"""Option, its name in the namespace, and the modes that it goes with."""


def given(config: pytest.Config, dest: str) -> bool:
    """Whether an option stands on the command line."""
    return getattr(config.option, dest) not in (None, False)


def any_given(config: pytest.Config) -> bool:
    """Whether any of them does, so that this is no ordinary session."""
    return any(given(config, dest) for _, dest, _ in (*FLAGS, *COMPANIONS))


def add_mode_options(group: pytest.OptionGroup) -> None:
    """Declare the options that turn the plugin on."""
    group.addoption(
        "--skillopt",
        action="store_true",
        dest="skillopt_evaluate",
        help="run every skill task K times and report pass rates",
    )
    group.addoption(
        "--skillopt-train",
        action="store_true",
        help="improve SKILL.md; it is written only if the suite's pass rate strictly improves",
    )
    group.addoption(
        "--skillopt-check",
        nargs="?",
        const="HEAD",
        metavar="REF",
        help="fail if the working tree's SKILL.md is credibly worse than the one at REF "
        "(default: HEAD); write --skillopt-check=REF",
    )
    group.addoption(
        "--skillopt-check-strict",
        action="store_true",
        help="with --skillopt-check: fail too when the evidence is not enough",
    )
    group.addoption(
        "--skillopt-compare",
        nargs=2,
        metavar=("A", "B"),
        help="compare two skills: files, git revisions, or versions of a run",
    )
    group.addoption(
        "--skillopt-aa",
        action="store_true",
        help="compare the skill with itself: the noise floor and the smallest gain to be seen",
    )
    group.addoption(
        "--skillopt-resume",
        nargs="?",
        const="",
        metavar="RUN",
        help="continue a training that ended early (default: the latest); write "
        "--skillopt-resume=RUN",
    )
    group.addoption(
        "--skillopt-init",
        action="store_true",
        help="with --skillopt-train: make the SKILL.md from the tasks' docstrings if it is missing",
    )
    group.addoption(
        "--skillopt-save-baseline",
        action="store_true",
        help="with --skillopt: keep the counts in .skillopt-baseline.json for --skillopt-check",
    )
