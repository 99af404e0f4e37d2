"""The search ``shorten``: make a skill shorter while its tasks pass as often.

The optimizer names text that repeats, explains or hardly matters. Each deletion or merge is one
edit, which has to pass a test of non-inferiority on the whole suite. The final comparison makes
this test again, on fresh samples, of all edits together.
"""

from __future__ import annotations

import math
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING

from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.gate.engine import SequentialGate
from pytest_skillopt.rates import mean
from pytest_skillopt.search.extensions import Search, gate_options, gate_tasks
from pytest_skillopt.search.history import Basis
from pytest_skillopt.words import plural

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt import SkillTask
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.gate.engine import Plan
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.edits import Edit

_PROMPTS = Path(__file__).parent / "prompts"
MARGIN = 0.05
"""Largest fall of the suite's pass rate that counts as not worse, in (0, 1)."""
_RECOMPUTED = 0.05
"""Significance level of the test if it is made again from the counts of a result."""
LOOKS = 4
"""Number of times that the samples are tested."""


def non_inferior(strata: Sequence[tuple[int, int, int, int]]) -> float:
    """Return the one-sided p-value of "the first arm's mean is lower by ``MARGIN`` or more".

    The normal test of Blackwelder (Controlled Clinical Trials 3, 1982, "Proving the null
    hypothesis") with tasks as strata of equal weight. So that a task that always passed has a
    positive variance, one pass and one failure are added as by Agresti and Caffo (The American
    Statistician 54, 2000): to each task, or to all samples pooled. The smaller variance is used;
    both are at least the variance of the mean, the second because tasks differ.

    Args:
        strata: passed and n of the first arm, passed and n of the second arm, for each task; n > 0.
    """
    new = [(passed, n) for passed, n, _, _ in strata]
    old = [(passed, n) for _, _, passed, n in strata]
    moved = math.fsum(passed / n for passed, n in new) - math.fsum(passed / n for passed, n in old)
    deviation = math.sqrt(_variance(new) + _variance(old))
    return NormalDist().cdf(-(moved + MARGIN * len(strata)) / deviation)


def _worse_by_margin(p_value: float, level: float) -> str:
    """Describe the test without statistical terms: its p-value and the allowed level."""
    return (
        f"(a skill that is worse by so much would seem as good with probability {p_value:.2g}; "
        f"at most {level:.2g} is allowed)"
    )


def _variance(counts: Sequence[tuple[int, int]]) -> float:
    """Return the variance of the sum of the rates."""
    apart = math.fsum(_spread(passed / n, n) / n for passed, n in counts)
    samples = sum(n for _, n in counts)
    return min(apart, _spread(mean(counts), samples) * math.fsum(1 / n for _, n in counts))


def _spread(rate: float, n: int) -> float:
    """Return the variance of one sample, with one pass and one failure added."""
    rate = (rate * n + 1) / (n + 2)
    return rate * (1 - rate)


class ShorterGate(SequentialGate):
    """Accept a shorter candidate if it is credibly not worse by ``MARGIN`` or more.

    Both arms get complete rounds of fresh samples, and after each the test is made at level
    ``alpha / LOOKS``. No task may credibly break; a task that must pass, or either side of the
    trigger tasks, may not pass less often at all. The candidate is rejected if it looks worse by
    the margin, or if the samples are used up.
    """

    name = "shorten"
    margin = MARGIN

    @classmethod
    def recheck(cls, counts: Sequence[tuple[int, int, int, int]]) -> str:
        """Return why counts do not show that the shorter skill is no worse, or ""."""
        if (p_value := non_inferior(counts)) <= _RECOMPUTED:
            return ""
        said = _worse_by_margin(p_value, _RECOMPUTED)
        return f"the counts do not show that the shorter skill is no worse {said}"

    def decide(self) -> Plan:
        stream = "final" if self.options.final else self.name
        self.sample_from(stream)
        level = self.options.alpha / LOOKS
        p_value = 1.0
        for _ in range(LOOKS):
            size = 2 * len(self.tasks)
            rounds = self.affordable(size * max(1, self.options.rollouts)) // size
            if not rounds:
                break
            yield self.whole_rounds(rounds)
            if refusal := self._refusal():
                return refusal
            p_value = non_inferior(self.counts.strata(self.tasks))
            if p_value <= level:
                yield from self.follow_suspects(self.tasks)
                if broken := self.counts.broken():
                    return self.verdict("rejected", self.refuse_for(broken))
                return self.verdict(
                    "accepted",
                    f"no worse by {100 * MARGIN:g} points or more {self._shown(p_value)}",
                )
            if -self.counts.gain(self.tasks) >= MARGIN * len(self.tasks):
                break
        return self.verdict(
            "rejected",
            f"not shown to be no worse by {100 * MARGIN:g} points {self._shown(p_value)}",
        )

    def _refusal(self) -> Verdict | None:
        """Return a verdict that the test of the whole suite cannot change, if there is one."""
        if gap := self.counts.gap():
            return self.verdict("unmeasured", gap)
        must = sorted(self.must_pass & set(self.tasks))
        if fallen := [task for task in must if self.counts.gain([task]) < 0]:
            return self.verdict("rejected", f"must pass: {self.counts.compared(fallen)}")
        if worse_off := self.fallen_side():
            return self.verdict("rejected", worse_off)
        return None

    def _shown(self, p_value: float) -> str:
        return _worse_by_margin(p_value, self.options.alpha / LOOKS)


def _removed(edits: int, before: int, after: int) -> str:
    """Say by how many characters edits made a skill shorter."""
    if not edits:
        return f"nothing was removed of {before} characters"
    return f"{plural(edits, 'edit')} removed {before - after} of {before} characters"


class ShortenSearch:
    """Rounds of proposals, until a round makes the skill no shorter."""

    def __init__(self, state: TrainingState) -> None:
        self._state = state
        self._tried: set[str] = set()

    def run(self) -> str:
        """Search; return the reason for its end in words.

        Raises:
            StopRun: a fault ended the run.
        """
        for _ in range(self._state.settings.epochs):
            if not self._round():
                return "no text is left that can be removed"
        return "the last round of epochs has ended"

    def _round(self) -> bool:
        """Try the edits of one proposal; return whether the skill is shorter."""
        state = self._state
        context = state.context.at(version=state.incumbent, step=state.history.step)
        before = state.incumbent
        taken = [edit for edit in self._propose(context) if self._try(edit, context)]
        candidate = state.incumbent.digest if taken else ""
        reason = _removed(len(taken), before.size, state.incumbent.size)
        basis = Basis(1, ())
        state.history.end_step(basis, candidate=candidate, edits=len(taken), reason=reason)
        return bool(taken)

    def _propose(self, context: Context) -> list[Edit]:
        """Ask for edits; return the new ones, those that save most first."""
        budget = context.settings.edit_budget
        answer = context.ask("shorten", "shorten", context.form, label="shorten", budget=budget)
        forms = answer.edits if answer else ()
        reason = answer.reasoning if answer else ""
        edits = [form.read(reason=reason, step=context.step, origin="success") for form in forms]
        fresh = [edit for edit in edits if edit.key not in self._tried]
        self._tried |= {edit.key for edit in fresh}
        fresh.sort(key=lambda edit: len(edit.content) - len(edit.target))
        return fresh[:budget]

    def _try(self, edit: Edit, context: Context) -> bool:
        state = self._state
        candidate = context.vetting.try_edit(state.incumbent, edit)
        if not isinstance(candidate, Refusal) and candidate.size >= state.incumbent.size:
            candidate = Refusal(edit, "the skill would be no shorter")
        if isinstance(candidate, Refusal):
            state.history.refuse([candidate])
            return False
        gate = _gate(state, candidate.digest[:12])
        verdict = state.samples.decide(gate, state.incumbent, candidate)
        state.history.record("verdict", candidate.digest, verdict)
        state.history.decide([edit], verdict)
        if verdict.accepted:
            state.adopt(candidate, [edit])
        return verdict.accepted


def _gate(state: TrainingState, decision: str) -> ShorterGate:
    """Open the gate on the whole suite that a shorter skill has to pass during the search."""
    return ShorterGate(gate_tasks(state.suite), gate_options(state.settings), decision=decision)


def _looks(tasks: Sequence[SkillTask], settings: Settings) -> int:
    """Return the most samples of one test."""
    return LOOKS * 2 * settings.rollouts * sum(task.split != "test" for task in tasks)


def _most(tasks: Sequence[SkillTask], settings: Settings) -> tuple[int, int]:
    return settings.epochs * settings.edit_budget * _looks(tasks, settings), settings.epochs


def shorten() -> Search:
    return Search(
        most=_most,
        make=ShortenSearch,
        rule=ShorterGate,
        prompts=_PROMPTS,
    )
