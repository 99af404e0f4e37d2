"""The default gate: accept a candidate only if it credibly raises the suite's pass rate.

With noisy rollouts the literal rule, "accept only if the pass rate strictly improves", accepts
nearly half of all edits that change nothing, with any number of samples. This gate keeps the rule
as its last condition. With ``alpha`` of the options, and ``P(rise)``, ``P(M | E or M)`` and
``B`` of ``gate/posterior.py``, it accepts if

1. something changed: ``p <= LUCK alpha`` for the p-value ``p`` of "nothing changed". It comes from
   exact tests of the targets and of the other tasks, with tasks as strata, combined with the
   weights ``TARGETS`` and ``OTHERS``; so it holds for a suite with any pass rates. An earlier
   e-value ``E`` against the same null raises the level: ``P(p <= LUCK alpha E) <= LUCK alpha E[E]
   <= LUCK alpha``. For scores that are not passes, ``p = 1 / B``;
2. the net effect is a rise: ``P(rise) >= 1 - alpha``, or ``1 - ENOUGH alpha`` once the samples are
   used up (``1 - THIN alpha`` if there were fewer than ``THIN_SAMPLES`` for each task, ``1 -
   ABLATED alpha`` if samples of ablations count besides);
3. the gain is not confined to train tasks: ``P(M | E or M) <= MEMORISED``, and the expected
   change of the val tasks over its standard deviation is at least ``FALLEN``;
4. no task broke that must pass (with ``veto``: no task at all), and neither side of the trigger
   tasks has a lower mean;
5. the observed suite mean is strictly greater.

Samples are taken in few large rounds: the targets, then every other task, then tasks with the
largest uncertainty of the posterior and noise of the observed mean, and the targets again until it
is clear that something changed. The search's own samples count for the net effect (2), and never
for the p-value (1): those of train tasks that are not targets, and those of targets from ablations.

Source of the constants: ``benchmarks/verdict.py`` measures the gate; ``docs/gate.md`` has the
figures.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import counted, named
from pytest_skillopt.gate.data import ARMS, CANDIDATE
from pytest_skillopt.gate.engine import NOTHING, SequentialGate, Unmeasured, Want, Wants
from pytest_skillopt.gate.posterior import Weighed, leverage, noise, weigh
from pytest_skillopt.gate.statistics import combined_test

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pytest_skillopt.gate.data import Decision, Verdict
    from pytest_skillopt.gate.engine import Plan

TARGETS, OTHERS = 0.9, 0.44
"""Weights of the targets and of the other tasks in the test; the sum of their squares is 1."""
ENOUGH, THIN, ABLATED, THIN_SAMPLES = 5.0, 2.0, 1.25, 3
"""Largest ``1 - P(rise)`` in multiples of alpha once the samples are used up; the second one if
there were fewer samples for each task than the last, since the prior then counts most, and the
third one if samples of ablations count besides: they speak of targets, not of a common loss."""
MEMORISED, UNLIKELY = 0.22, 0.02
"""Largest ``P(M | E or M)`` with which an edit is accepted, and with which the val tasks are not
sampled further."""
FALLEN = -0.25
"""Expected change of the val tasks over its standard deviation below which they have fallen."""
HOPELESS, HOPELESS_EARLY = 0.25, 0.05
"""Largest ``P(rise)`` with which the candidate is rejected at once, and the same after the first
round, of targets."""
ROUNDS, CHECKS = 7, 2
"""Most rounds on tasks in doubt, and most rounds to repeat a fall of an observed mean."""
FIRST, SECOND = 2, 1
"""Pairs of samples of each target in the first round, and in the second one."""
FEW, PART = 6, 0.12
"""Most pairs of each target in one round, and the part of all samples that they may take in the
first round."""
LUCK = 0.5
"""Level of the p-value in multiples of alpha: it is tested after several rounds."""
SLICE, LEAST = 3, 24
"""Divisor of the remaining samples that gives the size of a later round, and its least size."""
NOISE = 0.75
"""Weight, in [0, 1], of the noise of the observed mean in the choice of samples: the literal rule
needs a small noise."""
VAL_PAIRS, VAL_MOST = 3, 10
"""Pairs of samples of a val task in a round that tests for ``M``, and the number of its candidate
samples from which it gets no more."""
SUSPECT = 1.5
"""E-value from which a task looks broken and is sampled again."""


class DefaultGate(SequentialGate):
    """The gate of a training, a comparison of two versions, and a candidate during the search.

    With ``options.final`` all samples come from a stream that only this decision uses; else those
    of the incumbent come from the stream ``tape``, which all candidates share.
    """

    name = "sequential"

    def decide(self) -> Plan:
        self.final = self.options.final
        if self.final:
            self.sample_from("final")
        doubt = yield from self._follow()
        found = self._weigh()
        if doubt:
            return self._judge("rejected", f"{self.named_breaks()}{doubt}", found)
        broken = yield from self.follow_suspects(self.tasks, SUSPECT)
        if broken:
            return self._judge("rejected", self.refuse_for(broken), found)
        must = self.unfinished(sorted(self.must_pass & set(self._compared)))
        if doubtful := [task for task in must if self.counts.down(task) >= math.log(SUSPECT)]:
            reason = (
                "must pass, and the budget ended while it looked broken: "
                f"{self.counts.compared(doubtful)}"
            )
            return self._judge("rejected", reason, found)
        yield from self._look_again()
        found, breaks = self._weigh(), self.named_breaks()
        # "Nothing changed" was refused before: the samples of suspects count for the net only.
        doubt = self._doubt(found, self._enough, luck=1.0) or self.fallen_side() or self._no_rise()
        if doubt:
            return self._judge("rejected", f"{breaks}{doubt}", found)
        fixed = self.counts.fixed()
        gains = f", {counted(len(fixed), 'task')} fixed ({named(fixed)})" if fixed else ""
        reason = f"{breaks}the suite's mean rose {self._moved()}{gains}; {self._said(found)}"
        return self._judge("accepted", reason, found)

    # The rounds.

    def _follow(self) -> Generator[Wants, None, str]:
        """Sample until it is clear whether the suite improved; return the doubt that it did."""
        targets = self._targets
        first = FIRST if self._limit >= 8 * len(targets) else 1
        first = max(first, min(FEW, int(self._limit * PART / 2 / max(1, len(targets)))))
        yield self._pairs(targets * first)
        self._require_val()
        if targets and (found := self._weigh()).chance <= HOPELESS_EARLY:
            return self._doubt(found, 1.0)
        held = set(self.options.held_out)
        rest = [task for task in self.tasks if not self.counts[CANDIDATE, task].n]
        rest.sort(key=lambda task: task not in held)
        more = targets * SECOND if self._limit >= THIN_SAMPLES * len(self.tasks) else []
        yield self._pairs([*more, *rest])
        self._require_val()
        for _ in range(ROUNDS):
            found = self._weigh()
            doubt = self._doubt(found, 1.0, memorised=1.0)
            if not doubt:
                wanted = self._val_in_doubt(found)
                if found.memorised <= UNLIKELY or not wanted:
                    return self._doubt(found, 1.0)
            elif found.chance <= HOPELESS:
                return doubt
            else:
                wanted = self._uncertain(found)
            if not wanted:
                break
            yield wanted
        return self._doubt(self._weigh(), self._enough)

    def _uncertain(self, found: Weighed) -> list[Want]:
        """Return a part of the remaining samples, of the tasks that are most in doubt.

        While the targets do not rule out that nothing changed, up to half of it is theirs.
        """
        left = self._limit - self._drawn.total()
        size = min(left, max(LEAST, left // SLICE)) // 2
        again: list[str] = []
        if (targets := self._targets) and self._chance_of_luck(found) > LUCK * self.alpha:
            again = self.unfinished(targets) * min(FEW, max(1, size // 2 // len(targets)))
        parts = [
            ((1 - NOISE) * (1 - found.common), found.doubt),
            ((1 - NOISE) * found.common, {t: leverage(self.counts, t) for t in self.tasks}),
            (NOISE, {t: noise(self.counts, t) for t in self.tasks}),
        ]
        totals = [sum(part.values()) or 1.0 for _, part in parts]
        worth = {
            task: sum(
                w * part[task] / total for (w, part), total in zip(parts, totals, strict=True)
            )
            for task in self.tasks
        }
        ranked = sorted(self.unfinished(self.tasks), key=lambda task: -worth[task])
        return self._pairs([*again, *ranked][:size])

    def _val_in_doubt(self, found: Weighed) -> list[Want]:
        """Return several samples of each val task that was not sampled often enough."""
        tasks = [
            task
            for task in self._held_out
            if task not in self.options.targets and self.counts[CANDIDATE, task].n < VAL_MOST
        ]
        tasks.sort(key=lambda task: -found.doubt[task])
        return self._pairs(tasks * VAL_PAIRS)

    def _look_again(self) -> Generator[Wants, None, None]:
        """Sample again if the observed mean of the suite, or of a side of the triggers, fell."""
        for _ in range(CHECKS):
            sides = [task for side in self.fallen_sides() for task in side]
            again = self._pairs(sides if self._rises() else self._compared)
            if not again:
                return
            yield again

    def _pairs(self, tasks: Sequence[str]) -> list[Want]:
        """Return one more sample of both arms of each task, as far as the budget reaches."""
        tasks = self.unfinished(tasks)
        return self.again(tasks[: self.affordable(2 * len(tasks)) // 2])

    @property
    def _targets(self) -> list[str]:
        counting = set(self.tasks)
        return [task for task in self.options.targets if task in counting]

    @property
    def _limit(self) -> int:
        """Most samples in all; samples of tasks that were left out count only against a budget."""
        counting = set(self.tasks)
        lost = sum(n for want, n in self._drawn.items() if want.task not in counting)
        most = 2 * self.options.most * len(counting) + lost
        return most if self.options.budget is None else min(most, self.options.budget)

    def affordable(self, samples: int) -> int:
        return max(0, min(samples, self._limit - self._drawn.total()))

    # The rules.

    def _weigh(self) -> Weighed:
        return weigh(self.counts, self.options)

    @property
    def _enough(self) -> float:
        if self._limit >= THIN_SAMPLES * len(self.tasks):
            return ENOUGH
        ablated = not {one.task for one in self.options.seen}.isdisjoint(self._targets)
        return ABLATED if ablated else THIN

    def _doubt(
        self,
        found: Weighed,
        most: float,
        memorised: float = MEMORISED,
        luck: float | None = None,
    ) -> str:
        """Describe which of the conditions 1 to 3 fails, with ``most <= 1`` also 5; "" if none.

        ``most`` is the largest ``1 - P(rise)`` in multiples of alpha, ``memorised`` the largest
        ``P(M | E or M)``, ``luck`` the largest p-value of "nothing changed" (``LUCK alpha``).
        """
        if found.held_out < FALLEN:
            return f"the val tasks are likely to have fallen; {self._said(found)}"
        if found.chance < 1 - most * self.alpha:
            return f"it is not credible that the suite improved: {self._said(found)}"
        luck = LUCK * self.alpha if luck is None else luck
        if (p_value := self._chance_of_luck(found)) > luck:
            return (
                f"the change may be chance: a skill that changes nothing looks this good in "
                f"{min(1.0, p_value):.2g} of all comparisons, at most {luck:.2g} is allowed"
            )
        if self._held_out and found.memorised > memorised:
            return (
                "the gain may be confined to tasks that the search has seen: the val tasks did not "
                f"improve with them (probability {found.memorised:.0%}, at most {memorised:.0%} is "
                "allowed)".replace("%", " %")
            )
        return self._no_rise() if most <= 1 else ""

    def _chance_of_luck(self, found: Weighed) -> float:
        """Return the p-value of "nothing changed", divided by the earlier e-value against it."""
        counts, prior = self.counts, max(self.options.prior, 1e-9)
        if any(counts[a, t].total != counts[a, t].passed for a in ARMS for t in self._compared):
            return min(1.0, math.exp(-found.log_bayes))
        targets = set(self.options.targets)
        expected = [task for task in self._compared if task in targets]
        others = [task for task in self._compared if task not in targets]
        parts = [(TARGETS, counts.strata(expected)), (OTHERS, counts.strata(others))]
        return combined_test(parts) / prior

    @property
    def _held_out(self) -> list[str]:
        return [task for task in self.tasks if task in self.options.held_out]

    def _require_val(self) -> None:
        if self.options.held_out and not self._held_out:
            raise Unmeasured(
                "no val task could be measured, and a gain on those that the search has seen is no "
                "evidence of another"
            )

    @property
    def _compared(self) -> list[str]:
        """Tasks with samples of both arms."""
        return [task for task in self.tasks if all(self.counts[arm, task].n for arm in ARMS)]

    def _rises(self) -> bool:
        """Return whether the literal rule holds on the tasks with samples of both arms."""
        return self.counts.gain(self._compared) > NOTHING

    def _no_rise(self) -> str:
        return "" if self._rises() else f"the suite's mean did not strictly rise: {self._moved()}"

    # Words of the verdict.

    def _judge(self, decision: Decision, reason: str, found: Weighed) -> Verdict:
        return self.verdict(decision, reason, log_e=found.log_bayes)

    def _moved(self) -> str:
        part = "" if len(self._compared) == len(self.tasks) else " on the tasks that were sampled"
        return f"from {self.counts.moved(self._compared)}{part}" if self._compared else "nowhere"

    def _said(self, found: Weighed) -> str:
        return (
            f"the chance of a rise is {found.chance:.0%}, the net effect {found.mean:+.1f} tasks "
            f"(standard deviation {found.deviation:.1f})".replace("%", " %")
        )
