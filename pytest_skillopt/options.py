"""The options that turn a mode on: which there are, and whether any was given.

Apart from ``mode.py`` because this much is needed in every pytest session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

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


def refuse_bare_options(args: Sequence[str]) -> None:
    """An option whose value may stand for a path takes it with ``=`` alone.

    Raises:
        pytest.UsageError: one of them without; the next word is then never taken for its value.
    """
    for flag, value, usual in (
        ("--skillopt-check", "REF", "HEAD"),
        ("--skillopt-resume", "RUN", "latest"),
    ):
        if flag in args:
            raise pytest.UsageError(f"{flag} wants {value}: write {flag}={usual}")


def add_evals(parser: pytest.Parser, group: pytest.OptionGroup) -> None:
    """Declare what turns the eval files of skills into tests."""
    text = "collect the evals.json of skills as tests"
    group.addoption("--skillopt-evals", action="store_true", help=text)
    # Without a text pytest --help leaves a key out; docs/evals.md has them.
    parser.addini("skillopt_evals", "", type="bool", default=False)
    parser.addini("skillopt_evals_pass", "")


def evals_wanted(config: pytest.Config) -> bool:
    return bool(config.option.skillopt_evals or config.getini("skillopt_evals"))


def add_mode_options(group: pytest.OptionGroup) -> None:
    """Declare the options that turn the plugin on."""
    group.addoption(
        "--skillopt",
        action="store_true",
        dest="skillopt_evaluate",
        help="measure every task K times. Options from --skillopt-skill on are ini keys too: "
        "skillopt_skill",
    )
    group.addoption(
        "--skillopt-train",
        action="store_true",
        help="improve SKILL.md; written only if the pass rate rises",
    )
    group.addoption(
        "--skillopt-check",
        nargs="?",
        metavar="REF",
        help="=REF: fail if SKILL.md is credibly worse than at REF",
    )
    group.addoption(
        "--skillopt-check-strict",
        action="store_true",
        help="with it: fail too when the evidence is not enough",
    )
    group.addoption(
        "--skillopt-compare",
        nargs=2,
        metavar=("A", "B"),
        help="compare two: files, revisions, versions of a run, none",
    )
    group.addoption(
        "--skillopt-aa",
        action="store_true",
        help="compare the skill with itself: the noise floor",
    )
    group.addoption(
        "--skillopt-resume",
        nargs="?",
        metavar="RUN",
        help="=RUN: continue a training that ended early; =latest",
    )
    group.addoption(
        "--skillopt-init",
        action="store_true",
        help="with --skillopt-train: make a missing SKILL.md",
    )
    group.addoption(
        "--skillopt-save-baseline",
        action="store_true",
        help="with --skillopt: keep the counts for --skillopt-check",
    )
