"""The proxy: what it passes on, counts and refuses, for each of the four protocols."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import urllib.error
import urllib.request
from http.client import HTTPConnection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest
from patience import PATIENCE, wait_until
from tables import each_row

from pytest_skillopt.model.config import ModelConfig
from pytest_skillopt.model.limits import CallEstimate, Meter
from pytest_skillopt.model.types import CapReached, ModelFault, Price, Usage
from pytest_skillopt.plugins.agents.proxy import AgentCalls, Proxy, marks_of
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from model_server import ModelServer

KEY = "sk-test-0123456789abcdefghij"
PATHS: dict[str, tuple[str, dict[str, Any]]] = {
    "messages": ("/v1/messages?beta=true", {"messages": [{"role": "user", "content": "Hi"}]}),
    "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
    "responses": ("/v1/responses", {"input": [{"role": "user", "content": "Hi"}]}),
    "gemini": (
        "/v1beta/models/other:generateContent?key=theirs",
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    ),
}
STREAMED = {"gemini": "/v1beta/models/other:streamGenerateContent?alt=sse"}


class Setting:
    """A proxy before the loopback provider, with limits of its own."""

    def __init__(self, provider: ModelServer, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setattr("pytest_skillopt.model.client.FIRST_DELAY", 0.001)
        self.provider = provider
        self.proxies: list[Proxy] = []

    def open(self, scenario: str = "ok", **bounds: Any) -> tuple[Proxy, Meter]:
        limits = Meter(Settings(**bounds))
        patience = 0.1 if scenario == "hang" else PATIENCE
        config = ModelConfig(
            "target",
            "openai",
            "the-model",
            self.provider.url(scenario),
            request_timeout=patience,
            retries=1,
            price=Price(1.0, 2.0),
        )
        self.proxies.append(Proxy(config, limits))
        return self.proxies[-1], limits


@pytest.fixture
def setting(provider: ModelServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    made = Setting(provider, monkeypatch)
    yield made
    for proxy in made.proxies:
        proxy.close()


def ask(url: str, path: str, body: dict[str, Any] | str, **headers: str) -> tuple[int, str]:
    """Post an object, or the text of a body."""
    data = (body if isinstance(body, str) else json.dumps(body)).encode()
    request = urllib.request.Request(url + path, data, {"authorization": "Bearer x", **headers})
    try:
        with urllib.request.urlopen(request) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@each_row("stream", [False, True])
@each_row("protocol", PATHS)
def test_each_protocol_is_passed_on_and_counted(
    setting: Setting, protocol: str, stream: bool
) -> None:
    setting.provider.requests.clear()
    setting.provider.bodies.clear()
    proxy, limits = setting.open()
    path, body = PATHS[protocol]
    path = STREAMED.get(protocol, path) if stream else path
    seen: list[Usage] = []
    agent_calls = AgentCalls(account=("target", "train", "t"), on_usage=seen.append)
    with proxy.serving(agent_calls) as url:
        status, said = ask(url, path, {**body, "model": "other", "stream": stream})
    assert status == 200
    assert "A greeting" in said
    used = agent_calls.usage
    assert seen == [used]
    assert (used.calls, used.input_tokens, used.output_tokens) == (1, 1000, 25)
    assert used.cost == pytest.approx(1050e-6)
    assert limits._accounts == {("target", "train"): used}
    ((arrived, headers),) = setting.provider.requests
    assert "other" not in arrived
    assert setting.provider.bodies[0]["model"] == "the-model" or "/the-model:" in arrived
    assert KEY in "".join(headers.values())
    assert "Bearer x" not in headers.values()
    assert "theirs" not in str(headers)


@each_row(
    ("path", "body"),
    [
        ("/v1/files", {}),
        ("/v1/chat/completions/../../admin", {}),
        ("/v1beta/models/other:batchEmbed", {}),
        ("", {}),
    ],
)
def test_nothing_but_model_calls_is_passed_on(
    setting: Setting, path: str, body: dict[str, Any]
) -> None:
    proxy, _ = setting.open()
    with proxy.serving(AgentCalls()) as url:
        assert ask(url, path, body)[0] == 404
    assert ask(url, *PATHS["chat"])[0] == 404  # its run is over
    assert ask(url.rpartition("/")[0] + "/guessed", *PATHS["chat"])[0] == 404
    assert setting.provider.requests == []


def test_tokens_are_counted_for_nothing(setting: Setting) -> None:
    proxy, limits = setting.open(max_calls=1)
    agent_calls = AgentCalls()
    with proxy.serving(agent_calls) as url:
        assert ask(url, "/v1/messages/count_tokens", {"messages": []})[0] == 200
    assert agent_calls.calls == 0
    assert limits.spent == Usage()


def test_a_cap_ends_the_run(setting: Setting) -> None:
    proxy, limits = setting.open(max_calls=2)
    agent_calls = AgentCalls()
    with proxy.serving(agent_calls) as url:
        assert [ask(url, *PATHS["chat"])[0] for _ in range(4)] == [200, 200, 400, 400]
        assert isinstance(agent_calls.failure, CapReached)
        assert "max_calls" in str(agent_calls.failure)
    assert limits.spent.calls == setting.provider.calls == 2


def test_a_limit_holds_for_all_runs_together(setting: Setting) -> None:
    proxy, limits = setting.open(max_in_flight=2)
    setting.provider.delay = 0.05
    most: list[int] = []
    with proxy.serving(AgentCalls()) as url:
        threads = [threading.Thread(target=ask, args=(url, *PATHS["chat"])) for _ in range(8)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most.append(len(limits._flying))
        for thread in threads:
            thread.join()
    assert max(most) <= 2
    assert limits.spent.calls == 8


@each_row(
    ("scenario", "words", "fatal", "calls", "paid"),
    [
        ("status-401", "HTTP 401: scripted 401", True, 1, 0),
        ("status-404", "HTTP 404: scripted 404", True, 1, 0),
        ("status-529", "HTTP 529: scripted 529 (after 2 tries)", False, 2, 0),
        ("cut", "the reply broke off", False, 2, 2),
        ("garbage", "unreadable reply: Welcome (after 2 tries)", False, 2, 2),
        ("overloaded", "an error instead of a reply: Overloaded (after 2 tries)", False, 2, 2),
        ("hang", "the provider did not answer in time", False, 2, 2),
    ],
)
@each_row("protocol", ["chat", "messages"])
def test_a_fault_ends_the_run(
    setting: Setting,
    protocol: str,
    scenario: str,
    words: str,
    fatal: bool,
    calls: int,
    paid: int,
) -> None:
    """A reply with status 200, and one that did not come in time, may have been paid for."""
    setting.provider.requests.clear()
    proxy, limits = setting.open(scenario)
    agent_calls = AgentCalls()
    with proxy.serving(agent_calls) as url:
        status, said = ask(url, *PATHS[protocol])
        assert ask(url, *PATHS[protocol])[0] == 400
    assert status == 400
    assert "the provider has failed" in said
    assert isinstance(agent_calls.failure, ModelFault)
    assert words in str(agent_calls.failure)
    assert agent_calls.failure.fatal is fatal
    wait_until(lambda: setting.provider.calls >= calls)
    assert setting.provider.calls == calls
    assert limits.spent == agent_calls.usage
    assert limits.spent.calls == paid
    assert limits.spent.estimated is bool(limits.spent.input_tokens) is bool(paid)
    assert len(limits._flying) == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("protocol", PATHS)
def test_what_a_reply_says_is_not_taken_for_its_form(
    setting: Setting, protocol: str, stream: bool
) -> None:
    """Neither for events, nor for their end, an error or a count of tokens."""
    proxy, limits = setting.open()
    path, body = PATHS[protocol]
    path = STREAMED.get(protocol, path) if stream else path
    asked = {**body, "stream": stream}
    with proxy.serving(agent_calls := AgentCalls()) as url:
        setting.provider.thought = 'Lines of a log:\ndata: {"error": "disk"}\n\ndata: broken {'
        assert ask(url, path, asked)[0] == 200
        counts = dict.fromkeys(["input_tokens", "promptTokenCount", "output_tokens"], 94_000_000)
        arguments = {**counts, "error": "none", "usage": counts, "usageMetadata": counts}
        setting.provider.decide = lambda *_: ("call", "shell", arguments)  # type: ignore[method-assign]
        assert ask(url, path, asked)[0] == 200
    assert agent_calls.failure is None
    assert setting.provider.calls == 2
    spent = limits.spent
    assert (spent.calls, spent.input_tokens, spent.output_tokens) == (2, 2000, 50)


@each_row("end", [b"", b'data: {"id": "1'])
@each_row(("protocol", "tokens"), [("chat", False), ("responses", False), ("messages", True)])
def test_a_stream_that_ends_too_soon_counts_what_it_has_told(
    setting: Setting, protocol: str, tokens: bool, end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cap has to see the calls of a provider that breaks off every reply."""
    path, body = PATHS[protocol]
    proxy, limits = setting.open(max_calls=2)
    whole = proxy.upstream._post

    def without_its_end(**request: Any) -> bytes:
        return whole(**request).partition(b"\n\n")[0] + b"\n\n" + end

    monkeypatch.setattr(proxy.upstream, "_post", without_its_end)
    with proxy.serving(agent_calls := AgentCalls()) as url:
        assert ask(url, path, {**body, "stream": True})[0] == 400
    assert "the reply broke off" in str(agent_calls.failure)
    assert limits.spent.calls == 2
    assert limits.spent.estimated is not tokens
    assert limits.spent.input_tokens == (2000 if tokens else pytest.approx(50, abs=30))
    with proxy.serving(agent_calls := AgentCalls()) as url:
        assert ask(url, path, body)[0] == 400
    assert isinstance(agent_calls.failure, CapReached)


@each_row(
    ("protocol", "more"),
    [
        ("chat", {"n": 50}),
        ("gemini", {"generationConfig": {"candidateCount": 8}}),
        ("gemini", {"generation_config": {"candidate_count": 8}}),
        ("responses", {"background": True}),
        ("chat", {"models": ["a-dearer-one"]}),
        ("chat", {"fallbacks": ["a-dearer-one"]}),
    ],
)
def test_one_reply_is_asked_for_at_a_time(
    setting: Setting, protocol: str, more: dict[str, Any]
) -> None:
    proxy, _ = setting.open()
    setting.provider.requests.clear()
    path, body = PATHS[protocol]
    with proxy.serving(agent_calls := AgentCalls()) as url:
        assert ask(url, path, {**body, **more})[0] == 400
        assert setting.provider.calls == 0
        assert ask(url, path, {**body, "n": 1})[0] == 200
    assert agent_calls.failure is None


@each_row(
    "text",
    [
        '{"messages": [], "temperature": NaN}',
        '{"messages": [], "temperature": 1e999}',
        '{"messages": ' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"messages": [',
        '["messages"]',
    ],
)
def test_what_is_no_json_is_the_agents_own_mistake(setting: Setting, text: str) -> None:
    proxy, _ = setting.open()
    setting.provider.requests.clear()
    path, body = PATHS["chat"]
    with proxy.serving(agent_calls := AgentCalls()) as url:
        assert ask(url, path, text)[0] == 400
        assert setting.provider.calls == 0
        assert ask(url, path, {**body, "stream": True, "stream_options": ["odd"]})[0] == 200
        cut = '{"messages": [{"role": "user", "content": "half of a smile: \\ud83d"}]}'
        assert ask(url, path, cut)[0] == 200
    assert agent_calls.failure is None
    assert agent_calls.calls == 2


def dial(url: str) -> socket.socket:
    """Connect to a proxy, without a request."""
    place = urlsplit(url)
    return socket.create_connection((place.hostname, place.port or 0), PATIENCE)


@each_row(
    ("header", "body"),
    [
        ("content-length: -1", b""),
        ("content-length: many", b""),
        (f"content-length: {1 << 40}", b""),
        ("transfer-encoding: chunked", b"-5\r\n"),
        ("transfer-encoding: chunked", b"many\r\n"),
        ("transfer-encoding: chunked", b"ffffffffff\r\n"),
        ("transfer-encoding: chunked", b"1\r\nx\r\n" * 60),
        ("transfer-encoding: chunked", b"ff\r\n" + b"x" * 255 + b"\r\n" + b"f" * 99),
    ],
)
def test_a_body_without_end_is_not_read(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, header: str, body: bytes
) -> None:
    """The refusal comes while the agent still could send more."""
    monkeypatch.setattr("pytest_skillopt.plugins.agents.proxy._LARGEST_REQUEST", 50_000)
    proxy, _ = setting.open()
    with proxy.serving(agent_calls := AgentCalls()) as url, dial(url) as connection:
        head = f"POST {urlsplit(url).path}/v1/chat/completions HTTP/1.1\r\n{header}\r\n\r\n"
        connection.sendall(head.encode() + body)
        with connection.makefile("rb") as reply:
            assert reply.readline().split()[1] == b"400"
        assert ask(url, *PATHS["chat"])[0] == 200
    assert (agent_calls.calls, agent_calls.failure) == (1, None)


def test_a_body_in_chunks_is_read_whole(setting: Setting) -> None:
    proxy, _ = setting.open()
    path, body = PATHS["chat"]
    data = json.dumps(body).encode()
    with proxy.serving(agent_calls := AgentCalls()) as url:
        place = urlsplit(url)
        with contextlib.closing(HTTPConnection(place.hostname or "", place.port)) as connection:
            for _ in range(2):
                parts = iter([data[:9], data[9:]])
                connection.request("POST", place.path + path, parts, encode_chunked=True)
                reply = connection.getresponse()
                assert (reply.status, b"A greeting" in reply.read()) == (200, True)
    assert agent_calls.calls == 2


@each_row(
    ("query", "header", "status"),
    [
        ("?a=\x01", "accept: */*", 400),
        ("?a=\xe4", "accept: */*", 400),
        ("", "user-agent: \xe4", 200),
        ("", "accept: a\r\n b", 200),
        ("", "anthropic-x: \x01", 200),
    ],
)
def test_what_cannot_be_sent_on_is_not_the_providers_fault(
    setting: Setting, query: str, header: str, status: int
) -> None:
    proxy, _ = setting.open()
    with proxy.serving(agent_calls := AgentCalls()) as url, dial(url) as connection:
        path = f"{urlsplit(url).path}/v1/chat/completions{query}"
        text = f"POST {path} HTTP/1.0\r\n{header}\r\ncontent-length: 16\r\n\r\n"
        connection.sendall(text.encode("latin-1") + b'{"messages": []}')
        with connection.makefile("rb") as reply:
            assert int(reply.readline().split()[1]) == status
    assert agent_calls.failure is None


def occupy(proxy: Proxy, limits: Meter) -> None:
    """Have all further calls wait."""
    assert limits.ask("held", CallEstimate(proxy.config.base_url)) == 0


def test_too_many_connections_are_refused_until_some_have_ended(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would use up the files of the session."""
    proxy, _ = setting.open()
    most = threading.active_count() + 4
    monkeypatch.setattr("pytest_skillopt.plugins.agents.proxy._MOST_THREADS", most)
    with proxy.serving(AgentCalls()) as url:
        with contextlib.ExitStack() as held:
            for connection in [held.enter_context(dial(url)) for _ in range(20)][10:]:
                assert connection.recv(1) == b""
        wait_until(lambda: threading.active_count() < most)
        assert ask(url, *PATHS["chat"])[0] == 200


def test_calls_at_once_are_bounded(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_skillopt.plugins.agents.proxy._MOST_AT_ONCE", 1)
    proxy, limits = setting.open(max_in_flight=1)
    with proxy.serving(agent_calls := AgentCalls()) as url:
        assert ask(url, *PATHS["chat"])[0] == 200
        occupy(proxy, limits)
        thread = threading.Thread(target=ask, args=(url, *PATHS["chat"]))
        thread.start()
        wait_until(lambda: agent_calls.calls == 2)
        assert ask(url, *PATHS["chat"])[0] == 400
        agent_calls.over.set()
        thread.join(PATIENCE)
    assert (agent_calls.calls, agent_calls.failure) == (2, None)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_models_are_told_to_runs_under_way_only(setting: Setting, method: str) -> None:
    proxy, _ = setting.open()

    def status(url: str) -> int:
        place = urlsplit(url)
        with contextlib.closing(HTTPConnection(place.hostname or "", place.port)) as connection:
            connection.request(method, f"{place.path}/v1/models")
            reply = connection.getresponse()
            said = reply.read()
            assert ("the-model" in said.decode()) is (method == "GET" and reply.status == 200)
            return reply.status

    with proxy.serving(AgentCalls()) as url:
        assert status(url) == 200
        assert status(url.rpartition("/")[0]) == 404
        assert status(url + "x") == 404
    assert status(url) == 404


def test_a_request_that_is_refused_is_the_agents_to_mend(setting: Setting) -> None:
    """Such as a context that is too long: agents shorten it and go on."""
    proxy, _ = setting.open("status-400")
    agent_calls = AgentCalls()
    with proxy.serving(agent_calls) as url:
        assert ask(url, *PATHS["chat"])[0] == 400
        assert agent_calls.failure is None
        assert agent_calls.fault is not None


def test_nobody_waits_for_a_reply_when_the_run_is_over(setting: Setting) -> None:
    proxy, limits = setting.open(max_in_flight=1)
    agent_calls = AgentCalls()
    ends: list[object] = []

    def ask_again() -> None:
        try:
            ends.append(ask(url, *PATHS["chat"]))
        except OSError as error:
            ends.append(type(error))

    with proxy.serving(agent_calls) as url:
        ask(url, *PATHS["chat"])
        occupy(proxy, limits)
        thread = threading.Thread(target=ask_again)
        thread.start()
        wait_until(lambda: agent_calls.calls == 2)
    thread.join(PATIENCE)
    assert len(ends) == 1
    assert agent_calls.failure is None
    assert [*limits._flying] == ["held"]


def test_the_skill_is_seen_in_whatever_part_of_a_request(setting: Setting) -> None:
    proxy, _ = setting.open()
    body = '# Greeting\n\nAlways begin with the word Ahoy.\n\nUse "quotes" — and dashes.\n'
    marks = marks_of(body, "Use it to greet. # Greeting", "Greet Ada.")
    assert [json.loads(f'"{mark}"') for mark in marks] == [
        "Always begin with the word Ahoy.",
        'Use "quotes" — and dashes.',
    ]
    for result in ("1\tAlways begin with the word Ahoy.\n", 'cat: Use "quotes" — and dashes.'):
        agent_calls = AgentCalls(marks)
        with proxy.serving(agent_calls) as url:
            ask(url, "/v1/responses", {"input": [{"content": "Greet Ada."}]})
            assert not agent_calls.skill_read
            ask(url, "/v1/responses", {"input": [{"type": "x_output", "output": [result]}]})
            assert agent_calls.skill_read


def test_a_body_of_short_lines_has_a_mark_too() -> None:
    assert marks_of("Say it.\nBe kind.\n") == ("Be kind.",)
    assert marks_of("") == ()
    odd = "Begin with\u2028the word Ahoy."
    assert marks_of(f"{odd}\nBe kind to all.\n")[0] == json.dumps(odd)[1:-1]
