"""The state of a training that all its parts share: the incumbent, and the rules that change it.

A search only chooses what to sample and what to propose. Two rules hold for every search: whatever
changes the skill passes the gate, and a version is judged once. Only this class assigns to its
fields.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pytest_skillopt.edits.combine import whole_body
from pytest_skillopt.edits.update import rebuild
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.gate.data import VETTING, GateOptions, Verdict
from pytest_skillopt.rollouts.sampler import StopRun
from pytest_skillopt.search.extensions import (
    gate_options,
    gate_tasks,
    make_gate,
    search_of,
)
from pytest_skillopt.search.history import History
from pytest_skillopt.tasks.splits import test_of, train_of, val_of
from pytest_skillopt.words import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.gate.engine import SequentialGate
    from pytest_skillopt.rollouts.rollout import Rollout
    from pytest_skillopt.run.result import ProspectRow
    from pytest_skillopt.search.estimate import Belief
    from pytest_skillopt.search.extensions import Stages
    from pytest_skillopt.search.history import Basis, Observer
    from pytest_skillopt.search.samples import Samples
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask

_SINGLE = ("failure", "contrast", "success")
"""Origins of single edits, which can be left out again."""


class Outlook(Protocol):
    """Expectations of a search with a model, after the final comparison."""

    def learn(
        self,
        before: Mapping[str, Sequence[Rollout]],
        after: Mapping[str, Sequence[Rollout]],
    ) -> Mapping[str, Belief]:
        """Learn the fresh samples of both versions; return what is expected of each train task."""
        ...

    def prospect(self) -> ProspectRow | None:
        """Return what further rollouts would have brought when the search ended."""
        ...

    def hoped(self) -> Mapping[str, float]:
        """Return the expected pass rate of train tasks with all edits that probably help."""
        ...


class TrainingState:
    """The incumbent, with the samples, the budget and the history of the training.

    Args:
        context: holds the skill on disk, the settings and the tools of the stages.
        tasks: the suite of the skill.
        samples: takes them within what the training may spend.
        stages: the stages of the search.
        observer: is told what happens.
        width: most samples of a round of the default search.
    """

    def __init__(
        self,
        context: Context,
        tasks: Sequence[SkillTask],
        samples: Samples,
        *,
        stages: Stages,
        observer: Observer,
        width: int,
    ) -> None:
        self.context = context
        self.search = search_of(context.settings)
        self.samples = samples
        self.skill = samples.skill
        self.purse = samples.purse
        self.stages = stages
        self.width = width
        self.start = context.version
        self.incumbent = context.version
        self.base = context.version
        """Version that the accepted edits are applied to: the start, or the last rewrite."""
        self.edits: list[Edit] = []
        """Accepted edits that make the incumbent out of the base, in order."""
        self.train = train_of(tasks)
        self.val = val_of(tasks)
        self.test = test_of(tasks)
        self.history = History(context.memory, observer)
        self.verdicts: list[Verdict] = []
        self.prior = 1.0
        """E-value of the search's own samples against "no edit does anything"."""
        self._lift: Mapping[str, float] = {}
        self.outlook: Outlook | None = None
        """Expectations of the search; None if it has no model."""
        self.rates: Mapping[str, float] = {}
        """Expected pass rate of train tasks at the start, by the search's own samples."""
        self.agreement: float | None = 1.0
        """Chance that repeated samples of the search agree; None if any disagreed."""
        self._older: list[Edit] = []
        self._judged: set[str] = set()

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def suite(self) -> list[SkillTask]:
        """All tasks of train and val, each once."""
        return list({task.id: task for task in [*self.train, *self.val]}.values())

    @property
    def accepted(self) -> list[Edit]:
        """Edits that made the incumbent out of the start, in order."""
        return [*self._older, *self.edits]

    @functools.cached_property
    def at_the_end(self) -> bool:
        """Whether only the final comparison decides, and edits are adopted without a gate."""
        return self.settings.gate == "sequential" and not self.search.asks_the_gate

    def set_prior(self, e_value: float) -> None:
        """Record what the search's own samples say against "no edit does anything"."""
        self.prior = e_value

    @property
    def lift(self) -> Mapping[str, float]:
        """Expected lift of train tasks by the incumbent.

        If the search does not tell it, 1.0 for each task that asked for an accepted edit.
        """
        train = {task.id for task in self.train}
        asked = {task: 1.0 for edit in self.accepted for task in edit.tasks if task in train}
        return self._lift or asked

    def set_outlook(self, outlook: Outlook) -> None:
        """Record who tells what the search expects."""
        self.outlook = outlook

    def set_lift(self, lift: Mapping[str, float], rates: Mapping[str, float]) -> None:
        """Record the expected lift of train tasks by the incumbent, and their rates before it."""
        self._lift = lift
        self.rates = rates

    # The gate.

    def judged(self, candidate: Version) -> bool:
        """Check if the candidate is the incumbent or a gate has decided about it."""
        return candidate == self.incumbent or candidate.digest in self._judged

    def pass_gate(self, basis: Basis) -> None:
        """Take all adopted edits through the gate at once, unless the final comparison decides.

        Raises:
            StopRun: the decision was not completed; the edits are dropped.
        """
        if self.at_the_end or self.incumbent == self.start:
            return
        candidate = self.incumbent
        edits = self.edits
        self.incumbent = self.base
        self.edits = []
        try:
            verdict = self.take_step(candidate, edits, basis)
        except StopRun as stop:
            self.history.settle(edits, "dropped", "the gate's decision about it was not completed")
            about = f"the gate's decision about {plural(len(edits), 'edit')}"
            stop.reason = f"{about} was not completed: {stop.reason}"
            raise
        self.history.decide(edits, verdict)

    def take_step(
        self,
        candidate: Version,
        edits: Sequence[Edit],
        basis: Basis,
        about: str = "",
    ) -> Verdict:
        """Take a candidate through the gate, and end a step; adopt it if it is accepted.

        A candidate that the checks refuse is not measured, whoever made it.

        Args:
            candidate: version to decide about.
            edits: make it out of the incumbent.
            basis: samples that the step starts from.
            about: describes the step, if it is not a plain one.
        """
        verdict = self._vet(candidate, edits) or self._decide(candidate, edits)
        reason = verdict.reason
        if about:
            reason = f"{about}: {reason}"
        self.history.end_step(
            basis,
            candidate=candidate.digest,
            edits=len(edits),
            verdict=verdict,
            reason=reason,
        )
        return verdict

    def _decide(self, candidate: Version, edits: Sequence[Edit]) -> Verdict:
        options = gate_options(self.settings)
        left = self.purse.affordable()
        if left != math.inf:
            options = replace(options, budget=int(left))
        gate = self.open_gate(options)
        verdict = self.samples.decide(gate, self.incumbent, candidate)
        self.verdicts.append(verdict)
        if verdict.decision != "unmeasured":
            self._judged.add(candidate.digest)
        self.history.record("verdict", candidate.digest, verdict)
        if verdict.accepted:
            self.adopt(candidate, edits)
        return verdict

    def _vet(self, candidate: Version, edits: Sequence[Edit]) -> Verdict | None:
        """Refuse a candidate that no allowed edit could have made; None if it may be measured.

        Edits are checked one by one when they are applied, but a user's stage may return any
        version.
        """
        made = tuple(edits) or (whole_body(step=self.history.step),)
        checked = self.context.vetting.check(self.incumbent, candidate, made[0])
        if not isinstance(checked, Refusal):
            return None
        self.history.refuse(replace(checked, edit=edit) for edit in made)
        reason = f"refused before the gate: {checked.detail or checked.why}"
        return Verdict("rejected", reason, gate=VETTING, metric=self.settings.metric)

    def open_gate(self, options: GateOptions) -> SequentialGate:
        """Open a gate on the val tasks, with a decision number of its own."""
        number = f"{len(self.verdicts)}"
        return make_gate(self.settings.gate, gate_tasks(self.val), options, decision=number)

    # The incumbent.

    def adopt(self, candidate: Version, edits: Sequence[Edit]) -> None:
        """Make the candidate the incumbent.

        Args:
            candidate: the new version.
            edits: make it out of the incumbent; each of them is checked.
        """
        self.incumbent = candidate
        rebuilt = rebuild(self.base, [*self.edits, *edits])
        if rebuilt == candidate and all(edit.origin in _SINGLE for edit in edits):
            self.edits += edits
        else:
            self._older += [*self.edits, *edits]
            self.base = candidate
            self.edits = []

    def mark(self) -> Callable[[], None]:
        """Return a function that makes the incumbent again what it is now."""
        incumbent = self.incumbent
        base = self.base
        older = [*self._older]
        edits = [*self.edits]

        def go_back() -> None:
            self.incumbent = incumbent
            self.base = base
            self._older = older
            self.edits = edits

        return go_back

    def settle_adopted(self, verdict: Verdict | None) -> None:
        """Record the final verdict on edits adopted without a gate; None if there is none."""
        if self.at_the_end and verdict and verdict.decision != "unmeasured":
            self.history.decide(self.accepted, verdict)
        elif self.at_the_end:
            self.history.settle(self.accepted, "dropped", "the final comparison was not completed")

    def without(self, edit: Edit) -> Version | None:
        """Return the incumbent without one of its edits; None if another one builds on it."""
        return rebuild(self.base, [other for other in self.edits if other != edit])

    def drop(self, edits: Sequence[Edit], why: str) -> bool:
        """Go on without some of the edits; False if there are none, or others build on them."""
        kept = [edit for edit in self.edits if edit not in edits]
        short = rebuild(self.base, kept)
        if short is None or not edits:
            return False
        self.history.settle(edits, "dropped", why)
        self.incumbent = short
        self.edits = kept
        return True
