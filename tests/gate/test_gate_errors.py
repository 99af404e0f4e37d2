"""Tasks that give nothing but infrastructure errors: what every gate does about them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gate_draws import luck
from tables import each_row

from pytest_skillopt.compare.gates import HelpsGate
from pytest_skillopt.gate.data import Arm, Draw, GateOptions, GateTask, Sample
from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.model.types import Usage
from pytest_skillopt.plugins.shorten.search import ShorterGate
from pytest_skillopt.search.extensions import make_gate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from pytest_skillopt.gate.engine import SequentialGate

GATES = ["sequential", "strict", "confirm"]
SHORT = [*GATES, "sequential, final"]


def gate_of(
    name: str, tasks: Sequence[GateTask], options: GateOptions | None = None
) -> SequentialGate:
    """As ``make_gate``, with the form of the final comparison."""
    name, _, form = name.partition(", ")
    if form:
        options = replace(options or GateOptions(), final=True, held_out=("t08",))
    return make_gate(name, tasks, options)


def suite(n: int, *must_pass: str) -> list[GateTask]:
    return [GateTask(f"t{i:02}", f"t{i:02}" in must_pass) for i in range(n)]


def measure(
    passes: Callable[[Draw], bool],
    dead: Collection[str] = (),
    arms: Collection[Arm] = ("incumbent", "candidate"),
) -> Callable[[Sequence[Draw]], list[Sample]]:
    """Answers draws; of ``dead`` tasks there are only errors under ``arms``."""

    def is_dead(draw: Draw) -> bool:
        return draw.task in dead and draw.arm in arms

    return lambda draws: [Sample(d, None if is_dead(d) else passes(d)) for d in draws]


def better(draw: Draw) -> bool:
    return draw.arm == "candidate"


def noisy(seed: int, lift: float) -> Callable[[Draw], bool]:
    def passes(draw: Draw) -> bool:
        key = f"{seed}/{draw.arm}/{draw.task}/{draw.stream}/{draw.index}"
        rate = 0.4 + (lift if draw.arm == "candidate" and int(draw.task[1:]) % 5 == 0 else 0.0)
        return luck(key) < rate

    return passes


@each_row("name", SHORT)
def test_a_task_dead_under_both_is_left_out_and_named(name: str) -> None:
    verdict = run_gate(gate_of(name, suite(20)), measure(better, {"t07"}))
    assert verdict.accepted
    assert "left out: t07, with nothing but infrastructure errors under both" in verdict.reason
    assert [row.task for row in verdict.tasks if row.left_out] == ["t07"]
    assert verdict.after == 1.0


@each_row("name", SHORT)
@each_row("lift", [0.0, 0.6])
def test_a_task_that_is_left_out_speaks_neither_for_the_edit_nor_against_it(
    name: str, lift: float
) -> None:
    """Its samples are lost, so single decisions may differ; as many are accepted."""
    whole = suite(20)
    rest = [task for task in whole if task.id != "t11"]
    with_it = without = 0
    for seed in range(4):
        passes = noisy(seed, lift)
        with_it += run_gate(gate_of(name, whole), measure(passes, {"t11"})).accepted
        without += run_gate(gate_of(name, rest), measure(passes)).accepted
    assert abs(with_it - without) <= 2


@each_row("name", GATES)
@each_row("arm", ["incumbent", "candidate"])
@each_row("outcome", [better, lambda draw: not better(draw)])
def test_one_dead_under_one_arm_alone_is_never_a_yes(
    name: str, arm: Arm, outcome: Callable[[Draw], bool]
) -> None:
    verdict = run_gate(gate_of(name, suite(40)), measure(outcome, {"t07"}, {arm}))
    assert not verdict.accepted
    if verdict.decision == "unmeasured":
        assert f"t07 could not be measured under the {arm}" in verdict.reason


@each_row("arm", ["incumbent", "candidate"])
def test_the_short_form_takes_the_worst_for_granted_of_what_is_missing(
    arm: Arm,
) -> None:
    """It may end before it meets the dead task, but never because of what that might show."""
    name = "sequential, final"
    both = run_gate(gate_of(name, suite(20)), measure(better, {"t07"}))
    assert both.accepted

    def only_there(draw: Draw) -> bool:
        return draw.task != "t07" or better(draw)

    one = run_gate(gate_of(name, suite(40)), measure(only_there, {"t07"}, {arm}))
    assert not one.accepted


@each_row("name", SHORT)
def test_more_than_the_share_that_is_allowed_is_unmeasured(name: str) -> None:
    dead = {"t03", "t07"}
    verdict = run_gate(gate_of(name, suite(39)), measure(better, dead))
    assert verdict.decision == "unmeasured"
    assert all(task in verdict.reason for task in dead)
    allowed = run_gate(gate_of(name, suite(40)), measure(better, dead))
    assert allowed.accepted
    strict = gate_of(name, suite(40), GateOptions(max_error_rate=0.0))
    assert run_gate(strict, measure(better, {"t07"})).decision == "unmeasured"


@each_row("name", SHORT)
def test_a_task_that_must_pass_is_never_left_out(name: str) -> None:
    verdict = run_gate(gate_of(name, suite(40, "t07")), measure(better, {"t07"}))
    assert verdict.decision == "unmeasured"
    assert "t07 could not be measured" in verdict.reason


@each_row("name", GATES)
def test_a_task_that_was_measured_once_is_never_left_out(name: str) -> None:
    """Its outcome may decide if it can be measured."""

    def dies_later(draws: Sequence[Draw]) -> list[Sample]:
        return [
            Sample(
                d, None if d.task == "t07" and (d.arm, d.index) != ("incumbent", 0) else better(d)
            )
            for d in draws
        ]

    verdict = run_gate(gate_of(name, suite(40)), dies_later)
    assert verdict.decision == "unmeasured"
    assert "t07" in verdict.reason


def test_all_tasks_dead_is_unmeasured_even_where_all_errors_are_allowed() -> None:
    options = replace(GateOptions(), max_error_rate=1.0)
    dead = {task.id for task in suite(4)}
    verdict = run_gate(make_gate("sequential", suite(4), options), measure(better, dead))
    assert verdict.decision == "unmeasured"
    assert verdict.reason.startswith("every task was skipped or left out")


@each_row("gate", [lambda *of: make_gate("strict", *of), ShorterGate, HelpsGate])
def test_an_error_that_a_budget_leaves_without_replacement_is_no_failure(
    gate: Callable[..., SequentialGate],
) -> None:
    def passes(draw: Draw) -> bool | None:
        return None if draw.task == "t03" and draw.arm == "incumbent" else True

    options = GateOptions(rollouts=1, most=1, budget=2 * 12)
    opened = gate(suite(12), options)
    opened.purse = Purse(Amounts(rollouts=2 * 12))

    def take(draws: Sequence[Draw]) -> list[Sample]:
        for draw in draws:
            opened.purse.count_sample(str(draw), Usage(), 0.0)
        return [Sample(draw, passes(draw)) for draw in draws]

    assert run_gate(opened, take).decision == "unmeasured"


@each_row(("errors", "decision"), [(3, "accepted"), (6, "accepted"), (8, "unmeasured")])
def test_a_share_of_errors_that_chance_brings_costs_no_verdict(errors: int, decision: str) -> None:
    """Three of 54 samples are more than 5 %, which a true share of 2.7 % brings in one of six."""
    left = errors

    def take(draws: Sequence[Draw]) -> list[Sample]:
        nonlocal left
        samples = []
        for draw in draws:
            samples.append(Sample(draw, better(draw) if left <= 0 else None))
            left -= 1
        return samples

    gate = make_gate("strict", suite(9), GateOptions(rollouts=3))
    assert run_gate(gate, take).decision == decision
