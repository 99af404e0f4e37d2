"""The samples of a training, each with its own index and within the budget."""

from __future__ import annotations

from collections import defaultdict
from itertools import count, islice
from typing import TYPE_CHECKING

from pytest_skillopt.gate.data import CANDIDATE, INCUMBENT, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.search.budget import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_skillopt.gate.data import Draw, Verdict
    from pytest_skillopt.gate.engine import SequentialGate
    from pytest_skillopt.model.purse import Purse
    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest
    from pytest_skillopt.rollouts.sampler import Sampler
    from pytest_skillopt.skill.text import Text
    from pytest_skillopt.skill.version import Version
    from pytest_skillopt.tasks.task import SkillTask

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
        start: Version,
        rivals: Mapping[str, tuple[str, Version]] = {},
        renewed: Mapping[str, Text] = {},
    ) -> None:
        """Create the source.

        Args:
            sampler: takes the rollouts.
            purse: bounds the samples, and counts them.
            skill: path of the skill as in the tasks.
            start: the skill as it is on disk.
            rivals: path and version of the skill that a task is about, for tasks that judge how
                this one competes with it.
            renewed: new SKILL.md of other skills, by path, which agents see.
        """
        self._rivals = rivals
        self._renewed = renewed
        self._stands_for: dict[str, str] = {}
        """Digest of the version of this skill by that of what agents see of it and other skills."""
        self._sampler = sampler
        self.purse = purse
        self.skill = skill
        self._start = start
        self._drawn: defaultdict[tuple[str, str, str], count[int]] = defaultdict(count)
        """Index of the next sample by digest, task and stream."""
        self._at_start: dict[str, dict[str, Rollout]] = {}

    # Methods for a search.

    def take(
        self, version: Version, wanted: Mapping[str, int], stream: str
    ) -> dict[str, list[Rollout]]:
        """Take fresh samples of tasks under a version; return them in the order of ``wanted``.

        Args:
            version: version of the skill.
            wanted: number of samples by task.
            stream: name of the sequence whose next samples are taken.

        Raises:
            OutOfBudget: they would use the reserve of the final comparison.
            StopRun: a cap or a fault ended the run.
        """
        return self.take_all([(version, wanted)], stream)[0]

    def take_all(
        self, wanted: Sequence[tuple[Version, Mapping[str, int]]], stream: str
    ) -> list[dict[str, list[Rollout]]]:
        """Take samples of several versions in one round, as ``take`` does."""
        pairs = [
            (version, task)
            for version, counts in wanted
            for task, number in counts.items()
            for _ in range(number)
        ]
        require(self.purse, len(pairs))
        rollouts = iter(self.take_each(pairs, stream))
        return [_by_task(rollouts, counts) for _, counts in wanted]

    def take_each(self, pairs: Iterable[tuple[Version, str]], stream: str) -> list[Rollout]:
        """Take one fresh sample of each pair of a version and a task, all in one round.

        The caller has asked the purse.

        Raises:
            StopRun: a cap or a fault ended the run.
        """
        return self._take([self._draw(version, task, stream) for version, task in pairs])

    def _draw(self, version: Version, task: str, stream: str) -> RolloutRequest:
        """Return a request for the next sample of a stream, with a new index."""
        digest = self._add(version, task)
        index = next(self._drawn[digest, task, stream])
        return self._sampler.request(task, digest, stream, index)

    def seen(self, version: Version) -> Version:
        """Return a version of this skill as its own tasks see it: with other skills' new texts."""
        return version.beside(self._renewed)

    def _add(self, version: Version, task: str) -> str:
        """Send a version to the workers, as a task is to see it; return the digest of that."""
        own = self._sampler.add_version(self.skill, version)
        path = self.skill
        seen = self.seen(version)
        if task in self._rivals:
            path, rival = self._rivals[task]
            others = {**self._renewed, self.skill: version.main}
            others.pop(path, None)
            seen = rival.beside(others)
        shown = self._sampler.add_version(path, seen)
        self._stands_for[shown] = own
        return shown

    def _take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        try:
            rollouts = self._sampler.take(requests)
        except StopRun:
            # The cap that ended them has paid for these, which may be dearer than those before.
            count_in(self.purse, self._sampler.kept(requests))
            raise
        count_in(self.purse, rollouts)
        for rollout in rollouts:
            request = rollout.request
            if self._stands_for[request.version] == self._start.digest:
                self._at_start.setdefault(request.task, {})[request.key] = rollout
        return rollouts

    def at_start(self) -> dict[str, list[Rollout]]:
        """Return all rollouts of the skill as it was on disk, by task."""
        return {task: list(seen.values()) for task, seen in self._at_start.items()}

    def require_measured(self, tasks: Sequence[SkillTask]) -> None:
        """Check that a sample of these tasks was measured, if any was taken.

        Raises:
            StopRun: none of them has passed or failed, so there is nothing to learn from.
        """
        found = {t.id: list(seen.values()) for t in tasks if (seen := self._at_start.get(t.id))}
        if found and not any(rollout.measured for seen in found.values() for rollout in seen):
            reason = f"no train task could be measured: {_why_not(found)}"
            raise StopRun(reason, kind=Stop.UNMEASURED)

    # Methods for a gate.

    def decide(self, gate: SequentialGate, before: Version, after: Version) -> Verdict:
        """Carry out a decision within the budget of the search.

        Raises:
            OutOfBudget, StopRun: as ``take``.
        """

        def take(draws: Sequence[Draw]) -> list[Rollout]:
            require(self.purse, len(draws))
            return self._take_drawn(draws, before, after)

        gate.purse = self.purse
        return Evidence(take).decide(gate)

    def compare(
        self, gate: SequentialGate, before: Version, after: Version
    ) -> tuple[Verdict, dict[str, list[Rollout]], dict[str, list[Rollout]]]:
        """Carry out a decision with the whole budget; return it with the rollouts by task."""
        gate.purse = self.purse
        evidence = Evidence(lambda draws: self._take_drawn(draws, before, after))
        return evidence.decide(gate), evidence.before, evidence.after

    def _take_drawn(self, draws: Sequence[Draw], before: Version, after: Version) -> list[Rollout]:
        versions = {INCUMBENT: before, CANDIDATE: after}
        requests = [
            self._sampler.request(
                draw.task, self._add(versions[draw.arm], draw.task), draw.stream, draw.index
            )
            for draw in draws
        ]
        return self._take(requests)


class Evidence:
    """The rollouts that a decision is made of.

    Args:
        take: returns the rollout of each draw.
    """

    def __init__(self, take: Callable[[Sequence[Draw]], Sequence[Rollout]]) -> None:
        self._take = take
        self.before: dict[str, list[Rollout]] = {}
        """Rollouts of the incumbent by task."""
        self.after: dict[str, list[Rollout]] = {}

    def decide(self, gate: SequentialGate) -> Verdict:
        """Carry out a decision; a stop on the way leaves the rollouts that were taken before."""
        return run_gate(gate, self._samples)

    def _samples(self, draws: Sequence[Draw]) -> list[Sample]:
        rollouts = self._take(draws)
        sides = {INCUMBENT: self.before, CANDIDATE: self.after}
        for draw, rollout in zip(draws, rollouts, strict=True):
            sides[draw.arm].setdefault(draw.task, []).append(rollout)
        return list(map(_sample, draws, rollouts))


def count_in(purse: Purse, rollouts: Iterable[Rollout]) -> None:
    """Count in a purse what rollouts cost."""
    for rollout in rollouts:
        purse.count_sample(rollout.request.key, rollout.all_usage, rollout.duration)


def _why_not(found: Mapping[str, Sequence[Rollout]]) -> str:
    """Return how many tasks ended in which unmeasured outcome, with an example of each."""
    said = []
    for outcome, words in _UNMEASURED:
        if ended := [r for seen in found.values() for r in seen if r.outcome == outcome]:
            first = ended[0]
            tasks = {rollout.request.task for rollout in ended}
            why = first.error.message if first.error else first.message.removeprefix("Skipped: ")
            share = f"{len(tasks)} of {len(found)} {words}"
            said.append(f"{share}, such as {first.request.task}" + (f" ({why})" if why else ""))
    return "; ".join(said)


def _by_task(rollouts: Iterator[Rollout], counts: Mapping[str, int]) -> dict[str, list[Rollout]]:
    """Take the next rollouts of each task, so many of each."""
    return {task: list(islice(rollouts, number)) for task, number in counts.items()}


def _sample(draw: Draw, rollout: Rollout) -> Sample:
    """Return the sample that a rollout is for a gate."""
    if not rollout.measured:
        return Sample(draw, None, skipped=rollout.outcome == "skipped")
    return Sample(draw, rollout.passed, rollout.score or 0.0)
