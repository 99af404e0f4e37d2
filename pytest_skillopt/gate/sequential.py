"""The default gate: does a candidate raise the suite's pass rate, or was it luck?

"Accept only if the pass rate strictly improves" is a coin toss with noisy rollouts: an edit that
changes nothing looks better nearly half of the time, with any number of samples. This gate keeps
that rule as its last condition and puts others before it. With ``alpha`` of the options and the
chance of a rise of ``gate/posterior.py``, it accepts if

1. something changed: the p-value of "nothing changed" is at most ``LUCK alpha``. Exact tests of the
   targets and of the other tasks, tasks being strata, are combined with the weights ``TARGETS`` and
   ``OTHERS``, so that it holds for a suite of any pass rates. An earlier e-value ``E`` against the
   same null makes the level ``alpha E``: ``P(p <= alpha E) <= alpha E[E] <= alpha``. For scores
   that are not passes ``1 / B`` stands in its place, with the Bayes factor ``B`` of the posterior;
2. the net effect is a rise: its chance is at least ``1 - alpha``, or, when the samples are used up,
   ``1 - ENOUGH alpha`` (``1 - THIN alpha`` after fewer than ``THIN_SAMPLES`` a task);
3. the gain is not confined to tasks that the search has seen: "memorised" has at most the
   probability ``MEMORISED``, and the val tasks are not expected to have fallen;
4. nothing broke that must pass (with ``veto``: nothing broke), and neither side of the trigger
   tasks has a lower mean;
5. the literal rule: the observed suite mean is strictly greater.

Samples are taken in few wide rounds: the targets of the search, then every other task, then
where the posterior is least certain and the observed mean has most noise. The search's own samples
of tasks that are no targets count for the net effect, and never against "nothing changed".
``docs/gate.md`` has the figures, ``benchmarks/verdict.py`` measures them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_skillopt.gate.counts import counted, named
from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT
from pytest_skillopt.gate.engine import NOTHING, SequentialGate, Unmeasured, Want, Wants
from pytest_skillopt.gate.posterior import Posterior, Weighed
from pytest_skillopt.gate.statistics import combined_test

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any

    from pytest_skillopt.gate.data import Arm, GateOptions, GateTask, Verdict
    from pytest_skillopt.gate.engine import Plan

TARGETS, OTHERS = 0.9, 0.44
"""Weights of the targets and of the other tasks in the test; their squares add up to one."""
ENOUGH, THIN, THIN_SAMPLES = 5.0, 2.0, 3
"""Multiples of alpha that the chance of no rise may have when the samples are used up, the
second if there were fewer than so many a task: then the prior says most, and the bar is higher."""
MEMORISED, UNLIKELY = 0.22, 0.02
"""Probability of "memorised" up to which an edit is accepted, and up to which the val tasks need no
samples of their own."""
FALLEN = -0.25
"""Expected change of the val tasks over its standard deviation from which they have fallen."""
HOPELESS, HOPELESS_EARLY = 0.25, 0.05
"""Chance of a rise up to which the candidate is given up, and up to which it is after the
targets."""
ROUNDS, CHECKS = 7, 2
"""Rounds that the chance is followed for, and rounds that the observed means are looked at
again."""
FIRST, SECOND = 2, 1
"""Pairs of samples of each target in the first round, and beside the other tasks in the second."""
FEW, PART = 6, 0.12
"""Pairs of each target in the first round where the targets are so few that they take at most this
part of all samples."""
LUCK = 0.5
"""Share of alpha at which "nothing changed" is refused: it is looked at after several rounds."""
SLICE, LEAST = 3, 24
"""The part of the samples that are left, its inverse, that a later round takes, and at least."""
NOISE = 0.75
"""Weight, in [0, 1], of the noise of the observed mean where samples are chosen: the literal rule
needs it small."""
VAL_PAIRS, VAL_MOST = 3, 10
"""Pairs of samples of a val task in a round that looks for memorised lines, and in all."""
SUSPECT = 1.5
"""E-value from which a task looks broken and is sampled again: what broke is named."""


class DefaultGate(SequentialGate):
    """Decide a training, a comparison of two versions, and a candidate on the way, all alike.

    With ``options.final`` all samples come from a stream of this decision alone; else the
    incumbent's are those of its tape, which every candidate is measured against.
    """

    name = "sequential"

    def __init__(
        self, tasks: Sequence[GateTask], options: GateOptions | None = None, **known: Any
    ) -> None:
        super().__init__(tasks, options, **known)
        self.final = self.options.final
        self._posterior = Posterior(
            held_out=self.options.held_out,
            targets=self.options.targets,
            earlier=self.options.prior,
            seen=self.options.seen,
        )

    def decide(self) -> Plan:
        if self.options.final:
            self.sample_from("final")
        credible = yield from self._follow()
        found = self._weigh()
        if not credible:
            return self._judge("rejected", f"{self.named_breaks()}{self._doubt(found)}", found)
        broken = yield from self.follow_suspects(self.tasks, SUSPECT)
        if broken:
            return self._judge("rejected", self.refuse_for(broken), found)
        if doubtful := self._suspects():
            reason = (
                "must pass, and the budget ended while it looked broken: "
                f"{self.counts.compared(doubtful)}"
            )
            return self._judge("rejected", reason, found)
        yield from self._look_again()
        found, breaks = self._weigh(), self.named_breaks()
        # Chance is ruled out by now; further samples of what looks broken only weigh on the net.
        if not self._good(found, self._enough, luck=1.0):
            return self._judge("rejected", f"{breaks}{self._doubt(found)}", found)
        if fallen := self.fallen_side():
            return self._judge("rejected", f"{breaks}{fallen}", found)
        if not self._rises():
            reason = f"{breaks}the suite's mean did not strictly rise: {self._moved()}"
            return self._judge("rejected", reason, found)
        fixed = self.counts.fixed()
        gains = f", {counted(len(fixed), 'task')} fixed ({named(fixed)})" if fixed else ""
        reason = f"{breaks}the suite's mean rose {self._moved()}{gains}; {self._said(found)}"
        return self._judge("accepted", reason, found)

    # The rounds.

    def _follow(self) -> Generator[Wants, None, bool]:
        """Sample until it is clear whether the suite improved; whether it did."""
        targets = self._targets
        first = FIRST if self._limit >= 8 * len(targets) else 1
        first = max(first, min(FEW, int(self._limit * PART / 2 / max(1, len(targets)))))
        yield self._pairs(targets * first)
        self._require_val()
        if targets and self._weigh().chance <= HOPELESS_EARLY:
            return False
        held = set(self.options.held_out)
        rest = [task for task in self.tasks if not self.counts[CANDIDATE, task].n]
        rest.sort(key=lambda task: task not in held)
        more = targets * SECOND if self._limit >= THIN_SAMPLES * len(self.tasks) else []
        yield self._pairs([*more, *rest])
        self._require_val()
        for _ in range(ROUNDS):
            found = self._weigh()
            if self._good(found, 1.0, memorised=1.0):
                wanted = self._val_in_doubt(found)
                if found.memorised <= UNLIKELY or not wanted:
                    return self._good(found, 1.0)
            elif found.chance <= HOPELESS:
                return False
            else:
                wanted = self._uncertain(found)
            if not wanted:
                break
            yield wanted
        return self._good(self._weigh(), self._enough)

    def _uncertain(self, found: Weighed) -> list[Want]:
        """A part of what is left, where it says most of the net effect."""
        left = self._limit - self._drawn.total()
        size = min(left, max(LEAST, left // SLICE)) // 2
        doubt, leverage, noise = (
            sum(part.values()) or 1.0 for part in (found.doubt, found.leverage, found.noise)
        )
        worth = {
            task: (1 - NOISE) * (1 - found.common) * found.doubt[task] / doubt
            + (1 - NOISE) * found.common * found.leverage[task] / leverage
            + NOISE * found.noise[task] / noise
            for task in self.unfinished(self.tasks)
        }
        return self._pairs(sorted(worth, key=lambda task: -worth[task])[:size])

    def _val_in_doubt(self, found: Weighed) -> list[Want]:
        """The val tasks that may have improved or not, several times."""
        tasks = [
            task
            for task in self.tasks
            if self._posterior.role(task) == "held_out"
            and self.counts[CANDIDATE, task].n < VAL_MOST
        ]
        tasks.sort(key=lambda task: -found.doubt[task])
        return self._pairs(tasks * VAL_PAIRS)

    def _look_again(self) -> Generator[Wants, None, None]:
        """Sample once more where an observed mean contradicts what is expected of it."""
        for _ in range(CHECKS):
            sides = [
                task
                for wanted in (True, False)
                for side in [[t for t in self.tasks if self.triggers.get(t) is wanted]]
                if self.counts.gain(side, missing=1) < -NOTHING
                for task in side
            ]
            again = self._pairs(sides if self._rises() else self._compared)
            if not again:
                return
            yield again

    def _pairs(self, tasks: Sequence[str]) -> list[Want]:
        """One more sample of both arms each, as far as the budget reaches."""
        tasks = self.unfinished(tasks)
        return self.again(tasks[: self.affordable(2 * len(tasks)) // 2])

    @property
    def _targets(self) -> list[str]:
        return [task for task in self.options.targets if task in set(self.tasks)]

    @property
    def _limit(self) -> int:
        """Samples in all; those of tasks that were left out count against a budget only."""
        counting = set(self.tasks)
        lost = sum(n for want, n in self._drawn.items() if want.task not in counting)
        most = 2 * self.options.most * len(counting) + lost
        return most if self.options.budget is None else min(most, self.options.budget)

    def affordable(self, samples: int) -> int:
        return max(0, min(samples, self._limit - self._drawn.total()))

    # The rules.

    def _weigh(self) -> Weighed:
        return self._posterior.weigh(self.counts)

    @property
    def _enough(self) -> float:
        return ENOUGH if self._limit >= THIN_SAMPLES * len(self.tasks) else THIN

    def _good(
        self,
        found: Weighed,
        doubt: float,
        memorised: float = MEMORISED,
        luck: float | None = None,
    ) -> bool:
        """Return whether the posterior speaks for the edit, with ``doubt`` alpha left to chance.

        ``luck`` is the largest p-value of "nothing changed"; ``LUCK alpha`` by default.
        """
        return (
            found.chance >= 1 - doubt * self.alpha
            and self._chance_of_luck(found) <= (LUCK * self.alpha if luck is None else luck)
            and found.held_out >= FALLEN
            and (not self._held_out or found.memorised <= memorised)
            and (doubt > 1 or self._rises())
        )

    def _chance_of_luck(self, found: Weighed) -> float:
        """The p-value of "nothing changed", divided by the earlier e-value against it."""
        counts, prior = self.counts, max(self.options.prior, 1e-9)
        if any(counts[arm, t].total != counts[arm, t].passed for arm, t in self._arms()):
            return min(1.0, math.exp(-found.log_bayes))
        targets = set(self.options.targets)
        expected = [task for task in self._compared if task in targets]
        others = [task for task in self._compared if task not in targets]
        parts = [(TARGETS, counts.strata(expected)), (OTHERS, counts.strata(others))]
        return combined_test(parts) / prior

    def _arms(self) -> list[tuple[Arm, str]]:
        return [(arm, task) for arm in (INCUMBENT, CANDIDATE) for task in self._compared]

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
        """The tasks that both were sampled on."""
        arms = (INCUMBENT, CANDIDATE)
        return [task for task in self.tasks if all(self.counts[arm, task].n for arm in arms)]

    def _rises(self) -> bool:
        """The literal rule, on the tasks that both were sampled on."""
        return self.counts.gain(self._compared) > NOTHING

    def _suspects(self) -> list[str]:
        must = self.unfinished(sorted(self.must_pass & set(self._compared)))
        return [task for task in must if self.counts.down(task) >= math.log(SUSPECT)]

    # The words.

    def _judge(self, decision: Any, reason: str, found: Weighed) -> Verdict:
        return self.verdict(decision, reason, log_e=found.log_bayes)

    def _moved(self) -> str:
        part = "" if len(self._compared) == len(self.tasks) else " on the tasks that were sampled"
        return f"from {self.counts.moved(self._compared)}{part}" if self._compared else "nowhere"

    def _said(self, found: Weighed) -> str:
        return (
            f"the chance of a rise is {found.chance:.0%}, the net effect {found.mean:+.1f} tasks "
            f"(standard deviation {found.deviation:.1f})".replace("%", " %")
        )

    def _doubt(self, found: Weighed) -> str:
        """Which condition is missed, in words."""
        if self._held_out and found.held_out < FALLEN:
            return f"the val tasks are likely to have fallen; {self._said(found)}"
        if found.chance < 1 - self._enough * self.alpha:
            return f"it is not credible that the suite improved: {self._said(found)}"
        luck = self._chance_of_luck(found)
        if luck > LUCK * self.alpha:
            return (
                f"the change may be chance: a skill that changes nothing looks this good in "
                f"{luck:.2g} of all comparisons, at most {LUCK * self.alpha:.2g} is allowed"
            )
        if self._held_out and found.memorised > MEMORISED:
            return (
                "the gain may be confined to tasks that the search has seen: the val tasks did not "
                f"improve with them (probability {found.memorised:.0%}, at most {MEMORISED:.0%} is "
                "allowed)".replace("%", " %")
            )
        return f"the suite's mean did not strictly rise: {self._moved()}"
