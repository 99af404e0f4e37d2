"""The default search: random documents, what is kept of them, and what analysts are asked."""

from __future__ import annotations

import functools
import itertools
import json
import random
import re
import threading
from collections import Counter
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import toy_world
from patience import PATIENCE
from tables import each_row

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.edits.update import Update
from pytest_skillopt.rollouts.rollout import InfraError
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.search import loop
from pytest_skillopt.search.extensions import Stages
from pytest_skillopt.search.history import Observer
from pytest_skillopt.search.rounds import Beside
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.edits import apply
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    import pytest

    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest

JUNK = "- Take care over small things."


def train(toy: ModuleType, world: Any, model: Any, **settings: Any) -> tuple[Any, Any]:
    tasks = toy.make_tasks(world)
    stages = settings.pop("stages", None)
    observer = settings.pop("observer", None)
    sampler = settings.pop("sampler", None) or toy.ToySampler(world, tasks)
    trainer = Trainer(
        Version.from_bytes(toy.SKILL),
        tasks,
        sampler,
        model,
        Settings(**settings),
        stages=stages,
        observer=observer,
    )
    return trainer.run(), sampler


def script_of(*lines: str) -> Any:
    """An analyst that always proposes the same lines, in one answer."""
    return edits_of(*({"op": "append", "target": "", "content": line} for line in lines))


def edits_of(*edits: dict[str, str]) -> Any:
    reply = json.dumps({"reasoning": "", "edits": list(edits)})
    return lambda form, messages: reply if form == "Edits" else None


def streams(sampler: Any) -> Counter[str]:
    return Counter(rollout.request.stage for rollout in sampler.sampled.values())


def texts(sampler: Any) -> list[str]:
    """Texts of the documents that the search has sampled."""
    requests = [rollout.request for rollout in sampler.sampled.values()]
    return [sampler.versions[r.version] for r in requests if r.stage == "search"]


# The candidate and the kept ideas.


def test_useless_lines_are_never_compared(toy: ModuleType) -> None:
    model = toy.ToyOptimizer(script=script_of(JUNK))
    outcome, sampler = train(toy, toy.make_world(weak=0.0), model)
    assert outcome.status == "unchanged"
    assert streams(sampler)["final"] == 0
    (row,) = outcome.edits
    assert (row.status, row.content) in (("given up", JUNK), ("open", JUNK))
    assert row.chance < 0.2


def test_a_useful_line_does_not_carry_a_useless_one_along(toy: ModuleType) -> None:
    world = toy.make_world(rules=1)
    outcome, _ = train(toy, world, toy.ToyOptimizer(script=script_of(JUNK, toy.rule(0))))
    assert outcome.status == "accepted"
    assert toy.rule(0) in outcome.after.main.text
    assert JUNK not in outcome.after.main.text
    rows = {row.content: row for row in outcome.edits}
    assert rows[toy.rule(0)].chance > 0.9
    assert rows[toy.rule(0)].points > 0.2


def test_a_suite_that_starts_at_zero_is_climbed(toy: ModuleType) -> None:
    """No line helps by itself, since every task needs two; many other lines are useless."""
    world = toy.make_world(rules=3, weak=0.0, strong=0.95)
    world.needs = {task: (0, 1 + i // 4 % 2) for i, task in enumerate(world.needs)}
    lines = [toy.rule(0), toy.rule(1), toy.rule(2), *(f"- Mind matter {n}." for n in range(4))]

    def script(form: str, messages: Any) -> str | None:
        luck = random.Random(messages[1]["content"] + str(model.forms().count("Edits")))
        edits = [{"op": "append", "target": "", "content": x} for x in luck.sample(lines, 2)]
        return json.dumps({"reasoning": "", "edits": edits}) if form == "Edits" else None

    model = toy.ToyOptimizer(script=script)
    outcome, _ = train(toy, world, model, max_rollouts=500, optimizer_workers=1)
    assert outcome.status == "accepted"
    assert all(toy.rule(n) in outcome.after.main.text for n in range(3))


def test_of_edits_of_the_same_lines_the_better_one_is_kept(toy: ModuleType) -> None:
    """They are alternatives: no document holds both."""
    world = toy.make_world(rules=1, weak=0.0)
    target = "Do what is asked."
    changes = edits_of(
        {"op": "replace", "target": target, "content": "Do it at once."},
        {"op": "replace", "target": target, "content": toy.rule(0)},
        {"op": "delete", "target": target, "content": ""},
    )

    def script(form: str, messages: Any) -> Any:
        stands = target in messages[1]["content"].partition("[end of data")[0]
        return (changes if stands else edits_of())(form, messages)

    model = toy.ToyOptimizer(script=script)
    outcome, sampler = train(toy, world, model)
    assert outcome.status == "accepted"
    assert toy.rule(0) in outcome.after.main.text
    assert target not in outcome.after.main.text
    sampled = set(texts(sampler))
    assert any("Do it at once." in text for text in sampled)
    assert not any("Do it at once." in text and toy.rule(0) in text for text in sampled)


def test_an_edit_of_a_kept_line_is_only_in_documents_that_hold_it(toy: ModuleType) -> None:
    world = toy.make_world(rules=1, weak=0.0)
    world.needs = {task: (0, 1) if i % 4 == 0 else needs for i, (task, needs) in
                   enumerate(world.needs.items())}  # fmt: skip

    def script(form: str, messages: Any) -> str | None:
        stated = f"\n{toy.rule(0)}\n" in messages[1]["content"].partition("[end of data")[0]
        first = {"op": "append", "target": "", "content": toy.rule(0)}
        later = {"op": "insert_after", "target": toy.rule(0), "content": toy.rule(1)}
        edits = [later if stated else first]
        return json.dumps({"reasoning": "", "edits": edits}) if form == "Edits" else None

    outcome, sampler = train(toy, world, toy.ToyOptimizer(script=script))
    assert outcome.status == "accepted"
    assert f"{toy.rule(0)}\n{toy.rule(1)}" in outcome.after.main.text
    assert not any(toy.rule(1) in text and toy.rule(0) not in text for text in texts(sampler))


def test_kept_lines_come_first(toy: ModuleType) -> None:
    """Prompt caches of providers hit, since the varied lines stand at the end."""
    world = small_world()
    outcome, sampler = train(toy, world, toy.ToyOptimizer(useful=0.7))
    kept = [edit.content for edit in outcome.accepted]
    assert len(kept) > 1
    latest = [text for text in texts(sampler) if kept[0] in text and "- Take care" in text]
    assert latest
    assert all(text.index(kept[0]) < text.index("- Take care") for text in latest[-5:])


# What is asked.


def test_every_failing_task_is_asked_about_once_at_first(toy: ModuleType) -> None:
    world = toy.make_world(weak=0.0, strong=1.0)
    model = toy.ToyOptimizer(useful=1.0)
    train(toy, world, model, preferences="No jokes.", edit_budget=3)
    first = "\n".join(p for _, sample, p in model.asked if sample.startswith("step 1/"))
    train_tasks = [task.id for task in toy.make_tasks(world) if task.split == "train"]
    failing = [task for task in train_tasks if world.needs[task]]
    assert [task for task in failing if f"## Task 1: {task}\n" in first] == failing
    assert "No jokes." in first
    assert "at most 3 edits" in first


@each_row(("cap", "most"), [(160, 32), (120, 30)])
def test_the_optimizer_calls_are_bounded(toy: ModuleType, cap: int, most: int) -> None:
    """A fifth of the rollouts, and at least 30."""
    world = toy.make_world(tasks=16, weak=0.3, strong=0.5)
    tasks = toy.make_tasks(world, dict.fromkeys(world.needs, "both"))
    model = toy.ToyOptimizer(useful=0.0)
    sampler = toy.ToySampler(world, tasks)
    settings = Settings(max_rollouts=cap)
    Trainer(Version.from_bytes(toy.SKILL), tasks, sampler, model, settings).run()
    assert 0 < len(model.asked) <= most


def test_what_was_given_up_is_shown_to_analysts_and_is_a_new_edit_in_other_words(
    toy: ModuleType,
) -> None:
    model = toy.ToyOptimizer(useful=0.3)
    outcome, _ = train(toy, toy.make_world(tasks=24, rules=2, weak=0.0), model)
    gone = [row.content for row in outcome.edits if row.status == "given up"]
    last = model.asked[-1][2]
    assert any(f"append {line}" in last for line in gone)
    assert "refuted" in last
    listed = [
        re.findall(r"^\d+\. SKILL\.md: append (.*)$", prompt, re.MULTILINE)
        for form, _, prompt in model.asked
        if form == "Groups"
    ]
    assert any(line in listed[0] and line not in listed[-1] for line in gone)


def test_an_open_edit_that_is_proposed_by_its_number_has_one_more_vote(toy: ModuleType) -> None:
    """Otherwise each analyst words the same rule anew, and each wording has samples of its own."""
    under_test = re.compile(r"^(\d+)\. not decided \(.*?\): append (- Convention.*)$", re.MULTILINE)

    votes: Counter[str] = Counter()

    def answer(form: str, messages: Sequence[dict[str, Any]]) -> str | None:
        prompt = messages[-1]["content"]
        wanted = set(re.findall(r"convention \d+", prompt.rpartition("# Rollouts")[2]))
        numbers = []
        for number, text in under_test.findall(prompt):
            if any(words in text.casefold() for words in wanted):
                numbers.append(int(number))
                votes[text] += 1
        return json.dumps({"again": numbers, "edits": []}) if numbers else None

    model = toy.ToyOptimizer(useful=0.5, script=answer)
    outcome, _ = train(toy, toy.make_world(tasks=24, rules=2, weak=0.0), model)
    assert outcome.status == "accepted"
    support = {row.content: row.support for row in outcome.edits}
    assert votes
    assert all(support[text] > count for text, count in votes.items())
    assert len(support) == len(outcome.edits)


def test_wordings_of_one_rule_that_the_optimizer_names_are_one_edit(toy: ModuleType) -> None:
    """Each of two would do nothing as long as the other one is in the document."""
    phrases = [
        "",
        "Whatever the source may do, remember: ",
        "No answer is sent before this holds: ",
    ]
    phrase = itertools.cycle(phrases)

    def answer(form: str, messages: Sequence[dict[str, Any]]) -> str | None:
        prompt = messages[-1]["content"]
        if form == "Groups":
            stating: dict[str, list[int]] = {}
            for number, rule in re.findall(r"^(\d+)\. .*(Convention \d+)", prompt, re.MULTILINE):
                stating.setdefault(rule, []).append(int(number))
            return json.dumps({"groups": list(stating.values())})
        wanted = re.findall(r"convention (\d+) is not followed", prompt)
        rules = [toy.rule(int(number)).removeprefix("- ") for number in dict.fromkeys(wanted)]
        edits = [{"op": "append", "content": f"- {next(phrase)}{rule}"} for rule in rules]
        return json.dumps({"edits": edits})

    model = toy.ToyOptimizer(script=answer)
    outcome, _ = train(toy, toy.make_world(tasks=24, rules=2, weak=0.0), model)
    assert outcome.status == "accepted"
    rules = [re.findall(r"Convention \d+", row.content)[0] for row in outcome.edits]
    assert sorted(rules) == sorted(set(rules))
    assert all(row.support > 1 for row in outcome.edits)


def test_nobody_is_asked_on_about_tasks_that_pass_with_the_kept_lines(toy: ModuleType) -> None:
    world = toy.make_world(tasks=16, rules=1, weak=0.0, strong=1.0)
    model = toy.ToyOptimizer(useful=1.0)
    outcome, _ = train(toy, world, model)
    assert outcome.status == "accepted"
    documents = [prompt.partition("[end of data")[0] for *_, prompt in model.asked]
    failing = [t for t in toy.make_tasks(world) if t.split == "train" and world.needs[t.id]]
    assert sum(toy.rule(0) in document for document in documents) <= len(failing)


def test_analysts_are_asked_while_samples_are_taken(toy: ModuleType) -> None:
    # One rule to propose: after the first look ideas are short, so that its round asks again.
    world = toy.make_world(rules=1, weak=0.2)
    model = toy.ToyOptimizer(useful=1.0)
    tasks = toy.make_tasks(world)
    asked = threading.Event()
    waited = threading.Event()

    def wait_for_question(taken: int) -> None:
        if beside and not waited.is_set() and asked.wait(PATIENCE):
            waited.set()

    sampler = toy.ToySampler(world, tasks, before_take=wait_for_question)
    beside: list[bool] = []

    def ask(form: str, messages: Any) -> None:
        asked.set()

    model.script = ask

    class Rounds(Observer):
        def step(self, row: Any) -> None:
            """Forget the questions before this round's, which have all been answered."""
            asked.clear()

        def record(self, kind: str, data: dict[str, Any]) -> None:
            """Let the samples of the round after the first look wait for a question."""
            if kind == "round" and data["round"] == 2:
                beside.append(True)

    train(toy, world, model, sampler=sampler, observer=Rounds())
    assert waited.is_set()


def test_as_many_analysts_are_asked_at_once_as_rollouts_run(toy: ModuleType) -> None:
    world = toy.make_world(rules=1, weak=0.0)
    sampler = toy.ToySampler(world, toy.make_tasks(world))
    sampler.at_once = 12
    together = threading.Barrier(sampler.at_once)
    places = iter(range(sampler.at_once))

    def script(form: str, messages: Any) -> None:
        if next(places, None) is not None:
            together.wait(PATIENCE)

    train(toy, world, toy.ToyOptimizer(script=script), sampler=sampler, max_rollouts=300)
    assert next(places, None) is None
    assert not together.broken


# Stages and checks.


def test_a_whole_body_is_left_out_with_a_word(toy: ModuleType) -> None:
    stages = Stages(reflect=lambda records, context: [Patch(body="# Toy")])
    outcome, _ = train(toy, toy.make_world(), toy.ToyOptimizer(), stages=stages)
    assert outcome.status == "unchanged"
    assert any("use --skillopt-search=batch" in note for note in outcome.notes)


def test_what_the_update_stage_makes_of_an_edit_is_what_is_sampled(toy: ModuleType) -> None:
    """The analysts' words are of no use; what the stage makes of them is."""

    def reword(patch: Patch, context: Any) -> Update:
        (edit,) = patch.edits
        edit = replace(edit, content=toy.rule(0))
        return Update(apply(context.version, edit), (edit,))

    world = toy.make_world(rules=1, weak=0.0)
    model = toy.ToyOptimizer(script=script_of("- Think of the first convention."))
    outcome, sampler = train(toy, world, model, stages=Stages(update=reword))
    assert outcome.status == "accepted"
    assert toy.rule(0) in outcome.after.main.body
    assert len(outcome.accepted) == 1
    assert outcome.accepted[0].tasks, "the tasks are those of the edit that the stage was given"
    assert not any("Think of" in text for text in sampler.versions.values())


def test_a_stage_that_leaves_the_document_as_it_is_has_nothing_sampled(toy: ModuleType) -> None:
    stages = Stages(update=lambda patch, context: Update(context.version, patch.edits))
    outcome, sampler = train(toy, toy.make_world(), toy.ToyOptimizer(useful=1.0), stages=stages)
    assert outcome.status == "unchanged"
    assert set(texts(sampler)) == {toy.SKILL.decode()}


def test_a_document_that_its_edits_do_not_make_is_refused(toy: ModuleType) -> None:
    def careless(patch: Patch, context: Any) -> Update:
        text = f"{context.version.main.text}\nUse sk-proj-{'a1B2c3D4' * 4}.\n"
        return Update(Version.from_text(text), patch.edits)

    model = toy.ToyOptimizer(useful=1.0)
    outcome, sampler = train(toy, toy.make_world(), model, stages=Stages(update=careless))
    assert outcome.status == "unchanged"
    assert set(texts(sampler)) == {toy.SKILL.decode()}
    assert {row.status for row in outcome.edits} == {"refused"}
    assert all("do not make its document" in row.why for row in outcome.edits)


def test_edits_that_copy_words_of_tasks_are_sent_back_together(toy: ModuleType) -> None:
    world = toy.make_world()
    copies = ["zorbanik flumquist", "vendrolim paskurat"]
    tasks = toy.make_tasks(world)
    for place, copy in zip((0, 2), copies, strict=True):
        tasks[place] = replace(tasks[place], text=f"assert answer == {copy!r}")
    leaking = script_of(*(f"- Answer with {copy}." for copy in copies))
    rules = script_of(toy.rule(0), toy.rule(1))

    def script(form: str, messages: Any) -> str | None:
        back = "# Terms to do without" in messages[1]["content"]
        answer: str | None = (rules if back else leaking)(form, messages)
        return answer

    model = toy.ToyOptimizer(script=script)
    sampler = toy.ToySampler(world, tasks)
    document = Version.from_bytes(toy.SKILL)
    settings = Settings(max_rollouts=400)
    outcome = Trainer(document, tasks, sampler, model, settings).run()
    back = [prompt for _, _, prompt in model.asked if "# Terms to do without" in prompt]
    assert back
    assert all("- edit 0: " in prompt and "- edit 1: " in prompt for prompt in back)
    assert {edit.content for edit in outcome.accepted} == {toy.rule(0), toy.rule(1)}
    assert all(edit.tasks for edit in outcome.accepted)
    assert not any(row.status == "refused" for row in outcome.edits)


def test_an_edit_that_names_a_text_which_is_not_there_is_appended(toy: ModuleType) -> None:
    edit = {"op": "replace", "target": "Do as you please.", "content": toy.rule(0)}
    model = toy.ToyOptimizer(script=edits_of(edit))
    outcome, _ = train(toy, toy.make_world(rules=1, weak=0.0), model)
    assert outcome.status == "accepted"
    assert toy.rule(0) in outcome.after.main.text
    assert {row.status for row in outcome.edits} == {"accepted"}


def test_documents_that_would_be_too_long_are_not_sampled(toy: ModuleType) -> None:
    start = Version.from_bytes(toy.SKILL)
    room = start.main.tokens + 3 * (len(toy.rule(0)) // 4)
    model = toy.ToyOptimizer(useful=1.0)
    _, sampler = train(toy, toy.make_world(), model, max_skill_tokens=room)
    tokens = [Version.from_text(text).main.tokens for text in texts(sampler)]
    assert start.main.tokens < max(tokens) <= room


# Faults, caps and the journal.


def test_a_task_that_cannot_be_measured_does_not_hold_up_the_search(toy: ModuleType) -> None:
    world = toy.make_world()
    broken = toy.make_tasks(world)[0].id
    world.errors = lambda r: InfraError("setup", "no") if r.task == broken else None
    outcome, sampler = train(toy, world, toy.ToyOptimizer(useful=1.0), max_error_rate=0.5)
    taken = Counter(r.request.task for r in sampler.sampled.values() if r.request.stage == "search")
    assert taken[broken] <= 4
    assert outcome.proposal != outcome.before


def test_edits_that_nobody_has_sampled_are_told_when_a_cap_ends_the_search(toy: ModuleType) -> None:
    world = toy.make_world(tasks=100)
    model = toy.ToyOptimizer(useful=0.3)
    outcome, _ = train(toy, world, model, max_rollouts=330)
    left = [row for row in outcome.edits if row.status == "open" and row.why]
    assert any("ended before it was sampled" in row.why for row in left)
    assert any("proposed" in step.reason for step in outcome.steps)


class Journal(Observer):
    """Keeps what a run would have in its journal."""

    def __init__(self) -> None:
        self.rounds: list[dict[str, Any]] = []
        self.begun: list[dict[str, Any]] = []

    def record(self, kind: str, data: dict[str, Any]) -> None:
        kept = {"round": self.rounds, "final": self.begun}.get(kind)
        if kept is not None:
            kept.append(json.loads(json.dumps(data)))


def small_world() -> toy_world.World:
    return toy_world.make_world(tasks=24, rules=2)


@functools.cache
def undisturbed() -> tuple[Any, Any, Journal]:
    """Return the outcome of one training, its samples and its journal."""
    journal = Journal()
    world = small_world()
    model = toy_world.ToyOptimizer()
    outcome, sampler = train(toy_world, world, model, max_rollouts=220, observer=journal)
    return outcome, sampler, journal


def test_a_search_that_was_killed_ends_with_the_bets_that_it_would_have_had(
    toy: ModuleType,
) -> None:
    world = small_world()
    expected, sampler, whole = undisturbed()
    assert whole.begun[0]["prior"] > 1
    for at in (5, 110):
        journal = Journal()
        cut = toy.ToySampler(world, toy.make_tasks(world))
        outcome = kill_and_continue(toy, world, journal, cut, at)
        assert [row["round"] for row in journal.rounds] == [row["round"] for row in whole.rounds]
        assert journal.begun == whole.begun
        assert outcome.verdict == expected.verdict
        assert cut.sampled.keys() == sampler.sampled.keys()


def kill_and_continue(toy: ModuleType, world: Any, journal: Journal, cut: Any, at: int) -> Any:
    """Stop a training after so many samples, and return the outcome of the one that goes on."""

    def kill(taken: int) -> None:
        if taken == at:
            raise StopRun("killed", kind=Stop.INTERRUPTED)

    def run() -> Any:
        model = toy.ToyOptimizer()
        return train(toy, world, model, max_rollouts=220, observer=journal, sampler=cut)[0]

    cut.before_take = kill
    assert run().resumable
    assert journal.rounds
    cut.before_take = lambda taken: None
    return run()


def test_bets_of_a_continued_run_are_those_that_were_recorded(toy: ModuleType) -> None:
    """Whatever its own model would bet: a machine may round otherwise."""
    world = small_world()
    _, sampler, whole = undisturbed()
    journal = Journal()
    journal.rounds = deepcopy(whole.rounds)
    for recorded in journal.rounds:
        for row in recorded["samples"]:
            row[3] = None
    train(toy, world, toy.ToyOptimizer(), max_rollouts=220, observer=journal, sampler=sampler)
    assert whole.begun[0]["prior"] > 1
    assert journal.begun[0]["prior"] == 1


def test_a_document_is_betted_on_once_for_each_task() -> None:
    *_, journal = undisturbed()
    rows = [row for recorded in journal.rounds for row in recorded["samples"]]
    bets = Counter((task, version) for task, version, _, bet in rows if bet)
    assert bets
    assert max(bets.values()) == 1
    assert len({(task, version) for task, version, *_ in rows}) < len(rows)


class RoundCounter(toy_world.ToySampler):
    """Counts how often samples are taken."""

    rounds = 0

    def take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
        self.rounds += 1
        return super().take(requests)


def test_many_workers_search_in_fewer_rounds(toy: ModuleType) -> None:
    found = []
    for width in (1, 32):
        world = small_world()
        sampler = RoundCounter(world, toy.make_tasks(world))
        sampler.at_once = width
        model = toy.ToyOptimizer(useful=0.3)
        outcome, _ = train(toy, world, model, sampler=sampler, max_rollouts=250)
        assert outcome.status == "accepted"
        found.append((sampler.rounds, world.mean(outcome.after.main.text, world.needs)))
    (one, gain), (many, wide) = found
    assert many < one
    assert wide >= gain - 0.1


def test_how_fast_the_optimizer_answers_decides_nothing(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A continued run has the replies at once, which have taken a part of a cap."""

    class Before(Beside[Any]):
        def __enter__(self) -> Beside[Any]:
            self._run()
            return self

    class After(Beside[Any]):
        def __enter__(self) -> Beside[Any]:
            return self

        def __exit__(self, *of_error: object) -> None:
            self._run()

    world = toy.make_world(tasks=24)
    outcomes = []
    for kind in (Before, After):
        monkeypatch.setattr(loop, "Beside", kind)
        model = toy.ToyOptimizer(useful=0.3)
        outcomes.append(train(toy, world, model, max_tokens=60_000)[0])
    first, second = outcomes
    assert first.reason == second.reason
    assert first.verdict == second.verdict
    assert first.verdict is not None
    assert first.ended == second.ended
    assert "skillopt_max_tokens" in first.ended
