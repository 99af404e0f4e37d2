from __future__ import annotations

import json
import random
import shutil
import signal
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import system_of
from patience import PATIENCE, wait_until
from tables import each_row

from pytest_skillopt.model.cache import DiskCache, Replies
from pytest_skillopt.model.config import Server
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.types import (
    CacheMiss,
    CapReached,
    Completion,
    ModelFault,
    Price,
    Usage,
)
from pytest_skillopt.rollouts.outcome import classify_error
from pytest_skillopt.rollouts.rollout import InfraError
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from chat_server import Body, ChatServer
    from model_maker import ModelMaker

HI = [{"role": "user", "content": "hi there"}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
DELAYS = [0.125, 0.375, 1.125, 3.375, 10.125, 30.0]


def test_a_reply_comes_with_what_it_used(chat_server: ChatServer, make_model: ModelMaker) -> None:
    chat_server.script("three words here")
    model = make_model(price=Price(1.0, 10.0), temperature=0.5, max_output_tokens=7)
    done = model.complete(HI, sample="train/0")
    assert done == Completion("three words here", usage=Usage(1, 0, 2, 3, 3.2e-05))
    request = chat_server.requests[0]
    assert request.path == "/v1/chat/completions"
    assert request.body == {"model": "m", "messages": HI, "temperature": 0.5, "max_tokens": 7}


def test_what_the_server_does_not_count_is_estimated_and_marked(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    chat_server.script(chat_server.answer(text="x" * 40, usage=False))
    usage = make_model().complete(HI, sample="0").usage
    assert usage.estimated
    assert usage.output_tokens == 10


def test_the_sdk_is_told_the_key_and_never_retries_itself(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    chat_server.script(chat_server.answer.error(500))
    model = make_model(key=" sk-secret-secret ", retries=0)
    with pytest.raises(ModelFault):
        model.complete(HI, sample="0")
    assert chat_server.calls == 1
    assert chat_server.requests[0].headers["authorization"] == "Bearer sk-secret-secret"


def body(**message: Any) -> str:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return json.dumps({"choices": [choice], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})


USELESS = [
    lambda a: a.html(200),
    lambda a: a.garbage(),
    lambda a: a.null_choices(),
    lambda a: a(raw="[" * 100_000),
    lambda a: a(raw="{}"),
    lambda a: a(raw="7"),
    lambda a: a(raw='{"choices": {"0": 1}}'),
    lambda a: a(raw='{"choices": [7]}'),
    lambda a: a(raw='{"choices": [{"message": "ok"}]}'),
    lambda a: a(raw=body(content=7)),
    lambda a: a(raw=body(content={"text": "x"})),
    lambda a: a(raw=body(content=[7])),
    lambda a: a(raw=body(content=[{"type": "text", "text": 7}])),
    lambda a: a(raw=body(content=True)),
    lambda a: a(raw=body(content=None, tool_calls=[{"function": {"name": 7}}])),
    lambda a: a(raw=body(content=None, tool_calls={"name": "f"})),
    lambda a: a(text="half", finish_reason="error"),
    lambda a: a.dropped(),
]


@each_row("useless", USELESS)
def test_what_is_no_reply_is_asked_for_once_more_and_no_oftener(
    chat_server: ChatServer, make_model: ModelMaker, useless: Callable[[Any], Any]
) -> None:
    chat_server.requests.clear()
    chat_server.script(useless(chat_server.answer), "at last")
    limits = Meter()
    done = make_model(throttle=limits).complete(HI, sample="0")
    assert done.text == "at last"
    assert done.usage.calls == limits.spent.calls == 2
    chat_server.script(*[useless(chat_server.answer)] * 2)
    with pytest.raises(ModelFault, match=r"\(after 2 tries\)") as caught:
        make_model().complete(HI, sample="1")
    assert not caught.value.fatal
    assert chat_server.calls == 4


def test_a_connection_that_ends_before_a_reply_counts_as_perhaps_paid(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    limits = Meter()
    chat_server.reply = lambda body: chat_server.answer.dropped()
    with pytest.raises(ModelFault, match=r"cannot reach .*\(after 2 tries\)"):
        make_model(throttle=limits, price=Price(1.0, 10.0)).complete(HI, sample="0")
    assert (limits.spent.calls, chat_server.calls) == (2, 2)
    assert limits.spent.estimated
    assert limits.spent.cost
    chat_server.stop()
    with pytest.raises(ModelFault, match=r"\(after 7 tries\)"):
        make_model(throttle=limits).complete(HI, sample="1")
    assert limits.spent.calls == 2, "nothing was sent"


def test_a_reply_in_parts_is_read_without_the_thoughts(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    parts = [{"type": "thinking", "thinking": [7]}, {"type": "text", "text": "a"}, {"text": "b"}]
    chat_server.script(chat_server.answer(raw=body(content=parts)))
    assert make_model().complete(HI, sample="0").text == "ab"


@pytest.mark.parametrize(("text", "retries"), [("", 6), (" \n ", 0)])
def test_an_empty_reply_is_asked_for_once_more_and_is_then_the_answer(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path, text: str, retries: int
) -> None:
    limits = Meter()
    chat_server.reply = lambda body: chat_server.answer(text=text)
    cache = Replies("rw", DiskCache(tmp_path / "cache"))
    model = make_model(throttle=limits, replies=cache, retries=retries)
    done = model.complete(HI, sample="0")
    tries = 2 if retries else 1
    assert (done.text, done.usage.calls, chat_server.calls) == (text, tries, tries)
    assert limits.spent.calls == tries
    free = model.complete(HI, sample="0").usage
    assert free == Usage(cached=1, kept_tokens=done.usage.tokens)


def test_a_reply_that_runs_into_the_users_own_limit_is_the_targets_answer(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    chat_server.reply = lambda body: chat_server.answer.truncated("and on and on")
    done = make_model(max_output_tokens=4).complete(HI, sample="0")
    assert (done.text, done.finish_reason) == ("and on and on", "length")
    limits = Meter()
    judge = make_model(max_output_tokens=4, role="judge", throttle=limits)
    with pytest.raises(ModelFault, match="max_output_tokens in skillopt_requests"):
        judge.complete(HI, sample="0")
    assert chat_server.calls == 2
    assert limits.spent == Usage(1, 0, 2, 4), "it is no use, and paid for all the same"
    assert len(limits._flying) == 0


@each_row(("total", "said"), [(1015, 1005), (15, 5), (3, 5), (None, 5)])
def test_thoughts_that_only_the_total_counts_are_paid_for(
    chat_server: ChatServer, make_model: ModelMaker, total: int | None, said: int
) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": total}
    reply = json.loads(body(content="ok")) | {"usage": usage}
    chat_server.script(chat_server.answer(raw=json.dumps(reply)))
    found = make_model().complete(HI, sample="0").usage
    assert (found.input_tokens, found.output_tokens, found.estimated) == (10, said, False)


def another_server() -> ChatServer:
    from chat_server import ChatServer

    server = ChatServer()
    server.start()
    return server


def test_a_redirect_is_not_followed(chat_server: ChatServer, make_model: ModelMaker) -> None:
    other = another_server()
    try:
        for status in (301, 302, 303, 307, 308):
            where = {"Location": f"{other.url}/chat/completions"}
            chat_server.script(chat_server.answer(status=status, raw="", headers=where))
            with pytest.raises(ModelFault, match=f"redirects to {other.url}.*not followed") as e:
                make_model().complete(HI, sample=str(status))
            assert e.value.fatal
        assert other.calls == 0
    finally:
        other.stop()


def test_many_long_replies_at_once_stay_within_a_cap_of_tokens(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    chat_server.latency = 0.02
    chat_server.reply = lambda body: "word " * 6000
    assert _spend(make_model, cap=100_000) <= 100_000


def test_a_cap_is_passed_at_most_by_what_the_replies_in_flight_are_longer_than_those_before(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    def reply(body: Body) -> str:
        if chat_server.calls <= 40:
            return "word " * 100
        wait_until(lambda: chat_server.calls > 41, "no other call is in flight")
        return "word " * 6000

    chat_server.reply = reply
    cap = 12_000
    spent = _spend(make_model, cap=cap)
    assert cap < spent <= cap + 16 * (6000 - 100)


def _spend(make_model: ModelMaker, *, cap: int) -> int:
    """Tokens spent by 16 threads that call until the cap stops them."""
    limits = Meter(Settings(max_tokens=cap))
    model = make_model(throttle=limits)
    model._sleep = time.sleep

    def work(name: int) -> None:
        for index in range(1000):
            try:
                model.complete(HI, sample=f"{name}/{index}")
            except CapReached:
                return

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert limits.spent.calls > 4
    return limits.spent.input_tokens + limits.spent.output_tokens


def test_retries_are_bounded_and_their_number_is_said(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    chat_server.reply = lambda body: chat_server.answer.error(503, "try later")
    with pytest.raises(ModelFault, match=r"openai:m: HTTP 503: try later \(after 7 tries\)") as e:
        make_model().complete(HI, sample="0")
    assert not e.value.fatal
    assert sum(make_model.slept) == sum(DELAYS) > 30


def test_the_time_ends_the_wait_before_a_retry(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    """Else a run lasts half a minute longer than it may."""
    chat_server.reply = lambda body: chat_server.answer.error(503, "try later")
    throttle = Meter(Settings(max_time=6), clock=lambda: sum(make_model.slept))
    with pytest.raises(CapReached):
        make_model(throttle=throttle).complete(HI, sample="0")
    assert 6 <= sum(make_model.slept) < 8


@each_row("asked", ["910", "1e9", "1e308"])
def test_a_pause_that_is_too_long_is_named_and_no_model_waits_for_it(
    chat_server: ChatServer, make_model: ModelMaker, asked: str
) -> None:
    chat_server.requests.clear()
    chat_server.script(chat_server.answer.error(429, retry_after=asked))
    limits = Meter()
    for role in ("target", "optimizer"):
        model = make_model(throttle=limits, role=role)
        with pytest.raises(ModelFault, match=r"to wait .* s, at most 900 s are waited") as caught:
            model.complete(HI, sample="0")
        assert len(str(caught.value)) < 200
    assert make_model.slept == []
    assert chat_server.calls == 1


def test_an_error_of_any_length_is_retried(chat_server: ChatServer, make_model: ModelMaker) -> None:
    limits = Meter()
    chat_server.script(chat_server.answer(status=500, raw="x" * 20_000_000), "at last")
    assert make_model(throttle=limits).complete(HI, sample="0").text == "at last"
    assert limits.spent.calls == 1


@pytest.fixture
def timing_out(chat_server: ChatServer) -> Iterator[str]:
    """Words with which every call of the main thread is interrupted once it has been sent."""
    words = "Timeout (>1.0s) from pytest-timeout."

    def fail(signum: int, frame: object) -> None:
        pytest.fail(words)

    def reply(body: Body) -> str:
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        return "too late"

    chat_server.reply = reply
    previous = signal.signal(signal.SIGUSR1, fail)
    yield words
    signal.signal(signal.SIGUSR1, previous)


def test_a_call_that_a_time_out_of_the_test_interrupts_counts_as_perhaps_paid(
    chat_server: ChatServer, make_model: ModelMaker, timing_out: str
) -> None:
    limits = Meter(Settings(max_calls=2))
    model = make_model(throttle=limits, price=Price(1.0, 10.0))
    for sample in "01":
        with pytest.raises(pytest.fail.Exception) as caught:
            model.complete(HI, sample=sample)
        assert classify_error(caught.value) == InfraError("timeout", timing_out)
    with pytest.raises(CapReached):
        model.complete(HI, sample="2")
    assert (limits.spent.calls, limits.spent.estimated, chat_server.calls) == (2, True, 2)
    assert limits.spent.cost


@each_row(
    ("make", "words"),
    [
        (lambda a: a.truncated(), "max_output_tokens in skillopt_requests"),
        (lambda a: a(text="half", finish_reason="MAX_TOKENS"), "cut off"),
        (lambda a: a(text="x", finish_reason="content_filter"), "content filter"),
        (lambda a: a(text="x", finish_reason="SAFETY"), "content filter"),
        (lambda a: a(text="x", finish_reason="Content_Filter"), "content filter"),
        (lambda a: a.error(400, "jailbreak", code="content_filter"), "content filter.*: jailbreak"),
        (lambda a: a.error(400, "context_length_exceeded"), "context_length_exceeded"),
        (lambda a: a.error(413, "too large"), "too large"),
    ],
)
def test_what_the_same_request_would_meet_again_is_not_retried_and_not_fatal(
    chat_server: ChatServer, make_model: ModelMaker, make: Callable[[Any], Any], words: str
) -> None:
    chat_server.requests.clear()
    chat_server.script(make(chat_server.answer))
    with pytest.raises(ModelFault, match=words) as caught:
        make_model().complete(HI, sample="0")
    assert not caught.value.fatal
    assert chat_server.calls == 1


@each_row("status", [200, 400])
def test_a_filtered_reply_is_asked_for_once_more_in_plain_words(
    chat_server: ChatServer, make_model: ModelMaker, status: int
) -> None:
    answer = chat_server.answer
    filtered = answer(text="x", finish_reason="content_filter")
    if status == 400:
        filtered = answer.error(400, "jailbreak", code="content_filter")
    schema = {"type": "json_schema", "json_schema": {"name": "it", "schema": {}}}
    asked = [{"role": "system", "content": "Improve it."}, {"role": "user", "content": "Logs."}]
    chat_server.requests.clear()
    chat_server.script(filtered, "{}")
    model = make_model(role="optimizer")
    assert model.complete(asked, sample="0", response_format=schema).text == "{}"
    first, second = (request.body for request in chat_server.requests)
    assert first["messages"] == asked
    (plain,) = second["messages"]
    assert plain["role"] == "user"
    assert "ordinary software work" in plain["content"]
    assert plain["content"].endswith("\n\nImprove it.\n\nLogs.")
    assert "response_format" in second
    chat_server.script(filtered, filtered)
    with pytest.raises(ModelFault, match=r"content filter withheld.*also with a plain framing"):
        model.complete(asked, sample="1")
    assert chat_server.calls == 4


@each_row("role", ["system", "developer", "user"])
def test_the_skill_goes_out_under_the_role_that_the_server_knows(
    chat_server: ChatServer, make_model: ModelMaker, role: str
) -> None:
    """A server without a system role often refuses two messages of the user in a row, too."""
    asked: list[dict[str, Any]] = [{"role": "system", "content": "Be brief."}, *HI]
    asked += [{"role": "assistant", "content": "a"}]
    asked += [{"role": "system", "content": "Briefer."}, *HI]
    chat_server.requests.clear()
    model = make_model(system_role=role)
    model.complete(asked, sample="0")
    (sent,) = chat_server.bodies
    roles = [message["role"] for message in sent["messages"]]
    if role == "user":
        assert roles == ["user", "assistant", "user"]
        assert system_of(sent) == f"Be brief.\n\n{HI[0]['content']}"
    else:
        assert roles == [role, "user", "assistant", role, "user"]
    assert (model.fingerprint == make_model().fingerprint) == (role == "system")


def test_the_skill_comes_before_a_message_of_several_parts(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    asked: list[dict[str, Any]] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [picture]},
    ]
    make_model(system_role="user").complete(asked, sample="0")
    (sent,) = chat_server.bodies[0]["messages"]
    assert sent["content"] == [{"type": "text", "text": "Be brief."}, picture]


def test_no_message_holds_the_key(chat_server: ChatServer, make_model: ModelMaker) -> None:
    key = "unusual.key.0123456789"
    said = f"Incorrect API key provided: {key}, sk-proj-abcdef123456. Bearer abcdef"
    chat_server.script(chat_server.answer.error(401, said))
    with pytest.raises(ModelFault) as caught:
        make_model(key=key).complete(HI, sample="0")
    words = str(caught.value)
    assert "Incorrect API key provided" in words
    assert all(secret not in words for secret in (key, "abcdef"))


def test_a_page_is_not_shown_as_markup_and_not_at_length(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    page = f"<html><script>evil()</script><h1>Bad gateway</h1>{'x' * 9000}</html>"
    chat_server.script(chat_server.answer(raw=page, status=502, content_type="text/html"))
    with pytest.raises(ModelFault) as caught:
        make_model(retries=0).complete(HI, sample="0")
    words = str(caught.value)
    assert "Bad gateway" in words
    assert "<" not in words
    assert "evil" not in words
    assert len(words) < 500


def test_a_pause_asked_for_holds_for_other_threads(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    limits = Meter()
    chat_server.script(chat_server.answer.error(429, retry_after="0.4"))
    model = make_model(throttle=limits)
    model._sleep = time.sleep
    start = time.monotonic()
    model.complete(HI, sample="0")
    assert time.monotonic() - start >= 0.4
    first, second = (request.received for request in chat_server.requests)
    assert second - first >= 0.4


@each_row("useless", ["garbage", "html", "null_choices"])
def test_a_cap_sees_malformed_replies_that_tell_no_usage(
    chat_server: ChatServer, make_model: ModelMaker, useless: str
) -> None:
    chat_server.requests.clear()
    limits = Meter(Settings(max_calls=2))
    model = make_model(throttle=limits, price=Price(1e6, 1e6))
    useless_answer = getattr(chat_server.answer, useless)()
    chat_server.reply = lambda body: useless_answer
    with pytest.raises(ModelFault, match="2 tries"):
        model.complete(HI, sample="0")
    assert (limits.spent.calls, limits.spent.estimated) == (2, True)
    assert limits.spent.input_tokens > 0
    assert limits.spent.cost
    with pytest.raises(CapReached, match="max_calls"):
        model.complete(HI, sample="1")
    assert chat_server.calls == 2


def test_closing_wakes_whoever_waits_for_a_reply(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    asked = threading.Event()
    ended = threading.Event()

    def reply(body: Body) -> str:
        asked.set()
        assert ended.wait(PATIENCE)
        return "too late"

    chat_server.reply = reply
    model = make_model()
    try:
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(model.complete, HI, sample="0")
            assert asked.wait(PATIENCE)
            model.close()
            with pytest.raises(ModelFault, match="the session has ended"):
                waiting.result(PATIENCE)
    finally:
        ended.set()
    assert chat_server.calls == 1


def test_calls_without_a_reply_in_time_count_towards_a_cap(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    """The provider may have charged for them."""
    ended = threading.Event()

    def reply(body: Body) -> str:
        assert ended.wait(PATIENCE)
        return "too late"

    chat_server.reply = reply
    meter = Meter(Settings(max_calls=3))
    model = make_model(throttle=meter, request_timeout=0.2)
    try:
        with pytest.raises(ModelFault, match=r"in time \(skillopt_request_timeout, "):
            model.complete(HI, sample="0")
        with pytest.raises(CapReached, match="cap of 3 model calls"):
            model.complete(HI, sample="1")
        wait_until(lambda: chat_server.calls == 3)
    finally:
        ended.set()


def test_a_message_with_half_a_surrogate_pair_can_be_sent(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    """As in the name of a file that is not UTF-8."""
    messages = [{"role": "user", "content": "caf\udce9 \U0001f600"}]
    make_model().complete(messages, sample="0")
    assert chat_server.requests[0].last == "caf? \U0001f600"


def test_a_server_that_refuses_schemas_is_asked_without_and_remembered(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    def reply(body: Body) -> Any:
        refused = chat_server.answer.error(400, "response_format is not supported")
        return refused if "response_format" in body else "{}"

    chat_server.reply = reply
    model = make_model()
    for sample in ("0", "1"):
        assert model.complete(HI, sample=sample, response_format=SCHEMA).text == "{}"
    assert ["response_format" in body for body in chat_server.bodies] == [True, False, False]


def test_a_refusal_for_another_reason_does_not_give_up_schemas(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    model = make_model()
    chat_server.script(*[chat_server.answer.error(400, "too long")] * 2, "{}")
    with pytest.raises(ModelFault, match="too long"):
        model.complete(HI, sample="0", response_format=SCHEMA)
    model.complete(HI, sample="1", response_format=SCHEMA)
    assert chat_server.bodies[-1]["response_format"] == SCHEMA


def test_samples_are_kept_apart_and_repetitions_are_free(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path
) -> None:
    replies = iter(["first", "second"])
    chat_server.reply = lambda body: next(replies)
    limits = Meter()
    model = make_model(replies=Replies("rw", DiskCache(tmp_path / "cache")), throttle=limits)
    done = [model.complete(HI, sample=s, stage="s") for s in ("0", "1", "0", "1")]
    assert [one.text for one in done] == ["first", "second", "first", "second"]
    assert done[2].usage == Usage(cached=1, kept_tokens=done[0].usage.tokens)
    assert limits.spent.input_tokens == 2 * done[0].usage.input_tokens > 0
    assert chat_server.calls == 2
    assert limits.accounts["target", "s"].cached == 2


def test_a_replay_sends_nothing_and_names_the_task_it_lacks(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path
) -> None:
    recorded = Replies("rw", DiskCache(tmp_path / "cache"))
    make_model(replies=recorded).complete(HI, sample="0", task="t.py::test_a")
    recorded.close()
    replay = make_model(replies=Replies("ro", DiskCache(tmp_path / "cache")))
    chat_server.stop()
    assert replay.complete(HI, sample="0", task="t.py::test_a").text == "ok"
    with pytest.raises(CacheMiss, match=r"the rollout call of t\.py::test_a \(sample 1.*cache=ro"):
        replay.complete(HI, sample="1", stage="rollout", task="t.py::test_a")


def test_refresh_pays_once_a_session(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path
) -> None:
    old = Replies("rw", DiskCache(tmp_path / "cache"))
    make_model(replies=old).complete(HI, sample="0")
    chat_server.reply = lambda body: "new"
    model = make_model(replies=Replies("refresh", DiskCache(tmp_path / "cache")))
    assert model.complete(HI, sample="0").text == "new"
    assert model.complete(HI, sample="0").usage.cached == 1
    assert make_model(replies=old).complete(HI, sample="0").text == "new"
    assert chat_server.calls == 2


def test_who_probes_the_same_at_once_pays_once(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two sessions, of which the second comes while the first waits for its reply."""
    replies = [Replies("rw", DiskCache(tmp_path / "cache")) for _ in range(2)]
    first, second = (make_model(replies=kept) for kept in replies)
    waiting = threading.Event()
    came = threading.Event()
    send = first._call

    def hold(*arguments: Any) -> Completion:
        came.set()
        assert waiting.wait(PATIENCE)
        return send(*arguments)

    monkeypatch.setattr(first, "_call", hold)
    # Locks hold between processes: within this one the second session asks as another would.
    asked = replies[1].cache
    assert isinstance(asked, DiskCache)
    claim = asked.claim
    first_cache = replies[0].cache
    assert isinstance(first_cache, DiskCache)

    def other_process(key: str, owner: str = "") -> bool:
        if key in first_cache._claimed:
            waiting.set()
            return False
        return claim(key, owner)

    monkeypatch.setattr(asked, "claim", other_process)

    def send_too(*arguments: Any) -> Completion:
        waiting.set()
        return send(*arguments)

    monkeypatch.setattr(second, "_call", send_too)
    with ThreadPoolExecutor(2) as pool:
        one = pool.submit(first.probe)
        assert came.wait(PATIENCE)
        two = pool.submit(second.probe)
        assert (one.result(PATIENCE), two.result(PATIENCE)) == ("", "")
    assert len(chat_server.probes) == 1


def test_no_reply_of_another_session_is_waited_for_when_the_time_is_over(
    make_model: ModelMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one may wait for its provider for a quarter of an hour."""
    cache = DiskCache(tmp_path / "cache")
    monkeypatch.setattr(cache, "claim", lambda key, owner="": False)
    moments = iter((0.0, 1.0, 9.0, 11.0))
    throttle = Meter(Settings(max_time=10), clock=lambda: next(moments))
    model = make_model(replies=Replies("rw", cache), throttle=throttle)
    with pytest.raises(CapReached, match="10 s are over"):
        model.complete(HI, sample="0")


def test_a_failed_call_frees_those_who_wait_for_it(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path
) -> None:
    chat_server.latency = 0.05
    chat_server.script(chat_server.answer.error(400))
    model = make_model(replies=Replies("rw", DiskCache(tmp_path / "cache")))
    outcomes: list[object] = []

    def ask() -> None:
        try:
            outcomes.append(model.complete(HI, sample="0").text)
        except ModelFault:
            outcomes.append("fault")

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert sorted(map(str, outcomes)) == ["fault", "ok", "ok", "ok"]
    assert chat_server.calls == 2


def test_a_paid_reply_survives_a_throttle_that_fails(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path
) -> None:
    class Broken(Meter):
        def done(self, *args: Any, **kwargs: Any) -> None:
            raise ConnectionError("the controller is gone")

    cache = Replies("rw", DiskCache(tmp_path / "cache"))
    with pytest.raises(ConnectionError):
        make_model(replies=cache, throttle=Broken()).complete(HI, sample="0")
    assert make_model(replies=cache).complete(HI, sample="0").usage.cached == 1
    assert chat_server.calls == 1


def test_a_full_disk_costs_no_reply(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path
) -> None:
    full = DiskCache(tmp_path / "cache")
    full._do(lambda kept: kept._sql("PRAGMA max_page_count = 1"))
    cache = Replies("rw", full)
    chat_server.reply = lambda body: "x" * 30_000
    assert make_model(replies=cache).complete(HI, sample="0").text == "x" * 30_000
    assert "a reply could not be kept: " in next(iter(cache.notes))
    assert "disk is full" in next(iter(cache.notes))


def test_a_faulty_server_costs_no_reply_and_no_reply_is_paid_for_twice(
    chat_server: ChatServer, make_model: ModelMaker, tmp_path: Path
) -> None:
    answer = chat_server.answer
    faults = [answer.error(429)] * 5 + [answer.error(500)] * 2
    useless = [answer.empty(), answer.html(), answer.dropped()]
    drawn = random.Random(7)
    spoilt: set[str] = set()

    def reply(body: Body) -> Any:
        said = system_of(body)
        chosen = drawn.randrange(100)
        if chosen < len(faults):
            return faults[chosen]
        if chosen < len(faults) + len(useless) and said not in spoilt:
            spoilt.add(said)
            return useless[chosen - len(faults)]
        return said

    chat_server.reply = reply
    model = make_model(replies=Replies("rw", DiskCache(tmp_path / "cache")))

    def ask(index: int) -> str:
        said = [{"role": "user", "content": f"n{index}"}]
        return model.complete(said, sample="0").text

    for _ in range(2):
        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(ask, range(200))) == [f"n{i}" for i in range(200)]
    sent = [system_of(body) for body in chat_server.bodies]
    assert len(set(sent)) == 200
    assert 200 < len(sent) < 260


def test_certificates_are_read_only_if_a_server_may_have_to_show_one(
    chat_server: ChatServer, make_model: ModelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take longer than many a call; a server on this machine has none over plain HTTP."""
    trusting: list[ssl.SSLContext] = []

    def note(context: ssl.SSLContext, *arguments: Any, **options: Any) -> None:
        trusting.append(context)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", note)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", note)
    assert make_model().complete(HI, sample="0").text == "ok"
    assert not trusting
    for url in ("https://127.0.0.1:9/v1", "http://models.example/v1"):
        make_model(base_url=url, key="k")._client()
    assert [context.verify_mode for context in trusting] == [ssl.CERT_REQUIRED] * 2


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_a_local_server_may_have_a_certificate_of_its_own(
    chat_server: ChatServer, make_model: ModelMaker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Named by SSL_CERT_FILE, as for other servers; proxies of the environment are none of them."""
    subprocess.run([*_CERTIFICATE.split(), "-keyout", "key.pem", "-out", "its.pem"], cwd=tmp_path)
    its = tmp_path / "its.pem"
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(its, tmp_path / "key.pem")
    chat_server.stop()
    chat_server.start(tls)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    model = make_model(base_url=chat_server.url.replace("http:", "https:"), retries=0)
    way = r"certificate verify failed.*\(SSL_CERT_FILE names the certificates to trust\)"
    with pytest.raises(ModelFault, match=way):
        model.complete(HI, sample="0")
    monkeypatch.setenv("SSL_CERT_FILE", str(its))
    assert make_model(base_url=model.config.base_url).complete(HI, sample="0").text == "ok"


_CERTIFICATE = (
    "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
    "-addext subjectAltName=IP:127.0.0.1"
)


def test_a_server_of_the_projects_own_is_reached_when_first_called(
    chat_server: ChatServer, make_model: ModelMaker
) -> None:
    asked: list[str] = []

    def url() -> str:
        asked.append("url")
        return chat_server.url

    server = Server("offline", url, simulated=True)
    model = make_model(provider="offline", model="sim", base_url="offline", server=server)
    assert (model.simulated, model.name, asked) == (True, "offline:sim", [])
    for sample in "001":
        model.complete(HI, sample=sample)
    assert asked == ["url"]
    seeds = [body["seed"] for body in chat_server.bodies]
    assert seeds[0] == seeds[1] != seeds[2]


def test_a_proxy_in_the_environment_does_not_stand_before_a_local_server(
    chat_server: ChatServer, make_model: ModelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    assert make_model(retries=0).complete(HI, sample="0").text == "ok"
