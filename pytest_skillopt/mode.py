"""The modes: the options that turn one on, and what may not stand beside it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

Name = Literal["evaluate", "train", "check", "compare", "aa"]

MODES: dict[Name, str] = {
    "evaluate": "--skillopt",
    "train": "--skillopt-train",
    "check": "--skillopt-check",
    "compare": "--skillopt-compare",
    "aa": "--skillopt-aa",
}
"""The option that turns each on; in the namespace it is ``skillopt_<mode>``."""
COMPANIONS: dict[str, Name] = {
    "check_strict": "check",
    "init": "train",
    "save_baseline": "evaluate",
    "resume": "train",
}
"""Other options, by their names in the namespace, and the mode that each goes with."""
_ON: dict[str, Any] = {"action": "store_true"}
_OPTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (
        "--skillopt",
        {**_ON, "dest": "skillopt_evaluate"},
        "measure every task K times. Options from --skillopt-skill on are ini keys too: "
        "skillopt_skill",
    ),
    ("--skillopt-train", _ON, "improve SKILL.md; written only if the pass rate rises"),
    (
        # The sign is part of the name, so that no word after it is taken for a value.
        "--skillopt-train=description",
        {"action": "store_const", "const": "description", "dest": "skillopt_train"},
        "its description, too, on trigger tasks",
    ),
    (
        "--skillopt-check",
        {"nargs": "?", "metavar": "REF"},
        "=REF: fail if SKILL.md is credibly worse than at REF",
    ),
    ("--skillopt-check-strict", _ON, "with it: fail too when the evidence is not enough"),
    (
        "--skillopt-compare",
        {"nargs": 2, "metavar": ("A", "B")},
        "compare two: files, revisions, versions of a run, none",
    ),
    ("--skillopt-aa", _ON, "compare the skill with itself: the noise floor"),
    (
        "--skillopt-resume",
        {"nargs": "?", "metavar": "RUN"},
        "=RUN: continue a training that ended early; =latest",
    ),
    ("--skillopt-init", _ON, "with --skillopt-train: make a missing SKILL.md"),
    ("--skillopt-save-baseline", _ON, "with --skillopt: keep the counts for --skillopt-check"),
)
_BIASING = {
    "maxfail": "-x / --maxfail",
    "lf": "--lf",
    "stepwise": "--sw",
    "usepdb": "--pdb",
    "trace": "--trace",
    "reruns": "--reruns",
}


def given(config: pytest.Config, name: str) -> bool:
    """Whether an option stands on the command line."""
    return getattr(config.option, f"skillopt_{name}") not in (None, False)


def refuse_bare_options(args: Sequence[str]) -> None:
    """UsageError for an option whose value may stand for a path, without its ``=``."""
    for flag, value, usual in (
        ("--skillopt-check", "REF", "HEAD"),
        ("--skillopt-resume", "RUN", "latest"),
    ):
        if flag in args:
            raise pytest.UsageError(f"{flag} wants {value}: write {flag}={usual}")


def add_mode_options(group: pytest.OptionGroup) -> None:
    for flag, how, text in _OPTIONS:
        group.addoption(flag, help=text, **how)


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
        """The mode that the options ask for; None where none of them was given. UsageError for two
        modes at once, or an option that only goes with another mode."""
        option = config.option
        chosen = [name for name in MODES if given(config, name)]
        if len(chosen) > 1:
            raise pytest.UsageError(f"{MODES[chosen[0]]} and {MODES[chosen[1]]} do not go together")
        name = chosen[0] if chosen else None
        for companion, needed in COMPANIONS.items():
            if given(config, companion) and name != needed:
                flag = "--skillopt-" + companion.replace("_", "-")
                raise pytest.UsageError(f"{flag} only goes with {MODES[needed]}")
        if name is None:
            return None
        mode = cls(
            name=name,
            ref=option.skillopt_check or "",
            strict=option.skillopt_check_strict,
            pair=tuple(option.skillopt_compare or ("", "")),
            resume="" if option.skillopt_resume == "latest" else option.skillopt_resume,
            init=option.skillopt_init,
            save_baseline=option.skillopt_save_baseline,
        )
        mode._refuse_biasing(config)
        return mode

    @property
    def flag(self) -> str:
        return MODES[self.name]

    def _refuse_biasing(self, config: pytest.Config) -> None:
        """Options that stop early, pick failures or repeat them would bias a measurement."""
        if self.name == "evaluate":
            return
        for dest, shown in _BIASING.items():
            if config.getoption(dest, default=None):
                bias = "it would truncate or bias the measurement (look in addopts too)"
                raise pytest.UsageError(f"{self.flag} does not go with {shown}: {bias}")
