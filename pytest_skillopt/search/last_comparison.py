"""The last comparison: what the search ended with against the start, on fresh samples."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_skillopt.gate.gate_options import GateTask
from pytest_skillopt.gate.gates import make_gate
from pytest_skillopt.search.allowance import OutOfMeans
from pytest_skillopt.search.final import plan_final
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_skillopt.gate.gate import Gate
    from pytest_skillopt.gate.verdict import Verdict
    from pytest_skillopt.search.workbench import Workbench
    from pytest_skillopt.suite.rollouts import Rollout

_UNBOUNDED = 1 << 30
"""Means where no cap is in sight, as under one on calls of an agent that reports none."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What it has measured, the test split included; rollouts by task."""

    verdict: Verdict
    before: Mapping[str, list[Rollout]]
    after: Mapping[str, list[Rollout]]
    from_search: int
    """Tasks whose rollouts before are those that the search took."""


class LastComparison:
    """Sets its means aside when it is made, which is before the search spends anything."""

    def __init__(self, bench: Workbench, *, sole_below: int = 0) -> None:
        """Args:
        sole_below: as ``plan_final`` has it, where the gate can be left to it.
        """
        self._bench = bench
        self._final = plan_final(
            bench.settings,
            len(bench.suite),
            sole_below=sole_below if bench.has_built_in_gate else 0,
        )
        bench.sole = self._final.sole
        if bench.sole:
            bench.ledger.notes.append(
                "the cap leaves means for one decision: edits gathered without a gate on the way, "
                "and the last comparison decided on all of them together"
            )
        self._test = {task.id: task.rollouts or bench.settings.rollouts for task in bench.test}
        bench.allowance.reserve = self._final.samples + self._test_samples

    def shortage(self) -> str:
        """Why the caps cannot pay for the last comparison and a search before it, if so."""
        bench, cap = self._bench, self._bench.settings.max_rollouts
        least = bench.allowance.reserve + len(bench.train) + len(bench.val)
        if not cap or cap >= least:
            return ""
        return (
            f"--skillopt-max-rollouts leaves {cap} for this skill and nothing to search with: the "
            f"last comparison and the test split need {bench.allowance.reserve} and the first look "
            f"at the suite {least - bench.allowance.reserve}; allow at least {least} for each "
            "skill, or lower --skillopt-final-rollouts"
        )

    def run(self) -> Measured:
        """Compare, and where the verdict is good measure the test split.

        Raises:
            StopRun: a cap or a fault ended the run before there was a verdict.
        """
        bench = self._bench
        gate = self._open_gate()
        verdict, before, after = bench.samples.compare(gate, bench.start, bench.incumbent)
        unsampled = [task.id for task in bench.suite if task.id not in before]
        earlier = {t: found for t, found in bench.samples.at_start().items() if t in unsampled}
        test_before, test_after = self._open_test() if verdict.accepted else ({}, {})
        return Measured(
            verdict,
            before=before | earlier | test_before,
            after=after | test_after,
            from_search=len(earlier),
        )

    def _open_gate(self) -> Gate:
        """As thorough as the means allow that are left."""
        bench = self._bench
        bench.allowance.held, bench.allowance.reserve = 0, self._test_samples
        left = bench.allowance.left()
        final = self._final.within(left)
        if not final.rollouts:
            bench.ledger.notes.append(
                "the cap left no complete round for the last comparison: it stopped when its "
                "verdict was certain or its means were used up, and where the skill on disk has no "
                "fresh sample its rate is that of the samples of the search"
            )
        options = replace(
            bench.gate_options(),
            rollouts=final.rollouts,
            first=tuple(bench.samples.failed_at_start(bench.suite)),
            held_out=tuple(task.id for task in bench.val),
            means=_UNBOUNDED if left is None else left,
            prior=bench.prior if final.sole else 1.0,
        )
        return make_gate(final.gate, [GateTask(t.id, t.must_pass) for t in bench.suite], options)

    def _open_test(self) -> tuple[dict[str, list[Rollout]], dict[str, list[Rollout]]]:
        """Measure the test tasks once under both documents, for the report alone."""
        bench = self._bench
        bench.allowance.release()
        try:
            before, after = bench.samples.take_all(
                [(bench.start, self._test), (bench.incumbent, self._test)], "test"
            )
        except (StopRun, OutOfMeans) as end:
            bench.ledger.notes.append(f"the test split was not measured: {end.reason}")
            return {}, {}
        return before, after

    @property
    def _test_samples(self) -> int:
        return 2 * sum(self._test.values())
