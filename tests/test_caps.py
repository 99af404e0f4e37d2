"""Each of the five caps pays for a training, in sessions as a user runs them and by a clock."""

from __future__ import annotations

import json
import random
import shlex
import subprocess
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import Answer, system_of
from greetings import TWO_MODELS, proposal, write_project
from run_files import latest_result
from tables import each_row
from toy_world import ToySampler

from pytest_skillopt.model.purse import Amounts, Purse
from pytest_skillopt.search.trainer import Trainer
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.version import Version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from chat_server import Body, ChatServer

    from pytest_skillopt.rollouts.rollout import Rollout, RolloutRequest

RULE = "End every greeting with an exclamation mark."
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", range(GUESTS))
def test_greeting(skill_agent, rollout, guest):
    reply = skill_agent(f"Greet guest {guest}.")
    if CALLS > 1:
        rollout.usage(calls=CALLS - 1)
    assert reply.endswith("!")
"""


def played(body: Body) -> Answer:
    text = f"Hello{'!' if 'exclamation' in system_of(body) else '.'}"
    return with_tokens(body, proposal(RULE) if body["model"] == "thinker" else text)


def with_tokens(body: Body, text: str, times: int = 1) -> Answer:
    """Answer with 600 tokens in and 400 out, or a multiple, whatever the length of the texts."""
    message = {"role": "assistant", "content": text}
    asked = 600 * times
    said = 400 * times
    usage = {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return Answer(raw=json.dumps({"model": body["model"], "choices": choices, "usage": usage}))


def run(
    pytester: pytest.Pytester,
    server: ChatServer,
    *arguments: str,
    calls: int = 1,
    guests: int = 24,
    reply: Callable[[Body], Answer] = played,
    requests: str = "",
) -> tuple[dict[str, Any], str]:
    """Run a mode in a project where a rollout takes $0.01; return its result and output."""
    server.reply = reply
    settings = {"prices": "worker=10/10, thinker=1/1", "requests": requests, **TWO_MODELS}
    tests = f"CALLS = {calls}\nGUESTS = {guests}\n{TESTS}"
    write_project(pytester, server, tests, **settings)
    said = pytester.runpytest_inprocess(*arguments).stdout.str()
    runs = sorted((pytester.path / ".skillopt" / "runs").glob("*/result.json"))
    return (json.loads(runs[-1].read_text()) if runs else {}), said


@pytest.mark.parametrize(
    ("cap", "calls"),
    [
        ("--skillopt-max-rollouts=150", 1),
        ("--skillopt-max-cost=1.50", 1),
        ("--skillopt-max-tokens=150000", 1),
        ("--skillopt-max-calls=4500", 30),
    ],
)
def test_a_cap_that_pays_150_rollouts_pays_for_a_training(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str, cap: str, calls: int
) -> None:
    result, said = run(pytester, chat_server, "--skillopt-train", cap, calls=calls)
    assert result["status"] == "accepted", said
    limit = float(cap.partition("=")[2])
    used = result["usage"]
    spent = {
        "rollouts": result["rollouts"],
        "cost": sum(row["cost"] or 0 for row in used),
        "tokens": sum(row["input_tokens"] + row["output_tokens"] for row in used),
        "calls": sum(row["calls"] for row in used),
    }
    assert 0.3 * limit < spent[cap.partition("max-")[2].partition("=")[0]] <= limit


def test_an_assumed_price_forbids_no_batch(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    """By the assumption, twice the price, the cap pays for less than the first batch of 36."""
    cap = ("--skillopt-max-cost=1", "--skillopt-search=batch")
    result, said = run(pytester, chat_server, "--skillopt-train", *cap, guests=12)
    assert result["status"] == "accepted", said


def test_rollouts_that_a_cap_cuts_off_are_counted_nowhere(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    """Eight at once: the other seven have begun when the call that the cap forbids is refused."""
    settings = ("--skillopt-max-calls=5", "--skillopt-cache=off", "-n1", "--skillopt-lanes=8")
    result, said = run(pytester, chat_server, "--skillopt", *settings, guests=8)
    (skill,) = result["skills"]
    measured = sum(row["before"]["n"] for row in skill["tasks"])
    assert 0 < measured == result["rollouts"] < 8
    assert f"{measured} rollouts before a cap ended it" in " ".join(said.split())


EMPTY = "the optimizer sends empty replies about half of the guests"
LONG = "max_output_tokens = 8000"


@pytest.mark.parametrize(
    ("cap", "what"),
    [("calls=130", ""), ("calls=170", EMPTY), ("tokens=120000", LONG), ("cost=1.2", LONG)],
)
def test_a_comparison_that_takes_all_that_a_cap_pays_for_has_a_verdict(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str, cap: str, what: str
) -> None:
    """Probes, calls without a reply, and what the last call reserves are counted before."""
    luck = random.Random(7)

    def reply(body: Body) -> Answer:
        if body["model"] == "thinker":
            return Answer.empty() if what == EMPTY and "guest 1" in str(body) else played(body)
        chance = 0.6 if "exclamation" in system_of(body) else 0.3
        return with_tokens(body, "Hello!" if luck.random() < chance else "Hello.")

    given = ("--skillopt-train", f"--skillopt-max-{cap}", "-p", "no:xdist")
    requests = what if what == LONG else ""
    result, said = run(pytester, chat_server, *given, guests=12, reply=reply, requests=requests)
    assert result["skills"][0]["verdict"], said


@pytest.mark.parametrize(("gate", "rollouts", "cap"), [("confirm", 3, 300), ("strict", 5, 260)])
def test_a_cap_pays_for_the_decision_of_a_gate_before_the_final_comparison(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    api_key: str,
    gate: str,
    rollouts: int,
    cap: int,
) -> None:
    given: tuple[str, ...] = (f"-oskillopt_gate={gate}", f"--skillopt-rollouts={rollouts}")
    given = (*given, f"--skillopt-max-rollouts={cap}")
    result, said = run(pytester, chat_server, "--skillopt-train", *given, guests=12)
    assert result["status"] == "accepted", said
    small = "--skillopt-max-rollouts=150"
    result, said = run(pytester, chat_server, "--skillopt-train", *given, small, guests=12)
    assert "are kept for the gate and the final comparison, and the first look" in result["reason"]
    assert result["rollouts"] == 0


def test_the_cap_for_the_next_attempt_pays_for_optimizer_calls_too(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    def reply(body: Body) -> Answer:
        is_optimizer = body["model"] == "thinker"
        useless = with_tokens(body, proposal("Be kind."), times=12)
        return useless if is_optimizer else played(body)

    given = ("--skillopt-train", "--skillopt-max-tokens=100000")
    result, said = run(pytester, chat_server, *given, reply=reply)
    name, cap = result["skills"][0]["cap"].split("=")
    assert f"{name}={cap}" in said
    assert int(cap) > 100_000 + 100 * 1_000 + 20 * 12_000, "100 more rollouts, and twenty calls"


def test_a_dear_optimizer_leaves_half_of_a_cap_to_the_rollouts(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    """A call takes as much as 20 rollouts. A fifth of the rollouts would be 70 calls."""

    def reply(body: Body) -> Answer:
        is_optimizer = body["model"] == "thinker"
        useless = with_tokens(body, proposal(f"Be kind, {chat_server.calls}."), times=20)
        return useless if is_optimizer else played(body)

    given = ("--skillopt-train", "--skillopt-max-tokens=350000")
    result, _ = run(pytester, chat_server, *given, reply=reply)
    tokens = Counter[str]()
    for row in result["usage"]:
        tokens[row["role"]] += row["input_tokens"] + row["output_tokens"]
    assert 60_000 <= tokens["optimizer"] <= 350_000 / 2
    assert tokens["target"] > tokens["optimizer"]


def test_the_assumed_price_of_an_optimizer_call_forbids_no_first_one(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    """Rollouts and their reserve leave 9,000 tokens; a call is assumed to take 5,000."""
    result, _ = run(pytester, chat_server, "--skillopt-train", "--skillopt-max-tokens=85000")
    assert result["status"] == "accepted"


def test_time_that_pays_150_rollouts_pays_for_a_training(toy: ModuleType) -> None:
    """A rollout takes 10 s of the clock; four run at once."""
    now = 0.0
    world = toy.make_world(tasks=24, rules=2)
    tasks = toy.make_tasks(world)

    class Slow(ToySampler):
        at_once = 4

        def take(self, requests: Sequence[RolloutRequest]) -> list[Rollout]:
            nonlocal now
            before = len(self.sampled)
            found = [replace(rollout, duration=10.0) for rollout in super().take(requests)]
            now += 10.0 * -(-(len(self.sampled) - before) // self.at_once)
            return found

    sampler = Slow(world, tasks)
    caps = Amounts(seconds=150 * 10 * 1.25 / 4)
    purse = Purse(caps, at_once=lambda: sampler.at_once, clock=lambda: now)
    document = Version.from_bytes(toy.SKILL)
    model = toy.ToyOptimizer(useful=1.0)
    outcome = Trainer(document, tasks, sampler, model, Settings(), purse=purse).run()
    assert outcome.status == "accepted", outcome.reason
    assert 0.3 * caps.seconds < now <= caps.seconds


@pytest.mark.parametrize(
    ("mode", "cap", "unit"),
    [
        ("--skillopt", "tokens=300", "tokens"),
        ("--skillopt-check=HEAD", "cost=0.0001", "US dollars"),
        ("--skillopt-aa", "tokens=300", "tokens"),
        ("--skillopt-drift", "cost=0.0001", "US dollars"),
    ],
)
def test_a_cap_that_is_smaller_than_one_call_says_what_it_lacks(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    api_key: str,
    mode: str,
    cap: str,
    unit: str,
) -> None:
    commit = ("-c", "user.name=u", "-c", "user.email=u@example.com", "commit", "-qm1")
    (pytester.path / "SKILL.md").write_text("---\nname: g\ndescription: Greets.\n---\nSay hi.\n")
    for command in (("init", "-q"), ("add", "SKILL.md"), commit):
        subprocess.run(["git", *command], cwd=pytester.path, check=True)
    result, said = run(pytester, chat_server, mode, f"--skillopt-max-{cap}")
    said = " ".join(said.split())
    assert f"{unit} is reached (0 used): the next call may use up to" in said
    assert "raise the cap, or set max_output_tokens lower" in said
    assert chat_server.calls == 0
    assert result["status"] == "unmeasured"


def test_nothing_is_reserved_for_a_test_split_without_tasks(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    cap = "--skillopt-max-rollouts=20"
    _, said = run(pytester, chat_server, "--skillopt-train", cap, "--collect-only", guests=8)
    assert "24 are reserved for the final comparison; 0 are left" in said
    assert "24 are kept for the final comparison, and the first look" in said


@pytest.mark.parametrize("cap", ["tokens=2500", "cost=0.02", "time=1"])
def test_a_cap_that_pays_for_no_first_look_says_so(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str, cap: str
) -> None:
    """It is named as it was given, whatever the first calls have taken of it."""
    chat_server.probe = lambda body: with_tokens(body, "OK")
    _, said = run(pytester, chat_server, "--skillopt-train", f"--skillopt-max-{cap}")
    said = " ".join(said.split())
    assert f"skillopt_max_{cap.partition('=')[0]} leaves no more for the search after 0" in said
    assert f"{cap.replace('=', ' = ')} pays for about 0 rollouts, at " in said
    assert ": raise it" in said


@each_row(
    ("cap", "words"),
    [
        ("--skillopt-max-rollouts=20", "skillopt_max_rollouts = 20 pays for 20 rollouts"),
        (
            "--skillopt-max-cost=0.5",
            "skillopt_max_cost = 0.50 pays for about 25 rollouts, at $0.02",
        ),
        ("--skillopt-max-tokens=50000", "skillopt_max_tokens = 50000 pays for about 25 rollouts"),
        ("--skillopt-max-calls=25", "skillopt_max_calls = 25 pays for about 25 rollouts, at 1 mod"),
        ("--skillopt-max-time=305", "skillopt_max_time = 305 pays for about 24 rollouts, at 12.5"),
    ],
)
def test_the_plan_prints_the_purse_and_warns_if_a_cap_cannot_train(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str, cap: str, words: str
) -> None:
    _, said = run(pytester, chat_server, "--skillopt-train", cap, "--collect-only", "-q")
    assert f"purse of SKILL.md: {words}" in said
    assert "are reserved for the final comparison; " in said
    assert "are reserved for the test split; " in said
    name = cap[2:].partition("=")[0].replace("-", "_")
    assert "SKILL.md: nothing would be trained: " in said
    assert f"allow at least {name} = " in said
    assert chat_server.calls == 0


def test_the_plan_says_nothing_of_a_purse_without_caps(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    _, said = run(pytester, chat_server, "--skillopt-train", "--collect-only", "-q")
    assert "purse" not in said
    _, said = run(
        pytester, chat_server, "--skillopt", "--skillopt-max-calls=25", "--collect-only", "-q"
    )
    assert "purse: skillopt_max_calls = 25 pays for about 25 rollouts" in said


@pytest.mark.parametrize(
    ("cap", "way"),
    [
        ("cost=0.78", "To continue where it stopped, under a higher cap:"),
        ("rollouts=20", "Next attempt:"),
    ],
)
def test_the_command_after_a_cap_names_a_cap_that_gets_further(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str, cap: str, way: str
) -> None:
    given = ("-p", "no:xdist", "-o", f"skillopt_max_{cap}")
    first, said = run(pytester, chat_server, "--skillopt-train", *given)
    *_, label, command = said.strip().splitlines()
    assert label == way, "above the command, below pytest's summary"
    both = "the cap of the next attempt pays for a search, too"
    assert (both in " ".join(said.split())) == (way == "Next attempt:"), "at least 48, and 153"
    _, *arguments = shlex.split(command)
    assert f"skillopt_max_{cap}" not in arguments
    said = pytester.runpytest_inprocess(*arguments).stdout.str()
    result = latest_result(pytester.path)
    assert (result["run"] == first["run"]) == way.startswith("To continue")
    assert result["status"] == "accepted", said
    assert result["rollouts"] > first["rollouts"]


def test_the_command_after_a_final_comparison_that_a_cap_ended_pays_for_the_rest_of_it(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    """Rollouts become three times as dear in the middle of it, which its forecast did not know."""
    luck = random.Random(7)
    rollouts = 0

    def reply(body: Body) -> Answer:
        nonlocal rollouts
        if body["model"] == "thinker":
            return played(body)
        rollouts += 1
        chance = 0.9 if "exclamation" in system_of(body) else 0.5
        text = "Hello!" if luck.random() < chance else "Hello."
        return with_tokens(body, text, times=3 if rollouts > 75 else 1)

    given = ("--skillopt-train", "-p", "no:xdist", "-o", "skillopt_max_cost=1.5")
    result, said = run(pytester, chat_server, *given, guests=12, reply=reply)
    assert "the final comparison was not made: skillopt_max_cost" in result["reason"]
    _, *arguments = shlex.split(said.strip().splitlines()[-1])
    (cap,) = (float(a.split("=")[1]) for a in arguments if a.startswith("skillopt_max_cost"))
    assert cap < 2.5, "a cap of 2 leaves the verdict too few samples"
    said = pytester.runpytest_inprocess(*arguments).stdout.str()
    result = latest_result(pytester.path)
    assert result["status"] == "accepted", said
    assert sum(row["cost"] for row in result["usage"]) <= cap
