"""The modes: the options that turn one on, and the options that exclude it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from pytest_skillopt.addons import merged

if TYPE_CHECKING:
    from collections.abc import Sequence

Name = Literal["evaluate", "train", "check", "compare", "try", "aa", "drift"]

MODES: dict[Name, str] = {
    "evaluate": "--skillopt",
    "train": "--skillopt-train",
    "check": "--skillopt-check",
    "compare": "--skillopt-compare",
    "try": "--skillopt-try",
    "aa": "--skillopt-aa",
    **cast("dict[Name, str]", {name: f"--skillopt-{name}" for name in merged("MODES")}),
}
"""Option that turns each mode on; its name in the namespace is ``skillopt_<mode>``."""
COMPANIONS: dict[str, Name] = {
    "check_strict": "check",
    "init": "train",
    "save_baseline": "evaluate",
    "resume": "train",
}
"""Other options, by their names in the namespace, and the mode that each belongs to."""
_ON: dict[str, Any] = {"action": "store_true"}
_OPTIONS: tuple[tuple[str, dict[str, Any], str], ...] = (
    (
        "--skillopt",
        {**_ON, "dest": "skillopt_evaluate"},
        "measure every task K times. All options from --skillopt-skill on are also ini keys "
        "(skillopt_skill)",
    ),
    ("--skillopt-train", _ON, "improve SKILL.md; write it only if the pass rate rises"),
    (
        # "=description" is part of the name, so that no word after it is read as a value.
        "--skillopt-train=description",
        {"action": "store_const", "const": "description", "dest": "skillopt_train"},
        "also improve its description, on trigger tasks",
    ),
    (
        "--skillopt-check",
        {"nargs": "?", "metavar": "REF"},
        "fail if SKILL.md is credibly worse than at revision REF",
    ),
    ("--skillopt-check-strict", _ON, "with --skillopt-check: also fail on too little evidence"),
    (
        "--skillopt-compare",
        {"nargs": 2, "metavar": ("A", "B")},
        "compare two skills: files, revisions, run versions, none",
    ),
    (
        "--skillopt-try",
        {"metavar": "FILE"},
        "judge a change made elsewhere: SKILL.md, folder, patch",
    ),
    ("--skillopt-aa", _ON, "measure the noise: compare the skill with itself"),
    (
        "--skillopt-resume",
        {"nargs": "?", "metavar": "RUN"},
        "continue an unfinished training: =latest or its name",
    ),
    ("--skillopt-init", _ON, "with --skillopt-train: create a missing SKILL.md"),
    ("--skillopt-save-baseline", _ON, "with --skillopt: save the counts for --skillopt-check"),
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
    """Tell whether an option was given on the command line."""
    return getattr(config.option, f"skillopt_{name}") not in (None, False)


def refuse_bare_options(args: Sequence[str]) -> None:
    """Raise UsageError for an option without its ``=``: the next word could be a path."""
    for flag, value, usual in (
        ("--skillopt-check", "REF", "HEAD"),
        ("--skillopt-resume", "RUN", "latest"),
    ):
        if flag in args:
            raise pytest.UsageError(f"{flag} needs {value}: write {flag}={usual}")


def add_mode_options(group: pytest.OptionGroup) -> None:
    for flag, how, text in _OPTIONS:
        group.addoption(flag, help=text, **how)
    for name, (text, _) in merged("MODES").items():
        group.addoption(f"--skillopt-{name}", help=text, **_ON)


@dataclass(frozen=True, slots=True)
class Mode:
    """The mode of a session, with its arguments."""

    name: Name
    ref: str = ""
    """``check``: git revision that the working tree is compared with."""
    strict: bool = False
    """``check``: fail on too little evidence, too."""
    pair: tuple[str, str] = ("", "")
    """``compare``: the two skills."""
    file: str = ""
    """``try``: path of the change."""
    resume: str | None = None
    """``train``: run to continue; ``""`` is the latest."""
    init: bool = False
    """``train``: create the SKILL.md if there is none."""
    save_baseline: bool = False
    """``evaluate``: write the counts to ``.skillopt-baseline.json``."""

    @classmethod
    def from_config(cls, config: pytest.Config) -> Mode | None:
        """Return the mode that the options ask for, None if they ask for none.

        Raises:
            UsageError: two modes at once, or an option that belongs to another mode.
        """
        option = config.option
        chosen = [name for name in MODES if given(config, name)]
        if len(chosen) > 1:
            raise pytest.UsageError(f"{MODES[chosen[0]]} and {MODES[chosen[1]]} cannot be combined")
        name = chosen[0] if chosen else None
        for companion, needed in COMPANIONS.items():
            if given(config, companion) and name != needed:
                flag = "--skillopt-" + companion.replace("_", "-")
                raise pytest.UsageError(f"{flag} needs {MODES[needed]}")
        if name is None:
            return None
        mode = cls(
            name=name,
            ref=option.skillopt_check or "",
            strict=option.skillopt_check_strict,
            pair=tuple(option.skillopt_compare or ("", "")),
            file=option.skillopt_try or "",
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
        """Refuse options that stop early, pick failures or repeat them."""
        if self.name == "evaluate":
            return
        for dest, shown in _BIASING.items():
            if config.getoption(dest, default=None):
                bias = "it would truncate or bias the measurement (look in addopts too)"
                raise pytest.UsageError(f"{self.flag} cannot be combined with {shown}: {bias}")
