"""Gathered edits of a training that leaves every decision to the last comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.edits.compose import rebuild
from pytest_skillopt.search.bundle import SAMPLES_OF_A_LINE, Bundle, Outcome, mixed, staked
from pytest_skillopt.search.prune import apart, leave_out

if TYPE_CHECKING:
    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.search.bundle import Gathered
    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.workbench import Workbench

_CERTAIN = 4.0
"""Log Bayes factor from which an edit is not looked at again."""
_ROUNDS = 4
"""Most fresh samples of each arm and task in the last look."""
_STAKED = 0.25
"""Part of the capital, in (0, 1), staked on what leaving edits out shows; the rest stays with the
test of the last comparison."""
_SHARE = 0.05
"""Part of the search's samples, in (0, 1), that is kept for it."""
_EVEN = 1e-9
"""Log Bayes factors closer to zero than this say nothing, like that of no sample at all."""


class AdoptedBundle(Bundle):
    """A bundle that goes on once each edit was left out; there is no gate to refuse it."""

    def __init__(self, bench: Workbench, parameters: TrialParameters) -> None:
        self._adopted: list[Gathered] = []
        self._means = bench.allowance.left() or 0
        super().__init__(bench, parameters)

    def gate(self) -> Outcome:
        """Leave out each edit once; the rest are part of the skill until the last comparison."""
        try:
            self._bench.allowance.held = self._kept_for_the_end
            unsettled = self._revalidate()
            return self._adopt(unsettled) if self.lines else Outcome(unsettled=unsettled)
        finally:
            self._hold()

    def take_apart(self) -> Outcome:
        return self.gate()

    def _adopt(self, unsettled: tuple[str, ...]) -> Outcome:
        lines, candidate = self.lines, self.working.version
        proposals = tuple(gathered.line for gathered in lines)
        objection = self._bench.adopt(self.working, proposals)
        self.lines, self.working = [], self._bench.incumbent
        if objection is not None:
            lost = tuple(task for gathered in lines for task in gathered.tasks)
            return Outcome(objection, candidate, len(lines), (*unsettled, *lost), proposals)
        self._adopted += lines
        self._bench.prior = staked(self.evidence, _STAKED)
        return Outcome(None, candidate, len(lines), unsettled)

    def finish(self) -> tuple[Proposal, ...]:
        """Leave out once more those that are the least certain, as far as the means reach."""
        bench = self._bench
        bench.allowance.held = 0
        lines = list(bench.lines)
        doubtful = [g for g in self._doubtful if g.line in lines]
        doubtful.sort(key=lambda gathered: gathered.likelier)
        tested = {gathered.line: gathered.tasks for gathered in doubtful if gathered.tasks}
        known = {gathered.line: gathered.likelier for gathered in doubtful}
        compared = leave_out(
            bench, bench.base, lines, tested, _ROUNDS, known=known, enough=_CERTAIN
        )
        self.evidence += sum(mixed(comparison.own_evidence) for comparison in compared)
        bench.prior = staked(self.evidence, _STAKED)
        compared.sort(key=lambda comparison: comparison.likelier)
        idle = apart(comparison for comparison in compared if comparison.likelier < -_EVEN)
        kept = [line for line in lines if line not in idle]
        short = rebuild(bench.base, kept)
        if not idle or short is None:
            return ()
        bench.ledger.settle(idle, "dropped", "its tasks passed as often without it")
        bench.shorten(short, kept)
        return tuple(idle)

    def _hold(self) -> None:
        held = 0 if self._released else self._unproven_samples + self._kept_for_the_end
        self._bench.allowance.held = held

    @property
    def _kept_for_the_end(self) -> int:
        """For the last look."""
        return min(SAMPLES_OF_A_LINE * len(self._doubtful), int(_SHARE * self._means))

    @property
    def _doubtful(self) -> list[Gathered]:
        if not (self._parameters.revalidation and self._bench.settings.pruning):
            return []
        return [gathered for gathered in self._adopted if gathered.likelier < _CERTAIN]

    def _choose_size(self) -> int:
        return self._parameters.bundle
