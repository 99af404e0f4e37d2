"""The final comparison: the result of the search against the start, on fresh samples.

The default gate decides, for any gate during the search, on all train and val tasks. The search
tells it the expected lift of each train task and its e-value. Without a cap it takes at most
``final_rollouts`` samples of each skill and task in the mean, and in a small suite as many as in
one of 45 tasks. A part of a cap is reserved for it before the search takes samples, less as the
e-value grows, and the samples that the search does not use are added.

Its samples come from a stream whose name is a hash of the comparison: both versions, the seed, the
tasks, the options. So the same comparison always has the same samples, and any other one draws
fresh samples under both skills. The journal has its parameters before its first sample, so that a
run which was killed or reached a cap continues this comparison and repeats a verdict that was
reached, without a further test.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pytest_skillopt.gate.data import GateOptions, Searched
from pytest_skillopt.gate.sequential import DefaultGate, most_samples
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.search.budget import FINAL, TEST, calls_beside, usual_fresh
from pytest_skillopt.search.extensions import gate_options, gate_tasks, rule_of, search_of
from pytest_skillopt.search.prospects import AHEAD
from pytest_skillopt.tasks.splits import test_of, train_of, val_of, without_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.gate.engine import SequentialGate
    from pytest_skillopt.model.purse import Purse
    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.tasks.task import SkillTask

BEGUN = "final"
"""Kind of the journal's record with the parameters of a final comparison."""
_SHARE, _WON = 0.3, 0.1
"""Part of the rollouts that is reserved, in (0, 1), and how much less it is once the search has won
all that the verdict asks for."""
_LEAST = 24
"""Least samples that are reserved under a cap."""
_GATE_PAIRS = 4
"""Least samples of each skill and val task that are left for a gate before it."""
_STEP, _LONGER = 10, 2
"""Rollouts from one proposed cap to the next, and how much longer a search is expected to go on."""
_LOOKS = 3
"""Samples of each broken task with one edit left out."""
_MENDED = 0.7
"""Pass rate of the broken tasks without an edit from which the edit is the cause."""


def kept_back(settings: Settings, tasks: int, total: float, log_e: float = 0.0) -> int:
    """Return the number of samples to reserve for a final comparison of ``tasks`` tasks.

    ``total`` is the number of rollouts of the purse, ``log_e`` the logarithm of what the search
    has won so far: the more, the fewer are needed.
    """
    if total == math.inf:
        return 2 * settings.final_rollouts * tasks
    won = min(1.0, max(0.0, log_e / -math.log(settings.gate_alpha)))
    return max(_LEAST, math.ceil((_SHARE - _WON * won) * total))


def samples_of_test(tasks: Sequence[SkillTask], settings: Settings) -> int:
    """Return the samples that the test split takes after an acceptance."""
    return 2 * sum(task.rollouts or settings.rollouts for task in test_of(tasks))


def samples_of_gate(tasks: Sequence[SkillTask], settings: Settings) -> int:
    """Return the samples that the default search leaves for a gate before the final comparison."""
    if settings.gate == DefaultGate.name or search_of(settings).make:
        return 0
    rounds = getattr(rule_of(settings.gate), "confirmations", 1)
    pairs = max(_GATE_PAIRS, rounds * settings.rollouts)
    return 2 * pairs * len(val_of(tasks))


def reserve_final(
    purse: Purse,
    settings: Settings,
    tasks: Sequence[SkillTask],
    *,
    log_e: float = 0.0,
    more: int = 0,
) -> None:
    """Reserve a part of the purse, which follows the prices, and what the test split takes."""
    suite = len(without_test(tasks))
    purse.reserve(FINAL, lambda total: more + kept_back(settings, suite, total, log_e))
    purse.reserve(TEST, samples_of_test(tasks, settings))


def option_for(
    purse: Purse,
    settings: Settings,
    tasks: Sequence[SkillTask],
    *,
    pairs: int,
    search: int,
    log_e: float,
) -> str:
    """Name the setting with which a final comparison takes so many fresh pairs.

    Args:
        purse: that of the training.
        settings: its settings.
        tasks: the suite with its test split.
        pairs: fresh samples of each skill.
        search: samples that the search takes before.
        log_e: logarithm of what it wins.
    """
    suite = len(without_test(tasks))
    if purse.total() == math.inf:
        if 2 * pairs <= most_samples(settings.final_rollouts, suite):
            return f"skillopt_seed={settings.seed + 1}"
        return f"skillopt_final_rollouts={math.ceil(2 * pairs / most_samples(1, suite))}"
    least = 2 * pairs + search
    most = 2 * pairs + _LONGER * search
    while least < most and kept_back(settings, suite, least, log_e) < 2 * pairs:
        least += _STEP
    return purse.needed_for(least + samples_of_test(tasks, settings)).replace(" = ", "=")


def _with_reserves(search: int, settings: Settings, tasks: Sequence[SkillTask]) -> int:
    """Return the rollouts of a purse that leaves so many to a search."""
    suite = len(without_test(tasks))
    others = search + samples_of_gate(tasks, settings) + samples_of_test(tasks, settings)
    least = others
    # A larger purse reserves more.
    while (more := others + kept_back(settings, suite, least)) > least:
        least = more
    return least


def cap_to_continue(
    purse: Purse, settings: Settings, tasks: Sequence[SkillTask], *, planned: int = 0
) -> str:
    """Name the cap, as a setting, with which a run that it ended goes on; empty without one.

    ``planned`` is the number of the run's rollouts at the end of a final comparison that was begun;
    0 if the cap ended the search.
    """
    if purse.total() == math.inf:
        return ""
    if planned:
        needed = purse.needed_for(planned)
    else:
        rollouts = _with_reserves(purse.samples + AHEAD, settings, tasks)
        needed = purse.needed_for(rollouts, calls_beside(AHEAD))
    return needed.replace(" = ", "=")


def shortage(purse: Purse, settings: Settings, tasks: Sequence[SkillTask]) -> str:
    """Describe why a purse is too small to search with; empty if it is not."""
    total = purse.total()
    suite = len(without_test(tasks))
    kept = {
        "the gate": samples_of_gate(tasks, settings),
        FINAL: kept_back(settings, suite, total),
        TEST: samples_of_test(tasks, settings),
    }
    first = len(train_of(tasks)) + len(val_of(tasks))
    needed = sum(kept.values())
    if total >= needed + first:
        return ""
    purposes = " and ".join(filter(kept.get, kept))
    least = purse.needed_for(_with_reserves(first, settings, tasks))
    return (
        f"{purse.pays()}, which leaves nothing to search with: {needed} are kept for {purposes}, "
        f"and the first look at the suite takes {first}; allow at least {least}"
        + (", or lower skillopt_rollouts, the samples of a test task" if kept[TEST] else "")
    )


def known_shortage(purse: Purse, settings: Settings, tasks: Sequence[SkillTask]) -> str:
    """Describe a shortage as ``shortage`` does; empty as long as prices are only guessed."""
    return "" if purse.is_guessed else shortage(purse, settings, tasks)


@dataclass(frozen=True, slots=True)
class Begun:
    """Parameters of a final comparison, as in the journal."""

    skill: str
    candidate: str
    """SHA-256 of the version that is compared with the start."""
    budget: int | None
    """Largest number of samples; None without a cap."""
    lift: Mapping[str, float]
    """Expected lift of train tasks, by the search's own samples."""
    prior: float
    """E-value of the search's own samples against "no edit does anything"."""
    rates: Mapping[str, float] = field(default_factory=dict)
    """Expected pass rate of train tasks at the start, by the search's own samples."""
    agreement: float | None = 1.0
    """Chance that repeated samples of the search agree; None if any disagreed."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Result of a final comparison, the test split included; rollouts by task."""

    verdict: Verdict
    before: Mapping[str, list[Rollout]]
    after: Mapping[str, list[Rollout]]
    from_search: int
    """Number of tasks whose rollouts in ``before`` are those of the search."""
    stream: str
    """Name of the comparison's stream, also for the test split."""

    @property
    def samples(self) -> int:
        """Number of samples that the verdict was made of."""
        return self.verdict.incumbent_samples + self.verdict.candidate_samples


class FinalComparison:
    """The final comparison of a training; it reserves its samples when it is created."""

    def __init__(self, state: TrainingState, begun: Sequence[Mapping[str, Any]] = ()) -> None:
        """Reserve the samples, before the search takes any.

        Args:
            state: the training.
            begun: records of final comparisons of this run, in the journal's order.
        """
        self._state = state
        self._begun = [Begun(**data) for data in begun]
        self._test = {task.id: task.rollouts or state.settings.rollouts for task in state.test}
        self._repeats = False
        """Whether an earlier comparison has noticed that the model repeats its replies."""
        self.planned = 0
        """Rollouts of the run at the end of the comparison and the test split; 0 before it."""
        self.interrupted = False
        """True if an interrupt ended what follows a verdict."""
        self.set_aside()

    def set_aside(self, more: int = 0, log_e: float = 0.0) -> None:
        """Reserve samples for it, for the test split, and ``more`` further ones.

        ``log_e`` is the logarithm of what the search has won so far.
        """
        state = self._state
        tasks = [*state.suite, *state.test]
        reserve_final(state.purse, state.settings, tasks, log_e=log_e, more=more)

    def pairs(self) -> int:
        """Return how many fresh samples of each skill the comparison could take now."""
        state = self._state
        left = state.purse.affordable() + state.purse.reserved().get(FINAL, 0.0)
        if left == math.inf:
            return state.settings.final_rollouts * len(state.suite)
        return max(0, int(left) // 2)

    def run(self) -> Measured:
        """Compare; if an edit broke a task, drop this edit and compare once more.

        The second comparison has fresh samples, since its version is another one.

        Raises:
            StopRun: a cap or a fault ended the run before there was a verdict.
        """
        measured = self.compare()
        broken = measured.verdict.names("broken")
        if measured.verdict.decision != "rejected" or not broken:
            return measured
        go_back = self._state.mark()
        try:
            return self.compare() if self._leave_out_what_broke(broken) else measured
        except StopRun as end:
            self.interrupted = end.kind is Stop.INTERRUPTED
            self._state.history.notes.append(
                f"the skill without the edit that broke a task was not compared: {end.reason}"
            )
            go_back()
            return measured

    def _leave_out_what_broke(self, broken: Sequence[str]) -> bool:
        """Drop the edit without which these tasks pass; return whether there is one."""
        state = self._state
        shorter = [(edit, short) for edit in state.edits if (short := state.without(edit))]
        if len(state.edits) < 2 or not shorter:
            return False
        wanted = dict.fromkeys(broken, _LOOKS)
        found = state.samples.take_all([(short, wanted) for _, short in shorter], "mend")
        rates: list[float] = []
        for tasks in found:
            passed = [bool(r.passed) for taken in tasks.values() for r in taken if r.measured]
            rate = statistics.fmean(passed) if passed else 0.0
            rates.append(rate)
        best = max(range(len(rates)), key=lambda i: rates[i])
        if rates[best] < _MENDED:
            return False
        return state.drop([shorter[best][0]], "a task that passed before fails with it")

    def compare(self) -> Measured:
        """Compare the incumbent with the start.

        Raises:
            StopRun: as ``run``.
        """
        state = self._state
        begun = self._begin()
        gate = self._open_gate(begun)
        verdict, before, after = state.samples.compare(gate, state.start, state.incumbent)
        self._repeats = isinstance(gate, DefaultGate) and gate.repeats
        unsampled = [task.id for task in state.suite if task.id not in before]
        earlier = {t: found for t, found in state.samples.at_start().items() if t in unsampled}
        return Measured(
            verdict,
            before=before | earlier,
            after=after,
            from_search=len(earlier),
            stream=self._stream(begun),
        )

    def _begin(self) -> Begun:
        """Return the recorded parameters for this version, or record new ones for the budget."""
        state = self._state
        state.purse.release()
        state.purse.reserve(TEST, self._test_samples)
        left = state.purse.affordable()
        candidate = state.samples.seen(state.incumbent).digest
        # One that could take no pair of samples is begun anew: under a higher cap it can.
        possible = (one for one in self._begun if one.budget is None or one.budget > 1)
        begun = next((one for one in possible if one.candidate == candidate), None)
        if begun is None:
            budget = None if left == math.inf else int(left)
            begun = Begun(
                skill=state.skill,
                candidate=candidate,
                budget=budget,
                lift=dict(state.lift),
                rates=dict(state.rates),
                agreement=state.agreement,
                prior=state.prior,
            )
            state.history.observer.record(BEGUN, asdict(begun))
        most = most_samples(state.settings.final_rollouts, len(state.suite))
        most = most if begun.budget is None else min(most, begun.budget)
        self.planned = state.purse.samples + most + self._test_samples
        state.history.observer.expects(usual_fresh(most, begun.prior) + self._test_samples)
        state.history.observer.compares(len(state.accepted), begun.prior, most)
        return begun

    def _stream(self, begun: Begun) -> str:
        """Return the name of the stream: 12 hexadecimal digits of a hash of all parameters."""
        state = self._state
        tasks = sorted((task.id, task.split, task.must_pass) for task in state.suite)
        defaults = asdict(GateOptions())
        given = asdict(gate_options(state.settings))
        # Defaults are left out, so that an option more or less draws the same samples.
        options = {name: value for name, value in given.items() if value != defaults[name]}
        start = state.samples.seen(state.start).digest
        parts = [*astuple(begun), start, state.settings.seed, tasks, options]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]

    def _open_gate(self, begun: Begun) -> SequentialGate:
        state = self._state
        decision = self._stream(begun)
        held_out = [task.id for task in state.val if self._is_held_out(task)]
        known = tuple(task.id for task in state.train)
        agreement = math.inf if begun.agreement is None else begun.agreement
        searched = Searched(
            lift=tuple(sorted(begun.lift.items())),
            log_e=math.log(begun.prior),
            rates=tuple(sorted(begun.rates.items())),
            known=known,
            repeats=self._repeats,
            agreement=agreement,
        )
        options = replace(
            gate_options(state.settings),
            final=True,
            held_out=tuple(held_out),
            budget=begun.budget,
            rollouts=state.settings.final_rollouts,
            searched=searched,
        )
        return state.search.rule(gate_tasks(state.suite), options, decision=decision)

    def _is_held_out(self, task: SkillTask) -> bool:
        """Return whether a task should gain from the edits, and the search has not seen it.

        The requests for other skills are there to lose nothing.
        """
        return task.split == "val" and task.skill == self._state.skill

    def open_test(self, measured: Measured) -> Measured:
        """Measure the test tasks under both versions, once, only for the report."""
        state = self._state
        if not measured.verdict.accepted:
            return measured
        state.purse.release()
        both = [(state.start, self._test), (state.incumbent, self._test)]
        try:
            before, after = state.samples.take_all(both, f"test/{measured.stream}")
        except StopRun as end:
            self.interrupted = end.kind is Stop.INTERRUPTED
            state.history.notes.append(f"the test split was not measured: {end.reason}")
            return measured
        return replace(
            measured, before={**measured.before, **before}, after={**measured.after, **after}
        )

    @property
    def _test_samples(self) -> int:
        return 2 * sum(self._test.values())
