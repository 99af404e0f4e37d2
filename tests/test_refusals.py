"""One task that the provider refuses for good, and servers that are not there or fail."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import Answer, asked_in, system_of
from greetings import HELLO, TWO_MODELS, proposal, write_project
from run_files import latest_result
from tables import each_row

from pytest_skillopt.model.client import Client
from pytest_skillopt.model.faults import retry_after
from pytest_skillopt.model.limits import CallEstimate, Meter
from pytest_skillopt.model.types import ModelFault, Usage

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

RULE = "End every greeting with an exclamation mark."
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", [f"guest{n:02}" for n in range(24)])
def test_greeting(skill_agent, guest):
    assert skill_agent(f"Greet {guest}.").endswith("!")
"""
REFUSED = "test_greeting.py::test_greeting[guest07]"


def played(body: Body) -> str | Answer:
    system = system_of(body)
    user = asked_in(body)
    if body["model"] == "thinker":
        return proposal(RULE)
    if "guest07" in user:
        return Answer.error(400, "The prompt triggered the policy", code="content_filter")
    return "Hello!" if "exclamation" in system else "Hello."


def project(pytester: pytest.Pytester, server: ChatServer) -> None:
    server.reply = played
    write_project(pytester, server, TESTS, **TWO_MODELS)


def unlike(answer: Answer, body: Body) -> Answer:
    """Answer the same to everything."""
    return answer


def refused_calls(server: ChatServer) -> int:
    target = [body for body in server.bodies if body["model"] == "worker"]
    return sum("guest07" in asked_in(body) for body in target)


def test_a_task_that_is_refused_for_good_is_put_away_and_the_rest_trains(
    pytester: pytest.Pytester, chat_server: ChatServer, api_key: str
) -> None:
    project(pytester, chat_server)
    cap = "--skillopt-max-rollouts=150"
    said = pytester.runpytest_inprocess("--skillopt-train", cap).stdout.str()
    result = latest_result(pytester.path)
    assert result["status"] == "accepted", said
    assert refused_calls(chat_server) <= 2, "once under each of two versions at most"
    away = f"{REFUSED} is put away, the provider refuses it: "
    assert [note for note in result["notes"] if note.startswith(away)], result["notes"]
    assert f"--deselect={REFUSED}" in said
    plan = pytester.runpytest_inprocess("--skillopt-train", "--collect-only", "-q").stdout.str()
    assert f"leave it out by --deselect={REFUSED}" in plan
    chat_server.requests.clear()
    (pytester.path / "SKILL.md").write_text(HELLO)
    evaluated = pytester.runpytest_inprocess("--skillopt", "--skillopt-rollouts=3", "-q")
    assert refused_calls(chat_server) == 1
    assert evaluated.ret == 1, "a task that is never measured does not pass"


def test_an_ordinary_run_fails_within_seconds(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    api_key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would wait 59 s for another try of each call as other sessions do."""
    waited: list[float] = []
    monkeypatch.setattr(Client, "_wait", lambda client, seconds: waited.append(seconds))
    project(pytester, chat_server)
    one = ("-k", "guest01", "-q")
    for reply, words in (
        (Answer.error(500, "the database is down"), "the database is down"),
        (Answer.error(429, "slow down", retry_after="300"), "asks to wait 300 s"),
        (None, "cannot reach http://127.0.0.1"),
    ):
        if reply is None:
            chat_server.stop()
        else:
            chat_server.reply = partial(unlike, reply)
        waited.clear()
        result = pytester.runpytest_inprocess(*one)
        assert result.ret == 1
        assert words in result.stdout.str()
        assert sum(waited) < 30


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fail(meter: Meter, words: str = "HTTP 500: broken", pause: float = 0.0) -> None:
    meter.ask("call", CallEstimate("https://server"))
    meter.done("call", Usage(), ("target", "", ""), pause, words)


def test_a_run_ends_if_no_call_has_succeeded_for_a_minute() -> None:
    clock = Clock()
    meter = Meter(clock=clock)
    for _ in range(6):
        fail(meter)
        clock.now += 11
    with pytest.raises(ModelFault, match=r"for 66 s, the last: HTTP 500: broken") as stop:
        fail(meter)
    assert stop.value.fatal
    assert meter.ask("other", CallEstimate("https://another")) == 0.0


def test_a_success_or_an_announced_pause_is_no_outage() -> None:
    clock = Clock()
    meter = Meter(clock=clock)
    for number in range(20):
        fail(meter, "" if number % 5 == 4 else "HTTP 500: broken")
        clock.now += 20
    meter = Meter(clock=clock)
    for _ in range(8):
        fail(meter, "HTTP 429", pause=30.0)
        clock.now += 31


@each_row(
    ("body", "seconds"),
    [
        ({"message": "Rate limit reached. Please try again in 1m12.5s. Visit us."}, 72.5),
        ({"message": "Please try again in 350ms."}, 0.35),
        ({"message": "Please retry after 26 seconds."}, 26),
        ([{"error": {"details": [{"@type": "google.rpc.RetryInfo", "retryDelay": "37s"}]}}], 37),
        ({"error": {"retry_after": 7}}, 7),
        ({"cooldown_time": 30, "message": "no"}, 30),
        ({"message": "You tried 5 times, 20 seconds each"}, 0),
        ("Please try again in 20s.", 20),
        (None, 0),
        (f"Please try again in {'9' * 400}s.", 0),
        ({"retry_after": 10**400}, 0),
        ({"retryDelay": "9" * 400}, 44e9),
        ({"retry_after": "soon", "retryDelay": [], "cooldown": float("nan")}, 0),
    ],
)
def test_a_cool_down_in_the_body_is_read(body: Any, seconds: float) -> None:
    assert retry_after({}, body) == pytest.approx(seconds)
    assert retry_after({"retry-after": "3"}, body) == 3


def test_a_date_to_wait_until_is_read() -> None:
    assert retry_after({"retry-after": "Thu, 26 Nov 2099 16:00:00 GMT"}) > 1e9
    assert retry_after({"retry-after": "Thu, 26 Nov 1999 16:00:00 GMT"}) == 0
