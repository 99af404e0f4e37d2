"""Two forms of a pass rate under a document, each with a posterior over all samples.

Both are about the places of tasks at which samples failed (``places.py``): a task passes if it
gets past all of them.

*Needs*: a place is passed at its high rate if the document covers all that it needs and no idea
harms:

    P(pass | place i, document d) = (lo_i + (hi_i - lo_i) c_i(d)) h_i(d)
    c_i(d) = (1 - u_i) product over ideas e that are not in d of (1 - loss_ei)
    h_i(d) = product over ideas e in d of (1 - harm_ei)

``u_i`` is the chance that the place needs something that nobody has proposed. A failure while a
partner is missing says nothing against an idea here.

*Shifts*: each idea adds to the log odds of a place:

    logit P(pass | place i, document d) = b_i + sum over ideas e in d of s_ei

Ideas that bring a little everywhere add up here, whichever others are there.

In both forms an idea has one of a few hypotheses: it does nothing; it bears on a part of the places
(*local*: most of those that it was proposed for, few others; *general*: nearly all) by one of a few
effects; or it harms. Rates lie on a grid whose prior is learned from all places. The hypotheses of
one idea are weighed with the expectations of all others, the rates integrated out, then the rates
of each place (coordinate updates of a mean-field posterior; Blei, Kucukelbir and McAuliffe 2017).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]
    Flags: TypeAlias = NDArray[np.bool_]
    Integers: TypeAlias = NDArray[np.int_]

Kind = Literal["none", "local", "general", "harm"]
REPEATED = {"local": (1.0, 7.0), "general": (1.5, 2.5), "none": (0.8, 12.0)}
"""Beta prior of the share of the optimizer's replies that propose an idea, by its kind."""
TRUST, INSISTS = 0.5, 2.0
"""Weight, in [0, 1], of the number of proposals as evidence, since replies repeat each other, and
the most that they add to a log prior: an optimizer that insists on an edit proves nothing."""
LEAST, MOST = 1e-4, 1 - 1e-4
"""Bounds of a pass rate."""
EVERY = slice(None)
"""Index of all places."""


class Hypothesis(NamedTuple):
    """An effect that an idea may have."""

    kind: Kind
    effect: int
    """Index of its effect; 0 is none."""
    asked: float
    """Share, in [0, 1], of the places that it was proposed for on which it bears."""
    others: float
    """The same of the other places."""
    prior: float
    """Prior probability; those of a form sum to 1."""


class Proposals(NamedTuple):
    """How an idea was proposed."""

    asked: Floats
    """Degree to which an analyst that was asked about a place proposed the idea, in [0, 1]."""
    times: int
    """Replies that proposed it, at most ``of``."""
    of: int
    """Replies since its first proposal, at least 1."""


@dataclass(frozen=True, slots=True)
class Seen:
    """All samples as arrays, sorted by place: one row for each place that a sample reached."""

    places: int
    place: Integers
    passed: Flags
    inside: Flags
    """Flags by sample and idea: True if the idea was in the document."""

    @property
    def sampled(self) -> Flags:
        """Flags by place: True if it has a sample."""
        return np.bincount(self.place, minlength=self.places) > 0

    def sums(self, logs: Floats, rows: Integers | slice = slice(None)) -> Floats:
        """Sum an array by place; its first axis are samples, those of ``rows``."""
        place = self.place[rows]
        sums = np.zeros((self.places, *logs.shape[1:]))
        if len(place):
            first = np.flatnonzero(np.r_[True, place[1:] != place[:-1]])
            sums[place[first]] = np.add.reduceat(logs, first, axis=0)
        return sums


class Form(ABC):
    """One form of the pass rate, and its posterior."""

    hypotheses: ClassVar[Sequence[Hypothesis]]
    effects: ClassVar[Sequence[object]]

    def __init__(self, places: int) -> None:
        """Begin without ideas and samples."""
        self.places = places
        self._kind = np.array([hypothesis.kind for hypothesis in self.hypotheses])
        self._effect = np.array([hypothesis.effect for hypothesis in self.hypotheses])
        self._asked = np.array([hypothesis.asked for hypothesis in self.hypotheses])
        self._others = np.array([hypothesis.others for hypothesis in self.hypotheses])
        self._prior = np.log([hypothesis.prior for hypothesis in self.hypotheses])
        self.helps = np.isin(self._kind, ("local", "general"))
        """Flags by hypothesis: True if the idea helps under it."""
        self.weight = np.zeros((0, len(self.hypotheses)))
        """Posterior probability of each hypothesis, by idea."""
        self.reach = np.zeros((0, places, len(self.hypotheses)))
        """Probability that an idea bears on a place, by idea, place and hypothesis."""
        self.evidence = 0.0
        """Log probability that the form gave to the outcomes before it knew them."""

    def grow(self) -> None:
        """Make room for one more idea."""
        self.weight = np.vstack([self.weight, np.exp(self._prior)])
        self.reach = np.concatenate([self.reach, np.zeros((1, *self.reach.shape[1:]))])

    @abstractmethod
    def rates(self, ideas: Collection[int], places: slice = EVERY) -> Floats:
        """Return the expected pass rate of each of these places under a document."""

    @abstractmethod
    def update(self, seen: Seen, proposals: Sequence[Proposals], active: Collection[int]) -> None:
        """Weigh the hypotheses of the active ideas, then the rates of each place."""

    @abstractmethod
    def contrast(
        self, idea: int, halves: Sequence[int], kept: Collection[int]
    ) -> tuple[Floats, Floats, Floats]:
        """Return pass rates with an idea, without it, and if it bears on no place.

        The first two are places x hypotheses. ``halves`` are the other ideas that are in half of
        the documents, ``kept`` those in all.
        """

    def tells(self, idea: int, halves: Sequence[int], kept: Collection[int]) -> Floats:
        """Return what a sample of each place tells about whether an idea helps, in nats.

        It is the mutual information of the outcome and the answer, the mean of those with the idea
        and without it.
        """
        weight = self.weight[idea]
        reach = self.reach[idea]
        good = min(1 - 1e-6, max(1e-6, float(weight[self.helps].sum())))
        *arms, plain = self.contrast(idea, halves, kept)
        told = np.zeros(self.places)
        for arm in arms:
            rates = (1 - reach) * plain[:, None] + reach * arm
            if_good = rates @ (weight * self.helps) / good
            if_not = rates @ (weight * ~self.helps) / (1 - good)
            known = good * _entropy(if_good) + (1 - good) * _entropy(if_not)
            told += (_entropy(rates @ weight) - known) / 2
        return told

    def _believe_proposals(self, idea: int, proposals: Proposals) -> None:
        """Weigh an idea that was never sampled."""
        self.weight[idea] = _normal(self._log_prior(proposals))
        self.reach[idea] = self._shares(proposals)

    def _weigh(self, idea: int, proposals: Proposals, evidence: Floats) -> None:
        """Weigh an idea by the log likelihood of each place (rows) under each effect (columns)."""
        factor = (evidence - evidence[:, :1])[:, self._effect]
        share = self._shares(proposals)
        spared = np.log1p(-np.minimum(share, 1 - 1e-9))
        reached = np.log(np.maximum(share, 1e-12)) + factor
        either = np.logaddexp(spared, reached)
        self.weight[idea] = _normal(self._log_prior(proposals) + either.sum(0))
        self.reach[idea] = np.exp(reached - either)

    def _expected(self, idea: int, effect: Floats) -> Floats:
        """Return the expected effect of an idea on each place; ``effect`` is by hypothesis."""
        return np.asarray((self.reach[idea] * self.weight[idea] * effect).sum(1))

    def _shares(self, proposals: Proposals) -> Floats:
        return np.asarray(self._others + proposals.asked[:, None] * (self._asked - self._others))

    def _log_prior(self, proposals: Proposals) -> Floats:
        """Return the log prior of each hypothesis: what helps is proposed more often."""
        log = {
            kind: _beta_binomial(proposals.times, proposals.of, *beta)
            for kind, beta in REPEATED.items()
        }
        often = np.zeros(len(self._kind))
        for kind in ("local", "general"):
            often[self._kind == kind] = min(INSISTS, TRUST * (log[kind] - log["none"]))
        return np.asarray(self._prior + often)


class Needs(Form):
    """The form of needs that a document covers."""

    hypotheses = (
        Hypothesis("none", 0, 0.0, 0.0, 0.56),
        Hypothesis("local", 1, 0.8, 0.06, 0.14),
        Hypothesis("local", 2, 0.8, 0.06, 0.08),
        Hypothesis("general", 1, 0.95, 0.9, 0.05),
        Hypothesis("general", 2, 0.95, 0.9, 0.05),
        Hypothesis("harm", 3, 1.0, 1.0, 0.04),
        Hypothesis("harm", 4, 1.0, 1.0, 0.03),
        Hypothesis("harm", 4, 0.5, 0.5, 0.05),
    )
    effects = ((0.0, 0.0), (1.0, 0.0), (0.5, 0.0), (0.0, 0.15), (0.0, 0.45))
    """Loss of a place's coverage without the idea, and harm to its rate with it, in [0, 1]."""
    low = (0.02, 0.07, 0.15, 0.27, 0.42, 0.58, 0.73)
    high = (0.3, 0.5, 0.68, 0.82, 0.93)
    least_span = 0.12
    unmet = 0.25
    """Prior probability that a place needs something that nobody has proposed."""
    smoothing = 3.0
    """Places' worth of a flat prior in the learned prior of the rates."""
    coverages, healths = (0.0, 1.0, 0.02), (0.0, 1.0, 0.05)
    """Least and largest value and step of ``c`` and ``h`` in the table of log probabilities."""

    def __init__(self, places: int) -> None:
        """Begin without ideas and samples."""
        super().__init__(places)
        pairs = [(lo, hi) for lo in self.low for hi in self.high if hi - lo > self.least_span]
        self._low, high = np.array(pairs).T
        self._span = high - self._low
        c, h = (_grid(*bounds) for bounds in (self.coverages, self.healths))
        rates = (self._low + self._span * c[:, None, None]) * h[:, None]
        self._table = _log_outcomes(rates)
        self._losses, self._harms = np.array(self.effects)[self._effect].T
        self._rates_prior = np.full(len(pairs), 1 / len(pairs))
        self._rates = np.tile(self._rates_prior, (places, 1))
        self._unmet = np.full(places, self.unmet)
        self._loss = np.zeros((0, places))
        self._harm = np.zeros((0, places))

    def grow(self) -> None:
        """Make room for one more idea."""
        super().grow()
        self._loss = np.vstack([self._loss, np.zeros(self.places)])
        self._harm = np.vstack([self._harm, np.zeros(self.places)])

    def rates(self, ideas: Collection[int], places: slice = EVERY) -> Floats:
        """Return the expected pass rate of each of these places under a document."""
        covered, unharmed = self._factors(ideas, places)
        low = self._rates[places] @ self._low
        span = self._rates[places] @ self._span
        return np.asarray((low + span * covered) * unharmed)

    def update(self, seen: Seen, proposals: Sequence[Proposals], active: Collection[int]) -> None:
        """Weigh the hypotheses of the active ideas, then the rates of each place."""
        log_c = np.where(seen.inside, 0.0, _log_rest(self._loss[:, seen.place].T, 1e-3))
        log_h = np.where(seen.inside, _log_rest(self._harm[:, seen.place].T, 0.05), 0.0)
        sum_c = log_c.sum(1)
        sum_h = log_h.sum(1)
        met = 1 - self._unmet[seen.place]
        for idea in sorted(active):
            inside = seen.inside[:, idea]
            if inside.any():
                covered = met * np.exp(sum_c - log_c[:, idea])
                unharmed = np.exp(sum_h - log_h[:, idea])
                evidence = self._evidence(seen, inside, covered, unharmed)
                self._weigh(idea, proposals[idea], evidence)
            else:
                self._believe_proposals(idea, proposals[idea])
            self._loss[idea] = self._expected(idea, self._losses)
            self._harm[idea] = self._expected(idea, self._harms)
            new_c = np.where(inside, 0.0, _log_rest(self._loss[idea][seen.place], 1e-3))
            new_h = np.where(inside, _log_rest(self._harm[idea][seen.place], 0.05), 0.0)
            sum_c += new_c - log_c[:, idea]
            sum_h += new_h - log_h[:, idea]
            log_c[:, idea] = new_c
            log_h[:, idea] = new_h
        self._update_rates(seen, np.exp(sum_c), np.exp(sum_h))

    def contrast(
        self, idea: int, halves: Sequence[int], kept: Collection[int]
    ) -> tuple[Floats, Floats, Floats]:
        """Return pass rates with an idea and without it, and if it bears on no place."""
        always = sorted(set(kept) - {idea, *halves})
        half = list(halves)
        covered, _ = self._factors({idea, *always, *half})
        covered = covered * (1 - self._loss[half] / 2).prod(0)
        unharmed = (1 - self._harm[always]).prod(0) * (1 - self._harm[half] / 2).prod(0)
        low = self._rates @ self._low
        span = self._rates @ self._span
        plain = (low + span * covered) * unharmed
        with_it = plain[:, None] * (1 - self._harms)
        partly = covered[:, None] * (1 - self._losses)
        without = (low[:, None] + span[:, None] * partly) * unharmed[:, None]
        return with_it, without, plain

    def _factors(self, ideas: Collection[int], places: slice = EVERY) -> tuple[Floats, Floats]:
        """Return ``c`` and ``h`` of places under a document."""
        missing = np.ones(len(self._loss), bool)
        missing[list(ideas)] = False
        spared = (1 - self._loss[missing, places]).prod(0)
        return (1 - self._unmet[places]) * spared, (1 - self._harm[~missing, places]).prod(0)

    def _evidence(self, seen: Seen, inside: Flags, covered: Floats, unharmed: Floats) -> Floats:
        """Return the log likelihood of each place under each effect of an idea.

        A loss concerns only the samples without the idea, a harm only those with it.
        """
        losses, harms = np.array(self.effects).T
        with_it = np.flatnonzero(inside)
        without = np.flatnonzero(~inside)
        lost = self._logs(
            seen.passed[without, None],
            covered[without, None] * (1 - losses),
            unharmed[without, None],
        )
        harmed = self._logs(
            seen.passed[with_it, None],
            covered[with_it, None],
            unharmed[with_it, None] * (1 - harms),
        )
        return _log_mean(seen.sums(lost, without) + seen.sums(harmed, with_it), self._rates_prior)

    def _update_rates(self, seen: Seen, covered: Floats, unharmed: Floats) -> None:
        if_met = seen.sums(self._logs(seen.passed, covered, unharmed))
        if_not = seen.sums(self._logs(seen.passed, np.zeros_like(covered), unharmed))
        top = np.maximum(if_met.max(1), if_not.max(1))[:, None]
        met = np.exp(if_met - top) * self._rates_prior * (1 - self.unmet)
        unmet = np.exp(if_not - top) * self._rates_prior * self.unmet
        total = (met + unmet).sum(1, keepdims=True)
        self._rates = (met + unmet) / total
        self._unmet = (unmet / total).sum(1)
        flat = self.smoothing / len(self._low)
        known = seen.sampled
        self._rates_prior = (self._rates[known].sum(0) + flat) / (known.sum() + self.smoothing)

    def _logs(self, passed: Flags, covered: Floats, unharmed: Floats) -> Floats:
        """Look up the log probability of each outcome under each pair of rates (last axis)."""
        cells = _cells(covered, self.coverages), _cells(unharmed, self.healths)
        return np.asarray(self._table[(passed.astype(int), *cells)])


class Shifts(Form):
    """The form of shifts of the log odds that add up."""

    _helping = (
        Hypothesis("local", 3, 0.8, 0.06, 0.04),
        Hypothesis("local", 4, 0.8, 0.06, 0.07),
        Hypothesis("general", 1, 0.95, 0.9, 0.034),
        Hypothesis("general", 2, 0.95, 0.9, 0.034),
        Hypothesis("general", 3, 0.95, 0.9, 0.023),
    )
    _harmful = (
        Hypothesis("harm", 5, 1.0, 1.0, 0.028),
        Hypothesis("harm", 6, 1.0, 1.0, 0.011),
        Hypothesis("harm", 6, 0.5, 0.5, 0.01),
    )
    hypotheses = (Hypothesis("none", 0, 0.0, 0.0, 0.75), *_helping, *_harmful)
    effects = (0.0, 0.5, 1.0, 1.8, 3.5, -0.6, -2.0)
    """Shifts of the log odds of a pass."""
    bases = (-4.0, -3.0, -2.2, -1.5, -0.9, -0.4, 0.0, 0.4, 0.9, 1.5, 2.2, 3.0, 4.0)
    """Log odds of a pass without any idea."""
    smoothing = 6.0
    """Places' worth of a flat prior in the learned prior of the bases."""
    sums = (-8.0, 8.0, 0.05)
    """Least and largest sum of shifts and its step in the table of log probabilities."""

    def __init__(self, places: int) -> None:
        """Begin without ideas and samples."""
        super().__init__(places)
        self._grid = np.array(self.bases)
        self._table = _log_outcomes(1 / (1 + np.exp(-self._grid - _grid(*self.sums)[:, None])))
        self._shifts = np.array(self.effects)[self._effect]
        self._base_prior = np.full(len(self._grid), 1 / len(self._grid))
        self._base = np.tile(self._base_prior, (places, 1))
        self._shift = np.zeros((0, places))

    def grow(self) -> None:
        """Make room for one more idea."""
        super().grow()
        self._shift = np.vstack([self._shift, np.zeros(self.places)])

    def rates(self, ideas: Collection[int], places: slice = EVERY) -> Floats:
        """Return the expected pass rate of each of these places under a document."""
        return self._at(self._shift[:, places][sorted(ideas)].sum(0), places)

    def update(self, seen: Seen, proposals: Sequence[Proposals], active: Collection[int]) -> None:
        """Weigh the hypotheses of the active ideas, then the rates of each place."""
        parts = np.where(seen.inside, self._shift[:, seen.place].T, 0.0)
        total = parts.sum(1)
        for idea in sorted(active):
            inside = seen.inside[:, idea]
            if inside.any():
                evidence = self._evidence(seen, inside, total - parts[:, idea])
                self._weigh(idea, proposals[idea], evidence)
            else:
                self._believe_proposals(idea, proposals[idea])
            self._shift[idea] = self._expected(idea, self._shifts)
            part = np.where(inside, self._shift[idea][seen.place], 0.0)
            total += part - parts[:, idea]
            parts[:, idea] = part
        likelihood = seen.sums(self._logs(seen.passed, total))
        base = np.exp(likelihood - likelihood.max(1, keepdims=True)) * self._base_prior
        self._base = base / base.sum(1, keepdims=True)
        flat = self.smoothing / len(self._grid)
        known = seen.sampled
        self._base_prior = (self._base[known].sum(0) + flat) / (known.sum() + self.smoothing)

    def contrast(
        self, idea: int, halves: Sequence[int], kept: Collection[int]
    ) -> tuple[Floats, Floats, Floats]:
        """Return pass rates with an idea and without it, and if it bears on no place."""
        always = set(kept) - {idea, *halves}
        rest = self._shift[sorted(always)].sum(0) + self._shift[list(halves)].sum(0) / 2
        plain = self._at(rest)
        moved = np.stack([self._at(rest + shift) for shift in self.effects], 1)
        without = np.repeat(plain[:, None], len(self._effect), 1)
        return moved[:, self._effect], without, plain

    def _at(self, shift: Floats, places: slice = EVERY) -> Floats:
        """Return the expected pass rate of places with their log odds shifted."""
        odds = self._grid + shift[:, None]
        return np.asarray((self._base[places] / (1 + np.exp(-odds))).sum(1))

    def _evidence(self, seen: Seen, inside: Flags, rest: Floats) -> Floats:
        """Return the log likelihood of each place under each effect of an idea."""
        with_it = np.flatnonzero(inside)
        without = np.flatnonzero(~inside)
        shifted = rest[with_it, None] + np.array(self.effects)
        moved = seen.sums(self._logs(seen.passed[with_it, None], shifted), with_it)
        unmoved = seen.sums(self._logs(seen.passed[without], rest[without]), without)
        return _log_mean(moved + unmoved[:, None], self._base_prior)

    def _logs(self, passed: Flags, shift: Floats) -> Floats:
        """Look up the log probability of each outcome under each base (last axis)."""
        return np.asarray(self._table[passed.astype(int), _cells(shift, self.sums)])


def _grid(least: float, most: float, step: float) -> Floats:
    return np.linspace(least, most, round((most - least) / step) + 1)


def _cells(values: Floats, bounds: tuple[float, float, float]) -> Integers:
    """Return the indices of the nearest values of a grid."""
    least, most, step = bounds
    return np.rint((np.clip(values, least, most) - least) / step).astype(int)


def _log_outcomes(rates: Floats) -> Floats:
    """Return the log probabilities of a failure and of a pass (first axis)."""
    rates = np.clip(rates, LEAST, MOST)
    return np.log(np.stack([1 - rates, rates]))


def _log_rest(lost: Floats, least: float) -> Floats:
    return np.asarray(np.log(np.maximum(least, 1 - lost)))


def _log_mean(logs: Floats, weight: Floats) -> Floats:
    """Return the log of the weighted mean over the last axis of values given as logs."""
    top = logs.max(-1, keepdims=True)
    return np.asarray(np.log(np.exp(logs - top) @ weight) + top[..., 0])


def _normal(log_weight: Floats) -> Floats:
    weight = np.exp(log_weight - np.max(log_weight))
    return np.asarray(weight / weight.sum())


def _entropy(rate: Floats) -> Floats:
    rate = np.clip(rate, 1e-6, 1 - 1e-6)
    return np.asarray(-(rate * np.log(rate) + (1 - rate) * np.log(1 - rate)))


def _beta_binomial(k: int, n: int, a: float, b: float) -> float:
    """Return the log probability of k of n, up to the binomial coefficient."""
    terms = (k + a, n - k + b, a + b)
    signs = (n + a + b, a, b)
    return math.fsum(map(math.lgamma, terms)) - math.fsum(map(math.lgamma, signs))
