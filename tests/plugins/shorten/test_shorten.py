"""Taking out of a skill what no task needs."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from chat_server import Answer
from gate_draws import taker, tasks
from greetings import HEAD, RULE, SKILL, WORDS, greet, project, result_of
from patience import PATIENCE
from run_files import latest_entries
from sessions import clean_environment

from pytest_skillopt.gate.engine import run_gate
from pytest_skillopt.mode import mode_named
from pytest_skillopt.modes.forecast import forecast
from pytest_skillopt.plugins.shorten.search import ShorterGate, non_inferior
from pytest_skillopt.rollouts.sampler import Stop, StopRun
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

    from chat_server import Body, ChatServer

    from pytest_skillopt.gate.data import Draw

__all__ = ["project"]


def reply(*edits: dict[str, str], first: Sequence[dict[str, str]] | None = None) -> Any:
    """Replies of the models; ``first`` are the edits before the skill is to be made shorter."""

    def answer(body: Body) -> str:
        if body["model"] == "thinker":
            asked = first if first is not None and not shortens(body) else edits
            return json.dumps({"reasoning": "nobody needs it", "edits": asked})
        return greet(body)

    return answer


def shortens(body: Body) -> bool:
    return body["model"] == "thinker" and "You shorten a skill" in str(body["messages"])


def test_what_no_task_needs_goes_and_what_they_need_stays(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    chat_server.reply = reply(
        {"op": "delete", "target": RULE, "content": ""},
        {"op": "delete", "target": WORDS, "content": ""},
        {"op": "append", "target": "", "content": "More words."},
    )
    assert (
        project.runpytest_inprocess(
            "--skillopt-train", "--skillopt-search=shorten", "-p", "no:xdist"
        ).ret
        == 0
    )
    assert (project.path / "SKILL.md").read_text() == f"{HEAD}\n{RULE}\n"
    skill = result_of(project.path)
    assert skill["written"]
    assert skill["verdict"]["gate"] == "shorten"
    assert skill["verdict"]["reason"].startswith("no worse by 5 points or more")
    assert {row["target"] or row["content"]: row["status"] for row in skill["edits"]} == {
        RULE: "rejected",
        WORDS: "accepted",
        "More words.": "refused",
    }
    assert skill["cost"]["tokens_after"] < skill["cost"]["tokens_before"]
    summary = (max((project.path / ".skillopt/runs").iterdir()) / "summary.md").read_text()
    assert "Cost of a rollout, before: " in summary


ADD = ({"op": "append", "target": "", "content": RULE},)
TAKE = {"op": "delete", "target": WORDS, "content": ""}
BOTH = ("--skillopt-train", "--skillopt-search=trials,shorten", "-p", "no:xdist")
SPLIT_TESTS = """
import pytest

SPLITS = ["train", "val", "train", "test"] * 2
TASKS = [
    pytest.param(name, marks=pytest.mark.skill_task(split=split))
    for name, split in zip("Ada Ben Cleo Dan Eve Finn Gus Hal".split(), SPLITS)
]

@pytest.mark.parametrize("name", TASKS)
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.").endswith("!")
"""
START, LONG, SHORT = f"{HEAD}{WORDS}\n", SKILL, f"{HEAD}\n{RULE}\n"


def test_what_a_training_has_accepted_is_shortened_at_its_end(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    """Killed at the hundredth request after the first that asks for a shorter skill; resumed."""
    skill_file = project.path / "SKILL.md"
    skill_file.write_text(START)
    project.makepyfile(test_greeting=SPLIT_TESTS)
    play = reply(TAKE, {"op": "delete", "target": RULE, "content": ""}, first=ADD)
    after = 0

    def killed(body: Body) -> str:
        nonlocal after
        after += after > 0 or shortens(body)
        if after == 100:
            process.kill()
        return str(play(body))

    chat_server.reply = killed
    environment = clean_environment(OPENAI_API_KEY="sk-test-0123456789")
    process = warm_sessions.start(
        *BOTH, "--skillopt-cache=off", cwd=project.path, env=environment, quiet=True
    )
    assert process.wait(PATIENCE) == -signal.SIGKILL
    assert skill_file.read_text() == START
    chat_server.reply = play
    project.runpytest_inprocess(*BOTH, "--skillopt-cache=off", "--skillopt-resume=latest")
    assert skill_file.read_text() == SHORT
    skill = result_of(project.path)
    assert skill["verdict"]["gate"] == "sequential"
    assert skill["verdict"]["final"]
    assert (skill["suite"]["before"]["rate"], skill["suite"]["after"]["rate"]) == (0, 1)
    edits = {(row["op"], row["target"] or row["content"]): row["status"] for row in skill["edits"]}
    assert edits == {
        ("append", RULE): "accepted",
        ("delete", WORDS): "accepted",
        ("delete", RULE): "rejected",
    }
    finals = [row["candidate"] for row in latest_entries(project.path, "final")]
    assert finals == [Version.from_text(text).digest for text in (LONG, SHORT)]
    streams = {row["request"]["stream"] for row in latest_entries(project.path, "rollout")}
    assert sum(stream.startswith("final/") for stream in streams) == 2, "each has fresh samples"
    assert sum(stream.startswith("test/") for stream in streams) == 1, "opened once, at the end"


@pytest.mark.parametrize(
    ("edit", "arguments", "why"),
    [
        ({**TAKE, "target": RULE}, (), "no text is left that can be removed"),
        (TAKE, ("--skillopt-max-rollouts=200",), "skillopt_max_rollouts leaves no more"),
        (TAKE, (), "test_greeting.py"),
    ],
    ids=["nothing", "cap", "fault"],
)
def test_what_was_accepted_is_written_where_it_cannot_be_shortened(
    project: pytest.Pytester,
    chat_server: ChatServer,
    edit: dict[str, str],
    arguments: tuple[str, ...],
    why: str,
) -> None:
    (project.path / "SKILL.md").write_text(START)
    play = reply(edit, first=ADD)

    def faulty(body: Body) -> str | Answer:
        shortening = any(shortens(asked) for asked in chat_server.bodies)
        if edit == TAKE and not arguments and shortening and body["model"] == "worker":
            return Answer.error(401)
        return str(play(body))

    chat_server.reply = faulty
    result = project.runpytest_inprocess(*BOTH, *arguments)
    assert (project.path / "SKILL.md").read_text() == LONG
    assert result_of(project.path)["status"] == "accepted"
    said = " ".join(result.stdout.str().split())
    assert f"note: the skill that was accepted was not made shorter: {why}" in said


ENDS = [("cap", 0.01), ("interrupted", 0.3), ("breaker", 0.6)]
"""Why a shortening is ended, and after which part of its samples."""


def test_wherever_the_shortening_ends_early_the_accepted_skill_stays(toy: ModuleType) -> None:
    world = toy.make_world(24, rules=2, strong=1.0, weak=0.0)
    document = Version.from_text(f"{toy.SKILL.decode()}\n{WORDS}\n")

    def propose(form: str, messages: Sequence[dict[str, Any]]) -> str | None:
        if "You shorten a skill" not in messages[0]["content"]:
            return None
        return json.dumps({"reasoning": "idle", "edits": [TAKE]})

    def train(end: int = -1, kind: str = "cap", search: str = "trials,shorten") -> Any:
        tasks = toy.make_tasks(world)
        sampler = toy.ToySampler(world, tasks)

        def stop(taken: int) -> None:
            if taken == end:
                raise StopRun("the end", kind=Stop(kind))

        sampler.before_take = stop
        settings = Settings(search=search, rollouts=1)
        return Trainer(document, tasks, sampler, toy.ToyOptimizer(script=propose), settings).run()

    longer, whole = train(search="trials"), train()
    assert longer.status == whole.status == "accepted"
    assert WORDS in longer.after.main.text
    assert WORDS not in whole.after.main.text
    settings = Settings(search="trials,shorten", rollouts=1)
    assert whole.samples <= forecast(toy.make_tasks(world), mode_named("train"), settings).most
    for kind, after in ENDS:
        ended = train(longer.samples + int(after * (whole.samples - longer.samples)), kind)
        assert (ended.status, ended.after) == ("accepted", longer.after)
        assert (ended.verdict, ended.accepted) == (longer.verdict, longer.accepted)


def test_the_test_knows_what_is_no_worse() -> None:
    same = [(6, 6, 6, 6)] * 12
    assert non_inferior(same) < 0.0125
    assert non_inferior(same[:2]) > 0.05, "too few samples show nothing"
    assert non_inferior([(5, 6, 6, 6)] * 12) > 0.5
    assert non_inferior([(0, 6, 6, 6), *same[1:]]) > 0.5, "one task broke"


def test_a_thin_loss_on_many_tasks_is_not_shown_to_be_none() -> None:
    def thin(draw: Draw) -> bool:
        return draw.arm == "incumbent" or draw.index % 5 > 0

    assert run_gate(ShorterGate(tasks(12)), taker(thin)).decision == "rejected"
    assert run_gate(ShorterGate(tasks(12)), taker(lambda draw: True)).decision == "accepted"
