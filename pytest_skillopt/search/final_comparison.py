"""The final comparison: what the search ended with against the start, on fresh samples.

The default gate decides, whatever gate stood on the way: on all train and val tasks, the targets of
the search first. Without a cap it takes at most ``final_rollouts`` samples of each skill and task
in the mean; under a cap a share of it is kept back before the search spends anything, and what the
search leaves over is added.

Its samples are drawn from a stream that is named by what is compared, and how: both versions,
the seed, the tasks, the rounds. So the very same comparison is one look at one set of samples,
however often it is asked for, and every other one draws fresh samples under both skills. How it
is carried out is in the journal before its first sample, so that a run which was killed or met a
cap goes on with that comparison, and repeats a verdict that was reached instead of looking
again.
"""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections import Counter
from dataclasses import asdict, astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from pytest_skillopt.gate.data import Seen
from pytest_skillopt.gate.sequential import DefaultGate
from pytest_skillopt.gate.shorter import ShorterGate
from pytest_skillopt.search.budget import Purpose
from pytest_skillopt.search.extensions import gate_options, gate_tasks
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_skillopt.gate.data import Verdict
    from pytest_skillopt.gate.engine import Gate, SequentialGate
    from pytest_skillopt.search.state import TrainingState
    from pytest_skillopt.settings import Settings
    from pytest_skillopt.suite.rollouts import Rollout
    from pytest_skillopt.suite.tasks import SkillTask

BEGUN = "final"
"""Kind of the journal's line that says how a final comparison is carried out."""
_SHARE = 2 / 7
"""Part of the cap, in (0, 1), that is kept back for it."""
_LEAST, _MOST = 1.5, 3.0
"""Samples for each task that are kept back under a cap, at least and at most."""
_LOOKS = 3
"""Samples of each broken task with one edit left out."""
_MENDED = 0.7
"""Pass rate of the broken tasks from which the edit that is left out is the one."""


def kept_back(settings: Settings, tasks: int) -> int:
    """Samples kept back for a final comparison over so many train and val tasks."""
    whole = 2 * settings.final_rollouts * tasks
    caps = [cap for cap in (settings.max_rollouts, settings.max_calls) if cap]
    if not caps:
        return whole
    share = min(max(_LEAST * tasks, _SHARE * min(caps)), _MOST * tasks)
    return min(whole, math.ceil(share))


def shortage(settings: Settings, kept: int, tasks: Sequence[SkillTask]) -> str:
    """Why a cap on rollouts leaves nothing to search these tasks of a skill with, if so."""
    cap = settings.max_rollouts
    test = 2 * sum(t.rollouts or settings.rollouts for t in tasks if t.split == "test")
    first = sum(
        1 + (task.split == "both") for task in tasks if task.split in ("train", "val", "both")
    )
    reserve = kept + test
    if not cap or cap >= reserve + first:
        return ""
    return (
        f"--skillopt-max-rollouts leaves {cap} for this skill and nothing to search with: the "
        f"final comparison and the test split need {reserve} and the first look at the suite "
        f"{first}; allow at least {reserve + first} for each skill, or lower "
        "skillopt_final_rollouts"
    )


@dataclass(frozen=True, slots=True)
class Begun:
    """A final comparison as the journal has it."""

    skill: str
    candidate: str
    """SHA-256 of the version that is compared with the start."""
    budget: int | None
    """Samples that it may take in all; None without a cap."""
    targets: tuple[str, ...]
    """Train tasks on which the search expects a change, likeliest first."""
    prior: float
    """E-value of the search's own samples against "no edit does anything"."""
    seen: tuple[Seen, ...] = ()
    """The search's own samples of train tasks on which it expects no change."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What it has measured, the test split included; rollouts by task."""

    verdict: Verdict
    before: Mapping[str, list[Rollout]]
    after: Mapping[str, list[Rollout]]
    from_search: int
    """Tasks whose rollouts before are those that the search took."""
    stream: str
    """Names the samples of the test split."""


class FinalComparison:
    """Sets its samples aside when it is made, which is before the search spends anything."""

    def __init__(self, state: TrainingState, begun: Sequence[Mapping[str, Any]] = ()) -> None:
        """Args:
        begun: what the journal has of final comparisons of this run, in its order.
        """
        self._state = state
        self._begun = [
            Begun(
                **{
                    **data,
                    "targets": tuple(data["targets"]),
                    "seen": tuple(Seen(*one) for one in data.get("seen", ())),
                }
            )
            for data in begun
        ]
        self._first = True
        """Whether nothing has been compared yet."""
        self.kept = kept_back(state.settings, len(state.suite))
        self._test = {task.id: task.rollouts or state.settings.rollouts for task in state.test}
        self.set_aside()

    def set_aside(self, more: int = 0) -> None:
        """Keep samples back for it, for the test split, and so many more."""
        self._state.budget.hold(Purpose.FINAL, self.kept + self._test_samples + more)

    def run(self) -> Measured:
        """Compare.

        Where the verdict is not good because a task broke, and one edit is found that broke it,
        the rest is compared by itself: another version, on samples of its own.

        Raises:
            StopRun: a cap or a fault ended the run before there was a verdict.
        """
        measured = self.compare()
        broken = measured.verdict.names("broken")
        if measured.verdict.decision != "rejected" or not broken:
            return measured
        go_back = self._state.mark()
        try:
            return self.compare() if self._leave_out_what_broke(broken) else measured
        except StopRun as end:
            self._state.history.notes.append(
                f"what is left without the edit that broke a task was not compared: {end.reason}"
            )
            go_back()
            return measured

    def _leave_out_what_broke(self, broken: Sequence[str]) -> bool:
        """Go on without the edit with which these tasks fail and without which they pass."""
        state = self._state
        left_out = [(line, state.without(line)) for line in state.edits if len(state.edits) > 1]
        shorter = [(line, short) for line, short in left_out if short is not None]
        if not shorter:
            return False
        wanted = dict.fromkeys(broken, _LOOKS)
        found = state.samples.take_all([(short, wanted) for _, short in shorter], "mend")
        rates = [
            statistics.fmean(bool(r.passed) for taken in tasks.values() for r in taken)
            for tasks in found
        ]
        best = max(range(len(rates)), key=lambda i: rates[i])
        if rates[best] < _MENDED:
            return False
        return state.drop([shorter[best][0]], "a task that passed before fails with it")

    def compare(self) -> Measured:
        """Compare the incumbent with the start.

        Raises:
            StopRun: as ``run``.
        """
        state = self._state
        begun = self._begin()
        gate = self._open_gate(begun)
        verdict, before, after = state.samples.compare(gate, state.start, state.incumbent)
        unsampled = [task.id for task in state.suite if task.id not in before]
        earlier = {t: found for t, found in state.samples.at_start().items() if t in unsampled}
        return Measured(
            verdict,
            before=before | earlier,
            after=after,
            from_search=len(earlier),
            stream=self._stream(begun),
        )

    def _begin(self) -> Begun:
        """How this version is compared: as it was begun before, else as the budget allows now."""
        state = self._state
        state.budget.release()
        state.budget.hold(Purpose.FINAL, self._test_samples)
        candidate = state.incumbent.version
        first, self._first = self._first, False
        begun = next((one for one in self._begun if one.candidate == candidate), None)
        if begun is None:
            begun = Begun(
                skill=state.skill,
                candidate=candidate,
                budget=state.budget.left(),
                targets=tuple(state.targets),
                prior=state.prior,
                seen=tuple(self._seen()) if first else (),
            )
            state.history.observer.record(BEGUN, asdict(begun))
        return begun

    def _seen(self) -> Iterator[Seen]:
        """Samples of both skills on the train tasks that are no targets.

        They have not chosen the edits. A second comparison goes without: the samples of the first
        have chosen what it compares.
        """
        state = self._state
        if state.settings.metric != "hard":
            return
        expected = {*state.targets, *(task.id for task in state.val)}
        taken = {document.version: outcomes for document, outcomes in state.samples.outcomes()}
        passed, n = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for version in (state.incumbent.version, state.start.version):
            for task, won in taken.get(version, ()):
                passed[version, task] += won
                n[version, task] += 1
        for task in sorted({task for _, task in n} - expected):
            new, old = (state.incumbent.version, task), (state.start.version, task)
            yield Seen(task, passed[new], n[new], passed[old], n[old])

    def _stream(self, begun: Begun) -> str:
        """A name for all that is compared, and how, in 12 hexadecimal digits."""
        state = self._state
        tasks = sorted((task.id, task.split, task.must_pass) for task in state.suite)
        options = asdict(gate_options(state.settings))
        parts = [*astuple(begun), state.start.version, state.settings.seed, tasks, options]
        return hashlib.sha256(json.dumps(parts, default=str).encode()).hexdigest()[:12]

    def _open_gate(self, begun: Begun) -> Gate:
        state, decision = self._state, self._stream(begun)
        options = replace(
            gate_options(state.settings),
            final=True,
            held_out=tuple(task.id for task in state.val if task.split == "val"),
            budget=begun.budget,
            targets=begun.targets,
            prior=begun.prior,
            seen=begun.seen,
        )
        gate: type[SequentialGate] = DefaultGate
        if state.settings.search == "shorten":
            gate = ShorterGate
            options = replace(options, rollouts=state.settings.final_rollouts)
        return gate(gate_tasks(state.suite), options, decision=decision)

    def open_test(self, measured: Measured) -> Measured:
        """Measure the test tasks under both documents, for the report alone; once, at the end."""
        state = self._state
        if not measured.verdict.accepted:
            return measured
        state.budget.release()
        both = [(state.start, self._test), (state.incumbent, self._test)]
        try:
            before, after = state.samples.take_all(both, f"test/{measured.stream}")
        except StopRun as end:
            state.history.notes.append(f"the test split was not measured: {end.reason}")
            return measured
        return replace(
            measured, before={**measured.before, **before}, after={**measured.after, **after}
        )

    @property
    def _test_samples(self) -> int:
        return 2 * sum(self._test.values())
