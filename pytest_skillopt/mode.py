"""Which of the plugin's modes is on, and what may not stand beside it on the command line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

Name = Literal["evaluate", "train", "check", "compare", "aa"]

_BIASING: tuple[tuple[str, str, Callable[[object], bool]], ...] = (
    ("maxfail", "-x / --maxfail", bool),
    ("lf", "--lf", bool),
    ("stepwise", "--sw", bool),
    ("usepdb", "--pdb", bool),
    ("trace", "--trace", bool),
    ("reruns", "--reruns", bool),
)


@dataclass(frozen=True, slots=True)
class Mode:
    """What this session does besides being a pytest session."""

    name: Name
    ref: str = ""
    """With ``check``: the git revision that the working tree is compared with."""
    strict: bool = False
    """With ``check``: too little evidence is a failure too."""
    pair: tuple[str, str] = ("", "")
    """With ``compare``: the two skills."""
    resume: str | None = None
    """Run to continue; '' is the latest."""
    init: bool = False
    """With ``train``: make the SKILL.md if there is none."""
    save_baseline: bool = False
    """With ``evaluate``: write the counts to ``.skillopt-baseline.json``."""

    @classmethod
    def from_config(cls, config: pytest.Config) -> Mode | None:
        """The mode that the options ask for; None in an ordinary run.

        Raises:
            pytest.UsageError: two modes at once, or an option that only goes with another mode.
        """
        option = config.option
        chosen: list[tuple[str, Name]] = [
            (flag, name)
            for flag, dest, name in _FLAGS
            if getattr(option, dest) not in (None, False)
        ]
        if len(chosen) > 1:
            raise pytest.UsageError(f"{chosen[0][0]} and {chosen[1][0]} do not go together")
        name = chosen[0][1] if chosen else None
        for flag, dest, needed in _COMPANIONS:
            if getattr(option, dest) not in (None, False) and name not in needed:
                flags = " or ".join(f for f, _, n in _FLAGS if n in needed)
                raise pytest.UsageError(f"{flag} only goes with {flags}")
        if name is None:
            return None
        mode = cls(
            name=name,
            ref=option.skillopt_check or "",
            strict=option.skillopt_check_strict,
            pair=tuple(option.skillopt_compare or ("", "")),
            resume=option.skillopt_resume,
            init=option.skillopt_init,
            save_baseline=option.skillopt_save_baseline,
        )
        mode._refuse_biasing(config)
        return mode

    @property
    def flag(self) -> str:
        return next(flag for flag, _, name in _FLAGS if name == self.name)

    def _refuse_biasing(self, config: pytest.Config) -> None:
        """Options that stop early, pick failures or repeat them would bias a measurement."""
        if self.name == "evaluate":
            return
        for dest, shown, is_on in _BIASING:
            if is_on(config.getoption(dest, default=None)):
                raise pytest.UsageError(
                    f"{self.flag} does not go with {shown}: it would truncate or bias the "
                    "measurement (look in addopts too)"
                )


_FLAGS: tuple[tuple[str, str, Name], ...] = (
    ("--skillopt", "skillopt_evaluate", "evaluate"),
    ("--skillopt-train", "skillopt_train", "train"),
    ("--skillopt-check", "skillopt_check", "check"),
    ("--skillopt-compare", "skillopt_compare", "compare"),
    ("--skillopt-aa", "skillopt_aa", "aa"),
)
_COMPANIONS: tuple[tuple[str, str, tuple[Name, ...]], ...] = (
    ("--skillopt-check-strict", "skillopt_check_strict", ("check",)),
    ("--skillopt-init", "skillopt_init", ("train",)),
    ("--skillopt-save-baseline", "skillopt_save_baseline", ("evaluate",)),
    ("--skillopt-resume", "skillopt_resume", ("train",)),
)


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
