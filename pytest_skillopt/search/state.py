"""The state of a training that all parts of it share: the incumbent, and what it changes by.

A search only decides what to sample and what to propose. Here are the rules that hold for every
search: whatever changes the skill passes the gate, and a version is judged once.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_skillopt.edits.combine import whole_body
from pytest_skillopt.edits.update import rebuild
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.gate.data import VETTING, GateOptions, Verdict
from pytest_skillopt.gate.shorter import ShorterGate
from pytest_skillopt.search.extensions import (
    GateQuestion,
    added_search,
    gate_options,
    gate_tasks,
    open_gate,
)
from pytest_skillopt.search.history import History
from pytest_skillopt.search.samples import Samples

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.edits.records import TaskRecord
    from pytest_skillopt.gate.engine import Gate
    from pytest_skillopt.search.budget import Budget
    from pytest_skillopt.search.extensions import Stages
    from pytest_skillopt.search.history import Observer
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.skill.edits import Edit
    from pytest_skillopt.suite.sampler import Sampler
    from pytest_skillopt.suite.tasks import SkillTask

_LINES = ("failure", "contrast", "success")
"""Origins of edits that are single edits and can be left out again."""


class TrainingState:
    """The incumbent, with the samples, the budget and the history of the training."""

    def __init__(
        self,
        context: Context,
        tasks: Sequence[SkillTask],
        *,
        skill: str,
        sampler: Sampler,
        stages: Stages,
        budget: Budget,
        observer: Observer,
        width: int = 1,
    ) -> None:
        """Args:
        width: rollouts that run at once, at least 1; a search that has many takes its samples in
            fewer rounds.
        """
        self.context = context
        self.skill = skill
        self.stages = stages
        self.budget = budget
        self.width = width
        self.start = context.document
        self.incumbent = context.document
        self.base = context.document
        """What the accepted lines are applied to: the start, or the last rewrite."""
        self.edits: list[Edit] = []
        """Accepted edits that make the incumbent out of the base, in order."""
        self.train = [task for task in tasks if task.split in ("train", "both")]
        self.val = [task for task in tasks if task.split in ("val", "both")]
        self.test = [task for task in tasks if task.split == "test"]
        self.samples = Samples(sampler, budget, skill=skill, start=context.document)
        self.history = History(context.memory, observer)
        self.verdicts: list[Verdict] = []
        self.prior = 1.0
        """E-value of the search's own samples against "no edit does anything"."""
        self._older: list[Edit] = []
        self._drawn: dict[str, int] = {}
        self._judged: set[str] = set()
        self.at_the_end = (
            self.settings.gate == "sequential"
            and added_search(self.settings) is None
            and stages.gate(self._question(gate_options(self.settings), {})) is None
        )
        """The last comparison is the only decision, and edits join the incumbent without a gate."""

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def suite(self) -> list[SkillTask]:
        """All tasks of train and val, each once."""
        return list({task.id: task for task in [*self.train, *self.val]}.values())

    @property
    def accepted(self) -> list[Edit]:
        """What made the incumbent out of the start, in order."""
        return [*self._older, *self.edits]

    @property
    def targets(self) -> list[str]:
        """Train tasks on which a change is expected: those that asked for what was accepted, then
        those that only failed with the start and mostly passed since."""
        train = {task.id: task for task in self.train if task.split == "train"}
        asked = (task for edit in self.accepted for task in edit.tasks if task in train)
        return list(dict.fromkeys([*asked, *self.samples.mended(train)]))

    # The gate.

    def judged(self, candidate: Document) -> bool:
        """Whether the candidate is the incumbent or was before the gate already."""
        return candidate == self.incumbent or candidate.version in self._judged

    def race(
        self,
        candidates: Sequence[tuple[Document, Sequence[Edit]]],
        epoch: int,
        records: Sequence[TaskRecord],
        about: str = "",
    ) -> tuple[int, Verdict]:
        """Take a candidate, the best of several, through the gate; this ends a step.

        When it is accepted, it is the incumbent. Of several each stands before the gate with its
        share of alpha, and the best by its first look goes on, the shorter document in a tie. One
        that the checks object to is not measured at all, whoever made it.

        Args:
            records: of the train tasks that the step has looked at.
            about: what the step was, where it was no plain one.

        Returns:
            Index of the candidate that went on, and its verdict.
        """
        best, verdict = self._race(candidates)
        (candidate, edits), reason = candidates[best], verdict.reason
        self.history.end_step(
            epoch=epoch,
            records=records,
            candidate=candidate.version,
            edits=len(edits),
            verdict=verdict,
            reason=f"{about}: {reason}" if about else reason,
        )
        return best, verdict

    def _race(self, candidates: Sequence[tuple[Document, Sequence[Edit]]]) -> tuple[int, Verdict]:
        objections = [self._vet(document, edits) for document, edits in candidates]
        running = [i for i, objection in enumerate(objections) if objection is None]
        if not running:
            assert objections[0] is not None
            return 0, objections[0]
        gates = {i: self.open_gate(self._options(len(running))) for i in running}
        looks = {
            i: self.samples.first_look(gates[i], self.incumbent, candidates[i][0]) for i in running
        }
        best = min(running, key=lambda i: (-looks[i], candidates[i][0].tokens, i))
        for loser in (i for i in running if i != best):
            why = "another candidate of the step looked better"
            self.history.settle(candidates[loser][1], "dropped", why)
        gate, (candidate, edits) = gates[best], candidates[best]
        verdict = self.samples.decide(gate, self.incumbent, candidate)
        self.verdicts.append(verdict)
        if verdict.decision != "unmeasured":
            self._judged.add(candidate.version)
        self.history.record("verdict", candidate.version, verdict)
        self._drawn = gate.drawn("candidate" if verdict.accepted else "incumbent")
        if verdict.accepted:
            self.adopt(candidate, edits)
        return best, verdict

    def _options(self, racing: int) -> GateOptions:
        options = gate_options(self.settings)
        return replace(options, alpha=options.alpha / racing)

    def _vet(self, candidate: Document, edits: Sequence[Edit]) -> Verdict | None:
        """Refuse a candidate that no edit would have been allowed to make; None where it may be.

        Edits are checked one by one when they are applied. A stage of the user's may hand over any
        document.
        """
        made = tuple(edits) or (whole_body(step=self.history.step),)
        checked = self.context.vetting.check(self.incumbent, candidate, made[0])
        if not isinstance(checked, Refusal):
            return None
        self.history.refuse(replace(checked, edit=edit) for edit in made)
        reason = f"refused before the gate: {checked.detail or checked.why}"
        return Verdict("rejected", reason, gate=VETTING, metric=self.settings.metric)

    def open_gate(self, options: GateOptions, drawn: Mapping[str, int] | None = None) -> Gate:
        """A gate on the val tasks, with a decision number of its own.

        Args:
            drawn: samples drawn for the document before, if that is not the incumbent.
        """
        question = self._question(options, self._drawn if drawn is None else drawn)
        return self.stages.gate(question) or open_gate(question)

    def _question(self, options: GateOptions, drawn: Mapping[str, int]) -> GateQuestion:
        tasks, number = tuple(gate_tasks(self.val)), len(self.verdicts)
        return GateQuestion(self.settings.gate, tasks, options, dict(drawn), f"{number}", number)

    def shorter_gate(self, decision: str) -> ShorterGate:
        """The gate on the whole suite that a shorter skill has to pass on the way."""
        return ShorterGate(gate_tasks(self.suite), gate_options(self.settings), decision=decision)

    # The incumbent.

    def adopt(self, candidate: Document, edits: Sequence[Edit]) -> None:
        """Make the candidate the incumbent.

        Args:
            edits: that make it out of the incumbent, each of them checked.
        """
        self.incumbent = candidate
        rebuilt = rebuild(self.base, [*self.edits, *edits])
        if rebuilt == candidate and all(edit.origin in _LINES for edit in edits):
            self.edits += edits
        else:
            self._older += [*self.edits, *edits]
            self.base, self.edits = candidate, []

    def mark(self) -> Callable[[], None]:
        """A function that makes the incumbent again what it is now."""
        incumbent, base, older, lines = self.incumbent, self.base, [*self._older], [*self.edits]

        def go_back() -> None:
            self.incumbent, self.base, self._older, self.edits = incumbent, base, older, lines

        return go_back

    def settle_adopted(self, verdict: Verdict | None) -> None:
        """Note what became of the edits that went on without a gate: the last comparison's word.

        Args:
            verdict: None where that was not made.
        """
        if self.at_the_end and verdict and verdict.decision != "unmeasured":
            self.history.decide(self.accepted, verdict)
        elif self.at_the_end:
            self.history.settle(self.accepted, "dropped", "the last comparison was not completed")

    def without(self, line: Edit) -> Document | None:
        """The incumbent without one of its lines; None where another one builds on it."""
        return rebuild(self.base, [other for other in self.edits if other != line])

    def drop(self, lines: Sequence[Edit], why: str) -> bool:
        """Go on without some of the lines; False where there are none, or others build on them."""
        kept = [line for line in self.edits if line not in lines]
        short = rebuild(self.base, kept)
        if short is None or not lines:
            return False
        self.history.settle(lines, "dropped", why)
        self.incumbent, self.edits, self._drawn = short, kept, {}
        return True
