"""Leaving edits of the working skill out to see whether they are missed.

An edit that won its trial may have had good luck, and the more edits are tried the likelier that
is. So each is left out by itself once: fresh samples of its task with it and without, which have
chosen nothing, have to say that the task does better with it. The same samples are evidence for the
final comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.edits.records import goes_further
from pytest_skillopt.gate.statistics import log_bayes_factor
from pytest_skillopt.search.budget import Purpose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.samples import Activity
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.rollouts import Rollout

_BETS = ((0.15, 0.85), (0.4, 0.8))
"""Pass rates without an edit and with it that the capital is staked on, a half on each."""
_ON_AN_EDIT, _ON_ALL = 0.35, 0.4
"""Parts of the capital, in (0, 1), staked on each edit doing anything, and on all that the search
has shown; the rest stays with the test of the final comparison."""
_PAIRS_AT_ONCE = 3
"""Most pairs of a round: they tell whether an edit is missed if all of them agree."""
_SAMPLES = 8
"""About what leaving out one edit takes."""


@dataclass(slots=True)
class _Line:
    """An edit of the working skill."""

    edit: Edit
    task: str
    """The one that its trial turned most surely."""
    bar: float
    """What is added to the log Bayes factors from which it stays."""
    clear: float
    """Log Bayes factor from which it is clear that it is missed."""
    most: int
    """Pairs of samples, at most."""
    pairs: list[tuple[Rollout, Rollout]] = field(default_factory=list)
    """Fresh samples of the task, with the edit and without."""
    tested: bool = False

    @property
    def odds(self) -> float:
        """Log Bayes factor of "the task does better with it" against "it does alike"."""
        return log_odds([one for one, _ in self.pairs], [other for _, other in self.pairs])


class Ablation:
    """Which edits of the working skill are missed when they are left out."""

    def __init__(self, state: TrainingState, parameters: TrialParameters) -> None:
        self._state = state
        self._parameters = parameters
        self._lines: list[_Line] = []
        self.sampled: list[_Line] = []
        """Edits that were left out and are still to be judged."""
        self._staked: dict[str, list[tuple[Rollout, Rollout]]] = {}
        """By key of an edit, pairs that the capital is still to be staked on."""
        self._capital = [0.0] * len(_BETS)
        """Log e-value, by bet, that any edit does anything."""

    @property
    def untested(self) -> int:
        """Edits that were not left out yet."""
        return sum(not line.tested for line in self._lines)

    def add(self, edits: Iterable[Edit], task: str, bar: float = 0.0) -> None:
        """Edits have joined the working skill, after a trial that turned this task."""
        off, p = not self._state.settings.pruning, self._parameters
        lines = [_Line(edit, task, bar, p.missed + bar, p.pairs, tested=off) for edit in edits]
        self._lines += lines
        self._hold()

    def doubt(self) -> None:
        """Let each edit be left out once more; its earlier samples go on counting."""
        p = self._parameters
        for line in self._lines:
            line.clear, line.most = p.missed + p.later, p.pairs_again
            line.tested = not self._state.settings.pruning

    def forget(self, edit: Edit) -> None:
        """This is no edit of the working skill any more."""
        self._lines = [line for line in self._lines if line.edit != edit]
        self._hold()

    def leave_out(self) -> list[Edit]:
        """Leave out each edit that was not yet; those that are not missed, which are to go."""
        self._state.budget.hold(Purpose.ABLATION, 0)
        self._state.samples.carry_out(self.sample())
        return self.judge()

    def sample(self) -> Activity:
        """Sample with each edit that was not yet left out, and without."""
        self.sampled = [line for line in self._lines if not line.tested]
        yield from self._sample(self.sampled)

    def judge(self) -> list[Edit]:
        """Those of the edits left out last that are not missed, which are to go."""
        lines, self.sampled = self.sampled, []
        self._stake()
        idle = [line for line in lines if self._is_idle(line)]
        gone = _apart(reversed(idle))
        for line in lines:
            line.tested = line.tested or (line not in idle and not self._is_open(line))
            if line.pairs and (line.tested or line in idle):
                rise = sum(other.passed - one.passed for one, other in line.pairs)
                self._state.history.left_out(line.edit, {line.task: rise / len(line.pairs)})
        for line in idle:
            # Those that stay may be missed without what goes: they are left out anew.
            line.pairs.clear()
        self._lines = [line for line in self._lines if line not in gone]
        self._hold()
        return [line.edit for line in gone]

    def _is_idle(self, line: _Line) -> bool:
        """Whether an edit is to go, as far as its samples tell or more can be taken."""
        p = self._parameters
        if len(line.pairs) >= line.most:
            return line.odds <= line.bar + p.stays
        return line.odds <= p.idle or (line.odds < line.bar and not self._state.budget.covers(2))

    def _is_open(self, line: _Line) -> bool:
        """Whether more pairs of samples would tell more, and can be paid for."""
        clear = not self._parameters.idle < line.odds < line.clear
        return not clear and len(line.pairs) < line.most and self._state.budget.covers(2)

    def _hold(self) -> None:
        """Keep back samples for the edits that were not left out yet."""
        self._state.budget.hold(Purpose.ABLATION, _SAMPLES * self.untested)

    def _sample(self, lines: Sequence[_Line]) -> Activity:
        """Take pairs of samples until it is clear of each line whether it is missed.

        Those with it are shared by lines of one task. Where the means do not reach for all, the
        first go first.
        """
        state, p = self._state, self._parameters
        made = [(line, state.without(line.edit)) for line in lines]
        running = [(line, document) for line, document in made if document is not None]
        for line, document in made:
            line.tested = document is None  # Another edit builds on it.
        taken = 0
        while taken < p.pairs_again:
            running = [(line, document) for line, document in running if self._is_open(line)]
            while running and not state.budget.covers(_size(running)):
                running.pop()
            if not running:
                break
            at_once = min(_PAIRS_AT_ONCE, p.pairs_again - taken, state.width // _size(running))
            if not state.budget.covers(at_once * _size(running)):
                at_once = 1
            each = {o.task: max(1, at_once) for o, _ in running}
            taken += max(1, at_once)
            arms = [(document, {line.task: each[line.task]}) for line, document in running]
            whole, *others = yield "trial", [(state.incumbent, each), *arms]
            for (line, _), without in zip(running, others, strict=True):
                pairs = [
                    pair
                    for pair in zip(whole[line.task], without[line.task], strict=True)
                    if all(rollout.measured for rollout in pair)
                ]
                line.pairs += pairs
                if each.pop(line.task, 0):  # each sample is evidence once
                    self._staked.setdefault(line.edit.key, []).extend(pairs)

    def _stake(self) -> None:
        """Stake a part of the capital on each edit that was left out.

        A pair of samples is worth what it is likelier under the two rates of a bet than under their
        mean: at most 1 in expectation where both have one rate, whatever that is (Turner, Ly,
        Grünwald 2024, arXiv 2106.02693). None has chosen its edit, and the edits that are dropped
        after it count too, so that the capital is an e-value against "no edit does anything".
        """
        for pairs in self._staked.values():
            for number, (low, high) in enumerate(_BETS):
                mean = (low + high) / 2
                own = sum(
                    math.log(high / mean if one.passed else (1 - high) / (1 - mean))
                    + math.log(low / mean if other.passed else (1 - low) / (1 - mean))
                    for one, other in pairs
                )
                self._capital[number] += math.log1p(_ON_AN_EDIT * math.expm1(own))
        self._staked = {}
        capital = sum(math.exp(min(value, 50.0)) for value in self._capital) / len(_BETS)
        self._state.set_prior(1 - _ON_ALL + _ON_ALL * capital)


def _size(running: Sequence[tuple[_Line, object]]) -> int:
    """Samples of one more pair each."""
    return len(running) + len({line.task for line, _ in running})


def _apart(lines: Iterable[_Line]) -> list[_Line]:
    """Lines that may go together: of several that share a task, the first alone.

    Two that say the same stand in for each other, so that neither is missed, and without both their
    task falls back.
    """
    chosen: dict[str, _Line] = {}
    for line in lines:
        chosen.setdefault(line.task, line)
    return list(chosen.values())


def log_odds(one: Sequence[Rollout], other: Sequence[Rollout]) -> float:
    """Log Bayes factor of "a task does better in the first arm" against "it does alike".

    A failure of the first arm further on than every failure of the other counts as a pass.
    """
    ours, theirs = ([rollout for rollout in arm if rollout.measured] for arm in (one, other))
    if not ours or not theirs:
        return 0.0
    failures = [rollout for rollout in theirs if not rollout.passed]
    good = sum(rollout.passed or goes_further(rollout, failures) for rollout in ours)
    return log_bayes_factor(good, len(ours), len(theirs) - len(failures), len(theirs))
