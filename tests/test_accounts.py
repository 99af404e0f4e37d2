"""The cost of a run, by stage and by task, in its result."""

from __future__ import annotations

import itertools
import json
import signal
import threading
from typing import TYPE_CHECKING

import pytest
import warm_sessions
from execnet import gateway_io
from greetings import TWO_MODELS, answer, proposal, write_project
from patience import PATIENCE, wait_until
from run_files import latest_result
from sessions import WITHOUT_TIME_OUTS

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal Ida Jo Kim Lea".split())
def test_greeting(skill_agent, name):
    assert skill_agent(f"Greet {name}.").endswith("!")
"""


@pytest.fixture
def project(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    api_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> pytest.Pytester:
    monkeypatch.setenv("MY_TEAM", "the red one")
    chat_server.reply = answer
    requests = 'headers_env = {"X-Team": "MY_TEAM"}'
    write_project(
        pytester, chat_server, TESTS, requests=requests, rollouts=1, final_rollouts=2, **TWO_MODELS
    )
    return pytester


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-n1",)], ids=["here", "worker"])
def test_every_call_is_in_the_rows_of_its_stage_and_of_its_task(
    project: pytest.Pytester, chat_server: ChatServer, arguments: tuple[str, ...]
) -> None:
    assert project.runpytest_inprocess("--skillopt-train", *arguments).ret == 0
    result = latest_result(project.path)
    target = {row["stage"]: row["calls"] for row in result["usage"] if row["role"] == "target"}
    assert set(target) >= {"search", "final"}
    asked = sum(body["model"] == "worker" for body in chat_server.bodies)
    assert target.pop("probe") == 1
    assert sum(target.values()) == asked
    assert sum(task["calls"] for task in result["skills"][0]["tasks"]) == asked


def test_workers_leave_the_calls_to_the_controller(
    project: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They import neither the SDK nor what only it or the cache needs, and need no key."""
    monkeypatch.setattr(gateway_io, "Popen2IOMaster", warm_sessions.ColdWorker)
    project.makeconftest(
        """
        import os, sys
        import pytest

        def pytest_configure(config):
            if hasattr(config, "workerinput"):
                del os.environ["OPENAI_API_KEY"], os.environ["MY_TEAM"]

        def pytest_unconfigure(config):
            if hasattr(config, "workerinput"):
                heavy = {"openai", "pydantic", "sqlite3", "asyncio"} & sys.modules.keys()
                open("imported", "w").write(" ".join(sorted(heavy)))
        """
    )
    project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=1", "-n1").assert_outcomes(
        failed=12
    )
    assert chat_server.calls == 12
    assert (project.path / "imported").read_text() == ""


@pytest.mark.parametrize("arguments", [("-p", "no:xdist"), ("-n1",)], ids=["here", "worker"])
def test_tasks_that_share_a_prompt_draw_replies_of_their_own(
    project: pytest.Pytester, chat_server: ChatServer, arguments: tuple[str, ...]
) -> None:
    project.makepyfile(
        test_greeting=TESTS.replace('f"Greet {name}."', '"Greet."').replace(
            "Ada Ben Cleo Dan Eve Finn", ""
        )
    )
    draws = iter(range(100))
    chat_server.reply = lambda body: "Hello!" if next(draws) % 2 else "Hello."
    for calls in ("  calls   19", "  calls   0, and 18 more from the cache"):
        told = project.runpytest_inprocess("--skillopt", "--skillopt-rollouts=3", *arguments)
        assert chat_server.calls == 6 * 3, "the second run has all of them from the cache"
        assert calls in told.outlines
    results = [
        json.loads(kept.read_text())
        for kept in sorted((project.path / ".skillopt" / "runs").glob("*/result.json"))
    ]
    passed = [[row["before"]["passed"] for row in r["skills"][0]["tasks"]] for r in results]
    assert passed[0] == passed[1]
    assert sum(passed[0]) == 9


def test_a_repeated_run_decides_as_the_first_though_its_samples_are_free(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    """Kept replies count in the plan with their usage: else the search would take all there is,
    and find nothing left for the verdict once samples have to be paid for."""
    skill = project.path / "SKILL.md"
    start = skill.read_text()
    words = itertools.count()

    def reply(body: Body) -> str:
        if body["model"] == "thinker":
            return proposal(f"Use word number {next(words)}.")
        return "Hello!" if len(str(body["messages"])) % 3 else "Hello."

    chat_server.reply = reply
    capped = ("--skillopt-max-cost=0.0025", "-oskillopt_prices=worker=1/1, thinker=0/0")
    found = []
    for _ in range(2):
        skill.write_text(start)
        project.runpytest_inprocess("--skillopt-train", *capped, "-p", "no:xdist")
        result = latest_result(project.path)
        one = result["skills"][0]
        found.append((result["rollouts"], result["reason"], one["steps"], chat_server.calls))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("arguments", "probe"),
    [
        (("-p", "no:xdist"), False),
        (("-n1",), False),
        (("-n1",), True),
        (("--skillopt-lanes=4",), False),
    ],
    ids=["here", "worker", "probe", "lanes"],
)
def test_an_interrupt_waits_for_no_reply(
    project: pytest.Pytester, chat_server: ChatServer, arguments: tuple[str, ...], probe: bool
) -> None:
    """Neither for one of a rollout's nor for the first of all, whether the model is there."""
    project.makeconftest(WITHOUT_TIME_OUTS)
    if probe:
        chat_server.probe = chat_server.answer(latency=PATIENCE)
    asked = threading.Event()
    ended = threading.Event()

    def reply(body: Body) -> str:
        asked.set()
        assert ended.wait(PATIENCE)
        return "Hello!"

    chat_server.reply = reply
    session = warm_sessions.start("--skillopt", *arguments, cwd=project.path, quiet=True)
    try:
        wait_until(lambda: chat_server.probes if probe else asked.is_set())
        session.send_signal(signal.SIGINT)
        assert session.wait(PATIENCE) == pytest.ExitCode.INTERRUPTED
    finally:
        ended.set()
    assert chat_server.calls <= 4, "what was broken off is not asked for again"
