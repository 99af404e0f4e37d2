"""The samples of a training: each with an index of its own, none beyond the means."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from itertools import count, islice
from typing import TYPE_CHECKING, TypeAlias

from pytest_skillopt.gate.data import Sample, Verdict
from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from pytest_skillopt.gate.data import Draw
    from pytest_skillopt.gate.engine import Gate
    from pytest_skillopt.search.budget import Budget
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest
    from pytest_skillopt.suite.sampler import Sampler
    from pytest_skillopt.suite.tasks import SkillTask

    Found: TypeAlias = list[dict[str, list[Rollout]]]
    Wanted: TypeAlias = Sequence[tuple[Document, Mapping[str, int]]]
    Activity: TypeAlias = Generator[tuple[str, Wanted], Found, None]
    """Yields a stream and the samples that it needs next, and is sent those."""

_UNMEASURED = (("skipped", "were skipped"), ("error", "ended in an infrastructure error"))
"""Outcomes that measure nothing, with what is said of tasks that ended so."""


class Samples:
    """Takes samples of documents, for a search or as a gate asks for them."""

    def __init__(self, sampler: Sampler, budget: Budget, *, skill: str, start: Document) -> None:
        """Args:
        budget: what may still be taken; is told what was.
        skill: path of the skill as in the tasks.
        start: the skill as it is on disk.
        """
        self._sampler = sampler
        self._budget = budget
        self._skill = skill
        self._start = start
        self._drawn: defaultdict[tuple[str, str, str], count[int]] = defaultdict(count)
        """By version, task and stream, the index of the next sample."""
        self._at_start: dict[str, dict[str, Rollout]] = {}
        self._documents: dict[str, Document] = {}
        self._outcomes: dict[str, dict[str, tuple[str, bool]]] = {}
        """By version and key; transcripts are not kept for it."""

    # For a search.

    def take(
        self, document: Document, wanted: Mapping[str, int], stream: str
    ) -> dict[str, list[Rollout]]:
        """Fresh samples of tasks under a document, so many of each; in the order of ``wanted``.

        Raises:
            OutOfBudget: they would eat into what is kept for the last comparison.
            StopRun: a cap or a fault ended the run.
        """
        return self.take_all([(document, wanted)], stream)[0]

    def take_all(self, wanted: Wanted, stream: str) -> Found:
        """``take`` for several documents in one round, so that all workers have work."""
        return self._take_round([(stream, wanted)])[0]

    def carry_out(self, *activities: Activity) -> None:
        """Carry out activities at once: a round takes what each of them needs next.

        The first is what the others are carried out beside: they end with it.

        Raises:
            OutOfBudget, StopRun: as ``take``.
        """
        waiting = [(one, asked) for one in activities if (asked := next(one, None))]
        while waiting and waiting[0][0] is activities[0]:
            found = self._take_round([asked for _, asked in waiting])
            running = list(zip(waiting, found, strict=True))
            waiting = []
            for (one, _), answer in running:
                with suppress(StopIteration):
                    waiting.append((one, one.send(answer)))

    def _take_round(self, asked: Sequence[tuple[str, Wanted]]) -> list[Found]:
        requests = [
            request
            for stream, wanted in asked
            for document, counts in wanted
            for request in self._draw(document, counts, stream)
        ]
        self._budget.require(len(requests))
        rollouts = iter(self._take(requests))
        return [
            [
                {task: list(islice(rollouts, number)) for task, number in counts.items()}
                for _, counts in wanted
            ]
            for _, wanted in asked
        ]

    def _draw(
        self, document: Document, counts: Mapping[str, int], stream: str
    ) -> list[RolloutRequest]:
        """Requests for the next samples of a stream, none of them drawn before."""
        version = self._add(document)
        return [
            self._sampler.request(task, version, stream, next(self._drawn[version, task, stream]))
            for task, wanted in counts.items()
            for _ in range(wanted)
        ]

    def _add(self, document: Document) -> str:
        version = self._sampler.add_version(self._skill, document.packed)
        self._documents[version] = document
        return version

    def _take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        rollouts = self._sampler.take(requests)
        self._budget.took(rollouts)
        for rollout in rollouts:
            request = rollout.request
            if request.version == self._start.version:
                self._at_start.setdefault(request.task, {})[request.key] = rollout
            if rollout.measured:
                known = self._outcomes.setdefault(request.version, {})
                known[request.key] = request.task, rollout.passed
        return rollouts

    def outcomes(self) -> list[tuple[Document, list[tuple[str, bool]]]]:
        """Task of each measurement under each document, and whether it passed, whatever for."""
        return [(self._documents[v], list(known.values())) for v, known in self._outcomes.items()]

    def at_start(self) -> dict[str, list[Rollout]]:
        """All rollouts of the skill as it was on disk, by task, whatever they were taken for."""
        return {task: list(seen.values()) for task, seen in self._at_start.items()}

    def mended(self, tasks: Iterable[str]) -> list[str]:
        """Those that never passed with the skill as it was on disk, and mostly have since."""
        before: Counter[tuple[str, bool]] = Counter()
        since: Counter[tuple[str, bool]] = Counter()
        for version, known in self._outcomes.items():
            (before if version == self._start.version else since).update(known.values())
        return [
            task
            for task in tasks
            if before[task, False] and not before[task, True]
            if since[task, True] > since[task, False]
        ]

    def require_measured(self, tasks: Sequence[SkillTask]) -> None:
        """Raises:
        StopRun: none of these tasks that were sampled has ever passed or failed: there is
            nothing to learn from.
        """
        found = {t.id: list(seen.values()) for t in tasks if (seen := self._at_start.get(t.id))}
        if found and not any(rollout.measured for seen in found.values() for rollout in seen):
            reason = f"no train task could be measured: {_why_not(found)}"
            raise StopRun(reason, kind=Stop.UNMEASURED)

    # For a gate.

    def decide(self, gate: Gate, before: Document, after: Document) -> Verdict:
        """Carry out a decision, as far as the means of the search allow.

        Raises:
            OutOfBudget: it would eat into what is kept for the last comparison.
            StopRun: a cap or a fault ended the run.
        """
        while not isinstance(asked := gate.ask(), Verdict):
            self._budget.require(len(asked))
            self._answer(gate, asked, before, after)
        return asked

    def compare(
        self, gate: Gate, before: Document, after: Document
    ) -> tuple[Verdict, dict[str, list[Rollout]], dict[str, list[Rollout]]]:
        """Carry out a decision with all means there are; the rollouts by task beside it."""
        rollouts: dict[str, dict[str, list[Rollout]]] = {"incumbent": {}, "candidate": {}}
        while not isinstance(asked := gate.ask(), Verdict):
            for draw, rollout in self._answer(gate, asked, before, after):
                rollouts[draw.arm].setdefault(draw.task, []).append(rollout)
        return asked, rollouts["incumbent"], rollouts["candidate"]

    def first_look(self, gate: Gate, before: Document, after: Document) -> float:
        """Advance the gate over the tape and the screen; the sum of the screened scores."""
        while not isinstance(asked := gate.ask(), Verdict):
            self._budget.require(len(asked))
            answers = self._answer(gate, asked, before, after)
            seen = [rollout for draw, rollout in answers if draw.arm == "candidate"]
            if seen:
                return sum(rollout.score or 0.0 for rollout in seen)
        return 0.0

    def _answer(
        self, gate: Gate, draws: Sequence[Draw], before: Document, after: Document
    ) -> list[tuple[Draw, Rollout]]:
        versions = {"incumbent": self._add(before), "candidate": self._add(after)}
        requests = [
            self._sampler.request(draw.task, versions[draw.arm], draw.stream, draw.index)
            for draw in draws
        ]
        answers = list(zip(draws, self._take(requests), strict=True))
        gate.tell(sample_of(draw, rollout) for draw, rollout in answers)
        return answers


def _why_not(found: Mapping[str, Sequence[Rollout]]) -> str:
    """How many tasks ended in which way, with an example of each; none was measured."""
    said = []
    for outcome, words in _UNMEASURED:
        if ended := [r for seen in found.values() for r in seen if r.outcome == outcome]:
            first, tasks = ended[0], {rollout.request.task for rollout in ended}
            why = first.error.message if first.error else first.message.removeprefix("Skipped: ")
            share = f"{len(tasks)} of {len(found)} {words}"
            said.append(f"{share}, such as {first.request.task}" + (f" ({why})" if why else ""))
    return "; ".join(said)


def sample_of(draw: Draw, rollout: Rollout) -> Sample:
    """What a gate is told of a rollout."""
    measured = rollout.measured
    return Sample(
        draw,
        rollout.passed if measured else None,
        rollout.score if measured and rollout.score is not None else 0.0,
        skipped=rollout.outcome == "skipped",
    )
