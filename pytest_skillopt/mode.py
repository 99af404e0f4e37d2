"""The modes: what each is, and which one the options of a session ask for."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pytest_skillopt.gate.data import MOST_OF_TASK
from pytest_skillopt.options import given_options
from pytest_skillopt.plugins import hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_skillopt import Result, SkillTask
    from pytest_skillopt.report.live import Display
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.settings import Settings

Tone = Literal["good", "careful", "bad", "neutral"]

_NOT_RUNNING = {
    "setuponly": "--setup-only and --setup-plan: with them no test runs",
    "trace": "--trace: a test that is left in the debugger counts as passed",
}
_BIASING = {
    "maxfail": "-x / --maxfail: it would end the measurement early (look in addopts too)",
    "lf": "--lf: it would leave out the tasks that pass (look in addopts too)",
    "stepwise": "--sw: it would end the measurement early (look in addopts too)",
    "usepdb": "--pdb: it would stop at each failure (look in addopts too)",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Mode:
    """A mode: what it is, and in a session its arguments.

    Its option has the destination ``skillopt_NAME``.
    """

    name: str
    """The mode of its runs in ``result.json``; lower-case letters."""
    flag: str
    """Its option, for messages."""
    carry_out: Callable[[Run, Display], Result]
    """Does its work."""
    doing: str
    """Its work in the line at the start, such as "checking"."""
    samples: Callable[[SkillTask, Settings], int]
    """Largest number of rollouts of a task, without retries after infrastructure errors."""
    gated: bool = False
    """True if the default gate decides, which takes more samples of each task of a small suite."""
    typical: float = 0.47
    """Typical part of that number, in (0, 1]; a training has a forecast of its own."""
    options: tuple[str, ...] = ()
    """Further options that only it has, without ``--skillopt-``."""
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
    """True if it may find nothing to run or refuse it: its function then probes the models."""
    noise: bool = False
    """True if it compares a version with itself, so that only ``noise_floor`` is its result."""
    fails: tuple[str, ...] = ("unmeasured",)
    """Statuses of a result that make pytest exit with 1."""
    needs_evidence: bool = False
    """True if a comparison that errors or a cap ended makes pytest exit with 1, too: otherwise a
    skill under which no task can be measured would pass."""

    argument: Any = None
    """Value of its option in a session; the following ones belong to the core's modes."""
    strict: bool = False
    """``check``: fail on too little evidence, too."""
    resume: str | None = None
    """``train``: run to continue; ``latest`` is the latest."""

    @classmethod
    def from_config(cls, config: pytest.Config) -> Mode | None:
        """Return the mode that the options ask for, None if they ask for none.

        Raises:
            UsageError: two modes at once, or an option that belongs to another mode.
        """
        option = vars(config.option)
        known = modes(config.hook)
        given = given_options(config.option)
        chosen = [mode for mode in known.values() if f"skillopt_{mode.name}" in given]
        if len(chosen) > 1:
            raise pytest.UsageError(f"{chosen[0].flag} and {chosen[1].flag} cannot be combined")
        for mode in known.values():
            for name in mode.options:
                if mode not in chosen and f"skillopt_{name.replace('-', '_')}" in given:
                    raise pytest.UsageError(f"--skillopt-{name} needs {mode.flag}")
        if not chosen:
            return None
        mode = replace(
            chosen[0],
            argument=option[f"skillopt_{chosen[0].name}"],
            strict=option["skillopt_check_strict"],
            resume=option["skillopt_resume"],
        )
        mode._refuse_biasing(config)
        return mode

    def _refuse_biasing(self, config: pytest.Config) -> None:
        """Refuse options under which tests do not run, and those that bias what is measured."""
        refused = _NOT_RUNNING if self.judges_tasks else _NOT_RUNNING | _BIASING
        for dest, shown in refused.items():
            if config.getoption(dest, None):
                raise pytest.UsageError(f"{self.flag} cannot be combined with {shown}")


def is_asked_for(config: pytest.Config) -> bool:
    """Return whether a mode is on, before pytest has parsed the whole command line."""
    given = given_options(config.known_args_namespace)
    return any(f"skillopt_{name}" in given for name in modes(config.hook))


def mode_named(name: str) -> Mode:
    """Return the mode of a result; if it was a plugin's that is gone, one without words."""
    return modes(hooks()).get(name) or replace(_EVALUATE, judges_tasks=False)


def modes(hook: Any) -> dict[str, Mode]:
    """Return all modes by their names."""
    of_plugins = itertools.chain.from_iterable(hook.pytest_skillopt_modes())
    return {mode.name: mode for mode in (*BUILTIN, *of_plugins)}


def _carry_out(run: Run, display: Display) -> Result:
    """Carry out a mode of the core; its function imports what uses this module."""
    from pytest_skillopt.modes import FUNCTIONS

    return FUNCTIONS[run.mode.name](run, display)


def _samples_of_training(task: SkillTask, settings: Settings) -> int:
    """Return the samples that end a training: of the final comparison, or of the test split."""
    if task.split == "test":
        return 2 * (task.rollouts or settings.rollouts)
    return 2 * settings.final_rollouts


_EVALUATE = Mode(
    name="evaluate",
    flag="--skillopt",
    carry_out=_carry_out,
    doing="evaluating",
    samples=lambda task, settings: task.rollouts or settings.rollouts,
    typical=1.0,
    judges_tasks=True,
)
_TRAIN = Mode(
    name="train",
    flag="--skillopt-train",
    carry_out=_carry_out,
    doing="training",
    samples=_samples_of_training,
    late_probe=True,
    gated=True,
    options=("resume",),
    splits=True,
    answers={
        "accepted": ("Accepted, ready to merge", "good"),
        "rejected": ("Nothing to merge", "neutral"),
        "unchanged": ("Nothing to merge", "neutral"),
        "unmeasured": ("Not measured", "bad"),
        "interrupted": ("Stopped early", "careful"),
    },
)
_AA = Mode(
    name="aa",
    flag="--skillopt-aa",
    carry_out=_carry_out,
    doing="measuring the noise of",
    samples=lambda task, settings: 2 * settings.rollouts,
    typical=1.0,
    sides=("first", "second"),
    noise=True,
)
_COMPARE = Mode(
    name="compare",
    flag="--skillopt-compare",
    carry_out=_carry_out,
    doing="comparing",
    samples=lambda task, settings: 2 * settings.final_rollouts,
    gated=True,
    sides=("first", "second"),
    late_probe=True,
)
_DRIFT = Mode(
    name="drift",
    flag="--skillopt-drift",
    carry_out=_carry_out,
    doing="measuring the drift of",
    samples=lambda task, settings: 4 * settings.final_rollouts,
    sides=("without", "with"),
    late_probe=True,
    answers={
        "accepted": ("Still helps", "good"),
        "rejected": ("Not shown to help", "bad"),
        "unmeasured": ("Cannot tell", "careful"),
    },
    fails=("rejected", "unmeasured"),
)
_CHECK = Mode(
    name="check",
    flag="--skillopt-check",
    carry_out=_carry_out,
    doing="checking",
    samples=lambda task, settings: 2 * MOST_OF_TASK,
    options=("check-strict",),
    sides=("base", "edited"),
    late_probe=True,
    answers={
        "accepted": ("No regression found", "good"),
        "unchanged": ("No regression found", "good"),
        "rejected": ("Do not merge", "bad"),
    },
    fails=("rejected",),
    needs_evidence=True,
)
_TRY = Mode(
    name="try",
    flag="--skillopt-try",
    carry_out=_carry_out,
    doing="trying a change of",
    samples=lambda task, settings: 2 * settings.final_rollouts * (task.split != "test"),
    gated=True,
    splits=True,
    late_probe=True,
    answers={
        "accepted": ("Accepted", "good"),
        "rejected": ("Keep the skill as it is", "neutral"),
        "unchanged": ("Keep the skill as it is", "neutral"),
    },
    fails=("rejected", "unmeasured"),
)
BUILTIN = (_EVALUATE, _TRAIN, _AA, _COMPARE, _DRIFT, _CHECK, _TRY)
