"""The training as a whole, in a toy world, without a pytest session of its own."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from typing import TYPE_CHECKING, Any

import toy_world
from tables import each_row

from pytest_skillopt.edits.records import Memory
from pytest_skillopt.edits.vetting import Refusal
from pytest_skillopt.model.types import CapReached, ModelFault
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.run.result import Arm
from pytest_skillopt.search.history import History, Observer
from pytest_skillopt.search.outcome import with_expected
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from types import ModuleType

SEARCHES = ("batch", "trials")


def train(toy: ModuleType, world: Any, model: Any = None, **settings: Any) -> Any:
    tasks = toy.make_tasks(world)
    sampler = toy.ToySampler(world, tasks)
    document = Version.from_bytes(toy.SKILL)
    return Trainer(
        document, tasks, sampler, model or toy.ToyOptimizer(), Settings(**settings)
    ).run()


def small_world() -> toy_world.World:
    return toy_world.make_world(tasks=24, rules=2)


@functools.cache
def undisturbed(search: str) -> tuple[Any, Any]:
    """Return the outcome of one training, and the model that was asked."""
    model = toy_world.ToyOptimizer()
    return train(toy_world, small_world(), model, search=search), model


@each_row("search", SEARCHES)
def test_the_skill_improves_on_unseen_tasks(toy: ModuleType, search: str) -> None:
    world = small_world()
    outcome, _ = undisturbed(search)
    unseen = [task.id for task in toy.make_tasks(world) if task.split == "test"]
    assert outcome.status == "accepted"
    assert (
        world.mean(outcome.after.main.text, unseen)
        > world.mean(outcome.before.main.text, unseen) + 0.3
    )
    assert outcome.suite.after.rate > outcome.suite.before.rate
    assert outcome.test.after.rate > outcome.test.before.rate
    assert {row.status for row in outcome.edits} >= {"accepted"}
    assert outcome.after.main.frontmatter_text == outcome.before.main.frontmatter_text


@each_row("search", SEARCHES)
def test_two_runs_with_one_seed_are_equal(toy: ModuleType, search: str) -> None:
    """Whatever the number of calls at once."""
    one, _ = undisturbed(search)
    assert one == train(toy, small_world(), search=search, optimizer_workers=1)


@each_row("search", SEARCHES)
def test_a_harmful_optimizer_changes_nothing(toy: ModuleType, search: str) -> None:
    world = small_world()
    outcome = train(toy, world, toy.ToyOptimizer(useful=0.0, harmful=1.0), search=search)
    assert outcome.status == "unchanged"
    assert outcome.after == outcome.before
    assert outcome.verdict is None


@each_row("search", SEARCHES)
def test_the_optimizer_never_sees_a_val_or_test_task(toy: ModuleType, search: str) -> None:
    world = small_world()
    _, model = undisturbed(search)
    hidden = [task.id for task in toy.make_tasks(world) if task.split != "train"]
    prompts = "\n".join(prompt for _, _, prompt in model.asked)
    shown = [task.id for task in toy.make_tasks(world) if task.split == "train"]
    assert [task for task in shown if task in prompts]
    assert not [task for task in hidden if task in prompts]


@each_row("search", SEARCHES)
def test_what_the_gate_saw_of_val_tasks_is_for_the_report_alone(
    toy: ModuleType, search: str
) -> None:
    world = toy.make_world()
    model = toy.ToyOptimizer(useful=1.0)
    tasks = toy.make_tasks(world)
    hidden = {task.id for task in tasks if task.split != "train"}
    honest = world.rate

    def rate(task: str, text: str) -> float:
        """Whatever helps breaks hidden tasks that passed before."""
        if task in hidden and not world.needs[task]:
            return 0.02 if toy.rule(0)[:12] in text else 0.98
        return float(honest(task, text))

    world.rate = rate
    outcome = Trainer(
        Version.from_bytes(toy.SKILL),
        tasks,
        toy.ToySampler(world, tasks),
        model,
        Settings(search=search),
    ).run()
    reported = " ".join(row.why for row in outcome.edits)
    named = [task for task in hidden if task in reported]
    assert named, reported
    prompts = "\n".join(prompt for _, _, prompt in model.asked)
    assert ("the gate saw" in prompts) == (search == "batch")
    assert not [task for task in hidden if task in prompts]
    assert not [task for task in hidden if f"[{task.split('[')[1]}" in prompts]


@each_row("search", SEARCHES)
def test_a_cap_too_small_for_the_last_comparison_is_said_before_any_call(
    toy: ModuleType, search: str
) -> None:
    model = toy.ToyOptimizer()
    outcome = train(toy, toy.make_world(), model, search=search, max_rollouts=100)
    assert outcome.status == "unchanged"
    assert (
        "skillopt_max_rollouts = 100 pays for 100 rollouts, which leaves nothing" in outcome.reason
    )
    assert (outcome.samples, model.asked) == (0, [])
    assert "lower skillopt_rollouts" in outcome.reason
    least = int(outcome.reason.rpartition("skillopt_max_rollouts = ")[2].split(",")[0])
    for cap, refused in ((least - 1, True), (least, False)):
        again = train(toy, toy.make_world(), search=search, max_rollouts=cap)
        assert ("nothing to search with" in again.reason) is refused
    less = train(toy, toy.make_world(), search=search, max_rollouts=least - 1, rollouts=1)
    assert "nothing to search with" not in less.reason


def test_a_list_of_edits_without_the_object_around_it_is_read(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    ask = model.complete

    def answer(messages: Any, **options: Any) -> Any:
        reply = ask(messages, **options)
        read = json.loads(reply.text)
        return dataclasses.replace(reply, text=json.dumps(read.get("edits", read)))

    model.complete = answer
    outcome = train(toy, small_world(), model)
    assert outcome.status == "accepted"
    assert not [note for note in outcome.notes if "could not be read" in note]


@each_row("search", SEARCHES)
@each_row("at", [0, 90, 150])
def test_a_fault_leaves_the_skill_as_it_was(toy: ModuleType, search: str, at: int) -> None:
    world = small_world()
    tasks = toy.make_tasks(world)
    sampler = toy.ToySampler(world, tasks)

    def break_down(taken: int) -> None:
        if taken >= at:
            raise StopRun("401: wrong key", kind=Stop.FATAL)

    sampler.before_take = break_down
    outcome = Trainer(
        Version.from_bytes(toy.SKILL), tasks, sampler, toy.ToyOptimizer(), Settings(search=search)
    ).run()
    assert outcome.status == "unmeasured"
    assert outcome.after == outcome.before
    assert "401: wrong key" in outcome.reason


@each_row("search", SEARCHES)
def test_a_cap_on_the_optimizer_ends_the_search_and_still_compares(
    toy: ModuleType, search: str
) -> None:
    model = toy.ToyOptimizer()
    allowed = 40 if search == "trials" else 8

    def stop(form: str, messages: object) -> None:
        if len(model.asked) > allowed:
            raise CapReached("--skillopt-max-calls is reached")

    model.script = stop
    outcome = train(toy, small_world(), model, search=search)
    assert outcome.status == "accepted"
    assert outcome.verdict.final


@each_row("search", SEARCHES)
def test_a_last_comparison_that_is_lost_writes_nothing(toy: ModuleType, search: str) -> None:
    world: Any = small_world()
    tasks = toy.make_tasks(world)
    sampler = toy.ToySampler(world, tasks)
    run = world.run

    def spoil(request: Any, text: str) -> Any:
        rollout = run(request, text)
        if request.stage != "final":
            return rollout
        return dataclasses.replace(rollout, outcome="failed", score=0.0)

    world.run = spoil
    document = Version.from_bytes(toy.SKILL)
    settings = Settings(search=search)
    outcome = Trainer(document, tasks, sampler, toy.ToyOptimizer(), settings).run()
    assert outcome.status == "rejected"
    assert not any(row.expected or row.change == "likely" for row in outcome.tasks)
    assert outcome.after == outcome.before
    assert outcome.proposal != outcome.before
    assert outcome.test is None, "the test split stays closed"


@each_row("search", SEARCHES)
def test_nothing_is_asked_when_every_task_passes(toy: ModuleType, search: str) -> None:
    world = toy.make_world(weak=1.0, strong=1.0)
    model = toy.ToyOptimizer()
    outcome = train(toy, world, model, search=search, failure_only=True)
    assert outcome.status == "unchanged"
    assert "every train task passes" in outcome.reason
    assert model.asked == []


@each_row("search", SEARCHES)
def test_unreadable_replies_are_counted_and_nothing_is_guessed(
    toy: ModuleType, search: str
) -> None:
    model = toy.ToyOptimizer(script=lambda form, messages: "I would rather not.")
    outcome = train(toy, small_world(), model, search=search)
    assert outcome.status == "unchanged"
    assert "could be read (no JSON object or array in 'I would rather not.'); try" in outcome.reason
    assert any("could not be read" in note for note in outcome.notes)
    assert search == "batch" or any("I would rather not." in s.reason for s in outcome.steps)
    assert len(model.asked) <= 2 * (5 + 8), "a handful, and what was under way"


@each_row(
    ("settings", "reason", "resumable"),
    [
        (
            {"search": "trials"},
            "the optimizer is asked no more, ",
            False,
        ),
        ({"search": "batch", "epochs": 1, "patience": 99}, "all epochs are over", False),
        ({"search": "batch", "patience": 1}, "1 step without an accepted edit", False),
        ({"search": "shorten", "epochs": 1}, "no text is left that can be removed", False),
        (
            {"search": "trials", "max_rollouts": 150},
            "skillopt_max_rollouts leaves no more for the search after",
            True,
        ),
        (
            {"search": "batch", "max_rollouts": 150},
            "skillopt_max_rollouts leaves no more for the search after",
            True,
        ),
    ],
)
def test_it_is_said_why_the_search_ended(
    toy: ModuleType, settings: dict[str, Any], reason: str, resumable: bool
) -> None:
    """A run that only a cap has ended may go on with a higher one."""
    numbers = itertools.count()

    def script(form: str, messages: Any) -> str:
        """Propose no edit, or ever new useless ones if the cap is to end the search."""
        line = {"op": "append", "target": "", "content": f"Mind small thing {next(numbers)}."}
        return json.dumps({"reasoning": "", "edits": [line] if resumable else []})

    outcome = train(toy, toy.make_world(), toy.ToyOptimizer(script=script), **settings)
    assert (outcome.status, outcome.resumable) == ("unchanged", resumable)
    assert outcome.reason.startswith(f"no better skill was found: {reason}")
    assert (outcome.prospect is not None) == (resumable and settings["search"] == "trials")


def test_what_has_gathered_goes_on_when_the_optimizer_stops_making_sense(toy: ModuleType) -> None:
    answered = 0

    def script(form: str, messages: object) -> str | None:
        nonlocal answered
        answered += form == "Edits"
        return None if answered <= 40 else "I would rather not."

    model = toy.ToyOptimizer(useful=1.0, script=script)
    outcome = train(toy, small_world(), model, optimizer_workers=1)
    assert outcome.status == "accepted"
    assert "I would rather not." in outcome.ended


@each_row("search", SEARCHES)
def test_an_optimizer_that_stays_away_leaves_the_training_unmeasured(
    toy: ModuleType, search: str
) -> None:
    def fail(form: str, messages: object) -> None:
        raise ModelFault("502 bad gateway")

    outcome = train(toy, small_world(), toy.ToyOptimizer(script=fail), search=search, breaker=3)
    assert outcome.status == "unmeasured"
    assert "502 bad gateway" in outcome.reason
    assert any("were not answered" in note for note in outcome.notes)


def test_it_is_counted_which_rates_come_from_the_search(toy: ModuleType) -> None:
    outcomes = (train(toy, toy.make_world(), max_rollouts=cap) for cap in range(150, 260, 10))
    short = next(o for o in outcomes if o.verdict and o.from_search)
    assert short.status == "accepted"
    for outcome in (short, undisturbed("trials")[0]):
        assert outcome.verdict
        sampled = {task.task for task in outcome.verdict.tasks if task.incumbent_n}
        measured = {row.id for row in outcome.tasks if row.split != "test" and row.before.n}
        assert outcome.from_search == len(measured - sampled)


def test_a_task_that_few_fresh_samples_tell_of_is_likely_by_the_search(toy: ModuleType) -> None:
    outcome, _ = undisturbed("trials")
    train_rows = [row for row in outcome.tasks if row.split == "train"]
    likely = [row for row in outcome.tasks if row.change == "likely"]
    assert likely
    assert all(row in train_rows and row.expected >= 0.2 for row in likely)
    rest = [row for row in train_rows if row.change in ("undecided", "same") and row.after]
    assert all(row.expected < 0.2 for row in rest)
    fallen = likely[0].model_copy(
        update={
            "start": Arm(passed=5, n=6),
            "after": Arm(passed=1, n=3),
            "change": "undecided",
        }
    )
    assert with_expected(fallen, 0.29).change == "undecided", "5 of 6, then 1 of 3"
    risen = fallen.model_copy(update={"after": Arm(passed=3, n=3)})
    assert with_expected(risen, 0.29).change == "likely"
    assert all(row.expected is None for row in outcome.tasks if row.split in ("val", "test"))


def test_an_accepted_edit_that_is_proposed_again_keeps_its_row(toy: ModuleType) -> None:
    history = History(memory := Memory(), Observer())
    line = toy.append("- Be nice.")
    other = toy.append("- No.")
    history.settle([line], "accepted", "it helps")
    history.refuse([Refusal(line, "the document says it already"), Refusal(other, "too long")])
    rows = {row.content: (row.status, row.why, row.again) for row in history.edits}
    assert rows == {"- Be nice.": ("accepted", "it helps", 1), "- No.": ("refused", "too long", 0)}
    assert "the document says it already" in memory.render(), "the optimizer is told"
    history.settle([line], "dropped", "not missed")
    assert history.edits[0].status == "dropped"


def test_edits_that_share_a_verdict_say_so() -> None:
    """Each was told to have fixed the same tasks."""
    outcome, _ = undisturbed("trials")
    accepted = [row.why for row in outcome.edits if row.status == "accepted"]
    assert len(accepted) > 1
    assert {why.partition(":")[0] for why in accepted} == {f"{len(accepted)} edits together"}
