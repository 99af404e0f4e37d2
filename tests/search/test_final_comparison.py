"""The final comparison under a cap: fewer samples, the same rule."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_skillopt.gate.data import Draw, GateOptions, GateTask, Sample, Verdict
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.search.final_comparison import plan_final
from pytest_skillopt.search.history import Observer
from pytest_skillopt.search.stages import make_gate
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document
from pytest_skillopt.suite.sampler import StopRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from pytest_skillopt.gate.data import MetricName
    from pytest_skillopt.search.outcome import TrainOutcome
    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest

outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)
tenths = st.integers(0, 10).map(lambda tenth: tenth / 10)


def decide(
    rollouts: int,
    scores: Sequence[tuple[float, float]],
    first: tuple[str, ...] = (),
    must: bool = False,
    metric: MetricName = "hard",
) -> Verdict:
    """The verdict where task ``n`` scores as told before and after, in every sample."""
    by_task = {f"t{n}": pair for n, pair in enumerate(scores)}

    def take(draws: Sequence[Draw]) -> list[Sample]:
        assert draws
        return [
            Sample(draw, score == 1, float(score))
            for draw in draws
            for score in [by_task[draw.task][draw.arm == "candidate"]]
        ]

    options = GateOptions(metric=metric, rollouts=rollouts, first=first, kmax=1)
    tasks = [GateTask(task, must_pass=must and task == "t0") for task in by_task]
    return run_gate(make_gate("final", tasks, options), take)


@given(outcomes, st.permutations([f"t{n}" for n in range(12)]), st.booleans())
def test_the_short_comparison_decides_as_a_whole_round_does(
    passes: list[tuple[bool, bool]], first: list[str], must: bool
) -> None:
    short = decide(0, passes, tuple(first), must)
    whole = decide(1, passes, must=must)
    assert short.decision == whole.decision
    if not must:
        assert short.incumbent_samples <= whole.incumbent_samples
    assert short.candidate_samples == whole.candidate_samples or must


@given(st.lists(st.tuples(tenths, tenths), min_size=1, max_size=12))
@example([(0.2, 0.8), (0.6, 0.2), (0.5, 0.8)])
def test_the_short_comparison_of_scores_ends_as_a_whole_round_does(
    scores: list[tuple[float, float]],
) -> None:
    short = decide(0, scores, metric="soft")
    assert short.decision == decide(1, scores, metric="soft").decision


def test_a_skipped_task_that_must_pass_is_left_out_of_the_short_comparison() -> None:
    tasks = [GateTask("skipped", must_pass=True), GateTask("other")]
    gate = make_gate("final", tasks, GateOptions(rollouts=0))

    def take(draws: Sequence[Draw]) -> list[Sample]:
        assert all(draw.index == 0 for draw in draws)
        return [
            Sample(draw, None, skipped=True)
            if draw.task == "skipped"
            else Sample(draw, draw.arm == "candidate")
            for draw in draws
        ]

    verdict = run_gate(gate, take)
    assert verdict.decision == "accepted"
    assert [row.task for row in verdict.tasks if row.skipped] == ["skipped"]


def test_it_is_settled_soonest_by_the_tasks_that_failed_before() -> None:
    passes = [(True, True)] * 10 + [(False, True)] * 10
    told = decide(0, passes, tuple(f"t{n}" for n in range(10, 20)))
    assert told.decision == "accepted"
    assert told.candidate_samples == 20
    assert told.incumbent_samples <= 2


def test_without_a_cap_every_round_is_taken() -> None:
    final = plan_final(Settings(), 30)
    assert (final.rollouts, final.samples) == (5, 300)


@pytest.mark.parametrize(
    ("wide", "tight"),
    [
        (Settings(max_rollouts=700), Settings(max_rollouts=350)),
        (Settings(max_calls=700), Settings(max_calls=350)),
    ],
)
def test_a_cap_leaves_something_to_search_with(wide: Settings, tight: Settings) -> None:
    assert plan_final(wide, 70).samples == 140
    short = plan_final(tight, 70)
    assert short.rollouts == 0
    assert 70 < short.samples < 140


def test_what_the_search_left_over_makes_it_more_thorough() -> None:
    final = plan_final(Settings(max_rollouts=350), 70)
    assert final.rounds_within(139) == 0
    assert final.rounds_within(314) == 1
    assert final.rounds_within(315) == 2
    assert final.rounds_within(10_000) == 5


# Over resumes and over runs.


class Journal(Observer):
    """What an observer would have kept of a run."""

    def __init__(self) -> None:
        self.begun: list[dict[str, Any]] = []

    def record(self, kind: str, data: dict[str, Any]) -> None:
        if kind == "final":
            self.begun.append(json.loads(json.dumps(data)))


def train(
    toy: ModuleType,
    sampler: Any,
    journal: Journal,
    *,
    cap: int = 0,
    **settings: Any,
) -> TrainOutcome:
    return Trainer(
        Document.from_bytes(toy.SKILL),
        sampler.tasks,
        sampler,
        toy.ToyOptimizer(useful=1.0),
        Settings.make(max_rollouts=cap, **settings),
        begun=list(journal.begun),
        observer=journal,
    ).run()


def final_samples(sampler: Any) -> Counter[tuple[str, str]]:
    """How many there are of each stream and version."""
    requests = [rollout.request for rollout in sampler.sampled.values()]
    return Counter((r.stream, r.version) for r in requests if r.stage in ("final", "test"))


@pytest.mark.parametrize("cap", [0, 400, 1000])
def test_the_same_comparison_is_one_look_and_every_other_one_is_fresh(
    toy: ModuleType, cap: int
) -> None:
    """An incumbent's samples never serve another candidate, seed or plan."""
    world = toy.make_world()
    sampler = toy.ToySampler(world, toy.make_tasks(world))
    first = train(toy, sampler, Journal(), cap=cap)
    monday = final_samples(sampler)
    assert len({stream for stream, _ in monday}) == 2, "final and test"
    again = train(toy, sampler, Journal(), cap=cap)
    assert again.verdict == first.verdict
    assert final_samples(sampler) == monday
    for told in ({"seed": 7}, {"final_rollouts": 6}, {"gate_alpha": 0.04}):
        before = final_samples(sampler)
        other = train(toy, sampler, Journal(), cap=cap, **told)
        fresh = final_samples(sampler) - before
        if cap != 400 or "final_rollouts" not in told:
            assert {version for _, version in fresh} >= {other.before.version}
        assert not {stream for stream, _ in fresh} & {stream for stream, _ in before}


@pytest.mark.parametrize("cap", [0, 400, 1000])
def test_a_comparison_that_was_cut_short_is_continued(toy: ModuleType, cap: int) -> None:
    """Even where a higher cap would have it done more thoroughly."""
    world = toy.make_world()
    undisturbed = toy.ToySampler(world, toy.make_tasks(world))
    expected = train(toy, undisturbed, Journal(), cap=cap)

    def cut(request: RolloutRequest) -> None:
        if request.stage == "final" and len(final_samples(sampler)) == 2:
            raise StopRun("killed", kind="interrupted")

    sampler, journal = toy.ToySampler(world, toy.make_tasks(world)), Journal()
    world.errors = cut
    assert train(toy, sampler, journal, cap=cap).resumable
    world.errors = lambda request: None
    outcome = train(toy, sampler, journal, cap=cap + 50 if cap else 0)
    assert len(journal.begun) == 1
    assert (outcome.status, outcome.verdict) == (expected.status, expected.verdict)
    if not cap:
        assert sampler.sampled.keys() == undisturbed.sampled.keys()


@pytest.mark.parametrize("cap", [0, 400, 1000])
def test_a_verdict_stands_however_often_the_run_is_continued(toy: ModuleType, cap: int) -> None:
    """Whatever cap allows more samples: looking again until chance says yes is no test."""
    world = toy.make_world()
    run = world.run

    def lose(request: RolloutRequest, text: str) -> Rollout:
        rollout: Rollout = run(request, text)
        if request.stage != "final":
            return rollout
        passed = text == toy.SKILL.decode()
        return replace(rollout, outcome="passed" if passed else "failed", score=float(passed))

    world.run = lose
    sampler, journal = toy.ToySampler(world, toy.make_tasks(world)), Journal()
    first = train(toy, sampler, journal, cap=cap)
    assert first.status == "rejected"
    samples = final_samples(sampler)
    for more in (0, 100, 1000):
        again = train(toy, sampler, journal, cap=cap + more if cap else 0)
        assert len({one["candidate"] for one in journal.begun}) == len(journal.begun)
        for (stream, _), count in samples.items():
            assert {s: n for (s, _), n in final_samples(sampler).items()}[stream] == count
        if again.proposal.version == first.proposal.version:
            assert again.verdict == first.verdict
            assert final_samples(sampler) == samples


def test_only_a_run_without_a_verdict_can_go_further(toy: ModuleType) -> None:
    world = toy.make_world()
    sampler = toy.ToySampler(world, toy.make_tasks(world))

    def end(request: RolloutRequest) -> None:
        if len(sampler.sampled) == 100:
            raise StopRun("the cap is reached")

    world.errors = end
    early = train(toy, sampler, Journal(), cap=400)
    assert (early.verdict, early.resumable) == (None, True)
    world.errors = lambda request: None
    whole = train(toy, sampler, Journal(), cap=150)
    assert any("the search ended early" in note for note in whole.notes)
    assert (whole.status, whole.resumable) == ("accepted", False)


def train_spoiled(toy: ModuleType, *, stopped: bool = False) -> tuple[TrainOutcome, Journal, str]:
    """Train where one edit breaks a task that must pass; that edit comes last.

    Args:
        stopped: a second comparison is broken off at its first sample.
    """
    world = toy.make_world(strong=1.0, weak=0.0)
    tasks = toy.make_tasks(world)
    spared = next(t for t in tasks if t.split == "val" and not world.needs[t.id])
    tasks = [replace(t, must_pass=t.id == spared.id) for t in tasks]
    honest, spoils = world.rate, f"{toy.rule(0)} Skip all else."

    def rate(task: str, text: str) -> float:
        return 0.0 if task == spared.id and spoils in text else float(honest(task, text))

    class Spoiling(toy.ToyOptimizer):  # type: ignore[name-defined,misc]
        def complete(self, *args: Any, **told: Any) -> Any:
            reply = super().complete(*args, **told)
            return replace(reply, text=reply.text.replace(toy.rule(0), spoils))

    journal = Journal()

    def stop(request: RolloutRequest) -> None:
        if stopped and len(journal.begun) == 2:
            raise StopRun("the cap is reached", kind="cap")

    world.rate, world.errors = rate, stop
    outcome = Trainer(
        Document.from_bytes(toy.SKILL),
        tasks,
        toy.ToySampler(world, tasks),
        Spoiling(useful=1.0),
        Settings(max_rollouts=600),
        observer=journal,
    ).run()
    return outcome, journal, spoils


def test_an_edit_that_breaks_a_task_that_must_pass_is_left_out(toy: ModuleType) -> None:
    """What the other edits bring is compared by itself, and written."""
    outcome, journal, spoils = train_spoiled(toy)
    assert outcome.status == "accepted"
    assert spoils not in outcome.after.text
    assert toy.rule(1) in outcome.after.text
    assert len(journal.begun) == 2, "another version, on samples of its own"
    fates = {row.content: (row.status, row.why) for row in outcome.edits}
    assert fates[spoils] == ("dropped", "a task that passed before fails with it")


def test_a_comparison_without_that_edit_that_breaks_off_leaves_what_was_refused(
    toy: ModuleType,
) -> None:
    """The verdict, the proposal and the fates of all edits are those of the first comparison."""
    outcome, journal, spoils = train_spoiled(toy, stopped=True)
    assert (outcome.status, outcome.after) == ("rejected", outcome.before)
    assert outcome.verdict
    assert "must pass" in outcome.verdict.reason
    assert outcome.proposal.version == journal.begun[0]["candidate"]
    assert {spoils, toy.rule(1)} <= {edit.content for edit in outcome.accepted}
    fates = {row.content: row.status for row in outcome.edits}
    assert (fates[spoils], fates[toy.rule(1)]) == ("rejected", "rejected")
    assert any("was not compared: the cap is reached" in note for note in outcome.notes)
