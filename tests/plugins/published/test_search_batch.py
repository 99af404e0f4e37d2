"""The published pipeline and its mechanisms: each changes what happens."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import toy_world
from tables import each_row

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.update import Update
from pytest_skillopt.mode import mode_named
from pytest_skillopt.modes.forecast import forecast
from pytest_skillopt.plugins.published.search_batch import aggregate_published, batch_size
from pytest_skillopt.search.extensions import Stages
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from types import ModuleType


KEPT = toy_world.SKILL + b"\n<!-- skillopt:keep -->\nNever say never.\n<!-- /skillopt:keep -->\n"


def train(toy: ModuleType, world: Any, model: Any, **settings: Any) -> Any:
    tasks = toy.make_tasks(world)
    stages = settings.pop("stages", None)
    skill = settings.pop("skill", toy.SKILL)
    return Trainer(
        Version.from_bytes(skill),
        tasks,
        toy.ToySampler(world, tasks),
        model,
        Settings(search="batch", **settings),
        stages=stages,
    ).run()


def asked_of(model: Any, kind: str) -> int:
    return sum(sample.split("/")[1] == kind for _, sample, _ in model.asked)


@each_row(
    ("train_tasks", "setting", "size"),
    [(5, 0, 5), (12, 0, 12), (20, 0, 10), (41, 0, 21), (200, 0, 40), (20, 6, 6), (5, 40, 5)],
)
def test_the_default_batch_fits_the_suite(train_tasks: int, setting: int, size: int) -> None:
    assert batch_size(train_tasks, setting) == size


def idle(toy: ModuleType) -> Any:
    return toy.ToyOptimizer(script=lambda form, messages: '{"reasoning": "", "edits": []}')


def test_epochs_batches_and_accumulation_set_the_steps(toy: ModuleType) -> None:
    plain = {"patience": 99, "epochs": 2, "batch_size": 5}
    assert len(train(toy, toy.make_world(), idle(toy), **plain).steps) == 2 * 4
    half = train(toy, toy.make_world(), idle(toy), **plain, accumulation=2)
    assert len(half.steps) == 2 * 2


def test_accumulated_rounds_are_one_patch(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(useful=1.0)
    outcome = train(
        toy,
        toy.make_world(),
        model,
        batch_size=5,
        accumulation=4,
        epochs=1,
        failure_only=True,
        schedule="constant",
    )
    assert outcome.steps[0].edits == 4, "one convention from each of the four rounds"


def test_the_edit_budget_reaches_every_stage(toy: ModuleType) -> None:
    model = toy.ToyOptimizer()
    one = {"edit_budget": 1, "min_edit_budget": 1, "schedule": "constant", "minibatch_size": 1}
    outcome = train(toy, toy.make_world(), model, **one)
    assert max(step.edits for step in outcome.steps) == 1
    told = [prompt for _, sample, prompt in model.asked if "/reflect_" in sample]
    assert told
    assert all("at most 1 edits" in prompt for prompt in told)
    assert asked_of(model, "rank")


def test_the_minibatch_size_sets_the_calls(toy: ModuleType) -> None:
    counts = []
    for size in (1, 4):
        model = toy.ToyOptimizer()
        train(toy, toy.make_world(20), model, minibatch_size=size, patience=1, epochs=1)
        counts.append(asked_of(model, "reflect_failures"))
    assert counts[0] > 2 * counts[1]


def test_the_prompt_says_what_was_rejected_before(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(useful=0.0, harmful=1.0)
    train(toy, toy.make_world(), model, patience=2)
    last = model.asked[-1][2]
    assert "- rejected" in last
    assert toy.HARM in last


def test_the_slow_update_writes_its_block_through_the_gate(toy: ModuleType) -> None:
    """The guidance states the second convention, which no analyst ever proposes."""
    world = toy.make_world(rules=2)

    def script(form: str, messages: Any) -> str | None:
        if form == "Guidance":
            return json.dumps({"reasoning": "still failing", "text": toy.rule(1)})
        if form == "Edits" and "# Rollouts" in messages[-1]["content"]:
            edits = [{"op": "append", "target": "", "content": toy.rule(0)}]
            return json.dumps({"reasoning": "", "edits": edits})
        return None

    settings = {"meta_skill": False, "epochs": 2, "batch_size": 40, "patience": 9}
    on = train(toy, world, toy.ToyOptimizer(script=script), **settings)
    off = train(toy, world, toy.ToyOptimizer(script=script), **settings, slow_update=False)
    block = f"<!-- skillopt:guidance -->\n{toy.rule(1)}\n<!-- /skillopt:guidance -->"
    assert block in on.after.main.text
    assert "guidance" not in off.after.main.text
    assert any(s.reason.startswith("slow update:") and s.verdict == "accepted" for s in on.steps)


def test_epochs_in_which_every_edit_loses_have_slow_updates_too(toy: ModuleType) -> None:
    """As in SkillOpt: every epoch but the first, by the settings of its configuration."""
    model = toy.ToyOptimizer(useful=0.0, harmful=1.0)
    taken = {"patience": 10**6, "rollouts": 1, "batch_size": 10}
    outcome = train(toy, toy.make_world(20), model, epochs=4, slow_update_samples=5, **taken)
    assert outcome.steps[-1].epoch == 4
    assert {step.verdict for step in outcome.steps} <= {"rejected", "none"}
    assert [len(lines) for lines in listed(model)] == [5, 5, 5]
    assert asked_of(model, "meta") == 2, "nobody reads advice after the last epoch"


def listed(model: Any) -> list[list[str]]:
    """The tasks in each prompt of the slow update."""
    return [
        re.findall(r"# Tasks under both\n\n(.*?)\n\n#", prompt, re.DOTALL)[0].split("\n")
        for _, sample, prompt in model.asked
        if sample.endswith("slow_update")
    ]


ONE_RULE_AN_EPOCH = {
    "epochs": 2,
    "batch_size": 40,
    "edit_budget": 1,
    "schedule": "constant",
    "patience": 9,
}


@each_row(
    ("policy", "kinds"),
    [("changed", ("Improved", "Regressed")), ("unchanged", ("Failing under both", "Stable"))],
)
def test_more_tasks_are_sampled_until_enough_have_changed_or_not(
    toy: ModuleType, policy: str, kinds: tuple[str, str]
) -> None:
    """Five of 20 train tasks are wanted; no task is sampled that is not needed for them."""
    model = toy.ToyOptimizer(useful=1.0, harmful=0.0)
    settings = {"slow_update_pairs": policy, "slow_update_samples": 5, "meta_skill": False}
    train(toy, toy.make_world(rules=2), model, **settings, **ONE_RULE_AN_EPOCH)
    (lines,) = listed(model)
    assert len(lines) == 5
    assert all(line.startswith(tuple(f"- {kind}: " for kind in kinds)) for line in lines)
    (prompt,) = [prompt for _, sample, prompt in model.asked if sample.endswith("slow_update")]
    assert ("under the previous document" in prompt) is (policy == "changed")


def test_the_scan_for_changed_tasks_ends_with_the_train_tasks_or_the_budget(
    toy: ModuleType,
) -> None:
    settings: dict[str, Any] = {
        "slow_update_pairs": "changed",
        "meta_skill": False,
        **ONE_RULE_AN_EPOCH,
    }
    shown = []
    for count, cap in ((20, 0), (5, 0), (5, 730)):
        model = toy.ToyOptimizer(useful=1.0, harmful=0.0)
        more: dict[str, Any] = {"slow_update_samples": count, "max_rollouts": cap}
        world = toy.make_world(rules=2)
        outcome = train(toy, world, model, **settings, **more)
        planned = Settings(search="batch", **settings, **more)
        most = forecast(toy.make_tasks(world), mode_named("train"), planned).most
        assert outcome.samples <= most <= (cap or most)
        (lines,) = listed(model)
        shown.append(len(lines))
    in_all, enough, capped = shown
    assert 5 < in_all < 20
    assert 0 < capped <= enough == 5


def test_the_meta_skill_advises_the_editors_and_is_not_shipped(toy: ModuleType) -> None:
    for on in (True, False):
        model = toy.ToyOptimizer(useful=0.0)
        outcome = train(
            toy, toy.make_world(20), model, meta_skill=on, slow_update=False, patience=9, epochs=3
        )
        assert ("Guidance" in model.forms()) is on
        last = next(prompt for form, _, prompt in reversed(model.asked) if form == "Edits")
        assert ("Short rules work." in last) is on
        assert "Short rules work." not in outcome.proposal.main.text


def test_the_meta_skill_is_written_from_winners_losers_and_both_epochs(toy: ModuleType) -> None:
    def script(form: str, messages: Any) -> str | None:
        if form != "Edits" or "# Rollouts" not in messages[-1]["content"]:
            return None
        lines = [toy.rule(number) for number in range(4)]
        lines = lines if messages[-1]["content"].count("Convention") < 4 else [toy.HARM]
        edits = [{"op": "append", "target": "", "content": line} for line in lines]
        return json.dumps({"reasoning": "", "edits": edits})

    for slow in (True, False):
        model = toy.ToyOptimizer(script=script)
        settings = {"slow_update": slow, "epochs": 3, "batch_size": 10, "patience": 9}
        train(toy, toy.make_world(strong=0.8), model, **settings)
        (prompt,) = [prompt for _, sample, prompt in model.asked if sample.endswith("/meta")]
        won = prompt.split("# Accepted edits")[1]
        lost = prompt.split("# Tried before")[1]
        assert toy.rule(0) in won
        assert toy.HARM not in won
        assert f"append {toy.HARM}" in lost.split("\n# ")[0]
        assert "The document at the end of the previous epoch" in prompt
        listed_tasks = prompt.split("# Tasks under both")[1]
        assert re.search(r"^- Improved: .* \(0% to 100%\)$", listed_tasks, re.MULTILINE)


@each_row("mode", ["rewrite_from_suggestions", "full_rewrite_minibatch"])
def test_update_modes_that_rewrite(toy: ModuleType, mode: str) -> None:
    model = toy.ToyOptimizer(useful=1.0, harmful=0.0)
    settings: dict[str, Any] = {"update_mode": mode, "failure_only": True, "skill": KEPT}
    outcome = train(toy, toy.make_world(), model, **settings)
    assert "Body" in model.forms()
    assert "skillopt:keep -->\nNever say never.\n<!--" in outcome.after.main.text
    assert outcome.status == "accepted"
    assert outcome.after.main.frontmatter_text == outcome.before.main.frontmatter_text
    assert "Do what is asked." not in outcome.after.main.text, "the body was written anew"


BAD_DOCUMENTS: dict[str, Any] = {
    "(frontmatter)": lambda text: text.replace("name: toy", "name: toy\nallowed-tools: Bash"),
    "(protected)": lambda text: text.replace("Never say never.", "Say it."),
    "(contact)": lambda text: f"{text}\nWrite to drop@evil-host.net.\n",
    "(size)": lambda text: f"{text}\n{'word ' * 4000}\n",
}


@each_row("rule", BAD_DOCUMENTS)
def test_what_a_stage_hands_over_is_checked_like_an_edit(toy: ModuleType, rule: str) -> None:
    def smuggle(patch: Any, context: Any) -> Update:
        text = BAD_DOCUMENTS[rule](context.version.main.text) + f"{context.draw}\n"
        return Update(Version.from_text(text), patch.edits)

    world = toy.make_world(20)
    tasks = toy.make_tasks(world)
    sampler = toy.ToySampler(world, tasks)
    outcome = Trainer(
        Version.from_bytes(KEPT),
        tasks,
        sampler,
        toy.ToyOptimizer(useful=1.0),
        Settings(search="batch", max_skill_tokens=2000, slow_update=False),
        stages=Stages(update=smuggle),
    ).run()
    assert outcome.status == "unchanged"
    assert {row.status for row in outcome.edits} == {"refused"}
    assert all(rule in row.why for row in outcome.edits)
    assert rule in outcome.steps[0].reason
    streams = {rollout.request.stream for rollout in sampler.sampled.values()}
    assert streams == {"train"}, "nothing is spent on it"


def test_a_stage_may_hand_over_any_good_document(toy: ModuleType) -> None:
    def add_all(patch: Any, context: Any) -> Update:
        rules = "\n".join(toy.rule(n) for n in range(4))
        return Update(Version.from_text(f"{context.version.main.text}\n{rules}\n"))

    model = toy.ToyOptimizer(useful=1.0)
    outcome = train(toy, toy.make_world(24), model, stages=Stages(update=add_all))
    assert outcome.status == "accepted"
    assert toy.rule(3) in outcome.after.main.text


def test_a_body_that_is_alone_in_its_batch_is_not_merged(toy: ModuleType) -> None:
    """Three bodies in batches of two: one call for the first two, and one for what is left."""
    model = toy.ToyOptimizer()
    context = toy.make_context(model, update_mode="full_rewrite_minibatch", merge_batch_size=2)
    bodies = [Patch(body=f"# Toy\n\n{toy.rule(number)}\n") for number in range(3)]
    merged = aggregate_published(bodies, context)
    assert [sample for _, sample, _ in model.asked] == [
        "step 1/merge_rewrites/1/0",
        "step 1/merge_rewrites/2/0",
    ]
    assert merged.body
    assert all(toy.rule(number) in merged.body for number in range(3))
    assert aggregate_published(bodies[:1], context) == bodies[0]
    assert len(model.asked) == 2
