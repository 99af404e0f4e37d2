"""One posterior over all samples of a search: which ideas help, and what that is worth.

A sample is a task, the ideas in the document, and whether it passed. Two forms of the pass rate
(``forms.py``) each have a posterior over all samples; they are mixed by the probability that each
gave to the outcomes before it knew them (a prequential Bayes factor; Dawid 1984). Nothing here
accepts a skill: a model that is wrong costs samples, never a wrong verdict.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal

import numpy as np

from pytest_skillopt.search.choices import Bonds
from pytest_skillopt.search.forms import Needs, Proposals, Seen, Shifts
from pytest_skillopt.search.places import Place, Places

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pytest_skillopt.search.choices import Factor, Idea
    from pytest_skillopt.search.forms import Floats, Form

_NORMAL = NormalDist()
State = Literal["open", "kept", "given up"]

KEPT, DOUBTED, GIVEN_UP, REOPENED = 0.90, 0.5, 0.015, 0.10
"""Probabilities that an idea helps: above which it is kept, below which a kept one is open again,
below which it is given up, and above which one that was given up is open again."""
TOGETHER = 12
"""Most open ideas in one document."""
TESTED = 0.3
"""Part of the documents that leave the only kept idea out; less each, the more there are."""
SURE = 0.98
"""Probability that an idea helps from which it is not sampled further."""
BESIDE = 0.05
"""Part of what the best idea of a document tells that another one has to tell to be in it."""
SPREAD = 0.95
"""Factor on what an idea tells once a sample of the round is about it."""
WORTH = 0.0003
"""Information of a sample, in nats, below which it is not taken."""
PROMISING = 0.2
"""Probability that an idea helps from which it is promising."""
MOST_AHEAD = 4.0
"""Largest difference of the log weights of the two forms, since both are wrong."""
REVISIT = 5
"""Updates from one to the next in which an idea that was given up is weighed again."""
STAKES = 6
"""Most independent choices that one bet is about."""
MATTERS = 0.01
"""Change of the pass rate, in [0, 1], from which a bet is about a choice."""
OFFERED = 0.25
"""Probability that an idea helps above which it may be in the candidate."""
SIBLING = 0.15
"""Part, in [0, 1], of a proposal about one place that counts for the others of its task."""
IDLE_LINE = 0.07
"""Rise of the suite's pass rate, in [0, 1], that one line which does nothing costs a candidate."""


@dataclass(frozen=True, slots=True)
class Job:
    """One sample of a task under a document that is drawn at random."""

    task: int
    factors: tuple[Factor, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One sample: a task, the ideas in the document, and whether it passed."""

    task: int
    ideas: frozenset[Idea]
    failed_at: Place | None
    """Place of its failure; None if it passed."""

    @property
    def passed(self) -> bool:
        return self.failed_at is None


@dataclass(slots=True)
class _Belief:
    """An idea as the model knows it."""

    since: int
    """Replies of the optimizer before its first proposal."""
    tasks: Counter[int] = field(default_factory=Counter)
    """Number of proposals by the task that the analyst was asked about."""
    places: set[tuple[int, Place]] = field(default_factory=set)
    """Pairs of such a task and the place of its latest failure then."""
    state: State = "open"


class Model:
    """The posterior of a search on some tasks."""

    def __init__(self, tasks: int) -> None:
        """Begin without ideas and samples."""
        self._tasks = tasks
        self._calls = 0
        self._ideas: list[_Belief] = []
        self._bonds = Bonds()
        self._left_out: set[int] = set()
        self._samples: list[Outcome] = []
        self._places = Places(tasks)
        self._failed_at: dict[int, Place] = {}
        """Place of the latest failure by task."""
        self._forms: tuple[Form, ...] = (Needs(len(self._places)), Shifts(len(self._places)))
        self._weights = np.full(len(self._forms), 1 / len(self._forms))
        self._updates = 0

    # Events of the search.

    def add(self) -> Idea:
        """Add an idea without evidence."""
        self._ideas.append(_Belief(self._calls))
        for form in self._forms:
            form.grow()
        return len(self._ideas) - 1

    def propose(self, idea: Idea, task: int, count: int = 1) -> None:
        """Count proposals by analysts that were asked about a task."""
        self._ideas[idea].tasks[task] += count
        self._ideas[idea].places.add((task, self._failed_at.get(task, Place())))

    def called(self, calls: int) -> None:
        """Tell how often the optimizer was asked so far."""
        self._calls = calls

    def forbid(self, one: Idea, other: Idea) -> None:
        """Declare two ideas alternatives: they are never in one document."""
        self._bonds.forbid(one, other)

    def require(self, idea: Idea, other: Idea) -> None:
        """Declare that the first idea is only in documents that have the other one."""
        self._bonds.require(idea, other)

    def leave_out(self, task: int) -> None:
        """Sample a task no more, since it cannot be measured."""
        self._left_out.add(task)

    def learn(self, samples: Sequence[Outcome] = ()) -> None:
        """Add samples, and update the posterior of all ideas and tasks."""
        self._judge_forms(samples)
        self._samples += samples
        for sample in samples:
            if sample.failed_at is not None:
                self._failed_at[sample.task] = sample.failed_at
                self._places.fail(sample.task, sample.failed_at)
        seen = self._seen()
        proposals = [self._proposals(idea) for idea in self._ideas]
        for form in self._forms:
            form.update(seen, proposals, self._active())
        self._updates += 1

    # Questions of the search.

    @property
    def state(self) -> Mapping[Idea, State]:
        return {number: idea.state for number, idea in enumerate(self._ideas)}

    @property
    def kept(self) -> frozenset[Idea]:
        return self._compatible(self._in_state("kept"))

    def good(self, idea: Idea) -> float:
        """Return the probability, in [0, 1], that an idea helps."""
        chances = [form.weight[idea][form.helps].sum() for form in self._forms]
        return float(self._weights @ chances)

    def rates(self, ideas: Collection[Idea]) -> Floats:
        """Return the expected pass rate of each task under a document with these ideas."""
        rates = np.zeros(self._tasks)
        for weight, form in zip(self._weights, self._forms, strict=True):
            rates += weight * self._pass_rates(form, ideas)
        return rates

    def mean_rate(self, ideas: Collection[Idea]) -> float:
        """Return the expected mean pass rate of the tasks under a document with these ideas."""
        return float(self.rates(ideas).mean())

    def lift(self, ideas: Collection[Idea]) -> Floats:
        """Return the expected rise of the pass rate of each task by these ideas together."""
        return self.rates(ideas) - self.rates(())

    def lift_beside_kept(self, idea: Idea) -> Floats:
        """Return the expected rise of the pass rate of each task by an idea, with the kept ones."""
        kept = self.kept - {idea}
        return self.rates(kept | {idea}) - self.rates(kept)

    def probable(self, least: float) -> frozenset[Idea]:
        """Return the ideas that help with at least this probability, as one document holds them."""
        return self._compatible(idea for idea in self.state if self.good(idea) >= least)

    def promising(self) -> int:
        """Count the open ideas with a fair chance to help."""
        return sum(self.good(idea) > PROMISING for idea in self._in_state("open"))

    def worth_asking(self, failing: Iterable[int], asked: Counter[int]) -> list[int]:
        """Order failing tasks as analysts should see them: those expected to fail most first.

        ``asked`` counts how often analysts were asked about each.
        """
        rate = self.rates(self.kept)
        return sorted(failing, key=lambda task: (-(1 - rate[task]) / (1 + 0.7 * asked[task]), task))

    def settle(self) -> None:
        """Keep ideas, give them up, and open them again."""
        good = [self.good(number) for number in range(len(self._ideas))]
        for number in sorted(range(len(good)), key=lambda number: -good[number]):
            idea = self._ideas[number]
            if idea.state == "open" and good[number] > KEPT:
                self._keep(number)
            elif idea.state == "open" and good[number] < GIVEN_UP:
                idea.state = "given up"
            elif good[number] < DOUBTED if idea.state == "kept" else good[number] > REOPENED:
                idea.state = "open"  # An open one stays open.

    def round(self, most: int) -> list[Job]:
        """Return at most so many samples, where they tell most; none if nothing is worth one.

        If no idea is open, the kept ones that one is least sure of are sampled.
        """
        unsure = [number for number in self._in_state("kept") if self.good(number) < SURE]
        return self._jobs(self._in_state("open"), most) or self._jobs(unsure, most)

    def bet(
        self, job: Job, drawn: frozenset[Idea], is_new: Callable[[frozenset[Idea]], bool]
    ) -> tuple[float, float] | None:
        """Return P(pass) under the document drawn, and its mean over those that could have been.

        The bet is about the choices that are expected to matter for the task; the others count as
        drawn. Which matter must not depend on the draw: the bet would not be fair. Nor may it
        depend on it which documents the mean is over: those that are new for the task.

        Args:
            job: the sample, before it is taken.
            drawn: the ideas in its document.
            is_new: whether the document with these ideas was not sampled with the task before.

        Returns:
            Two probabilities in (0, 1); None if there is nothing to bet on.
        """
        if not is_new(drawn):
            return None
        whole = frozenset[int]().union(*(max(sets, key=len) for sets in map(_sets, job.factors)))
        rate = functools.cache(functools.partial(self._rate, job.task))
        weights = {factor: _worth(factor, whole, rate) for factor in job.factors}
        stakes = [factor for factor in job.factors if weights[factor] > MATTERS]
        stakes = sorted(stakes, key=lambda factor: -weights[factor])[:STAKES]
        free = _ideas_of(stakes)
        chances = []
        terms = []
        for choice in itertools.product(*stakes):
            document = (drawn - free).union(*(ideas for ideas, _ in choice))
            if is_new(document):
                chance = math.prod(odds for _, odds in choice)
                chances.append(chance)
                terms.append(chance * rate(document))
        own = rate(drawn)
        mean = math.fsum(terms) / math.fsum(chances)
        return (own, mean) if own != mean else None

    # The candidate.

    def candidate(self, pairs: int, log_e: float, alpha: float) -> frozenset[Idea]:
        """Return the ideas whose expected rise, if the verdict accepts them, is the largest.

        Args:
            pairs: fresh samples of each skill that the verdict can take.
            log_e: log of what the search has won by its bets.
            alpha: level of the verdict.
        """
        level = min(0.5, alpha * math.exp(log_e))
        every = range(len(self._ideas))
        ideas = self._compatible(idea for idea in every if self.good(idea) > OFFERED)
        ideas = self._without_idle(ideas, pairs, level)
        return ideas if self._worth_of(ideas, pairs, level) > 0 else frozenset()

    def _without_idle(self, ideas: frozenset[Idea], pairs: int, level: float) -> frozenset[Idea]:
        """Leave out ideas, the least certain first, as long as the rest is worth as much."""
        for idea in sorted(ideas, key=lambda idea: (self.good(idea), idea)):
            fewer = ideas - {idea}
            if not self._bonds.allow(fewer):
                continue
            if self._worth_of(fewer, pairs, level) >= self._worth_of(ideas, pairs, level):
                ideas = fewer
        return ideas

    def _worth_of(self, ideas: frozenset[Idea], pairs: int, level: float) -> float:
        """Return the chance of acceptance times the rise, less what idle lines cost."""
        before = self.rates(())
        after = self.rates(ideas)
        rise = float((after - before).mean())
        if rise <= 0:
            return 0.0
        idle = sum(1 - self.good(idea) for idea in ideas)
        power = self._power(ideas, pairs, level)
        return power * (rise - IDLE_LINE * idle)

    def _power(self, ideas: frozenset[Idea], pairs: int, level: float) -> float:
        """Return the chance that the verdict accepts, in a normal approximation.

        The doubt about single ideas widens the distribution of the rise.
        """
        mean, spread = self._moments(ideas)
        doubt = mean * pairs * self._doubt(ideas)
        critical = _NORMAL.inv_cdf(1 - level) * spread * math.sqrt(pairs)
        return _NORMAL.cdf((mean * pairs - critical) / math.hypot(spread * math.sqrt(pairs), doubt))

    def _moments(self, ideas: frozenset[Idea]) -> tuple[float, float]:
        """Return mean and standard deviation of what one pair adds to the statistic of the verdict.

        It takes 35 % of its pairs evenly and the others where a lift is expected, and weighs tasks
        by their lift.
        """
        before = self.rates(())
        after = self.rates(ideas)
        weight = np.maximum(0.01, after - before)
        share = 0.35 / self._tasks + 0.65 * weight / weight.sum()
        noise = before * (1 - before) + after * (1 - after)
        mean = float((share * weight * (after - before)).sum())
        return mean, math.sqrt(float((share * weight**2 * noise).sum()))

    def _doubt(self, ideas: frozenset[Idea]) -> float:
        """Return the standard deviation of the rise by the doubt about each idea, over the rise."""
        after = self.rates(ideas)
        rise = float((after - self.rates(())).mean())
        squares = []
        for idea in ideas:
            good = self.good(idea)
            own = float(np.maximum(0.0, after - self.rates(ideas - {idea})).mean())
            squares.append(max(0.0, good * (1 - good)) * (own / max(0.05, good)) ** 2)
        return math.sqrt(math.fsum(squares)) / rise

    # The parts of an update.

    def _pass_rates(self, form: Form, ideas: Collection[Idea]) -> Floats:
        """Return the pass rate of each task by one form: the product of those of its places."""
        return np.asarray(self._places.by_task(form.rates(ideas), 1.0).prod(1))

    def _pass_rate(self, form: Form, task: int, ideas: Collection[Idea]) -> float:
        """Return the pass rate of one task by one form."""
        return float(form.rates(ideas, self._places.of(task)).prod())

    def _judge_forms(self, samples: Sequence[Outcome]) -> None:
        """Weigh the forms by how likely they held the outcomes."""
        told = [sample for sample in samples if sample.ideas]
        for form in self._forms:
            for sample in told:
                passes = self._pass_rate(form, sample.task, sample.ideas)
                chance = min(0.999, max(0.001, passes))
                if not sample.passed:
                    chance = 1 - chance
                form.evidence += math.log(chance)
        evidence = np.array([form.evidence for form in self._forms])
        odds = np.exp(np.maximum(-MOST_AHEAD, evidence - evidence.max()))
        self._weights = odds / odds.sum()

    def _seen(self) -> Seen:
        rows: list[tuple[int, bool, frozenset[Idea]]] = []
        for sample in self._samples:
            for number, passed in self._places.outcomes(sample.task, sample.failed_at):
                rows.append((number, passed, sample.ideas))
        rows.sort(key=lambda row: row[0])
        inside = np.zeros((len(rows), len(self._ideas)), bool)
        for number, (_, _, ideas) in enumerate(rows):
            inside[number, list(ideas)] = True
        return Seen(
            len(self._places),
            np.array([number for number, _, _ in rows], int),
            np.array([passed for _, passed, _ in rows], bool),
            inside,
        )

    def _proposals(self, idea: _Belief) -> Proposals:
        """Return how an idea was proposed.

        It is about the place of the failure, and less about the others of the task.
        """
        asked = np.zeros(len(self._places))
        for task, place in sorted(idea.places):
            own = self._places.of(task)
            asked[own] = np.maximum(asked[own], SIBLING)
            asked[self._places.number(task, place)] = 1.0
        calls = max(1, self._calls - idea.since + 1)
        return Proposals(asked, min(calls, idea.tasks.total()), calls)

    def _active(self) -> list[Idea]:
        """Return the ideas to weigh: those that were given up only now and then."""
        return [
            number
            for number, idea in enumerate(self._ideas)
            if idea.state != "given up" or (self._updates + number) % REVISIT == 0
        ]

    def _keep(self, number: Idea) -> None:
        """Keep an idea, unless it is an alternative to a kept one that lifts as much."""
        kept = self.kept
        rivals = self._bonds.rivals(number) & kept
        if rivals and self.rates(kept).mean() >= self.rates(kept - rivals | {number}).mean():
            return
        for rival in rivals:
            self._ideas[rival].state = "open"
        self._ideas[number].state = "kept"

    # The choice of samples.

    def _jobs(self, ideas: Sequence[Idea], most: int) -> list[Job]:
        if not ideas:
            return []
        value = self._tells(ideas)
        count = np.zeros(self._tasks)
        value[:, sorted(self._left_out)] = 0.0
        jobs: list[Job] = []
        for _ in range(most):
            order = np.argsort(-value, axis=0, kind="stable")[:TOGETHER]
            best = np.take_along_axis(value, order, 0)
            total = best.sum(0) * 0.6**count
            task = int(np.argmax(total))
            if total[task] < WORTH:
                break
            count[task] += 1
            chosen = [row for row in order[:, task] if value[row, task] > BESIDE * best[0, task]]
            value[chosen] *= SPREAD
            value[chosen, task] *= 0.7
            jobs.append(Job(task, self._bonds.factors(self._chances([ideas[k] for k in chosen]))))
        return jobs

    def _tells(self, ideas: Sequence[Idea]) -> Floats:
        """Return what a sample of each task tells about each idea, in nats; ideas x tasks."""
        tells = np.zeros((len(ideas), self._tasks))
        kept = self.kept
        reached = {form: self._reached(form) for form in self._forms}
        for row, idea in enumerate(ideas):
            halves = [other for other in ideas if other != idea]
            for weight, form in zip(self._weights, self._forms, strict=True):
                told = self._places.by_task(form.tells(idea, halves, kept), 0.0)
                tells[row] += weight * (told * reached[form]).sum(1)
        return tells

    def _reached(self, form: Form) -> Floats:
        """Return the chance that a sample with the kept ideas reaches each place, by task."""
        rates = self._places.by_task(form.rates(self.kept), 1.0)
        return np.hstack([np.ones((self._tasks, 1)), rates[:, :-1].cumprod(1)])

    def _chances(self, ideas: Sequence[Idea]) -> dict[Idea, float]:
        """Return the chance of each idea in a document: these by 1/2, kept ones seldom left out."""
        kept = self.kept
        stays = 1 - TESTED / math.sqrt(max(1, len(kept)))
        chances = dict.fromkeys(sorted(kept - set(ideas)), stays)
        for idea in sorted(ideas):
            chances.update(dict.fromkeys(sorted(self._bonds.with_needs(idea) - kept), 0.5))
            rivals = self._bonds.rivals(idea) & kept
            chances[idea] = 0.5
            if rivals:
                # Each of the two, and neither, are then as likely.
                chances.update(dict.fromkeys((idea, *sorted(rivals)), 2 / 3))
        return chances

    def _rate(self, task: int, ideas: Collection[Idea]) -> float:
        rate = sum(
            weight * self._pass_rate(form, task, ideas)
            for weight, form in zip(self._weights, self._forms, strict=True)
        )
        return min(0.99, max(0.01, float(rate)))

    def _in_state(self, state: State) -> list[Idea]:
        return [number for number, idea in enumerate(self._ideas) if idea.state == state]

    def _compatible(self, ideas: Iterable[Idea]) -> frozenset[Idea]:
        """Return the ideas that one document may hold, those that surely help first."""
        return self._bonds.compatible(sorted(ideas, key=lambda idea: (-self.good(idea), idea)))


def _sets(factor: Factor) -> list[frozenset[Idea]]:
    return [ideas for ideas, _ in factor]


def _worth(
    factor: Factor, whole: frozenset[Idea], rate: Callable[[frozenset[Idea]], float]
) -> float:
    """Return how far the pass rate of a task depends on a choice within a document."""
    rest = whole - _ideas_of([factor])
    rates = [rate(rest | ideas) for ideas, _ in factor]
    return max(rates) - min(rates)


def _ideas_of(factors: Iterable[Factor]) -> frozenset[Idea]:
    return frozenset(idea for factor in factors for ideas, _ in factor for idea in ideas)
