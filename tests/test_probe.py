"""A model that is not there is found before the first rollout, by one tiny call of each role."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from greetings import TWO_MODELS, answer, write_project
from refusals import assert_refused
from run_files import latest_result
from tables import each_row

if TYPE_CHECKING:
    from collections.abc import Callable

    from chat_server import Body, ChatServer

TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("name", "Ada Ben Cleo Dan Eve Finn Gus Hal".split())
def test_greeting(skill_agent, skill_judge, name):
    assert skill_agent(f"Greet {name}.").endswith("!")
"""


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> pytest.Pytester:
    chat_server.reply = answer
    write_project(pytester, chat_server, TESTS, rollouts=1, final_rollouts=1, **TWO_MODELS)
    return pytester


@each_row(
    ("status", "code", "words"),
    [
        (400, "", "HTTP 400: Model Not Exist"),
        (404, "model_not_found", "HTTP 404: Model Not Exist"),
        (401, "invalid_api_key", "HTTP 401: Model Not Exist"),
        (429, "insufficient_quota", "HTTP 429: Model Not Exist"),
    ],
)
def test_a_model_that_is_refused_is_a_usage_error_before_anything_is_paid(
    project: pytest.Pytester, chat_server: ChatServer, status: int, code: str, words: str
) -> None:
    chat_server.probe = chat_server.answer.error(status, "Model Not Exist", code=code)
    done = project.runpytest_inprocess("--skillopt-train", "-p", "no:xdist")
    assert_refused(done, f"ERROR: the * model cannot be used: openai:* {words}*")
    assert "Traceback" not in done.stderr.str()
    assert chat_server.calls == 0
    assert not list((project.path / ".skillopt").glob("runs/*"))


def test_each_model_is_asked_once_and_never_again_what_the_cache_holds(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    skill = (project.path / "SKILL.md").read_bytes()
    assert project.runpytest_inprocess("--skillopt-train", "-n1").ret == 0
    asked = sorted(request.body["model"] for request in chat_server.probes)
    assert asked == ["thinker", "worker"], "the judge is the optimizer"
    rows = [row for row in latest_result(project.path)["usage"] if row["stage"] == "probe"]
    assert sum(row["calls"] for row in rows) == 2
    (project.path / "SKILL.md").write_bytes(skill)
    before = chat_server.calls
    assert project.runpytest_inprocess("--skillopt-train", "-p", "no:xdist").ret == 0
    assert (chat_server.calls, len(chat_server.probes)) == (before, 2)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_fault_that_may_pass_is_left_to_the_calls_that_matter(
    project: pytest.Pytester, chat_server: ChatServer, status: int
) -> None:
    chat_server.probe = chat_server.answer.error(status, "come back later")
    assert project.runpytest_inprocess("--skillopt", "-p", "no:xdist").ret == 1
    assert len(chat_server.probes) == 2
    assert chat_server.calls == 8


def test_what_is_refused_asks_nothing(project: pytest.Pytester, chat_server: ChatServer) -> None:
    """A comparison of a version with itself, a training that is too small, or another by now."""
    wrong = pytest.ExitCode.USAGE_ERROR
    serial = ("-p", "no:xdist")
    assert (
        project.runpytest_inprocess("--skillopt-compare", "SKILL.md", "SKILL.md", *serial).ret
        == wrong
    )
    assert not [*project.path.glob(".skillopt/runs/*")], "the run was open by then"
    short = project.runpytest_inprocess("--skillopt-train", "--skillopt-max-rollouts=3", *serial)
    short.stdout.fnmatch_lines("*which leaves nothing to search*")
    assert not chat_server.probes
    assert (
        project.runpytest_inprocess("--skillopt-train", "--skillopt-max-calls=5", *serial).ret == 0
    )
    asked = len(chat_server.probes)
    other = ("--skillopt-resume=latest", "-oskillopt_seed=7", *serial)
    assert project.runpytest_inprocess("--skillopt-train", *other).ret == wrong
    for folder in ("one", "two"):
        project.mkdir(folder)
        project.path.joinpath(folder, "SKILL.md").write_text("---\nname: g\n---\nSay hello.\n")
    several = 'pytest.mark.skill_task(skill=f\'{"one two".split()[name == "Ada"]}/SKILL.md\')'
    names = f"[pytest.param(name, marks={several}) for name in 'Ada Ben'.split()]"
    project.makepyfile(
        test_greeting=TESTS.replace('"Ada Ben Cleo Dan Eve Finn Gus Hal".split()', names)
    )
    assert project.runpytest_inprocess("--skillopt-drift", *serial).ret == wrong
    assert len(chat_server.probes) == asked


@pytest.mark.parametrize("form", ["events", "refusal"])
def test_a_server_that_only_streams_is_a_usage_error_after_one_call(
    project: pytest.Pytester, chat_server: ChatServer, form: str
) -> None:
    events = f"data: {json.dumps({'choices': [{'delta': {'content': 'O'}}]})}\n\ndata: [DONE]\n\n"
    streamed = chat_server.answer(raw=events, content_type="text/event-stream")
    refusal = chat_server.answer.error(400, "stream must be set to true")
    chat_server.probe = {"events": streamed, "refusal": refusal}[form]
    assert_refused(
        project.runpytest_inprocess("--skillopt", "-p", "no:xdist"),
        "ERROR: the * model cannot be used: openai:* stream*",
    )
    assert chat_server.calls == 0
    asked = [request.body["messages"][0]["role"] for request in chat_server.probes]
    assert asked.count("system") <= 2, "one for each model"


def test_a_server_without_a_system_role_is_refused_and_then_trained_with(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    """Gemma's template raises an error at a system role, and if roles do not alternate."""
    answers = chat_server.reply

    def strict(answer: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        def reply(body: Body) -> Any:
            roles = [message["role"] for message in body["messages"]]
            if roles != ["user"]:
                return chat_server.answer.error(400, "System role not supported")
            return answer(body)

        return reply

    chat_server.reply, chat_server.probe = strict(answers), strict(lambda body: "OK")
    done = project.runpytest_inprocess("--skillopt", "-p", "no:xdist")
    assert_refused(done, "ERROR: the * cannot be used: *System role not supported*")
    assert chat_server.calls == 0
    done = project.runpytest_inprocess(
        "--skillopt-train", "-p", "no:xdist", "-oskillopt_requests=system_role = user"
    )
    assert done.ret == 0
    assert "exclamation" in (project.path / "SKILL.md").read_text()


def test_counts_of_zero_do_not_lift_a_cap(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    usage = {"prompt_tokens": 0, "completion_tokens": 0}
    choice = {"message": {"content": "Hello!"}, "finish_reason": "stop"}
    raw = json.dumps({"choices": [choice], "usage": usage})
    chat_server.probe = chat_server.answer(raw=raw)
    chat_server.reply = lambda body: chat_server.answer(raw=raw)
    capped = ("--skillopt-rollouts=4", "--skillopt-max-tokens=1000")
    project.runpytest_inprocess("--skillopt", "-p", "no:xdist", *capped)
    assert 0 < chat_server.calls < 32, "the cap has ended it"


def test_calls_without_any_reply_count_towards_a_cap(
    project: pytest.Pytester, chat_server: ChatServer
) -> None:
    """A provider that bills on receipt would be paid for each of them."""
    chat_server.reply = lambda body: chat_server.answer.dropped()
    done = project.runpytest_inprocess("--skillopt", "-p", "no:xdist", "--skillopt-max-calls=6")
    assert done.ret == 1
    assert len(chat_server.probes) + chat_server.calls == 6


def test_it_counts_towards_a_cap(project: pytest.Pytester, chat_server: ChatServer) -> None:
    project.runpytest_inprocess("--skillopt", "-p", "no:xdist", "--skillopt-max-calls=3")
    assert len(chat_server.probes) + chat_server.calls == 3


@each_row("mode", ["--skillopt", "--skillopt-train"])
def test_a_server_that_is_not_there_is_a_usage_error(
    project: pytest.Pytester, chat_server: ChatServer, mode: str
) -> None:
    """Else twenty rollouts would try for more than a minute each before the run ends."""
    chat_server.stop()
    done = project.runpytest_inprocess(mode, "-p", "no:xdist")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    place = chat_server.url.removesuffix("/v1")
    words = f"cannot be used: openai:* cannot reach {place}: *refused (is the base URL right?)"
    done.stderr.fnmatch_lines([f"ERROR: the * model {words}"])
    assert not list((project.path / ".skillopt").glob("runs/*"))
