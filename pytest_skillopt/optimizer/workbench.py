"""The bench at which a search works: the incumbent, its samples, the gate, and the accounts.

A search only decides what to sample and what to propose. Here are kept the rules that hold for all
of them: whatever changes the skill passes the gate, a version is judged once, every sample has an
index of its own, and the means of the last comparison stay untouched.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from pytest_skillopt.optimizer.compose import rebuild
from pytest_skillopt.optimizer.editrows import edit_row
from pytest_skillopt.optimizer.gate_options import GateOptions, GateTask
from pytest_skillopt.optimizer.proposals import whole_body
from pytest_skillopt.optimizer.records import TaskRecord, pass_rate
from pytest_skillopt.optimizer.stages import GateQuestion
from pytest_skillopt.optimizer.verdict import VETTING, Sample, Verdict
from pytest_skillopt.optimizer.vetting import Refusal
from pytest_skillopt.run.result import StepRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_skillopt.optimizer.allowance import Allowance
    from pytest_skillopt.optimizer.context import Context
    from pytest_skillopt.optimizer.gate import Gate
    from pytest_skillopt.optimizer.memory import Fate
    from pytest_skillopt.optimizer.proposals import Proposal
    from pytest_skillopt.optimizer.stages import Stages
    from pytest_skillopt.optimizer.verdict import Draw
    from pytest_skillopt.run.result import EditRow
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest
    from pytest_skillopt.suite.tasks import SkillTask

_LINES = ("failure", "contrast", "success")
"""Origins of proposals that are single edits and can be left out again."""
_PREFETCH = 64
"""Draws that a gate names in advance for idle workers."""


class Sampling(Protocol):
    """What takes the samples; ``suite.sampler.Sampler`` over any executor."""

    def add_version(self, skill: str, content: bytes) -> str: ...

    def request(self, task: str, version: str, stream: str, index: int) -> RolloutRequest: ...

    def take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]: ...

    def prefetch(self, requests: Iterable[RolloutRequest]) -> None: ...

    def cancel_prefetch(self) -> None: ...


class Observer(Protocol):
    """Is told what happens, as it happens."""

    def step(self, row: StepRow) -> None:
        """A step has ended."""

    def record(self, kind: str, data: dict[str, Any]) -> None:
        """A decision was made; plain JSON for the journal."""


class Workbench:
    """The incumbent and all that belongs to it."""

    def __init__(
        self,
        context: Context,
        tasks: Sequence[SkillTask],
        *,
        skill: str,
        sampler: Sampling,
        stages: Stages,
        allowance: Allowance,
        observer: Observer,
        deterministic: bool = False,
    ) -> None:
        self.context = context
        self.stages = stages
        self.allowance = allowance
        self.start = context.document
        self.incumbent = context.document
        self.base = context.document
        """What the accepted lines are applied to: the start, or the last rewrite."""
        self.lines: list[Proposal] = []
        """Accepted edits that make the incumbent out of the base, in order."""
        self.train = [task for task in tasks if task.split in ("train", "both")]
        self.val = [task for task in tasks if task.split in ("val", "both")]
        self.test = [task for task in tasks if task.split == "test"]
        self.shared = any(task.split == "both" for task in tasks)
        self.steps: list[StepRow] = []
        self.verdicts: list[Verdict] = []
        self.notes: list[str] = []
        self._deterministic = deterministic
        self._skill = skill
        self._sampler = sampler
        self._observer = observer
        self._edits: dict[Proposal, EditRow] = {}
        self._drawn: Counter[tuple[str, str, str]] = Counter()
        self._older: list[Proposal] = []
        self._tape: dict[str, int] = {}
        self._short_tape: dict[str, int] = {}
        self._judged: dict[str, Verdict] = {}
        self._at_start: dict[str, dict[str, Rollout]] = {}

    @property
    def settings(self) -> Settings:
        return self.context.settings

    @property
    def step(self) -> int:
        """Number of the current step, from 1."""
        return len(self.steps) + 1

    @property
    def accepted(self) -> list[Proposal]:
        """What made the incumbent out of the start, in order."""
        return [*self._older, *self.lines]

    # Samples.

    def sample(
        self, document: Document, wanted: Mapping[str, int], stream: str
    ) -> dict[str, list[Rollout]]:
        """Fresh samples of tasks under a document, so many of each; in the order of ``wanted``.

        Raises:
            OutOfMeans: they would eat into what is kept for the last comparison.
            StopRun: a cap or a fault ended the run.
        """
        return self.sample_all([(document, wanted)], stream)[0]

    def sample_all(
        self, wanted: Sequence[tuple[Document, Mapping[str, int]]], stream: str
    ) -> list[dict[str, list[Rollout]]]:
        """``sample`` for several documents in one round, so that all workers have work."""
        requests = [self._draw(document, counts, stream) for document, counts in wanted]
        self.allowance.require(sum(map(len, requests)))
        rollouts = iter(self._take([request for group in requests for request in group]))
        results = []
        for (_, counts), group in zip(wanted, requests, strict=True):
            found: dict[str, list[Rollout]] = {task: [] for task in counts}
            for rollout in islice(rollouts, len(group)):
                found[rollout.request.task].append(rollout)
            results.append(found)
        return results

    def _draw(
        self, document: Document, counts: Mapping[str, int], stream: str
    ) -> list[RolloutRequest]:
        """Requests for the next samples of a stream, none of them drawn before."""
        version = self._add(document)
        requests = []
        for task, count in counts.items():
            key = (version, task, stream)
            first = self._drawn[key]
            self._drawn[key] += count
            requests += [
                self._sampler.request(task, version, stream, index)
                for index in range(first, first + count)
            ]
        return requests

    def _add(self, document: Document) -> str:
        return self._sampler.add_version(self._skill, document.data)

    def _take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        rollouts = self._sampler.take(requests)
        self.allowance.took(rollouts)
        for rollout in rollouts:
            if rollout.request.version == self.start.version:
                seen = self._at_start.setdefault(rollout.request.task, {})
                seen[rollout.request.key] = rollout
        return rollouts

    def at_start(self) -> dict[str, list[Rollout]]:
        """All rollouts of the skill as it was on disk, by task, whatever they were taken for."""
        return {task: list(seen.values()) for task, seen in self._at_start.items()}

    def failed_at_start(self) -> list[str]:
        """Tasks by the pass rate of the skill as it was on disk, the worst first."""
        known = {task.id: task for task in [*self.train, *self.val]}
        found = self.at_start()
        records = [TaskRecord.of(known[task], found[task]) for task in known if task in found]
        return [record.task.id for record in sorted(records, key=lambda record: record.rate)]

    # The gate.

    def judged(self, candidate: Document) -> bool:
        """Whether the candidate is the incumbent or was before the gate already."""
        return candidate == self.incumbent or candidate.version in self._judged

    def consider(
        self,
        candidate: Document,
        proposals: Sequence[Proposal],
        *,
        options: GateOptions | None = None,
        name: str = "",
    ) -> Verdict:
        """Take the candidate through the gate; when it is accepted, it is the incumbent.

        A version that was judged before is not measured again, and one that the checks object to
        is not measured at all, whoever made it.
        """
        if self.judged(candidate):
            return self._judge_again(candidate)
        if objection := self._vet(candidate, proposals):
            return objection
        gate = self.open_gate(options, name)
        verdict = self._decide(gate, candidate)
        self._conclude(candidate, proposals, gate, verdict)
        return verdict

    def race(
        self, candidates: Sequence[tuple[Document, Sequence[Proposal]]]
    ) -> tuple[int, Verdict]:
        """Give several candidates the gate's first look; only the best goes on to a verdict.

        Each stands before the gate with its share of alpha. A tie goes to the shorter document;
        what the checks object to does not take part.

        Returns:
            Index of the candidate that went on, and its verdict.
        """
        objections = [self._vet(document, proposals) for document, proposals in candidates]
        running = [i for i, objection in enumerate(objections) if objection is None]
        if not running:
            assert objections[0] is not None
            return 0, objections[0]
        options = self.gate_options()
        share = dataclasses.replace(options, alpha=options.alpha / len(running))
        gates = {i: self.open_gate(share) for i in running}
        looks = {i: self._first_look(gates[i], candidates[i][0]) for i in running}
        best = min(running, key=lambda i: (-looks[i], candidates[i][0].tokens, i))
        for loser in (i for i in running if i != best):
            why = "another candidate of the step looked better"
            self.settle(candidates[loser][1], "dropped", why)
        candidate, proposals = candidates[best]
        verdict = self._decide(gates[best], candidate)
        self._conclude(candidate, proposals, gates[best], verdict)
        return best, verdict

    def _vet(self, candidate: Document, proposals: Sequence[Proposal]) -> Verdict | None:
        """Refuse a candidate that no edit would have been allowed to make; None where it may be.

        Edits are checked one by one when they are applied. A stage of the user's may hand over any
        document.
        """
        made = tuple(proposals) or (whole_body(step=self.step),)
        checked = self.context.vetting.check(self.incumbent, candidate, made[0])
        if not isinstance(checked, Refusal):
            return None
        self.refuse(dataclasses.replace(checked, proposal=proposal) for proposal in made)
        reason = f"refused before the gate: {checked.detail or checked.why}"
        return Verdict("rejected", reason, gate=VETTING, metric=self.settings.metric)

    def gate_options(self) -> GateOptions:
        return GateOptions.from_settings(self.settings, deterministic=self._deterministic)

    def open_gate(self, options: GateOptions | None = None, name: str = "") -> Gate:
        """A gate on the val tasks against the incumbent, with a decision number of its own."""
        number = len(self.verdicts)
        return self.stages.gate(
            GateQuestion(
                name or self.settings.gate,
                tuple(GateTask(task.id, task.must_pass) for task in self.val),
                options or self.gate_options(),
                dict(self._tape),
                f"{number}",
                number,
            )
        )

    def compare(
        self, before: Document, after: Document, gate: Gate
    ) -> tuple[Verdict, dict[str, list[Rollout]], dict[str, list[Rollout]]]:
        """Carry out a decision between any two documents; their rollouts by task beside it."""
        rollouts: dict[str, dict[str, list[Rollout]]] = {"incumbent": {}, "candidate": {}}
        while not isinstance(asked := gate.ask(), Verdict):
            for draw, rollout in self._answer(gate, asked, before, after):
                rollouts[draw.arm].setdefault(draw.task, []).append(rollout)
        return asked, rollouts["incumbent"], rollouts["candidate"]

    def _first_look(self, gate: Gate, candidate: Document) -> float:
        """Advance the gate over the tape and the screen; the sum of the screened scores."""
        while not isinstance(asked := gate.ask(), Verdict):
            self.allowance.require(len(asked))
            answers = self._answer(gate, asked, self.incumbent, candidate)
            seen = [rollout for draw, rollout in answers if draw.arm == "candidate"]
            if seen:
                return sum(rollout.score or 0.0 for rollout in seen)
        return 0.0

    def _decide(self, gate: Gate, candidate: Document) -> Verdict:
        while not isinstance(asked := gate.ask(), Verdict):
            self.allowance.require(len(asked))
            self._answer(gate, asked, self.incumbent, candidate)
        self._sampler.cancel_prefetch()
        return asked

    def _answer(
        self, gate: Gate, draws: Sequence[Draw], before: Document, after: Document
    ) -> list[tuple[Draw, Rollout]]:
        versions = {"incumbent": self._add(before), "candidate": self._add(after)}
        if not self.allowance.capped:
            self._sampler.prefetch(self._request(d, versions) for d in gate.likely(_PREFETCH))
        rollouts = self._take([self._request(draw, versions) for draw in draws])
        answers = list(zip(draws, rollouts, strict=True))
        gate.tell(_sample(draw, rollout) for draw, rollout in answers)
        return answers

    def _request(self, draw: Draw, versions: Mapping[str, str]) -> RolloutRequest:
        return self._sampler.request(draw.task, versions[draw.arm], draw.stream, draw.index)

    def _conclude(
        self, candidate: Document, proposals: Sequence[Proposal], gate: Gate, verdict: Verdict
    ) -> None:
        self.verdicts.append(verdict)
        if verdict.decision != "unmeasured":
            self._judged[candidate.version] = verdict
        self._observer.record(
            "verdict",
            {"step": self.step, "candidate": candidate.version, **verdict.to_json()},
        )
        if verdict.accepted:
            self._tape = gate.tape("candidate")
            self.incumbent = candidate
            if self._is_made_of_lines(candidate, proposals):
                self.lines += proposals
            else:
                self._older += [*self.lines, *proposals]
                self.base, self.lines = candidate, []
        else:
            self._tape = gate.tape("incumbent")

    def _is_made_of_lines(self, candidate: Document, proposals: Sequence[Proposal]) -> bool:
        """Whether each edit of the candidate can be left out again."""
        if not all(proposal.origin in _LINES for proposal in proposals):
            return False
        return rebuild(self.base, [*self.lines, *proposals]) == candidate

    def misses(self, short: Document) -> bool:
        """Whether the gate sees that the incumbent is better than a shorter document."""
        number = len(self.verdicts)
        options = self.gate_options()
        tasks = tuple(GateTask(task.id, task.must_pass) for task in self.val)
        question = GateQuestion(self.settings.gate, tasks, options, {}, f"{number}", number)
        gate = self.stages.gate(question)
        while not isinstance(asked := gate.ask(), Verdict):
            self.allowance.require(len(asked))
            self._answer(gate, asked, short, self.incumbent)
        self._sampler.cancel_prefetch()
        self.verdicts.append(asked)
        self._observer.record(
            "pruning", {"step": self.step, "candidate": short.version, **asked.to_json()}
        )
        self._short_tape = gate.tape("incumbent")
        return asked.decision != "rejected"

    def shorten(self, short: Document, lines: Sequence[Proposal]) -> None:
        """Put the shorter document in the incumbent's place, after ``misses`` has denied."""
        self.incumbent, self.lines, self._tape = short, list(lines), self._short_tape

    def _judge_again(self, candidate: Document) -> Verdict:
        reason = "the candidate is the current skill"
        if candidate != self.incumbent:
            reason = f"this version was judged before: {self._judged[candidate.version].reason}"
        return Verdict("rejected", reason, gate=self.settings.gate, metric=self.settings.metric)

    # What is told and kept.

    def settle(
        self,
        proposals: Iterable[Proposal],
        fate: Fate,
        why: str = "",
        effects: Mapping[str, float] | None = None,
        *,
        detail: str = "",
    ) -> None:
        """Note what became of proposals: for the report, and for the memory of the optimizer.

        Args:
            why: told to the optimizer too.
            effects: change of the pass rate by train task, in [-1, 1].
            detail: told to the report alone.
        """
        for proposal in proposals:
            own = {task: effects[task] for task in proposal.tasks if effects and task in effects}
            self.context.memory.remember(proposal, fate, why, own)
            self._edits[proposal] = edit_row(proposal, fate, detail or why)

    def refuse(self, refusals: Iterable[Refusal]) -> None:
        for refusal in refusals:
            self.settle([refusal.proposal], "refused", refusal.why, detail=refusal.detail)
            if refusal.detail:
                self.notes.append(f"an edit was refused: {refusal.detail}")

    def end_step(
        self,
        *,
        epoch: int,
        records: Sequence[TaskRecord],
        candidate: str = "",
        edits: int = 0,
        verdict: Verdict | None = None,
        reason: str = "",
    ) -> StepRow:
        """Close the current step with a row."""
        row = StepRow(
            step=self.step,
            epoch=epoch,
            candidate=candidate,
            edits=edits,
            train=pass_rate(records),
            before=verdict.before if verdict else None,
            after=verdict.after if verdict else None,
            verdict=verdict.decision if verdict else "none",
            reason=reason or (verdict.reason if verdict else ""),
            gate=verdict.gate if verdict else "",
        )
        self.steps.append(row)
        self._observer.step(row)
        return row

    @property
    def edits(self) -> list[EditRow]:
        """Every proposal that something became of, in the order of its first fate."""
        return list(self._edits.values())


def _sample(draw: Draw, rollout: Rollout) -> Sample:
    measured = rollout.measured
    return Sample(
        draw,
        rollout.passed if measured else None,
        rollout.score if measured and rollout.score is not None else 0.0,
        skipped=rollout.outcome == "skipped",
    )
