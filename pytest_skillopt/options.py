"""The modes: what each is, the options that turn one on, and the options that exclude it."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_skillopt.registry import addons

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt import SkillTask
    from pytest_skillopt.settings import Settings

Tone = Literal["good", "careful", "bad", "neutral"]

_ON: Mapping[str, Any] = {"action": "store_true"}
_BIASING = {
    "maxfail": "-x / --maxfail",
    "lf": "--lf",
    "stepwise": "--sw",
    "usepdb": "--pdb",
    "trace": "--trace",
    "reruns": "--reruns",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Mode:
    """A mode: what it is, and in a session its arguments.

    The modes of the core stand in ``CORE``, those of an add-on in its ``ADDON``.
    """

    name: str
    """The mode of its runs in ``result.json``."""
    flag: str
    """Its option."""
    help: str
    function: str
    """``module:name`` of the function from a ``Run`` and its ``Display`` to its ``Result``."""
    doing: str
    """Its work in the line at the start, such as "checking"."""
    samples: Callable[[SkillTask, Settings], int]
    """Largest number of rollouts of a task, without retries after infrastructure errors."""
    gated: bool = False
    """True if the default gate decides, which takes more samples of each task of a small suite."""
    rounds: Callable[[Settings], int] = lambda settings: settings.rollouts
    """Number of rollouts of a task that it begins with, for the line at the start."""
    typical: float = 0.47
    """Typical part of that number, in (0, 1]; the default is measured (``benchmarks/plan.py``)."""
    option: Mapping[str, Any] = field(default_factory=lambda: _ON)
    """Arguments of ``addoption``."""
    more: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """Options that need this one: by flag, help and arguments of ``addoption``."""
    judges_tasks: bool = False
    """True if it measures one version, and a task passes or fails by its pass rate, as a test does;
    pytest's options that stop early or repeat failures are then allowed."""
    splits: bool = False
    """True if its tasks are split into train, val and test."""
    sides: tuple[str, str] = ("before", "after")
    """Names of the two versions in a report."""
    answers: Mapping[str, tuple[str, Tone]] = field(default_factory=dict)
    """First words of a report and their tone, by the result's status. Without an entry, the figure
    that was measured."""
    late_probe: bool = False
    """True if it may find nothing to run, so that its function probes the models when it does."""
    noise: bool = False
    """True if it compares a version with itself, so that only ``noise_floor`` is its result."""
    fails: tuple[str, ...] = ("unmeasured",)
    """Statuses of a result that make pytest exit with 1."""

    argument: Any = None
    """Value of its option in a session; the following ones belong to the core's modes."""
    strict: bool = False
    """Fail on too little evidence, too: whether an option of it ends in ``-strict``."""
    resume: str | None = None
    """``train``: run to continue; ``""`` is the latest."""
    init: bool = False
    """``train``: create the SKILL.md if there is none."""

    @classmethod
    def from_config(cls, config: pytest.Config) -> Mode | None:
        """Return the mode that the options ask for, None if they ask for none.

        Raises:
            UsageError: two modes at once, or an option that belongs to another mode.
        """
        option = config.option
        chosen = asked_for(option)
        if len(chosen) > 1:
            raise pytest.UsageError(f"{chosen[0].flag} and {chosen[1].flag} cannot be combined")
        for mode in modes().values():
            for flag in mode.more:
                if mode not in chosen and _given(option, flag.removeprefix("--skillopt-")):
                    raise pytest.UsageError(f"{flag} needs {mode.flag}")
        if not chosen:
            return None
        mode = replace(
            chosen[0],
            argument=getattr(option, f"skillopt_{chosen[0].name}"),
            strict=getattr(option, f"skillopt_{chosen[0].name}_strict", False),
            resume=option.skillopt_resume,
            init=option.skillopt_init,
        )
        mode._refuse_biasing(config)
        return mode

    def _refuse_biasing(self, config: pytest.Config) -> None:
        """Refuse options that stop early, pick failures or repeat them."""
        if self.judges_tasks:
            return
        for dest, shown in _BIASING.items():
            if config.getoption(dest, default=None):
                bias = "it would truncate or bias the measurement (look in addopts too)"
                raise pytest.UsageError(f"{self.flag} cannot be combined with {shown}: {bias}")


_EVALUATE = Mode(
    name="evaluate",
    flag="--skillopt",
    help="measure every task K times",
    function="pytest_skillopt.modes.measure:evaluate",
    doing="evaluating",
    samples=lambda task, settings: task.rollouts or settings.rollouts,
    typical=1.0,
    judges_tasks=True,
)
CORE = (
    _EVALUATE,
    Mode(
        name="train",
        flag="--skillopt-train",
        help="improve SKILL.md; write it only if the pass rate rises",
        function="pytest_skillopt.modes.train:train",
        doing="training",
        samples=lambda task, settings: (
            2 * (task.rollouts or settings.rollouts)
            if task.split == "test"
            else 2 * settings.final_rollouts
        ),
        gated=True,
        more={
            # "=description" is part of the name, so that no word after it is read as a value.
            "--skillopt-train=description": (
                "also improve its description, on trigger tasks",
                {"action": "store_const", "const": "description", "dest": "skillopt_train"},
            ),
            "--skillopt-resume": (
                "continue an unfinished training: =latest or its name",
                {"nargs": "?", "metavar": "RUN", "const": "latest"},
            ),
            "--skillopt-init": ("with --skillopt-train: create a missing SKILL.md", _ON),
        },
        splits=True,
        answers={
            "accepted": ("Accepted, ready to merge", "good"),
            "rejected": ("Nothing to merge", "neutral"),
            "unchanged": ("Nothing to merge", "neutral"),
            "unmeasured": ("Not measured", "bad"),
            "interrupted": ("Stopped early", "careful"),
        },
    ),
)


@functools.cache
def modes() -> dict[str, Mode]:
    """Return all modes by their names."""
    more = (mode for addon in addons() for mode in addon.modes)
    return {mode.name: mode for mode in (*CORE, *more)}


def mode_named(name: str) -> Mode:
    """Return the mode of a result; if it was an add-on's that is gone, one without words."""
    return modes().get(name) or replace(_EVALUATE, judges_tasks=False)


def add_mode_options(group: pytest.OptionGroup) -> None:
    for mode in modes().values():
        group.addoption(mode.flag, help=mode.help, dest=f"skillopt_{mode.name}", **mode.option)
        for flag, (text, how) in mode.more.items():
            group.addoption(flag, help=text, **how)


def refuse_bare_options(args: Sequence[str]) -> None:
    """Raise UsageError for an option without its ``=``: the next word could be a path."""
    for mode in modes().values():
        more = ((flag, how) for flag, (_, how) in mode.more.items())
        for flag, how in [(mode.flag, mode.option), *more]:
            if flag in args and how.get("nargs") == "?":
                usual = f"write {flag}={how['const']}"
                raise pytest.UsageError(f"{flag} needs {how['metavar']}: {usual}")


def asked_for(options: argparse.Namespace) -> list[Mode]:
    """List the modes that options ask for."""
    return [mode for mode in modes().values() if _given(options, mode.name)]


def _given(options: argparse.Namespace, name: str) -> bool:
    dest = "skillopt_" + name.replace("-", "_")
    return getattr(options, dest, None) not in (None, False)
