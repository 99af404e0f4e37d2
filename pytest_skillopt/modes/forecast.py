"""Forecast of a mode: bounds and typical numbers of its rollouts and calls, and their prices."""

from __future__ import annotations

import contextlib
import itertools
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_skillopt.gate.sequential import most_samples
from pytest_skillopt.model.config import model_config
from pytest_skillopt.model.purse import CAPS, Amounts, Usual
from pytest_skillopt.model.types import ModelConfigError, Price, Usage
from pytest_skillopt.modes.skills import skills_of, suite_of
from pytest_skillopt.run.past import earlier_rollouts
from pytest_skillopt.search.budget import usual_of
from pytest_skillopt.search.extensions import search_of
from pytest_skillopt.search.final_comparison import samples_of_test
from pytest_skillopt.tasks.splits import without_test

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.mode import Mode
    from pytest_skillopt.model.types import Role
    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.run.directory import Home
    from pytest_skillopt.run.openrun import Run
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.tasks.task import SkillTask

_ROLLOUTS_A_CALL = 6.0
"""Rollouts for each call of the optimizer, in the middle."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Numbers of rollouts and of optimizer calls of a run."""

    most: int
    """Upper bound of rollouts, without retries after infrastructure errors."""
    typical: int
    """Rollouts of such a run in the middle."""
    calls: int
    """Upper bound of optimizer calls."""
    typical_calls: int


def plan_entry(run: Run, numbers: Forecast) -> dict[str, Any]:
    """Return the entry of the plan in the journal: tasks, bounds, caps and models."""
    return {
        "tasks": [[task.id, task.split] for task in run.tasks],
        "typical": numbers.typical,
        "most": numbers.most,
        "caps": {cap: getattr(run.settings, cap) for cap in CAPS},
        "models": run.roles,
    }


def forecast(tasks: Sequence[SkillTask], mode: Mode, settings: Settings) -> Forecast:
    """Return the upper bounds and the typical numbers (``benchmarks/plan.py``)."""
    suites = [suite_of(tasks, skill, settings) for skill in skills_of(tasks)]
    bounds = []
    if mode.name == "train":
        bounds = [search_of(settings).most(suite, settings) for suite in suites]
        tasks = list(itertools.chain.from_iterable(suites))
    searched = sum(rollouts for rollouts, _ in bounds)
    calls = sum(each for _, each in bounds)
    highest = searched + sum(mode.samples(task, settings) for task in tasks)
    if mode.gated:
        highest += _more_of_small_suites(tasks, settings)
    most = min(highest, settings.max_rollouts or highest)
    if mode.name != "train":
        return Forecast(most, min(round(mode.typical * highest), most), calls, 0)
    typical = round(sum(usual_rollouts(suite, settings) for suite in suites))
    paid = min(typical, settings.max_rollouts or typical)
    typical_calls = min(calls, round(paid / _ROLLOUTS_A_CALL))
    typical += samples_of_test(tasks, settings)
    return Forecast(most, min(typical, most), calls, typical_calls)


def usual_rollouts(suite: Iterable[SkillTask], settings: Settings) -> float:
    """Return the usual rollouts of the training of a skill on its suite."""
    return usual_of(len(without_test(suite)), settings)


def _more_of_small_suites(tasks: Sequence[SkillTask], settings: Settings) -> int:
    """Return the samples by which decisions may exceed ``final_rollouts`` of each task."""
    each = settings.final_rollouts
    more = 0
    for skill in skills_of(tasks):
        suite = sum(task.skill == skill and task.split != "test" for task in tasks)
        more += most_samples(each, suite) - 2 * each * suite
    return more


class Use(NamedTuple):
    """Tokens in and out, calls and seconds: of a role's model in a rollout, or of a call."""

    input: float = 0.0
    output: float = 0.0
    calls: float = 0.0
    seconds: float = 0.0


_ASSUMED: dict[Role, Use] = {
    "target": Use(1_500, 500, 1, 10),
    "judge": Use(1_500, 200, 1, 5),
    "user": Use(4_000, 300, 4, 12),
    "optimizer": Use(4_000, 1_000, 1, 20),
}
"""Assumed use of a rollout, of its judge, of its simulated user, and of an optimizer call."""
_AGENT_CALL = Use(10_000, 300, 1, 10)
"""Assumed use of each model call of a coding agent."""
_ENOUGH = 5
"""Least number of paid rollouts in an earlier run from which prices are estimated."""


def usual_use(role: Role, tasks: Sequence[SkillTask], home: Home | None) -> tuple[Use, str]:
    """Estimate the use of an optimizer call or of a rollout of a mean task; name the source.

    Earlier runs in ``home`` tell it better than assumptions.
    """
    if role == "optimizer":
        return _ASSUMED[role], "an assumption"
    if home and (measured := _measured_use(role, tasks, home)):
        return measured, "as in earlier runs of these tasks"
    source = "an assumption"
    if role == "target" and any(task.agent for task in tasks):
        source += f": {_AGENT_CALL.input:,} in and {_AGENT_CALL.output:,} out a call of an agent"
    return _mean_use([_assumed_use(task, role) for task in tasks]), source


def usual_prices(
    roles: Sequence[Role],
    tasks: Sequence[SkillTask],
    settings: Settings,
    home: Home | None = None,
) -> Usual:
    """Estimate what a rollout and an optimizer call take, before the first is seen.

    A run goes by assumptions, without ``home``: a repetition then decides as the first run did.
    """
    rollout = Amounts(rollouts=1)
    call = Amounts()
    source = "an assumption"
    reply = Amounts()
    for role in roles:
        use, origin = usual_use(role, tasks, home)
        price = Price(0.0, 0.0)
        most = 0
        with contextlib.suppress(ModelConfigError):
            config = model_config(settings, role)
            price = config.price or price
            most = config.max_output_tokens
        cost = price.cost(use.input, use.output)
        amounts = Amounts(0, use.calls, use.input + use.output, cost, use.seconds)
        if role == "optimizer":
            call = amounts._replace(seconds=0.0)
        else:
            rollout = rollout.plus(amounts)
            longest = Amounts(tokens=most, cost=price.cost(0, most))
            reply = Amounts(*map(max, reply, longest))
        if role == "target":
            source = origin
    return Usual(rollout, call, reply, source)


def _measured_use(role: Role, tasks: Sequence[SkillTask], home: Home) -> Use | None:
    """Return the mean use of these tasks' paid rollouts in the latest run with enough."""
    for _, rollouts in earlier_rollouts(home, tasks):
        uses = [_use_of(rollout, role) for rollout in rollouts if rollout.usage.calls]
        if len(uses) >= _ENOUGH:
            return _mean_use(uses)
    return None


def _use_of(rollout: Rollout, role: Role) -> Use:
    """Return what a rollout took of a role's model."""
    if role == "target":
        usage = rollout.usage
        seconds = rollout.duration
    else:
        usage = rollout.other_usage.get(role, Usage())
        seconds = 0.0
    return Use(usage.input_tokens, usage.output_tokens, usage.calls, seconds)


def _mean_use(uses: Iterable[Use]) -> Use:
    return Use(*map(fmean, zip(*uses, strict=True)))


def _calls_of_agent(task: SkillTask) -> int:
    """Return the assumed model calls of an agent's run, which a trigger task ends early."""
    return 10 if task.trigger is None else 3


def _assumed_use(task: SkillTask, role: Role) -> Use:
    if role not in task.roles:
        return Use()
    if role == "target" and task.agent:
        return Use(*(_calls_of_agent(task) * amount for amount in _AGENT_CALL))
    if role == "target" and "user" in task.roles:
        return Use(*(_ASSUMED["user"].calls * amount for amount in _ASSUMED[role]))
    return _ASSUMED[role]
