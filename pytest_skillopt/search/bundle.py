"""The edits that won their trials and have not been before the gate: the working skill.

Before a bundle goes to the gate, each of its edits is left out once. A bundle that the gate refuses
is not refuted: it is kept, grows, and goes again; only after some refusals is it taken apart.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_skillopt.edits.compose import rebuild
from pytest_skillopt.edits.records import TaskRecord
from pytest_skillopt.gate.data import GateOptions
from pytest_skillopt.gate.statistics import log_e
from pytest_skillopt.search.prune import idle_lines, leave_out

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_skillopt.edits.proposals import Proposal
    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.search.parameters import TrialParameters
    from pytest_skillopt.search.workbench import Workbench
    from pytest_skillopt.skill.document import Document

_STAKE = 0.8
"""Share of the capital staked on each task that a bundle turned, in (0, 1)."""
_SLACK = 1.5
"""Log evidence taken beyond the gate's bar: val tasks without a sample cost some of it."""
_STAKE_OF_A_LINE = 0.6
SAMPLES_OF_A_LINE = 7
"""About what leaving one edit out takes."""
_RESAMPLED = 1.6
"""What a gate takes in all, for each sample of its complete rounds."""
_TASKS = 2
"""Tasks on which an edit is left out."""
_VISITS = 8
"""Visits to the gate up to which a bundle grows when the means allow for fewer."""
_GATES = 12
"""Visits to the gate that the means must allow for; else a thinner gate is taken."""


@dataclass(slots=True)
class Gathered:
    """An edit of the bundle, and the train tasks that its trial turned."""

    line: Proposal
    tasks: tuple[str, ...]
    validated: bool = False
    """It was left out once, and its tasks fell back."""
    likelier: float = 0.0
    """Log Bayes factor that it is missed, of leaving it out."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a visit to the gate changed."""

    verdict: Verdict | None = None
    candidate: str = ""
    edits: int = 0
    unsettled: tuple[str, ...] = ()
    """Train tasks whose record no longer holds, because an edit that turned them is gone."""
    given_up: tuple[Proposal, ...] = ()
    """Edits that won their trials and that the gate did not let pass."""


class Bundle:
    """The gathered edits on top of the incumbent."""

    def __init__(self, bench: Workbench, parameters: TrialParameters) -> None:
        self._bench = bench
        self._parameters = parameters
        self._refusals = 0
        self._refused_size = 0
        self.lines: list[Gathered] = []
        self.working = bench.incumbent
        self.evidence = 0.0
        """Log e-value, from leaving edits out, that those which have gathered do anything."""
        self._released = False
        self._gate = self._choose_gate()
        self._least = self._choose_size()
        self._hold()

    @property
    def ripe(self) -> bool:
        """Whether enough has gathered for a visit to the gate."""
        least = self._least
        if self._refusals:
            least = self._refused_size + self._parameters.growth
        return len(self.lines) >= least

    @property
    def refused(self) -> bool:
        """Whether the gate has seen just these edits and refused them."""
        return bool(self._refusals) and len(self.lines) == self._refused_size

    def add(self, gathered: Iterable[Gathered], document: Document) -> None:
        """Let edits join; ``document`` is the working skill with them."""
        self.lines += gathered
        self.working = document
        self._hold()

    def release(self) -> None:
        """Nothing more will be searched for: the means held for the gate may be spent."""
        self._released = True
        self._hold()

    def gate(self) -> Outcome:
        """Leave out each edit once, then take the rest to the gate."""
        try:
            self._bench.allowance.held = self._gate_samples(self._thinned())
            unsettled = self._revalidate()
            prior = self._prior()
            self._bench.allowance.held = 0
            if not self.lines:
                return Outcome(unsettled=unsettled)
            outcome = self._consider(unsettled, prior)
            if self._refusals >= self._parameters.refusals:
                parted = self.take_apart()
                return dataclasses.replace(
                    outcome,
                    unsettled=(*outcome.unsettled, *parted.unsettled),
                    given_up=parted.given_up,
                )
            return outcome
        finally:
            self._hold()

    def _hold(self) -> None:
        """Keep back what the next visit to the gate takes, leaving edits out included."""
        held = 0
        if not self._released:
            held = self._gate_samples(self._thinned()) + self._unproven_samples
        self._bench.allowance.held = held

    @property
    def _unproven_samples(self) -> int:
        """About what leaving out the edits takes that were not yet."""
        return SAMPLES_OF_A_LINE * sum(not gathered.validated for gathered in self.lines)

    def finish(self) -> tuple[Proposal, ...]:
        """The search is over and nothing waits for the gate: a last look at what went on.

        Returns:
            Edits that are out after all.
        """
        return ()

    def take_apart(self) -> Outcome:
        """Take each half to the gate by itself; what is refused again is given up."""
        lines, self.lines = self.lines, []
        self._refusals, self._refused_size, self.evidence = 0, 0, 0.0
        middle = (len(lines) + 1) // 2
        halves = [lines[:middle], lines[middle:]] if self._bench.settings.splitting else [lines]
        verdict, given_up, edits = None, list[Gathered](), 0
        for half in halves:
            proposals = [gathered.line for gathered in half]
            candidate = rebuild(self._bench.incumbent, proposals) if half else None
            accepted = False
            if candidate is not None and not self._bench.judged(candidate):
                verdict = self._bench.consider(candidate, proposals, name=self._gate)
                accepted = verdict.accepted
            if accepted:
                edits += len(half)
                self._bench.ledger.settle(proposals, "accepted")
            else:
                why = verdict.nameless if verdict else "the gate refused the bundle"
                detail = verdict.reason if verdict else ""
                self._bench.ledger.settle(proposals, "rejected", why, detail=detail)
                given_up += half
        self.working = self._bench.incumbent
        return Outcome(
            verdict,
            self.working.version,
            edits,
            tuple(task for gathered in given_up for task in gathered.tasks),
            tuple(gathered.line for gathered in given_up),
        )

    def _revalidate(self) -> tuple[str, ...]:
        """Drop the edits whose tasks do not fall back without them; their tasks are open again."""
        samples = self._parameters.revalidation
        if not samples or not self._bench.settings.pruning:
            return ()
        dropped: list[Gathered] = []
        while tested := {g.line: g.tasks[:_TASKS] for g in self.lines if not g.validated}:
            lines = [gathered.line for gathered in self.lines]
            compared = leave_out(self._bench, self._bench.incumbent, lines, tested, samples)
            idle = idle_lines(compared)
            in_doubt = [c.line for c in compared if c.idle and c.line not in idle]
            self.evidence += sum(mixed(comparison.own_evidence) for comparison in compared)
            kept = [gathered for gathered in self.lines if gathered.line not in idle]
            working = rebuild(self._bench.incumbent, [gathered.line for gathered in kept])
            if working is None:
                break
            self._bench.ledger.settle(idle, "dropped", "its tasks passed as often without it")
            dropped += [gathered for gathered in self.lines if gathered.line in idle]
            self.lines, self.working = kept, working
            likelier = {comparison.line: comparison.likelier for comparison in compared}
            for gathered in kept:
                gathered.validated = gathered.line not in in_doubt
                gathered.likelier = likelier.get(gathered.line, gathered.likelier)
        return tuple(task for gathered in dropped for task in gathered.tasks)

    def _consider(self, unsettled: tuple[str, ...], prior: float) -> Outcome:
        bench = self._bench
        proposals = [gathered.line for gathered in self.lines]
        options = dataclasses.replace(bench.gate_options(), prior=prior)
        verdict = bench.consider(self.working, proposals, options=options, name=self._gate)
        version = self.working.version
        if verdict.accepted:
            bench.ledger.settle(proposals, "accepted")
            self.lines, self.working = [], bench.incumbent
            self._refusals, self._refused_size, self.evidence = 0, 0, 0.0
        else:
            self._refusals += 1
            self._refused_size = len(self.lines)
            bench.ledger.settle(proposals, "rejected", verdict.nameless, detail=verdict.reason)
        return Outcome(verdict, version, len(proposals), unsettled)

    def _prior(self) -> float:
        """E-value that the bundle does anything, from the train tasks that it turned.

        The gate's null hypothesis, that the edits change nothing, says the same of train tasks. So
        samples of those speak against it too, if none was chosen by its luck: what leaving the
        edits out showed, those included that were dropped for it, and fresh samples of both skills
        after that. Each edit and each task stakes a part of the capital, one after the other;
        taking stops when the gate's bar is reached, which an e-value allows. Half of the capital
        stays out of it all, so that edits which were dropped cost the others no more than that.
        """
        known = {task.id: task for task in self._bench.train}
        tasks = dict.fromkeys((t for g in self.lines for t in g.tasks if t in known), 1)
        if not tasks or self._bench.shared or self._bench.settings.gate != "staged":
            return 1.0
        bar = -math.log(self._bench.settings.gate_alpha) + _SLACK
        arms = [(self._bench.incumbent, tasks), (self.working, tasks)]
        before = {task: TaskRecord(known[task]) for task in tasks}
        after = dict(before)
        evidence = self.evidence
        for _ in range(self._parameters.prior_samples):
            if evidence >= bar or not self._bench.allowance.covers(2 * len(tasks)):
                break
            old, new = self._bench.samples.take_all(arms, "prior")
            for task in tasks:
                before[task] = before[task].plus(old[task])
                after[task] = after[task].plus(new[task])
            fresh = sum(_staked(after[task], before[task]) for task in tasks)
            evidence = self.evidence + fresh
        return staked(evidence, 0.5)

    def _choose_gate(self) -> str:
        """The gate of the settings; of the staged one, the preset that the means allow.

        The bounds on false accepts and false blocks hold for each; what a thinner one lacks is
        power. Its name is in the verdict. Where the user has set the rounds, those are taken.
        """
        bench, means = self._bench, self._bench.allowance.left()
        options, standard = bench.gate_options(), GateOptions()
        own_rounds = (options.k0, options.kc) != (standard.k0, standard.kc)
        if bench.settings.gate != "staged" or means is None or own_rounds:
            return bench.settings.gate
        for name, thinner in (("staged", options), ("economy", options.economy())):
            if means >= _GATES * self._gate_samples(thinner):
                return name
        return "thin"

    def _choose_size(self) -> int:
        """Edits of a bundle: the fewer visits to the gate the means allow for, the more."""
        least, means = self._parameters.bundle, self._bench.allowance.left()
        if means is None:
            return least
        visits = max(1.0, means / self._gate_samples(self._thinned()))
        return max(least, math.ceil(least * _VISITS / visits))

    def _thinned(self) -> GateOptions:
        options = self._bench.gate_options()
        presets = {"economy": options.economy, "thin": options.thin}
        return presets[self._gate]() if self._gate in presets else options

    def _gate_samples(self, options: GateOptions) -> int:
        """About what a decision takes: both tapes and some focus."""
        rounds = options.k0 + options.kc
        if self._bench.settings.gate != "staged":
            rounds = 2 * options.rollouts
        return math.ceil(_RESAMPLED * rounds * len(self._bench.val))


def staked(evidence: float, part: float) -> float:
    """E-value of staking this part of the capital, in (0, 1), on log evidence."""
    return 1 - part + part * math.exp(min(evidence, 50.0))


def mixed(evidence: float) -> float:
    """Log of what the capital becomes when a part of it is staked on one edit doing anything."""
    return math.log1p(_STAKE_OF_A_LINE * math.expm1(evidence))


def _staked(after: TaskRecord, before: TaskRecord) -> float:
    """Log of what the capital becomes when most of it is staked on one task having improved."""
    log_value = log_e(after.passed, after.n, before.passed, before.n)
    return math.log1p(_STAKE * math.expm1(log_value))
