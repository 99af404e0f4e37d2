"""Ablation: leave each edit of the working skill out to see whether its task does worse.

An edit may have won its trial by luck, the likelier the more edits are tried. So fresh samples of
its task with the edit and without it have to show that the task does better with it. These samples
have chosen nothing, so they are also evidence for the final comparison.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_skillopt.edits.records import goes_further
from pytest_skillopt.gate.data import Seen
from pytest_skillopt.gate.statistics import log_bayes_factor
from pytest_skillopt.search.budget import ABLATION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.samples import Activity
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.rollouts import Rollout

_ALTERNATIVES = ((0.15, 0.85), (0.4, 0.8))
"""Pass rates without an edit and with it, in (0, 1): two alternatives of the e-value, each with
half of the weight."""
_ON_AN_EDIT, _ON_ALL = 0.35, 0.4
"""Weights, in (0, 1), of an alternative against the null for each edit, and of the e-value of all
edits against the test of the final comparison."""
_PAIRS_AT_ONCE = 3
"""Most pairs of one edit in a round: they suffice for most useful ones."""
_SAMPLES = 8
"""Samples that the ablation of one edit takes on average."""


@dataclass(slots=True)
class _Tested:
    """An edit of the working skill and its ablation."""

    edit: Edit
    task: str
    """Task that changed most clearly in its trial."""
    bar: float
    """Added to the log Bayes factors from which the edit stays."""
    clear: float
    """Log Bayes factor from which the edit is clearly useful."""
    most: int
    """Largest number of pairs of samples."""
    pairs: list[tuple[Rollout, Rollout]] = field(default_factory=list)
    """Fresh samples of the task, with the edit and without."""
    tested: bool = False

    @property
    def odds(self) -> float:
        """Log Bayes factor of "the task does better with the edit" against "no change".

        Pairs under different working skills count apart: a pair was taken in vain if the task
        lacked another edit that has joined since, and it fails in other places now.
        """
        by_skill = itertools.groupby(self.pairs, key=lambda pair: pair[0].request.version)
        return sum(log_odds(*zip(*pairs, strict=True)) for _, pairs in by_skill)


class Ablation:
    """The ablation of all edits of the working skill."""

    def __init__(self, state: TrainingState, parameters: TrialParameters) -> None:
        self._state = state
        self._parameters = parameters
        self._entries: list[_Tested] = []
        self.sampled: list[_Tested] = []
        """Edits that have new samples and are still to be judged."""
        self._fresh: dict[str, list[tuple[Rollout, Rollout]]] = {}
        """By key of an edit, pairs that the e-value does not contain yet."""
        self._held = 0
        """Samples that are reserved for the untested edits."""
        self._log_e = [0.0] * len(_ALTERNATIVES)
        """Log e-value of each alternative against "no edit changes anything"."""

    @property
    def untested(self) -> int:
        """Number of edits whose ablation is not done."""
        return sum(not entry.tested for entry in self._entries)

    def add(self, edits: Iterable[Edit], task: str, bar: float = 0.0) -> None:
        """Add edits that have joined the working skill after a trial that changed this task."""
        off, p = not self._state.settings.pruning, self._parameters
        entries = [_Tested(edit, task, bar, p.missed + bar, p.pairs, tested=off) for edit in edits]
        self._entries += entries
        self._hold()

    def doubt(self) -> None:
        """Test each edit once more, with higher bounds; its earlier samples still count."""
        p = self._parameters
        for entry in self._entries:
            entry.clear, entry.most = p.missed + p.later, p.pairs_again
            entry.tested = not self._state.settings.pruning

    def forget(self, edit: Edit) -> None:
        """Remove an edit that is not in the working skill any more."""
        self._entries = [entry for entry in self._entries if entry.edit != edit]
        self._hold()

    def leave_out(self, *beside: Activity) -> list[Edit]:
        """Leave out each untested edit, beside other activities; return those to be dropped."""
        self._reserve(0)
        self._state.samples.carry_out(self.sample(), *beside)
        return self.judge()

    def sample(self) -> Activity:
        """Yield samples with and without each untested edit."""
        self.sampled = [entry for entry in self._entries if not entry.tested]
        yield from self._sample(self.sampled)

    def judge(self) -> list[Edit]:
        """Judge the edits with new samples; return those that are to be dropped."""
        entries, self.sampled = self.sampled, []
        self._add_evidence()
        idle = [entry for entry in entries if self._is_idle(entry)]
        # Without both of two edits that say the same, their task fails again: drop one of a task.
        gone = [*{entry.task: entry for entry in idle}.values()][::-1]
        for entry in entries:
            entry.tested = entry.tested or (entry not in idle and not self._is_open(entry))
            if entry.pairs and (entry.tested or entry in idle):
                rise = sum(other.passed - one.passed for one, other in entry.pairs)
                self._state.history.left_out(entry.edit, {entry.task: rise / len(entry.pairs)})
        for entry in idle:
            # Edits that stay may be useful without the dropped ones: test them again.
            entry.pairs.clear()
        self._entries = [entry for entry in self._entries if entry not in gone]
        self._hold()
        return [entry.edit for entry in gone]

    def _is_idle(self, entry: _Tested) -> bool:
        """Return whether an edit is to be dropped, by the samples that there are or can be."""
        p = self._parameters
        if len(entry.pairs) >= entry.most:
            return entry.odds <= entry.bar + p.stays
        return entry.odds <= p.idle or (entry.odds < entry.bar and not self._covers(2))

    def _is_open(self, entry: _Tested) -> bool:
        """Return whether an edit needs more pairs of samples that can be paid for."""
        clear = not self._parameters.idle < entry.odds < entry.clear
        return not clear and len(entry.pairs) < entry.most and self._covers(2)

    def _hold(self) -> None:
        """Reserve samples for the untested edits, and record those of all edits."""
        self._reserve(_SAMPLES * self.untested)
        seen: dict[str, Seen] = {}
        for entry in sorted(self._entries, key=lambda entry: -len(entry.pairs)):
            n = len(entry.pairs)
            passed, without = (sum(pair[arm].passed for pair in entry.pairs) for arm in (0, 1))
            seen.setdefault(entry.task, Seen(entry.task, passed, n, without, n))
        self._state.set_ablated(seen.values())

    def _reserve(self, samples: int) -> None:
        self._held = max(0, samples)
        self._state.purse.reserve(ABLATION, self._held)

    def _covers(self, samples: int) -> bool:
        """Return whether the budget, with the reserve, covers so many samples."""
        return samples - self._held <= self._state.purse.affordable()

    def _sample(self, entries: Sequence[_Tested]) -> Activity:
        """Yield pairs of samples until each edit is clearly useful or clearly not.

        Edits of one task share their samples with all edits. If the budget does not cover all
        edits, the first ones are tested.
        """
        state, p = self._state, self._parameters
        made = [(entry, state.without(entry.edit)) for entry in entries]
        running = [(entry, document) for entry, document in made if document is not None]
        for entry, document in made:
            entry.tested = document is None  # Another edit builds on this one.
        taken = 0
        while taken < p.pairs_again:
            running = [(entry, document) for entry, document in running if self._is_open(entry)]
            while running and not self._covers(_size(running)):
                running.pop()
            if not running:
                break
            at_once = min(_PAIRS_AT_ONCE, p.pairs_again - taken, state.width // _size(running))
            if not self._covers(at_once * _size(running)):
                at_once = 1
            each = {o.task: max(1, at_once) for o, _ in running}
            taken += max(1, at_once)
            self._reserve(self._held - max(1, at_once) * _size(running))
            arms = [(document, {entry.task: each[entry.task]}) for entry, document in running]
            whole, *others = yield "trial", [(state.incumbent, each), *arms]
            for (entry, _), without in zip(running, others, strict=True):
                pairs = [
                    pair
                    for pair in zip(whole[entry.task], without[entry.task], strict=True)
                    if all(rollout.measured for rollout in pair)
                ]
                entry.pairs += pairs
                if each.pop(entry.task, 0):  # Each sample is evidence once.
                    self._fresh.setdefault(entry.edit.key, []).extend(pairs)

    def _add_evidence(self) -> None:
        """Multiply the e-value against "no edit changes anything" by the new pairs of samples.

        The factor of a pair is its likelihood under the two rates of an alternative over that
        under their mean: at most 1 in expectation if both samples have the same rate (Turner, Ly,
        Grünwald 2024, arXiv 2106.02693). No pair has chosen its edit, and edits that are dropped
        afterwards count too.
        """
        for pairs in self._fresh.values():
            for number, (low, high) in enumerate(_ALTERNATIVES):
                mean = (low + high) / 2
                log_ratio = sum(
                    math.log(high / mean if one.passed else (1 - high) / (1 - mean))
                    + math.log(low / mean if other.passed else (1 - low) / (1 - mean))
                    for one, other in pairs
                )
                self._log_e[number] += math.log1p(_ON_AN_EDIT * math.expm1(log_ratio))
        self._fresh = {}
        e_value = sum(math.exp(min(log, 50.0)) for log in self._log_e) / len(_ALTERNATIVES)
        self._state.set_prior(1 - _ON_ALL + _ON_ALL * e_value)


def _size(running: Sequence[tuple[_Tested, object]]) -> int:
    """Return the samples that one more pair of each edit takes."""
    return len(running) + len({entry.task for entry, _ in running})


def log_odds(one: Sequence[Rollout], other: Sequence[Rollout]) -> float:
    """Return the log Bayes factor of "the first arm is better" against "both arms are alike".

    A failure of the first arm further on than every failure of the other counts as a pass.
    """
    ours, theirs = ([rollout for rollout in arm if rollout.measured] for arm in (one, other))
    if not ours or not theirs:
        return 0.0
    failures = [rollout for rollout in theirs if not rollout.passed]
    good = sum(rollout.passed or goes_further(rollout, failures) for rollout in ours)
    return log_bayes_factor(good, len(ours), len(theirs) - len(failures), len(theirs))
