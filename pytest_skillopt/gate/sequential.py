"""The default gate: accept a candidate only if it credibly raises the suite's pass rate.

With noisy rollouts the literal rule, "accept only if the pass rate strictly improves", accepts
nearly half of all edits that change nothing, with any number of samples. This gate keeps the rule
as its last condition. It accepts if

1. something changed: ``p <= min(1/2, level E)``. ``E`` is the e-value of the bets that were won
   before (``gate/bets.py``), those of a search or of this gate's own first part. ``p`` comes from
   fresh pairs of samples, by an exact permutation test within tasks that weighs each task by its
   expected lift and allows for accidents of wording (``gate/statistics.py``). ``p / E`` is a
   p-value; the levels of all looks add up to ``alpha``, so an edit that changes nothing is accepted
   with at most the probability ``alpha``, whatever the tasks and the models are;
2. the net effect is a rise: without a search ``P(rise)`` of ``gate/posterior.py`` is at least
   ``sure``. A search has chosen the tasks that move, so the others count as observed: the rise of
   the mean is at least ``found`` of its standard deviation, by the observed mean and the expected
   one, each weighted by its precision;
3. the gain is not confined to train tasks: ``chance_memorised <= memorised``, and the val tasks
   have not fallen: their observed change is at least ``FALLEN`` of its standard deviation;
4. no task broke that must pass, and neither side of the trigger tasks has fallen, by the same bar,
   after as many samples again of a side with a lower mean;
5. the observed pass rate of the suite is strictly greater.

Without a search before it, the first part looks for the tasks that the edit moves: each sample is
of the task whose variance of the lift falls fastest by it, under a version that a fair coin
chooses, and the gamblers bet on its outcome. The second part draws the fresh pairs, ``EVEN`` of
them evenly and the others where a lift is expected, and looks at them several times: a clear case
needs few. Once condition 1 holds, further pairs go where the observed mean is least certain. The
bars in lower case are those of the ``Look``: before the last one they are higher.

A model that repeats its reply to a document and a task gives one sample of each. So each counts
once: ``p`` comes from the first pairs of tasks that no search has sampled, all with the same
weight, and bets alone decide if there is no such task.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING, NamedTuple

from pytest_skillopt.gate.bets import Bets
from pytest_skillopt.gate.counts import AGREEING
from pytest_skillopt.gate.data import ARMS, CANDIDATE, INCUMBENT, Searched
from pytest_skillopt.gate.engine import (
    FALLEN,
    NOTHING,
    SUSPECT,
    SequentialGate,
    Unmeasured,
    Want,
    Wants,
)
from pytest_skillopt.gate.posterior import Posterior, chance_memorised, chance_of_rise
from pytest_skillopt.gate.statistics import (
    WORDING,
    Stratum,
    agreement,
    is_flaky,
    permutation_test,
)
from pytest_skillopt.words import named, plural, probability, rounded

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from pytest_skillopt.gate.data import Arm, Decision, Verdict
    from pytest_skillopt.gate.engine import Plan


class Look(NamedTuple):
    """Bars of the conditions 2 and 3 at one look at the samples."""

    sure: float
    """Least ``P(rise)`` without a search."""
    found: float
    """Least rise of the mean after a search, over its standard deviation."""
    memorised: float
    """Largest probability that the gain is confined to train tasks."""


EARLY = Look(sure=0.97, found=1.28, memorised=0.08)
"""Bars of each look before the last one."""
LAST = Look(sure=0.85, found=0.6, memorised=0.22)
LAST_OF_FEW = Look(sure=0.85, found=0.84, memorised=0.14)
"""Bars of the last look at few pairs, which see a common loss and a val task badly."""
FEW = 1.4
"""Fresh pairs for each task up to which they are few."""
MEMORISED_PRIOR = 0.10
"""Probability, before any val task is sampled, that the gain is confined to train tasks."""
EXPECTED = 0.08
"""Standard error of the rise of the suite's mean that a search expects: its root mean square in 116
trainings of ten simulated worlds."""
HOPELESS, FALLING = 0.2, -1.0
"""``P(rise)``, or the change of the observed mean over its standard deviation after a search, up to
which the candidate is rejected before the last look."""
SMALL_SUITE = 45
"""A smaller suite may take as many samples as one of this size."""
FIRST, BATCH = 0.5, 16
"""Part of the samples that the first part takes, and the size of its rounds."""
EVEN = 0.35
"""Part of the fresh pairs that is drawn evenly over the suite."""
LOOKS, LEAST = (0.125, 0.25, 0.5), 12
"""Looks before the last one, as parts of the fresh pairs, and the fewest pairs of a look."""
SPENT = 0.02
"""Part of alpha that each of these looks takes."""
HALF = 0.5
"""Largest p-value with which something has changed, however large ``E`` is."""
MOST_PAIRS = 32
"""Most fresh pairs of a task: beyond that, wording says as much as the samples."""
WEIGHTS, FLOOR = 32, 0.02
"""Largest weight of a task in the permutation test, and the least expected lift as a part of the
largest, for the number of its pairs."""
LEAST_WEIGHT = 0.6
"""Least weight of a task as a part of the largest: what is expected of each task is uncertain, and
tasks of which little is expected have few pairs anyway."""
SCORE_WEIGHTS, SCORES = 4, 10
"""Largest weight if samples have scores, and the number of steps of a score."""
REPEATS = "this model gives one sample a task; a temperature above 0 gives more"
"""Note on a model that repeats its replies."""
SURPRISING = 0.03
"""Chance, if a model does not repeat its replies, below which the agreement of the samples of tasks
that pass now and then says that it does."""


def most_samples(rollouts: int, tasks: int) -> int:
    """Return the most samples of a decision about so many tasks, without a budget.

    ``rollouts`` is their number of each version and task, in the mean.
    """
    return 2 * rollouts * max(SMALL_SUITE, tasks)


class DefaultGate(SequentialGate):
    """The gate of a training, a comparison of two versions, and a candidate during the search.

    With ``options.final`` all samples come from a stream that only this decision uses; else those
    of the incumbent in the first part come from the stream ``tape``, which all candidates share.
    """

    name = "sequential"

    def decide(self) -> Plan:
        final = self.options.final
        if final:
            self.sample_from("final")
        self._lift = dict(self._searched.lift)
        self._log_e = self._searched.log_e
        if self.options.searched is None:
            yield from self._look_for_lifts()
        stream = "final" if final else "fresh"
        self.sample_from(stream)
        doubt = yield from self._confirm()
        if doubt:
            return self._judge("rejected", f"{self.named_breaks()}{doubt}")
        yield from self._complete(self._unseen())
        # One pair of each other task tells of what broke, and next to nothing of the net effect.
        net = self._net_doubt(self._last_look)
        yield from self._complete([task for task in self.tasks if task not in self._compared])
        yield from self.follow_sides()
        broken = yield from self.follow_suspects(self.tasks)
        if broken:
            return self._judge("rejected", self.refuse_for(broken))
        doubt = self._must_pass_in_doubt() or net or self._strict_doubt() or self.fallen_side()
        if doubt:
            return self._judge("rejected", f"{self.named_breaks()}{doubt}")
        fixed = self.counts.fixed()
        gains = f", {plural(len(fixed), 'task')} fixed ({named(fixed)})" if fixed else ""
        reason = f"the suite's mean rose {self._moved()}{gains}; {self._said()}"
        return self._judge("accepted", f"{self.named_breaks()}{reason}")

    # The first part: where the lifts are.

    def _look_for_lifts(self) -> Generator[Wants, None, None]:
        """Sample the tasks whose lift is least certain, bet on each sample, and note the lifts."""
        bets = Bets()
        coin = random.Random(f"{self.name}/{self.decision}")
        begun = self._drawn.total()
        while (size := min(BATCH, self._left_of_first_part(begun))) > 0:
            if bets.e_value * self.options.alpha * SPENT >= HALF:
                break
            posterior = Posterior([self.counts.pair(task) for task in self.tasks])
            wants = []
            odds = []
            for task in self._least_certain(posterior, size):
                arm = coin.choice(ARMS)
                before, after = posterior.predict(self.counts.pair(task))
                own = after if arm == CANDIDATE else before
                wants.append(Want(arm, task, self.streams[arm]))
                odds.append((own, (before + after) / 2))
            known = {(want.arm, want.task): self.counts[want.arm, want.task].n for want in wants}
            yield wants
            if self.repeats:
                return
            for want, (drawn, mean) in zip(wants, odds, strict=True):
                key = want.arm, want.task
                if known[key] < self.counts[key].n:
                    bets.place(drawn, mean, self.counts[key].values[known[key]])
                    known[key] += 1
        posterior = Posterior([self.counts.pair(task) for task in self.tasks])
        self._lift = {task: posterior.lift(self.counts.pair(task)).up for task in self.tasks}
        self._log_e = bets.log_e

    def _left_of_first_part(self, begun: int) -> int:
        """Return how many samples the first part still takes; it began after so many.

        What a cap pays for is known only after the first samples.
        """
        taken = self._drawn.total() - begun
        return int(FIRST * (taken + self.affordable(self.limit))) - taken

    def _least_certain(self, posterior: Posterior, size: int) -> list[str]:
        """Return the tasks, with repetitions, whose variance of the lift falls fastest."""
        samples = {}
        variances = {}
        for task in self.tasks:
            pair = self.counts.pair(task)
            samples[task] = pair.before_n + pair.after_n
            variances[task] = posterior.lift(pair).variance
        chosen = []
        for _ in range(size):
            best = max(self.tasks, key=lambda task: variances[task] / (2 + samples[task]))
            chosen.append(best)
            samples[best] += 1
        return chosen

    # The second part: fresh pairs.

    def _confirm(self) -> Generator[Wants, None, str]:
        """Draw fresh pairs until it is clear whether the suite improved; return the doubt."""
        self._begun = {key: count.n for key, count in self.counts.items()}
        self._pairs = pairs = self.affordable(self.limit) // 2
        if not pairs and self.purse.affordable() < 2:
            needed = self.purse.needed_for(self.purse.samples + 2)
            raise Unmeasured(f"a cap leaves no sample to compare the two skills: at least {needed}")
        sizes = [int(part * pairs) for part in LOOKS]
        sizes = [size for size in sizes if size >= LEAST]
        last_level = self.options.alpha * (1 - SPENT * len(sizes))
        doubt = "there is no sample left to compare the two skills"
        proved = False
        for size in [*sizes, pairs]:
            last = size == pairs
            drawn = yield from self._draw_pairs(size, proved=proved)
            # Without more pairs, by a cap or by a model that repeats its replies, the last look's
            # level is left.
            if not drawn and not (last and self._compared):
                continue
            level = last_level if last else self.options.alpha * SPENT
            luck = "" if proved else self._luck(level)
            if not luck and not proved and (further := self._again()):
                yield further
                luck = self._luck(level)
            proved = not luck
            bar = self._last_look if last else EARLY
            doubt = luck or self._net_doubt(bar)
            if not doubt:
                break
            if not last and self._is_hopeless():
                moved = f"the suite's mean moved {self._moved()}; {self._said()}"
                return f"more samples were unlikely to show a rise: {moved}"
        return doubt

    def _draw_pairs(self, size: int, *, proved: bool) -> Generator[Wants, None, bool]:
        """Draw the pairs up to the look at ``size`` pairs; return whether there were any."""
        drawn = False
        while more := self._more_pairs(size, proved=proved):
            yield self.pairs(more)
            self._require_val()
            drawn = True
        return drawn

    def _again(self) -> list[Want]:
        """Return samples that tell whether the model repeats itself, if that is in question.

        They are of tasks that passed now and then in the search, or that have fallen.
        """
        if self.repeats or not self.counts.is_steady():
            return []
        flaky = dict.fromkeys(task for _, task in self._flaky())
        doubtful = sorted(flaky, key=lambda task: self.counts[INCUMBENT, task].n)
        chosen = (doubtful or self.counts.fallen()) * AGREEING
        chosen = chosen[: self.affordable(AGREEING) // 2]
        return self.pairs(chosen)

    def _more_pairs(self, size: int, *, proved: bool) -> list[str]:
        """Return the tasks, with repetitions, of the pairs up to the look at ``size`` pairs.

        They are fewer if samples were lost to errors or taken to tell whether the model repeats
        itself: a cap that ends a comparison has cost all and tells nothing. If what a cap pays for
        follows prices, they are half of that: the candidate's samples may be the dearer ones.
        """
        room = self.affordable(self.limit) // 2
        if self.purse.is_estimate:
            room = -(-room // 2)
        if self.repeats:
            compared = self._compared
            return [task for task in self.tasks if task not in compared][:room]
        fresh = {task: len(self._fresh(task)[0]) for task in self.tasks}
        room = min(room, size - sum(fresh.values()))
        if proved:
            return self._least_certain_means(fresh, room)
        wanted = self._allocate(size)
        missing = {task: wanted[task] - fresh[task] for task in self.tasks}
        chosen: list[str] = []
        while len(chosen) < room:
            most = max(self.tasks, key=missing.__getitem__)
            if missing[most] <= 0:
                break
            missing[most] -= 1
            chosen.append(most)
        return sorted(chosen)

    def _least_certain_means(self, fresh: dict[str, int], pairs: int) -> list[str]:
        """Return the tasks, with repetitions, by which the observed mean becomes most certain.

        ``fresh`` has the fresh pairs of each task so far.
        """
        fresh = dict(fresh)
        variances = {task: self.counts.pair(task).variance for task in self.tasks}
        chosen: list[str] = []
        while len(chosen) < pairs:
            # Val tasks have their share: else a few of them decide if they have fallen.
            of_held = sum(fresh[task] for task in self._held_out)
            is_short = of_held * len(self.tasks) < sum(fresh.values()) * len(self._held_out)
            group = self._held_out if is_short else self.tasks
            best = max(group, key=lambda task: variances[task] / (fresh[task] + 0.5) ** 2)
            fresh[best] += 1
            chosen.append(best)
        return chosen

    def _complete(self, missing: Sequence[str]) -> Generator[Wants, None, None]:
        """Draw a pair of each of some tasks that have none, as far as it is affordable."""
        missing = missing[: self.affordable(2 * len(missing)) // 2]
        yield self.pairs(missing)

    def _unseen(self) -> list[str]:
        """Return the tasks that can refuse the edit and were not sampled under both skills."""
        can_refuse = self.guard_bars().keys() | self.triggers.keys()
        compared = set(self._compared)
        return [task for task in self.tasks if task in can_refuse and task not in compared]

    def _allocate(self, pairs: int) -> dict[str, int]:
        """Return the fresh pairs of each task, those of train and of val tasks in their shares."""
        lifts = self._expected()
        total = sum(lifts.values())
        exact = {
            task: pairs * (EVEN / len(lifts) + (1 - EVEN) * lift / total)
            for task, lift in lifts.items()
        }
        held = {task: share for task, share in exact.items() if task in self._held_out}
        rest = {task: share for task, share in exact.items() if task not in held}
        of_held = round(math.fsum(held.values()))
        return _apportion(rest, pairs - of_held) | _apportion(held, of_held)

    def _expected(self) -> dict[str, float]:
        """Return the expected lift of each task, at least ``FLOOR`` of the largest.

        Nothing is known of a task that the search has not seen: it has the mean of the others.
        """
        known = [max(0.0, self._lift[task]) for task in self.tasks if task in self._lift]
        mean = math.fsum(known) / len(known) if known else 0.0
        lifts = {task: max(0.0, self._lift.get(task, mean)) for task in self.tasks}
        floor = FLOOR * max(lifts.values()) or 1.0
        return {task: max(floor, lift) for task, lift in lifts.items()}

    def _luck(self, level: float) -> str:
        """Describe that the change may be chance; "" if condition 1 holds."""
        found = self._p_value()
        most = min(HALF, level * math.exp(min(self._log_e, 700.0)))
        if self.repeats and self._log_e >= -math.log(self.options.alpha):
            return ""
        if found <= most:
            return ""
        return (
            f"the change may be chance: a skill that changes nothing looks this good in "
            f"{_share(found)} of all comparisons, at most {_share(most)} is allowed"
        )

    def _p_value(self) -> float:
        """Return the p-value of the fresh pairs, 1 if there is none."""
        lifts = self._expected()
        wording = WORDING
        fresh = {task: self._fresh(task) for task in lifts}
        if self.repeats:
            lifts = dict.fromkeys(lifts, 1.0)
            wording = 0.0
            unknown = [task for task in self._compared if task not in self._searched.known]
            fresh = {task: self._first(task) for task in unknown}
        fresh = {task: arms for task, arms in fresh.items() if arms[0]}
        if not fresh:
            return 1.0
        values = {value for arms in fresh.values() for arm in arms for value in arm}
        scored = not values <= {0.0, 1.0}
        scale = SCORES if scored else 1
        weights = SCORE_WEIGHTS if scored else WEIGHTS
        top = max(lifts.values())
        strata = []
        for task, (after, before) in fresh.items():
            weight = round(weights * max(LEAST_WEIGHT, lifts[task] / top))
            new = tuple(round(scale * value) for value in after)
            old = tuple(round(scale * value) for value in before)
            strata.append(Stratum(weight, new, old))
        common = math.gcd(*(one.weight for one in strata))
        strata = [one._replace(weight=one.weight // common) for one in strata]
        return permutation_test(strata, wording, scale)

    def _first(self, task: str) -> tuple[list[float], list[float]]:
        """Return the value of the first sample under both skills."""
        new, old = (self.counts[arm, task].values for arm in (CANDIDATE, INCUMBENT))
        return new[:1], old[:1]

    def _fresh(self, task: str) -> tuple[list[float], list[float]]:
        """Return the values of the fresh samples under both skills, as many of each."""
        both = [
            self.counts[arm, task].values[self._begun[arm, task] :]
            for arm in (CANDIDATE, INCUMBENT)
        ]
        n = min(map(len, both))
        return both[0][:n], both[1][:n]

    # The rules.

    @property
    def _searched(self) -> Searched:
        return self.options.searched or Searched()

    @property
    def repeats(self) -> bool:
        """Whether the model repeats its replies, by the search or by these samples."""
        return self._searched.repeats or self.counts.repeat() or self._is_too_steady()

    def _is_too_steady(self) -> bool:
        """Whether tasks that passed now and then in the search never disagree with themselves."""
        if not self.counts.is_steady():
            return False
        chances = (agreement(rate, self.counts[key].n) for key, rate in self._flaky().items())
        return self._searched.agreement * math.prod(chances) < SURPRISING

    def _flaky(self) -> dict[tuple[Arm, str], float]:
        """Return the expected rates, by arm and task, of tasks that pass now and then.

        The rate before has to be far from 0 and from 1: that after may only be uncertain.
        """
        counting = set(self.tasks)
        flaky: dict[tuple[Arm, str], float] = {}
        for task, before in self._searched.rates:
            if task in counting and is_flaky(before):
                after = before + self._lift.get(task, 0.0)
                flaky[INCUMBENT, task] = before
                if is_flaky(after):
                    flaky[CANDIDATE, task] = after
        return flaky

    @property
    def limit(self) -> int:
        """Most samples in all; samples of tasks that were left out count only against a budget."""
        counting = set(self.tasks)
        lost = sum(n for want, n in self._drawn.items() if want.task not in counting)
        most = most_samples(self.options.most, len(counting)) + lost
        return most if self.options.budget is None else min(most, self.options.budget)

    def _net_doubt(self, look: Look) -> str:
        """Describe which of the conditions 2, 3 and 5 fails; "" if none."""
        if not self._is_net_rise(look):
            doubt = f"the suite's mean moved {self._moved()}, which may be luck: {self._said()}"
            if self.options.searched is None or not self._lift:
                return doubt
            return f"{doubt}, and the search expected {100 * self._expected_rise():+.1f} points"
        held = self._held_out
        if held and self.counts.score(held) < FALLEN:
            return f"the val tasks are likely to have fallen; {self._said()}"
        if held and not self.repeats:
            train = [self.counts.pair(task) for task in self.tasks if task not in held]
            val = [self.counts.pair(task) for task in held]
            memorised = chance_memorised(train, val, MEMORISED_PRIOR)
            if memorised > look.memorised:
                return (
                    "the gain may be confined to tasks that the search has seen: the val tasks did "
                    f"not improve with them (probability {probability(memorised)}, at most "
                    f"{rounded(look.memorised)} is allowed)"
                )
        return self._strict_doubt()

    def _strict_doubt(self) -> str:
        """Describe that the observed pass rate did not rise, condition 5; "" if it did."""
        if self.counts.gain(self._compared) > NOTHING:
            return ""
        return f"the suite's mean did not strictly rise: {self._moved()}"

    @property
    def _last_look(self) -> Look:
        return LAST_OF_FEW if self._pairs <= FEW * len(self.tasks) else LAST

    def _is_net_rise(self, look: Look) -> bool:
        if self.repeats:
            return self.counts.gain(self._compared) > NOTHING
        if self.options.searched is None:
            return self._chance() >= look.sure
        return self._rise() >= look.found

    def _rise(self) -> float:
        """Return the rise of the suite's mean over its standard deviation, after a search.

        It is the mean of the observed rise and of the expected one, weighted by their precisions;
        a search that expects nothing in figures has the observed one only.
        """
        known = self._compared
        if not known or not self._lift:
            return self.counts.score(known)
        observed = self.counts.gain(known) / len(known)
        precision = (len(known) / self.counts.deviation(known)) ** 2
        prior = EXPECTED**-2
        total = precision * observed + prior * self._expected_rise()
        return total / math.sqrt(precision + prior)

    def _expected_rise(self) -> float:
        """Return the rise of the suite's mean that the search expects, by the tasks it has seen."""
        lifts = [self._lift[task] for task in self.tasks if task in self._lift]
        return math.fsum(lifts) / len(lifts) if lifts else 0.0

    def _is_hopeless(self) -> bool:
        if self.options.searched is None:
            return self._chance() <= HOPELESS
        return self.counts.score(self.tasks) <= FALLING

    def _chance(self) -> float:
        """Return ``P(rise)``."""
        pairs = [self.counts.pair(task) for task in self.tasks]
        return chance_of_rise(pairs)

    def _must_pass_in_doubt(self) -> str:
        """Describe the tasks that must pass and are unknown or look broken; "" if there is none."""
        if unseen := [task for task in self._unseen() if task in self.must_pass]:
            return f"must pass, and the budget ended before it was sampled: {named(unseen)}"
        must = self.unfinished(sorted(self.must_pass & set(self._compared)))
        doubtful = [task for task in must if self.counts.down(task) >= math.log(SUSPECT)]
        if not doubtful:
            return ""
        looked = self.counts.compared(doubtful)
        return f"must pass, and the budget ended while it looked broken: {looked}"

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
        return self.counts.complete()

    # Words of the verdict.

    def _judge(self, decision: Decision, reason: str) -> Verdict:
        if self.repeats:
            reason = f"{reason}; {REPEATS}"
        return self.verdict(decision, reason, log_e=self._log_e)

    def _moved(self) -> str:
        part = "" if len(self._compared) == len(self.tasks) else " on the tasks that were sampled"
        return f"from {self.counts.moved(self._compared)}{part}" if self._compared else "nowhere"

    def _said(self) -> str:
        """Describe how certain the rise is."""
        if self.options.searched is None:
            return f"the chance of a rise is {probability(self._chance())}"
        known = self._compared
        points = 100 * self.counts.deviation(known) / max(1, len(known))
        return f"chance moves the mean by {points:.1f} points"


def _share(value: float) -> str:
    """Write a share in [0, 1]; one below a tenth has two digits that are not zero."""
    if value < 0.1:
        return f"{100 * value:.2g} %"
    return probability(value)


def _apportion(exact: Mapping[str, float], pairs: int) -> dict[str, int]:
    """Return whole numbers of pairs by the largest remainders of their shares."""
    whole = {task: min(MOST_PAIRS, int(share)) for task, share in exact.items()}
    left = pairs - sum(whole.values())
    while left > 0:
        order = [task for task in exact if whole[task] < MOST_PAIRS]
        order.sort(key=lambda task: whole[task] - exact[task])
        for task in order[:left]:
            whole[task] += 1
        left = left - len(order) if order else 0
    return whole
