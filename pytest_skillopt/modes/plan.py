"""Plan of ``--collect-only``: what a mode would do and may cost, without calling a model."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt import words
from pytest_skillopt.errors import UserError
from pytest_skillopt.model.config import model_config, parse_prices
from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.model.types import ModelConfigError
from pytest_skillopt.modes.forecast import forecast, usual_prices, usual_use
from pytest_skillopt.modes.opening import notes_on_links, notes_on_opening, wanted_roles
from pytest_skillopt.modes.skills import (
    notes_on_skills,
    read_versions,
    skills_of,
    split_tasks,
    suite_of,
)
from pytest_skillopt.options import rollouts_at_once
from pytest_skillopt.rollouts.rollout import IDLE
from pytest_skillopt.run.directory import JOURNAL, Home
from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.run.past import earlier_rollouts
from pytest_skillopt.search.budget import FINAL
from pytest_skillopt.search.estimate import smallest_gain
from pytest_skillopt.search.extensions import notes_on_search
from pytest_skillopt.search.final_comparison import reserve_final, shortage
from pytest_skillopt.tasks.task import describe_tasks, keep_tasks
from pytest_skillopt.untrusted import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt import Role, SkillTask
    from pytest_skillopt.mode import Mode
    from pytest_skillopt.model.types import Price
    from pytest_skillopt.modes.forecast import Forecast
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.tasks.task import LeftOut


class Plan:
    """pytest plugin that replaces the controller if pytest only collects."""

    def __init__(self, config: pytest.Config, mode: Mode, settings: Settings) -> None:
        self._config = config
        self.mode = mode
        self.settings = settings
        self.tasks: list[SkillTask] = []
        self._lines: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        left_out = keep_tasks(self._config, items)
        tasks = describe_tasks(self._config, self.settings, items)
        try:
            self.tasks, notes = split_tasks(tasks, self.settings, self.mode)
            more = notes_on_opening(self._config, self.mode, self.settings, self.tasks)
        except UserError as error:
            raise pytest.UsageError(shown(str(error))) from None
        self._lines = [*self._plan(notes, left_out), *more]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("skillopt plan")
        for line in self._lines:
            terminalreporter.write_line(shown(line))

    def _plan(self, notes: Sequence[str], left_out: LeftOut) -> Iterator[str]:
        tasks = self.tasks
        if not tasks:
            yield from words.left_out(left_out, is_idle=True)
            return
        for skill in skills_of(tasks):
            splits = [task.split for task in tasks if task.skill == skill]
            yield f"{skill}: {words.split_tasks(splits)}"
        if left_out.unmarked:
            yield f"deselected, not marked skill_task: {left_out.unmarked}"
        yield from words.left_out(left_out, is_idle=False)
        yield from notes
        yield from notes_on_links(skills_of(tasks), self._config.rootpath)
        yield from self._faults()
        if self.mode.name == "train":
            yield from notes_on_search(self.settings)
        yield from self._refused()
        yield from self._passed_by_nothing()
        yield from self._forecast()
        yield from self._purse()

    def _refused(self) -> Iterator[str]:
        """Name the tasks that the provider has refused for good in an earlier run."""
        reasons: dict[str, str] = {}
        for run, rollouts in earlier_rollouts(self._home, self.tasks):
            for rollout in rollouts:
                if rollout.refused:
                    reasons.setdefault(rollout.request.task, f"in run {run}: {rollout.message}")
        for task, reason in reasons.items():
            yield f"{task} {reason}; leave it out by --deselect={task}"

    def _passed_by_nothing(self) -> Iterator[str]:
        """Name the tasks that an agent which does nothing has passed in the latest training."""
        home = self._home
        tasks = [[task.id, task.source] for task in self.tasks]
        for run in reversed(home.run_names()):
            with contextlib.suppress(OSError):
                for _, data in entries_of(home.runs / run / JOURNAL, IDLE):
                    passed = [task for task, source in data["passed"] if [task, source] in tasks]
                    if sentence := words.passes_with_nothing(passed):
                        yield sentence
                    return

    def _purse(self) -> Iterator[str]:
        """Say what the caps pay, and for which skill they leave nothing to search with."""
        settings = self.settings
        tasks = self.tasks
        caps = Amounts.caps_of(settings)
        if not any(caps):
            return
        width = rollouts_at_once(self._config, settings)
        usual = usual_prices(wanted_roles(self.mode, tasks), tasks, settings, self._home)
        purse = Purse(caps, usual=usual, at_once=lambda: width)
        if self.mode.name != "train":
            yield f"purse: {purse.explain()}"
            return
        skills = skills_of(tasks)
        share = purse.share(len(skills))
        for skill in skills:
            group = suite_of(tasks, skill, settings)
            reserve_final(share, settings, group)
            yield f"purse of {skill}: {share.explain()}"
            if lack := shortage(share, settings, group):
                yield f"{skill}: nothing would be trained: {lack}"
            elif kept := share.reserved().get(FINAL):
                points = 100 * smallest_gain(max(1, int(kept) // 2), settings.gate_alpha)
                yield (
                    f"{skill}: these {kept:,.0f} rollouts of the final comparison show a gain of "
                    f"{points:.0f} points in four of five cases, and a smaller one if the "
                    "search's own samples show it, too"
                )

    @property
    def _home(self) -> Home:
        return Home(self._config.rootpath / self.settings.dir)

    def _faults(self) -> Iterator[str]:
        """Name faults of the skills, and a fault that ends a run before its first call."""
        try:
            root = self._config.rootpath
            versions = read_versions(root, self.tasks, self.settings, self.mode)
            yield from notes_on_skills(versions)
            parse_prices(self.settings.prices)
        except UserError as fault:
            yield f"{fault}; the run would be refused"

    def _forecast(self) -> Iterator[str]:
        tasks = self.tasks
        settings = self.settings
        numbers = forecast(tasks, self.mode, settings)
        yield f"rollouts: {_of(numbers.typical, numbers.most)}; skillopt_max_rollouts caps them"
        if any(task.agent and task.trigger is None for task in tasks):
            yield "a rollout of a coding agent is a whole run of it, often 10 to 50 model calls"
        if any("target" in task.roles and not task.agent for task in tasks):
            yield (
                "a rollout makes one model call for each skill_agent, or with tools one a turn, up "
                f"to {settings.max_turns}; skillopt_max_calls caps all model calls together"
            )
        if own := sum("target" not in task.roles for task in tasks):
            own_tasks = words.plural(own, "task")
            yield f"{own_tasks} without skill_agent: report their tokens by rollout.usage"
        if self.mode.name == "train":
            calls = _of(numbers.typical_calls, numbers.calls)
            yield f"optimizer calls: {calls}; plus repairs of unreadable replies"
        if judged := sum("judge" in task.roles for task in tasks) / max(1, len(tasks)):
            calls = _of(round(judged * numbers.typical), round(judged * numbers.most))
            yield f"judge calls: {calls}, if a rollout of a task with skill_judge makes one"
        if any("user" in task.roles for task in tasks):
            use, source = usual_use("user", self.tasks, self._home)
            calls = _of(round(use.calls * numbers.typical), round(use.calls * numbers.most))
            each = f"{use.calls:.1f} a rollout of a mean task ({source})"
            yield f"calls of the simulated user: {calls}, if it makes {each}"
        yield from self._costs(numbers)

    def _costs(self, numbers: Forecast) -> Iterator[str]:
        """Price the rollouts and the optimizer calls."""
        cap = self.settings.max_cost
        prices, unpriced = self._prices()
        yield from self._money(numbers, prices)
        if unpriced and (prices or cap):
            refused = "; skillopt_max_cost needs one: the run would be refused"
            names = ", ".join(sorted(unpriced))
            yield (
                f"no price is known for {names}, which is in no figure above (see skillopt_prices)"
                + refused * bool(cap)
            )

    def _prices(self) -> tuple[dict[Role, Price], set[str]]:
        """Return the price of each role's model, and the models whose price is not known."""
        prices: dict[Role, Price] = {}
        unpriced: set[str] = set()
        for role in wanted_roles(self.mode, self.tasks):
            with contextlib.suppress(ModelConfigError):
                model = model_config(self.settings, role)
                if model.price is None:
                    unpriced.add(model.model)
                else:
                    prices[role] = model.price
        return prices, unpriced

    def _money(self, numbers: Forecast, prices: Mapping[Role, Price]) -> Iterator[str]:
        """Price the forecast."""
        typical = most = 0.0
        for role, price in prices.items():
            use, source = usual_use(role, self.tasks, self._home)
            cost = price.cost(use.input, use.output)
            calls = role == "optimizer"
            typical += cost * (numbers.typical_calls if calls else numbers.typical)
            most += cost * (numbers.calls if calls else numbers.most)
            if cost:
                yield (
                    f"price: {_about(cost)} a {_UNITS.get(role, 'rollout')}, if it takes "
                    f"{use.input:,.0f} tokens in and {use.output:,.0f} out ({source})"
                )
        if prices:
            cap = self.settings.max_cost
            typical = min(typical, cap or typical)
            costs = f"money: {_about(typical)}"
            if most > typical:
                costs += f", {_about(most)} for the most rollouts"
            bound = f"at most {words.money(cap)} (skillopt_max_cost)" if cap else "not capped"
            yield f"{costs}; {bound}"


_UNITS = {
    "optimizer": "call of the optimizer",
    "judge": "rollout for its judge",
    "user": "rollout for its simulated user",
}
"""Unit of the price of a role's model; of the others it is a rollout."""


def _of(typical: int, most: int) -> str:
    if typical >= most:
        return words.number(most)
    return f"about {words.number(typical)}, at most {words.number(most)}"


def _about(cost: float) -> str:
    dollars = words.money(cost)
    return dollars if dollars.startswith("below") else f"about {dollars}"
