"""The samples of a training, each with its own index and within the budget."""

from __future__ import annotations

from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import replace
from itertools import count, islice
from typing import TYPE_CHECKING, TypeAlias

from pytest_skillopt.gate.data import Sample, Verdict
from pytest_skillopt.search.budget import require
from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from pytest_skillopt.gate.data import Draw
    from pytest_skillopt.gate.engine import Gate
    from pytest_skillopt.model.purse import Purse
    from pytest_skillopt.skill.document import Document
    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest
    from pytest_skillopt.suite.sampler import Sampler
    from pytest_skillopt.suite.tasks import SkillTask

    Found: TypeAlias = list[dict[str, list[Rollout]]]
    Wanted: TypeAlias = Sequence[tuple[Document, Mapping[str, int]]]
    Activity: TypeAlias = Generator[tuple[str, Wanted], Found, None]
    """Generator that yields a stream with the samples it needs next, and is sent these."""

_UNMEASURED = (("skipped", "were skipped"), ("error", "ended in an infrastructure error"))
"""Outcomes that are not measurements, with their descriptions."""


class Samples:
    """Source of all samples, for a search and for gates."""

    def __init__(
        self,
        sampler: Sampler,
        purse: Purse,
        *,
        skill: str,
        start: Document,
        rivals: Mapping[str, tuple[str, Document]] = {},
    ) -> None:
        """Create the source.

        Args:
            sampler: takes the rollouts.
            purse: bounds the samples, and counts them.
            skill: path of the skill as in the tasks.
            start: the skill as it is on disk.
            rivals: path and document of the skill that a task is about, for tasks that judge how
                this one competes with it.
        """
        self._rivals = rivals
        self._stands_for: dict[str, str] = {}
        """By version of a rival with one of this skill beside it, the latter."""
        self._sampler = sampler
        self._purse = purse
        self._skill = skill
        self._start = start
        self._drawn: defaultdict[tuple[str, str, str], count[int]] = defaultdict(count)
        """By version, task and stream, the index of the next sample."""
        self._at_start: dict[str, dict[str, Rollout]] = {}
        self._documents: dict[str, Document] = {}
        self._outcomes: dict[str, dict[str, tuple[str, bool]]] = {}
        """By version and key, the task and whether it passed."""

    # For a search.

    def take(
        self, document: Document, wanted: Mapping[str, int], stream: str
    ) -> dict[str, list[Rollout]]:
        """Take fresh samples of tasks under a document; return them in the order of ``wanted``.

        Args:
            document: version of the skill.
            wanted: number of samples by task.
            stream: name of the sequence whose next samples are taken.

        Raises:
            OutOfBudget: they would use the reserve of the final comparison.
            StopRun: a cap or a fault ended the run.
        """
        return self.take_all([(document, wanted)], stream)[0]

    def take_all(self, wanted: Wanted, stream: str) -> Found:
        """Take samples of several documents in one round, as ``take`` does."""
        return self._take_round([(stream, wanted)])[0]

    def carry_out(self, *activities: Activity) -> None:
        """Carry out activities at the same time, until the first of them ends.

        Each round takes the next samples of all of them; if the budget does not cover these, the
        last activities end.

        Raises:
            OutOfBudget, StopRun: as ``take``.
        """
        waiting = [(one, asked) for one in activities if (asked := next(one, None))]
        while waiting and waiting[0][0] is activities[0]:
            while len(waiting) > 1 and sum(map(_size, waiting)) > self._purse.affordable():
                waiting.pop()
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
        require(self._purse, len(requests))
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
        """Return requests for the next samples of a stream, each with a new index."""
        drawn = self._drawn
        return [
            self._sampler.request(task, version, stream, next(drawn[version, task, stream]))
            for task, wanted in counts.items()
            for version in [self._add(document, task)]
            for _ in range(wanted)
        ]

    def _add(self, document: Document, task: str) -> str:
        """Send a version to the workers, as a task is to see it."""
        version = self._sampler.add_version(self._skill, document.packed)
        self._documents[version] = document
        if task not in self._rivals:
            return version
        path, rival = self._rivals[task]
        seen = {**dict(document.beside), self._skill: document.data}
        seen.pop(path, None)
        shown = self._sampler.add_version(
            path, replace(rival, beside=tuple(sorted(seen.items()))).packed
        )
        self._stands_for[shown] = version
        return shown

    def _take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        rollouts = self._sampler.take(requests)
        self._count(rollouts)
        for rollout in rollouts:
            request = rollout.request
            version = self._stands_for.get(request.version, request.version)
            if version == self._start.version:
                self._at_start.setdefault(request.task, {})[request.key] = rollout
            if rollout.measured:
                known = self._outcomes.setdefault(version, {})
                known[request.key] = request.task, rollout.passed
        return rollouts

    def _count(self, rollouts: Sequence[Rollout]) -> None:
        for rollout in rollouts:
            used = rollout.usage + rollout.judge_usage
            self._purse.took(rollout.request.key, used, rollout.duration)

    def outcomes(self) -> list[tuple[Document, list[tuple[str, bool]]]]:
        """Return the task and success of every measurement under each document."""
        return [(self._documents[v], list(known.values())) for v, known in self._outcomes.items()]

    def at_start(self) -> dict[str, list[Rollout]]:
        """Return all rollouts of the skill as it was on disk, by task."""
        return {task: list(seen.values()) for task, seen in self._at_start.items()}

    def mended(self, tasks: Iterable[str]) -> list[str]:
        """Return the tasks that only failed with the skill on disk, and mostly passed since."""
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
        """Check that a sample of these tasks was measured, if any was taken.

        Raises:
            StopRun: none of them has passed or failed, so there is nothing to learn from.
        """
        found = {t.id: list(seen.values()) for t in tasks if (seen := self._at_start.get(t.id))}
        if found and not any(rollout.measured for seen in found.values() for rollout in seen):
            reason = f"no train task could be measured: {_why_not(found)}"
            raise StopRun(reason, kind=Stop.UNMEASURED)

    # For a gate.

    def decide(self, gate: Gate, before: Document, after: Document) -> Verdict:
        """Carry out a decision within the budget of the search.

        Raises:
            OutOfBudget, StopRun: as ``take``.
        """
        while not isinstance(asked := gate.ask(), Verdict):
            require(self._purse, len(asked))
            self._answer(gate, asked, before, after)
        return asked

    def compare(
        self, gate: Gate, before: Document, after: Document
    ) -> tuple[Verdict, dict[str, list[Rollout]], dict[str, list[Rollout]]]:
        """Carry out a decision with the whole budget; return it with the rollouts by task."""
        rollouts: dict[str, dict[str, list[Rollout]]] = {"incumbent": {}, "candidate": {}}
        while not isinstance(asked := gate.ask(), Verdict):
            for draw, rollout in self._answer(gate, asked, before, after):
                rollouts[draw.arm].setdefault(draw.task, []).append(rollout)
        return asked, rollouts["incumbent"], rollouts["candidate"]

    def _answer(
        self, gate: Gate, draws: Sequence[Draw], before: Document, after: Document
    ) -> list[tuple[Draw, Rollout]]:
        documents = {"incumbent": before, "candidate": after}
        requests = [
            self._sampler.request(
                draw.task, self._add(documents[draw.arm], draw.task), draw.stream, draw.index
            )
            for draw in draws
        ]
        answers = list(zip(draws, self._take(requests), strict=True))
        gate.tell(sample_of(draw, rollout) for draw, rollout in answers)
        return answers


def _size(waiting: tuple[Activity, tuple[str, Wanted]]) -> int:
    """Return the number of samples that an activity asks for."""
    return sum(sum(counts.values()) for _, counts in waiting[1][1])


def _why_not(found: Mapping[str, Sequence[Rollout]]) -> str:
    """Return how many tasks ended in which unmeasured outcome, with an example of each."""
    said = []
    for outcome, words in _UNMEASURED:
        if ended := [r for seen in found.values() for r in seen if r.outcome == outcome]:
            first, tasks = ended[0], {rollout.request.task for rollout in ended}
            why = first.error.message if first.error else first.message.removeprefix("Skipped: ")
            share = f"{len(tasks)} of {len(found)} {words}"
            said.append(f"{share}, such as {first.request.task}" + (f" ({why})" if why else ""))
    return "; ".join(said)


def sample_of(draw: Draw, rollout: Rollout) -> Sample:
    """Return the sample that a rollout is for a gate."""
    measured = rollout.measured
    return Sample(
        draw,
        rollout.passed if measured else None,
        rollout.score if measured and rollout.score is not None else 0.0,
        skipped=rollout.outcome == "skipped",
    )
