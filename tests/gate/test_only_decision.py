"""A training that is decided at its end, under a small cap and in a whole session."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import warm_sessions
from tables import each_row

from pytest_skillopt.rollouts.rollout import InfraError
from pytest_skillopt.rollouts.sampler import StopRun
from pytest_skillopt.search.final_comparison import kept_back
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from types import ModuleType

    import pytest

    from pytest_skillopt.rollouts.rollout import RolloutRequest


def train(
    toy: ModuleType, world: Any, *, useful: float = 0.7, cap: int = 400, **told: Any
) -> tuple[Any, Any]:
    tasks = toy.make_tasks(world)
    sampler = toy.ToySampler(world, tasks)
    trainer = Trainer(
        Version.from_bytes(toy.SKILL),
        tasks,
        sampler,
        toy.ToyOptimizer(useful=useful, seed=world.seed),
        Settings(max_rollouts=cap, **told.pop("settings", {})),
        **told,
    )
    return trainer.run(), sampler


def streams(sampler: Any) -> set[str]:
    return {rollout.request.stage for rollout in sampler.sampled.values()}


@each_row(("cap", "seed"), [(180, 0), (260, 1)])
def test_a_training_under_a_small_cap_decides_once(toy: ModuleType, cap: int, seed: int) -> None:
    world = toy.make_world(seed=seed)
    outcome, sampler = train(toy, world, cap=cap)
    assert outcome.samples == len(sampler.sampled) <= cap
    assert all(row.gate == "" and row.verdict == "none" for row in outcome.steps)
    assert streams(sampler) == {"search", "final", "test"}
    assert outcome.status == "accepted"
    assert outcome.verdict.final
    assert outcome.val.after.rate > outcome.val.before.rate
    fates = {row.content: row.status for row in outcome.edits}
    written = {edit.content for edit in outcome.accepted}
    assert written
    assert {text for text, fate in fates.items() if fate == "accepted"} == written
    assert toy.HARM not in outcome.after.main.text


def test_edits_that_the_last_verdict_refuses_are_rejected(toy: ModuleType) -> None:
    """An edit that helps the train tasks breaks val tasks that passed before."""
    world = toy.make_world()
    honest = world.rate
    unseen = {task.id for task in toy.make_tasks(world) if task.split == "val"}

    def rate(task: str, text: str) -> float:
        if task in unseen and not world.needs[task]:
            return 0.02 if "Convention" in text else 0.98
        return 0.05 if task in unseen else float(honest(task, text))

    world.rate = rate
    outcome, _ = train(toy, world)
    assert (outcome.status, outcome.after) == ("rejected", outcome.before)
    assert "the val tasks are likely to have fallen" in outcome.reason
    went_on = [row for row in outcome.edits if row.content in outcome.proposal.main.text]
    assert {row.status for row in went_on} == {"rejected"}


def end_in_the_last_comparison(request: RolloutRequest) -> InfraError | None:
    if request.stage == "final":
        raise StopRun("the cap is reached")
    return None


def fail_in_the_last_comparison(request: RolloutRequest) -> InfraError | None:
    return InfraError("provider", "no answer") if request.stage == "final" else None


@each_row(
    ("errors", "status"),
    [(end_in_the_last_comparison, "unchanged"), (fail_in_the_last_comparison, "unmeasured")],
)
def test_edits_without_a_verdict_are_dropped(toy: ModuleType, errors: Any, status: str) -> None:
    outcome, _ = train(toy, toy.make_world(errors=errors), cap=180)
    assert (outcome.status, outcome.after) == (status, outcome.before)
    went_on = [row for row in outcome.edits if row.content in outcome.proposal.main.text]
    assert went_on
    assert {row.status for row in went_on} == {"dropped"}
    assert {row.why for row in went_on} == {"the final comparison was not completed"}


@each_row(
    "told",
    [
        {"settings": {"gate": "strict"}},
        {"settings": {"search": "batch"}},
    ],
)
def test_a_gate_that_is_another_or_can_be_paid_for_stays_on_the_way(
    toy: ModuleType, told: dict[str, Any]
) -> None:
    world = toy.make_world(strong=1.0, weak=0.0)
    outcome, sampler = train(toy, world, **told)
    assert any(row.gate for row in outcome.steps)
    assert {"tape", "screen", "fresh"} & streams(sampler)
    assert outcome.verdict is None or outcome.verdict.final


# The samples that are reserved for it.


def test_what_is_kept_for_the_decision_follows_the_cap() -> None:
    kept = {total: kept_back(Settings(), 50, total) for total in (100, 200, 350, 5000, math.inf)}
    assert kept == {100: 30, 200: 60, 350: 105, 5000: 1500, math.inf: 500}
    assert kept_back(Settings(), 50, 350, log_e=math.log(20)) == 70


# The session.

INVOICES = r"""
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("number", range(16))
def test_order(skill_agent, number):
    text = f"Invoice no: 70{number}\nYour order: PO-45-{number}7\nTotal EUR 10.00"
    question = "Extract as JSON the field `po_number` of this invoice."
    reply = skill_agent(f"{question}\n\n{text}").json()
    assert reply["po_number"] == f"45{number}7"
"""


def test_a_session_leaves_what_helped_to_the_final_comparison(pytester: pytest.Pytester) -> None:
    skill = pytester.path / "SKILL.md"
    skill.write_text("---\nname: orders\ndescription: Reads orders.\n---\n\nAnswer in JSON.\n")
    pytester.makepyfile(INVOICES)
    pytester.makeini("[pytest]\nskillopt_model = offline:sim-steady\n")
    pytester.makeconftest(
        f"""
        import sys
        from pytest_skillopt import chat_model

        sys.path.append({str(Path(__file__).parents[2] / "example_project")!r})

        def pytest_skillopt_client(config, role):
            from simulation import serve

            return chat_model(config, role, provider="offline", url=serve, simulated=True)
        """
    )
    before = skill.read_text()
    arguments = ("-p", "no:xdist", "--skillopt-train", "--skillopt-max-rollouts=150")
    result = warm_sessions.run(*arguments, cwd=pytester.path)
    assert result.ret == 0
    assert skill.read_text().startswith(before.rstrip())
    assert skill.read_text() != before
    text = " ".join(result.stdout.str().split())
    assert text.count("skillopt: the verdict on ") == 1
    assert text.count("Written. This undoes") == 1
