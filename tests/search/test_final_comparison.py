"""The final comparison under a cap: fewer samples, the same rule."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tables import each_row

from pytest_skillopt.gate.data import Verdict
from pytest_skillopt.gate.engine import SequentialGate
from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.rollouts.rollout import InfraError
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.search.extensions import gate_tasks
from pytest_skillopt.search.history import Observer
from pytest_skillopt.search.samples import Samples
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from types import ModuleType

    from pytest_skillopt.gate.engine import Plan
    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest
    from pytest_skillopt.search.outcome import TrainOutcome

# Over resumes and over runs.


class Journal(Observer):
    """Entries that an observer would have kept of a run."""

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
        Version.from_bytes(toy.SKILL),
        sampler.tasks,
        sampler,
        toy.ToyOptimizer(useful=1.0),
        Settings(max_rollouts=cap, **settings),
        observer=journal,
    ).run()


def small_world(toy: ModuleType) -> Any:
    return toy.make_world(tasks=24, rules=2)


def final_samples(sampler: Any) -> Counter[tuple[str, str]]:
    """Count the samples of each stream and version."""
    requests = [rollout.request for rollout in sampler.sampled.values()]
    return Counter((r.stream, r.version) for r in requests if r.stage in ("final", "test"))


@each_row("cap", [0, 400])
def test_the_same_comparison_is_one_look_and_every_other_one_is_fresh(
    toy: ModuleType, cap: int
) -> None:
    """An incumbent's samples never serve another candidate, seed or plan."""
    world = small_world(toy)
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
        assert {version for _, version in fresh} >= {other.before.digest}
        assert not {stream for stream, _ in fresh} & {stream for stream, _ in before}


def test_another_seed_draws_fresh_samples_for_the_same_comparison(toy: ModuleType) -> None:
    world = toy.make_world(tasks=8, rules=1, weak=0.0, strong=1.0)
    journal = Journal()
    streams = []
    for seed in (0, 1):
        sampler = toy.ToySampler(world, toy.make_tasks(world))
        train(toy, sampler, journal, seed=seed)
        streams.append({stream for stream, _ in final_samples(sampler)})
    assert len(journal.begun) == 1, "the second one takes the parameters of the first"
    assert all(streams)
    assert not streams[0] & streams[1]


def test_a_comparison_that_had_no_room_for_a_sample_is_begun_anew(toy: ModuleType) -> None:
    world = small_world(toy)
    journal = Journal()
    train(toy, toy.ToySampler(world, toy.make_tasks(world)), journal)
    journal.begun[0]["budget"] = 1
    again = train(toy, toy.ToySampler(world, toy.make_tasks(world)), journal)
    assert again.status == "accepted", again.reason


@each_row("cap", [0, 400])
def test_a_comparison_that_was_cut_short_is_continued(toy: ModuleType, cap: int) -> None:
    """Even where a higher cap would have it done more thoroughly."""
    world = small_world(toy)
    undisturbed = toy.ToySampler(world, toy.make_tasks(world))
    expected = train(toy, undisturbed, Journal(), cap=cap)

    def cut(request: RolloutRequest) -> None:
        if request.stage == "final" and len(final_samples(sampler)) == 2:
            raise StopRun("killed", kind=Stop.INTERRUPTED)

    sampler = toy.ToySampler(world, toy.make_tasks(world))
    journal = Journal()
    world.errors = cut
    assert train(toy, sampler, journal, cap=cap).resumable
    world.errors = lambda request: None
    outcome = train(toy, sampler, journal, cap=cap + 50 if cap else 0)
    assert len(journal.begun) == 1
    assert (outcome.status, outcome.verdict) == (expected.status, expected.verdict)
    if not cap:
        assert sampler.sampled.keys() == undisturbed.sampled.keys()


@each_row("cap", [0, 400])
def test_a_verdict_stands_however_often_the_run_is_continued(toy: ModuleType, cap: int) -> None:
    """Whatever cap allows more samples: looking again until chance says yes is not a test."""
    world = small_world(toy)
    run = world.run

    def lose(request: RolloutRequest, text: str) -> Rollout:
        rollout: Rollout = run(request, text)
        if request.stage != "final":
            return rollout
        passed = text == toy.SKILL.decode()
        return replace(rollout, outcome="passed" if passed else "failed", score=float(passed))

    world.run = lose
    sampler = toy.ToySampler(world, toy.make_tasks(world))
    journal = Journal()
    first = train(toy, sampler, journal, cap=cap)
    assert first.status == "rejected"
    samples = final_samples(sampler)
    for more in (0, 300):
        again = train(toy, sampler, journal, cap=cap + more if cap else 0)
        assert len({one["candidate"] for one in journal.begun}) == len(journal.begun)
        for (stream, _), count in samples.items():
            assert {s: n for (s, _), n in final_samples(sampler).items()}[stream] == count
        if again.proposal.digest == first.proposal.digest:
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


def train_spoiled(
    toy: ModuleType, *, stopped: bool = False, lost: bool = False
) -> tuple[TrainOutcome, Journal, str]:
    """Train where one edit breaks a task that must pass; that edit comes last.

    Args:
        stopped: a second comparison is broken off at its first sample.
        lost: a sample without that edit ends in an infrastructure error.
    """
    world = toy.make_world(strong=1.0, weak=0.0)
    tasks = toy.make_tasks(world)
    spared = next(t for t in tasks if t.split == "val" and not world.needs[t.id])
    tasks = [replace(t, must_pass=t.id == spared.id) for t in tasks]
    honest = world.rate
    spoils = f"{toy.rule(0)} Skip all else."

    def rate(task: str, text: str) -> float:
        return 0.0 if task == spared.id and spoils in text else float(honest(task, text))

    class Spoiling(toy.ToyOptimizer):  # type: ignore[name-defined,misc]
        def complete(self, *args: Any, **told: Any) -> Any:
            reply = super().complete(*args, **told)
            return replace(reply, text=reply.text.replace(toy.rule(0), spoils))

    journal = Journal()

    def stop(request: RolloutRequest) -> InfraError | None:
        if stopped and len(journal.begun) == 2:
            raise StopRun("the cap is reached", kind=Stop.CAP)
        is_lost = lost and request.stage == "mend" and not request.index
        return InfraError("provider", "overloaded") if is_lost else None

    world.rate = rate
    world.errors = stop
    outcome = Trainer(
        Version.from_bytes(toy.SKILL),
        tasks,
        toy.ToySampler(world, tasks),
        Spoiling(useful=1.0),
        Settings(max_rollouts=600),
        observer=journal,
    ).run()
    return outcome, journal, spoils


@each_row("lost", [False, True])
def test_an_edit_that_breaks_a_task_that_must_pass_is_left_out(toy: ModuleType, lost: bool) -> None:
    """The gain of the other edits is compared by itself, and written."""
    outcome, journal, spoils = train_spoiled(toy, lost=lost)
    assert outcome.status == "accepted"
    assert spoils not in outcome.after.main.text
    assert toy.rule(1) in outcome.after.main.text
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
    assert outcome.proposal.digest == journal.begun[0]["candidate"]
    assert {spoils, toy.rule(1)} <= {edit.content for edit in outcome.accepted}
    fates = {row.content: row.status for row in outcome.edits}
    assert (fates[spoils], fates[toy.rule(1)]) == ("rejected", "rejected")
    assert any("was not compared: the cap is reached" in note for note in outcome.notes)


@each_row("seed", range(2))
def test_it_knows_the_lift_that_the_search_expects(toy: ModuleType, seed: int) -> None:
    world = toy.make_world(seed=seed)
    sampler = toy.ToySampler(world, toy.make_tasks(world))
    journal = Journal()
    outcome = train(toy, sampler, journal, cap=400)
    lift = journal.begun[0]["lift"]
    assert set(lift) == {task.id for task in sampler.tasks if task.split == "train"}
    start = toy.SKILL.decode()
    found = outcome.proposal.main.text
    true = [world.rate(task, found) - world.rate(task, start) for task in lift]
    assert sum(lift.values()) == pytest.approx(sum(true), rel=0.35)
    moved = [lift[task] for task, rise in zip(lift, true, strict=True) if rise > 0.2]
    others = [lift[task] for task, rise in zip(lift, true, strict=True) if rise <= 0.2]
    assert statistics.fmean(moved) > statistics.fmean(others) + 0.3


def test_a_gate_knows_what_the_purse_of_the_training_still_pays(toy: ModuleType) -> None:
    """Prices may rise while it decides, as those of a longer candidate."""

    class Asks(SequentialGate):
        name = "asks"

        def decide(self) -> Plan:
            yield self.whole_rounds(1)
            return self.verdict("rejected", f"{self.purse.affordable()} are left")

    world = toy.make_world(tasks=4)
    tasks = toy.make_tasks(world)
    start = Version.from_bytes(toy.SKILL)
    after = Version.from_bytes(toy.SKILL + b"- More.\n")
    for way in (Samples.decide, Samples.compare):
        purse = Purse(Amounts(rollouts=30))
        samples = Samples(toy.ToySampler(world, tasks), purse, skill="SKILL.md", start=start)
        found = way(samples, Asks(gate_tasks(tasks)), start, after)
        verdict = found if isinstance(found, Verdict) else found[0]
        assert verdict.reason == "22 are left"
