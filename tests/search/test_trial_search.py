"""The default search: trials of edits alone and together, and leaving out what is not missed."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.update import Update
from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.search.extensions import Stages
from pytest_skillopt.search.parameters import TrialParameters
from pytest_skillopt.search.samples import Samples
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.document import Document
from pytest_skillopt.suite.sampler import Sampler, Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from pytest_skillopt.suite.rollouts import Rollout, RolloutRequest

JUNK = "- Take care over small things."


def train(
    toy: ModuleType, world: Any, model: Any, parameters: Any = None, **settings: Any
) -> tuple[Any, Any]:
    tasks = toy.make_tasks(world)
    stages = settings.pop("stages", None)
    sampler = toy.ToySampler(world, tasks)
    trainer = Trainer(
        Document.from_bytes(toy.SKILL),
        tasks,
        sampler,
        model,
        Settings.make(**settings),
        parameters=parameters,
        stages=stages,
    )
    return trainer.run(), sampler


def script_of(*lines: str) -> Any:
    """An analyst that always proposes the same lines, in one answer."""
    edits = [{"op": "append", "target": "", "content": line} for line in lines]
    reply = json.dumps({"reasoning": "", "edits": edits})
    return lambda form, messages: reply if form == "Edits" else None


@pytest.mark.parametrize(("feedback", "ways"), [("full", 2), ("message", 2), ("score", 0)])
def test_analysts_see_each_way_in_which_a_task_failed(
    toy: ModuleType, feedback: str, ways: int
) -> None:
    """The first failure of a task is vague, all others name the convention."""
    world = toy.make_world(rules=1, weak=0.0)
    run, vague = world.run, set[str]()

    def first_vague(request: RolloutRequest, text: str) -> Rollout:
        rollout: Rollout = run(request, text)
        if rollout.passed or request.task in vague:
            return rollout
        vague.add(request.task)
        return replace(rollout, message="AssertionError: it is wrong", location="test_toy.py:9")

    world.run = first_vague
    model = toy.ToyOptimizer(script=script_of())
    train(toy, world, model, feedback=feedback)
    prompts = [prompt for *_, prompt in model.asked if "# Rollouts" in prompt]
    assert prompts
    for prompt in prompts:
        assert prompt.count("How it failed:") == ways
        assert ("it is wrong" in prompt, "is not followed" in prompt) == (ways > 0, ways > 0)
        assert prompt.count("### Another rollout that failed") == max(0, ways - 1)


def streams(sampler: Any) -> Counter[str]:
    return Counter(rollout.request.stage for rollout in sampler.sampled.values())


def test_only_tasks_that_failed_twice_are_asked_about(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(useful=1.0)
    train(toy, toy.make_world(), model)
    first = [prompt for _, sample, prompt in model.asked if sample.startswith("step 1/")]
    assert first
    assert all("Passed 0 of 2" in p or "Passed 1 of 3" in p for p in first)


def test_useless_lines_fail_their_trial_and_never_reach_the_gate(toy: ModuleType) -> None:
    outcome, sampler = train(
        toy, toy.make_world(weak=0.0), toy.ToyOptimizer(script=script_of(JUNK))
    )
    assert outcome.status == "unchanged"
    assert streams(sampler)["tape"] == 0
    assert {row.status for row in outcome.edits} == {"lost"}
    assert "0 of " in outcome.edits[0].why
    assert outcome.edits[0].again > 0, "proposed once more, and not tried"
    assert any("lost a trial before" in step.reason for step in outcome.steps)


def test_a_useful_line_does_not_carry_a_useless_one_along(toy: ModuleType) -> None:
    world = toy.make_world(rules=1)
    outcome, _ = train(toy, world, toy.ToyOptimizer(script=script_of(JUNK, toy.rule(0))))
    assert outcome.status == "accepted"
    assert toy.rule(0) in outcome.after.text
    assert JUNK not in outcome.after.text


def test_tasks_that_need_two_lines_at_once_get_both(toy: ModuleType) -> None:
    """Neither line turns a task alone; tried together they do."""
    world = toy.make_world(rules=1, weak=0.0)
    world.needs = {task: (0, 1) if needs else () for task, needs in world.needs.items()}
    model = toy.ToyOptimizer(script=script_of(toy.rule(0), JUNK, toy.rule(1)))
    outcome, _ = train(toy, world, model)
    assert outcome.status == "accepted"
    assert toy.rule(0) in outcome.after.text
    assert toy.rule(1) in outcome.after.text
    assert JUNK not in outcome.after.text, "left out once, nothing was missed"


def test_a_step_counts_each_edit_once_and_names_those_of_earlier_steps(toy: ModuleType) -> None:
    """Lines that lose alone are tried together for a task that asked for them."""
    model = toy.ToyOptimizer(script=script_of(JUNK, "- Be brief.", "- Mind the tone."))
    outcome, _ = train(toy, toy.make_world(weak=0.0), model)
    said = {step.reason for step in outcome.steps}
    assert "3 edits proposed, 3 tried, 0 help" in said
    assert "3 tried (3 of an earlier step), 0 help" in said
    assert not any("next round" in reason for reason in said), "there is none after the last one"


@pytest.mark.parametrize("groups", [0, 40])
def test_while_no_edit_has_joined_lines_are_tried_in_other_groups(
    toy: ModuleType, groups: int
) -> None:
    """Two lines that a task needs at once come in different pairs at first."""
    world = toy.make_world(rules=1, weak=0.0)
    world.needs = {task: (0, 1) if needs else () for task, needs in world.needs.items()}
    lines = toy.rule(0), JUNK, toy.rule(1), "- Mind the tone."
    parameters = TrialParameters(joint_edits=2, groups=groups)
    model = toy.ToyOptimizer(script=script_of(*lines))
    outcome, _ = train(toy, world, model, parameters, epochs=1)
    assert outcome.status == ("accepted" if groups else "unchanged")


def test_an_edit_does_not_win_by_what_another_one_changed(toy: ModuleType) -> None:
    """When its turn comes, the task that asked for it passes without it."""
    world = toy.World({f"t{i}": (0,) for i in range(6)}, strong=1.0, weak=0.0)
    useful, useless = script_of(toy.rule(0)), script_of(JUNK)

    def answer(form: str, messages: Any) -> Any:
        asks = "## Task 1: t4\n" in "".join(message["content"] for message in messages)
        return (useless if asks else useful)(form, messages)

    parameters = TrialParameters(edits_at_once=1)
    outcome, _ = train(toy, world, toy.ToyOptimizer(script=answer), parameters)
    assert outcome.status == "accepted"
    (row,) = (row for row in outcome.edits if row.content == JUNK)
    assert row.why == "the search ended before it was tried"


def test_settled_tasks_keep_their_record(toy: ModuleType) -> None:
    """A task that passed is sampled once until the search looks afresh."""
    world = toy.make_world(strong=1.0, weak=0.0)
    outcome, sampler = train(toy, world, toy.ToyOptimizer(useful=1.0, harmful=0.0), epochs=1)
    assert outcome.status == "accepted"
    settled = [task.id for task in toy.make_tasks(world) if not world.needs[task.id]]
    looked = Counter(
        r.request.task for r in sampler.sampled.values() if r.request.stream == "train"
    )
    assert {looked[task] for task in settled if task in looked} == {1}


def test_means_are_kept_for_the_gate_and_the_last_comparison(toy: ModuleType) -> None:
    world = toy.make_world()
    outcome, sampler = train(toy, world, toy.ToyOptimizer(useful=1.0), max_rollouts=520)
    assert outcome.status == "accepted"
    assert len(sampler.sampled) <= 520
    assert outcome.verdict.final
    assert streams(sampler)["final"] >= 2 * 30
    assert streams(sampler)["test"] == 2 * 3 * 10


def test_a_small_cap_pays_for_the_comparison_before_all_tasks_are_sampled_again(
    toy: ModuleType,
) -> None:
    world = toy.make_world(rules=1)
    for cap, epochs in ((200, 1), (600, 2)):
        model = toy.ToyOptimizer(useful=1.0, harmful=0.0)
        outcome, sampler = train(toy, world, model, max_rollouts=cap)
        assert outcome.status == "accepted"
        assert max(step.epoch for step in outcome.steps) == epochs
        assert streams(sampler)["final"] >= 80
        said = (
            "leaves no more for the search after 44 samples; 150 more are reserved"
            in outcome.reason
        )
        assert said == (epochs == 1)


def test_without_an_edit_to_compare_a_small_cap_is_for_the_search(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(script=script_of(JUNK))
    outcome, _ = train(toy, toy.make_world(rules=1, weak=0.6), model, max_rollouts=200)
    assert outcome.proposal == outcome.before
    assert max(step.epoch for step in outcome.steps) > 1


def test_the_optimizer_calls_are_bounded(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(useful=0.0)
    parameters = TrialParameters(calls_for_task=1, least_calls=7)
    train(toy, toy.make_world(), model, parameters)
    assert 0 < len(model.asked) <= 20


def test_each_optimizer_call_beyond_the_first_takes_samples_before_it(toy: ModuleType) -> None:
    """Ideas are asked for no faster than they can be tried."""
    parameters = TrialParameters(first_calls=9, calls_for_sample=0.05)
    model = toy.ToyOptimizer(useful=0.3)
    taken: list[int] = []
    world, tasks = toy.make_world(), toy.make_tasks(toy.make_world())
    sampler = toy.ToySampler(world, tasks)
    asked = model.complete

    def complete(*args: Any, **kwargs: Any) -> Any:
        taken.append(len(sampler.sampled))
        return asked(*args, **kwargs)

    model.complete = complete
    start = Document.from_bytes(toy.SKILL)
    settings = Settings(optimizer_workers=1)
    Trainer(start, tasks, sampler, model, settings, parameters=parameters).run()
    assert len(taken) > 9, "more are asked as samples come in"
    assert all(n <= 9 + 0.05 * samples for n, samples in enumerate(taken, 1))


@pytest.mark.parametrize(("fails", "calls"), [(2, 3), (10, 7)])
def test_analysts_of_a_large_suite_see_a_few_tasks_of_each_way_of_failing(
    toy: ModuleType, fails: int, calls: int
) -> None:
    """They are asked about each task the more often, the fewer tasks fail."""
    world, model = toy.make_world(tasks=200, weak=0.0, strong=1.0), toy.ToyOptimizer()
    world.needs = {task: (0,) * (i % fails == 0) for i, task in enumerate(world.needs)}
    train(toy, world, model, epochs=1, batch_size=100)
    first = [sample for _, sample, _ in model.asked if sample.startswith("step 1/")]
    assert len(first) == TrialParameters().tasks_per_way * calls


def test_a_task_that_cannot_be_measured_does_not_hold_up_the_search(toy: ModuleType) -> None:
    from pytest_skillopt.suite.rollouts import InfraError

    world = toy.make_world()
    broken = toy.make_tasks(world)[0].id
    world.errors = lambda r: InfraError("setup", "no") if r.task == broken else None
    outcome, sampler = train(toy, world, toy.ToyOptimizer(useful=1.0), max_error_rate=0.5)
    taken = Counter(r.request.task for r in sampler.sampled.values() if r.request.stream == "train")
    assert taken[broken] <= 4
    assert outcome.proposal != outcome.before


def test_settings_of_the_other_search_are_said_to_change_nothing(toy: ModuleType) -> None:
    settings = {
        "accumulation": 2,
        "merge_batch_size": 3,
        "failure_only": True,
        "autonomous_budget": True,
        "skill_aware": True,
        "slow_update": False,
        "update_mode": "rewrite_from_suggestions",
    }
    plain, _ = train(toy, toy.make_world(), toy.ToyOptimizer(useful=1.0))
    model = toy.ToyOptimizer(useful=1.0)
    outcome, _ = train(toy, toy.make_world(), model, **settings)
    assert outcome.proposal == plain.proposal
    assert not {"EditCount", "Ranking"} & set(model.forms()), "no number of edits is asked for"
    for name in settings:
        assert any(f"skillopt_{name} changes nothing" in note for note in outcome.notes), name
    assert not any("changes nothing" in note for note in plain.notes)
    batch, _ = train(toy, toy.make_world(), toy.ToyOptimizer(), search="batch", **settings)
    assert not any("changes nothing" in note for note in batch.notes)


def test_a_whole_body_is_left_out_with_a_word(toy: ModuleType) -> None:
    stages = Stages(reflect=lambda records, context: [Patch(body="# Toy")])
    outcome, _ = train(toy, toy.make_world(), toy.ToyOptimizer(), stages=stages)
    assert outcome.status == "unchanged"
    assert any("use --skillopt-search=batch" in note for note in outcome.notes)


def test_a_document_that_the_update_stage_made_is_what_is_tried(toy: ModuleType) -> None:
    """The analysts' words are of no use; what the stage makes of them is."""

    def reword(patch: Patch, context: Any) -> Update:
        body = context.document.text.replace("Do what is asked.", "Do it well.")
        body += "" if toy.rule(0) in body else f"\n{toy.rule(0)}\n"
        return Update(Document.from_text(body), patch.edits)

    world = toy.make_world(rules=1, weak=0.0)
    model = toy.ToyOptimizer(script=script_of("- Think of the first convention."))
    outcome, sampler = train(toy, world, model, stages=Stages(update=reword))
    assert outcome.status == "accepted"
    assert outcome.after.body == f"\n# Toy\n\nDo it well.\n\n{toy.rule(0)}\n"
    assert len(outcome.accepted) == 1
    assert outcome.accepted[0].tasks, "the tasks are those of the edit that the stage was given"
    assert not any("Think of" in text for text in sampler.versions.values())


def test_a_stage_that_leaves_the_document_as_it_is_has_nothing_tried(toy: ModuleType) -> None:
    stages = Stages(update=lambda patch, context: Update(context.document, patch.edits))
    outcome, sampler = train(toy, toy.make_world(), toy.ToyOptimizer(useful=1.0), stages=stages)
    assert outcome.status == "unchanged"
    assert streams(sampler)["trial"] == 0


def test_a_document_of_the_update_stage_passes_the_checks(toy: ModuleType) -> None:
    def careless(patch: Patch, context: Any) -> Update:
        text = f"{context.document.text}\nUse sk-proj-{'a1B2c3D4' * 4}.\n"
        return Update(Document.from_text(text), patch.edits)

    model = toy.ToyOptimizer(useful=1.0)
    outcome, sampler = train(toy, toy.make_world(), model, stages=Stages(update=careless))
    assert outcome.status == "unchanged"
    assert streams(sampler)["trial"] == 0
    assert {row.status for row in outcome.edits} == {"refused"}
    assert all("(secret)" in row.why for row in outcome.edits)


def test_edits_that_copy_words_of_tasks_are_sent_back_together(toy: ModuleType) -> None:
    world, copies = toy.make_world(), ["zorbanik flumquist", "vendrolim paskurat"]
    tasks = toy.make_tasks(world)
    for place, copy in zip((0, 2), copies, strict=True):
        tasks[place] = replace(tasks[place], text=f"assert answer == {copy!r}")
    leaking = script_of(*(f"- Answer with {copy}." for copy in copies))
    rules = script_of(toy.rule(0), toy.rule(1))

    def script(form: str, messages: Any) -> str | None:
        back = "# Terms to do without" in messages[1]["content"]
        return (rules if back else leaking)(form, messages)  # type: ignore[no-any-return]

    model = toy.ToyOptimizer(script=script)
    sampler = toy.ToySampler(world, tasks)
    document, settings = Document.from_bytes(toy.SKILL), Settings.make(max_rollouts=400)
    outcome = Trainer(document, tasks, sampler, model, settings).run()
    back = [prompt for _, _, prompt in model.asked if "# Terms to do without" in prompt]
    assert back
    assert all("- edit 0: " in prompt and "- edit 1: " in prompt for prompt in back)
    assert {edit.content for edit in outcome.accepted} == {toy.rule(0), toy.rule(1)}


def test_samples_under_an_edit_that_did_nothing_count_for_its_tasks(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(script=script_of(JUNK))
    train(toy, toy.make_world(weak=0.0), model, TrialParameters(first_calls=999, repeats=999))
    assert any("Passed 0 of 3" in prompt for _, _, prompt in model.asked)


def test_an_edit_that_names_a_text_which_is_not_there_is_appended(toy: ModuleType) -> None:
    def script(form: str, messages: Any) -> str | None:
        edit = {"op": "replace", "target": "Do as you please.", "content": toy.rule(0)}
        return json.dumps({"reasoning": "", "edits": [edit]}) if form == "Edits" else None

    outcome, _ = train(toy, toy.make_world(rules=1, weak=0.0), toy.ToyOptimizer(script=script))
    assert outcome.status == "accepted"
    assert toy.rule(0) in outcome.after.text
    assert {row.status for row in outcome.edits} == {"accepted"}


def test_a_suite_that_starts_at_zero_is_climbed(toy: ModuleType) -> None:
    """No line helps by itself, since every task needs two; many other lines are useless."""
    world = toy.make_world(rules=3, weak=0.0, strong=0.95)
    world.needs = {task: (0, 1 + i // 4 % 2) for i, task in enumerate(world.needs)}
    lines = [toy.rule(0), toy.rule(1), toy.rule(2), *(f"- Mind matter {n}." for n in range(4))]

    def script(form: str, messages: Any) -> str | None:
        luck = random.Random(messages[1]["content"] + str(len(model.asked)))
        edits = [{"op": "append", "target": "", "content": x} for x in luck.sample(lines, 2)]
        return json.dumps({"reasoning": "", "edits": edits}) if form == "Edits" else None

    model = toy.ToyOptimizer(script=script)
    outcome, _ = train(toy, world, model, max_rollouts=400, optimizer_workers=1)
    assert outcome.status == "accepted"
    assert all(toy.rule(n) in outcome.after.text for n in range(3))


def test_edits_that_nobody_has_tried_are_told_when_a_cap_ends_the_search(toy: ModuleType) -> None:
    outcome, _ = train(toy, toy.make_world(), toy.ToyOptimizer(useful=0.3), max_rollouts=160)
    left = [row for row in outcome.edits if "ended before it was tried" in row.why]
    assert left
    assert "proposed" in outcome.steps[-1].reason


def test_a_search_is_the_same_method_under_every_cap(toy: ModuleType) -> None:
    for cap in (160, 500, 2500, 0):
        outcome, sampler = train(toy, toy.make_world(), toy.ToyOptimizer(), max_rollouts=cap)
        assert all(step.verdict == "none" for step in outcome.steps)
        assert {r.request.stage for r in sampler.sampled.values()} <= {
            "train",
            "trial",
            "final",
            "test",
        }


def spent_before_the_gate(toy: ModuleType, stop: Any, least_samples: int = 60) -> tuple[Any, Any]:
    """A search with a gate on the way that has had its samples before it has left edits out."""
    world = toy.make_world()
    tasks = toy.make_tasks(world)
    sampler = toy.ToySampler(world, tasks, before_take=stop)
    outcome = Trainer(
        Document.from_bytes(toy.SKILL),
        tasks,
        sampler,
        toy.ToyOptimizer(useful=1.0, harmful=0.0),
        Settings(gate="strict", rollouts=1),
        parameters=TrialParameters(samples_per_task=1, least_samples=least_samples, together=99),
    ).run()
    return outcome, sampler


@pytest.mark.parametrize("lasts", [False, True])
def test_what_a_cap_keeps_from_being_left_out_still_has_to_pass_the_gate(
    toy: ModuleType, lasts: bool
) -> None:
    """The cap falls into the leaving-out that follows a spent budget."""
    stopped: list[int] = []

    def stop(taken: int) -> None:
        if taken >= 40 and (lasts or not stopped):
            stopped.append(taken)
            raise StopRun("the cap is reached", kind=Stop.CAP)

    outcome, sampler = spent_before_the_gate(toy, stop)
    assert stopped[0] == 40
    assert any("ended early: the cap is reached" in note for note in outcome.notes)
    if lasts:
        assert (outcome.status, outcome.resumable) == ("unchanged", True)
        assert not streams(sampler).keys() & {"fresh", "final"}
        assert {row.status for row in outcome.edits} == {"dropped"}
    else:
        assert outcome.status == "accepted"
        assert outcome.steps[-1].gate == "strict"


def test_a_gate_that_cannot_be_paid_for_is_said_to_be_why_nothing_changes(toy: ModuleType) -> None:
    outcome, sampler = spent_before_the_gate(toy, lambda taken: None, least_samples=120)
    assert outcome.status == "unchanged"
    assert "the search has had its" in outcome.reason
    assert not outcome.resumable, "that bound is not a cap of the user's"
    assert not streams(sampler).keys() & {"fresh", "final"}
    whys = {(row.status, row.why) for row in outcome.edits}
    assert whys == {("dropped", "the gate's decision about it was not completed")}


def test_activities_end_with_the_first_one_or_when_the_budget_is_short(toy: ModuleType) -> None:
    world = toy.make_world()
    tasks = toy.make_tasks(world)
    document = Document.from_bytes(toy.SKILL)
    told: Counter[str] = Counter()

    def sample(stream: str, rounds: int) -> Any:
        for _ in range(rounds):
            (found,) = yield stream, [(document, {tasks[0].id: 2})]
            told[stream] += len(found[tasks[0].id])

    for cap, longer in ((0, 4), (10, 4), (9, 2)):
        sampler, purse = toy.ToySampler(world, tasks), Purse(Amounts(rollouts=cap))
        samples = Samples(sampler, purse, skill=tasks[0].skill, start=document)
        told.clear()
        samples.carry_out(sample("first", 2), sample("shorter", 1), sample("longer", 5))
        assert told == streams(sampler) == {"first": 4, "shorter": 2, "longer": longer}


@dataclass
class RoundCounter(Sampler):
    """Hands requests on, and counts how often."""

    inner: Any
    width: int
    rounds: int = 0
    stages: list[Counter[str]] = field(default_factory=list)
    """Rollouts of each round by stage."""

    rollouts_left = None
    ended = ""

    @property
    def at_once(self) -> int:
        return self.width

    def add_version(self, skill: str, content: bytes) -> str:
        return str(self.inner.add_version(skill, content))

    def request(self, task: str, version: str, stream: str, index: int, target: str = "") -> Any:
        return self.inner.request(task, version, stream, index)

    def take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        self.rounds += 1
        self.stages.append(Counter(request.stage for request in requests))
        return list(self.inner.take(requests))


@pytest.mark.parametrize("width", [4, 32])
def test_many_workers_sample_all_tasks_again_beside_an_ablation(
    toy: ModuleType, width: int
) -> None:
    world = toy.make_world(weak=0.2, strong=0.7)
    tasks = toy.make_tasks(world)
    sampler = RoundCounter(toy.ToySampler(world, tasks), width)
    document, settings = Document.from_bytes(toy.SKILL), Settings.make(max_rollouts=900)
    Trainer(document, tasks, sampler, toy.ToyOptimizer(), settings).run()
    train = sum(task.split == "train" for task in tasks)
    again = [taken for taken in sampler.stages if taken["train"] == train]
    assert again
    assert any(taken["trial"] for taken in again) == (width == 32)


def test_many_workers_search_in_fewer_rounds(toy: ModuleType) -> None:
    found = []
    for width in (1, 32, 32):
        world = toy.make_world()
        tasks = toy.make_tasks(world)
        sampler = RoundCounter(toy.ToySampler(world, tasks), width)
        document, settings = Document.from_bytes(toy.SKILL), Settings.make(max_rollouts=900)
        model = toy.ToyOptimizer(useful=0.2)
        outcome = Trainer(document, tasks, sampler, model, settings).run()
        assert outcome.status == "accepted"
        gain = world.mean(outcome.after.text, world.needs)
        found.append((sampler.rounds, gain, outcome.after.text))
    one, many, again = found
    assert many == again
    assert many[0] < 0.6 * one[0]
    assert many[1] >= one[1] - 0.1
