from __future__ import annotations

import json
import socket
import sys
from typing import TYPE_CHECKING, Any

import openai
import pytest
from tables import each_row

from pytest_skillopt.model.client import ChatModel
from pytest_skillopt.model.config import model_config
from pytest_skillopt.model.faults import brief, classify, retry_after
from pytest_skillopt.model.types import (
    CacheError,
    CacheMiss,
    CapReached,
    ModelConfigError,
    ModelFault,
    Usage,
)
from pytest_skillopt.rollouts.outcome import classify_error
from pytest_skillopt.rollouts.rollout import InfraError
from pytest_skillopt.settings import Settings

if TYPE_CHECKING:
    from chat_server import Answer, ChatServer
    from model_maker import ModelMaker


@each_row(
    ("error", "kind", "fatal"),
    [
        (CapReached("c"), "cap", False),
        (CacheMiss("c"), "cache", False),
        (CacheError("c"), "cache", False),
        (ModelFault("c"), "provider", False),
        (ModelFault("c", fatal=True), "provider", True),
    ],
)
def test_what_this_package_raises_is_told_apart(error: Exception, kind: str, fatal: bool) -> None:
    assert classify_error(error) == InfraError(kind, "c", fatal)


@each_row(
    "error", [AssertionError("wrong total"), KeyError("total"), ValueError("x"), OSError("y")]
)
def test_what_a_test_raises_is_no_fault(error: Exception) -> None:
    assert classify(error) is None


def test_a_broken_reply_that_a_test_parses_is_its_own_affair() -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        json.loads("no json")
    assert classify(caught.value) is None


def raised_by_the_sdk(server: ChatServer, answer: Answer) -> Exception:
    """Exceptions that a test with its own agent meets."""
    server.script(answer)
    client = openai.OpenAI(api_key="k", base_url=server.url, max_retries=0)
    with client, pytest.raises(Exception) as caught:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])
    return caught.value


def test_a_body_that_the_sdk_cannot_parse_is_a_fault(chat_server: ChatServer) -> None:
    error = raised_by_the_sdk(chat_server, chat_server.answer.garbage())
    assert isinstance(error, json.JSONDecodeError)
    fault = classify(error)
    assert fault is not None
    assert fault.retry


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("ALL_PROXY", "socks5://127.0.0.1:9", "socksio"),
        ("HTTPS_PROXY", "nonsense://127.0.0.1:9", "scheme"),
        ("SSL_CERT_FILE", "/nowhere.pem", "No such file"),
    ],
)
@pytest.mark.parametrize("is_own", [True, False], ids=["of the test", "of this package"])
def test_an_sdk_that_cannot_send_anything_is_a_fault_that_costs_nothing(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str, is_own: bool
) -> None:
    url = "https://models.example.invalid/v1"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-this-test")
    monkeypatch.setenv(variable, value)
    monkeypatch.setitem(sys.modules, "socksio", None)
    if is_own:
        with pytest.raises(Exception, match=words) as caught:
            openai.OpenAI(api_key="k", base_url=url)
        fault = classify(caught.value)
    else:
        model = ChatModel(model_config(Settings(target="openai:m", base_url=url), "target"))
        with pytest.raises(ModelFault) as raised:
            model.complete([{"role": "user", "content": "x"}], sample="1")
        fault = raised.value
    assert fault is not None
    assert (fault.fatal, fault.answered, fault.usage) == (True, False, Usage())
    assert "no request can be sent: " in fault.message
    assert words in fault.message
    assert ("SSL_CERT_FILE or" in fault.message) == (variable == "SSL_CERT_FILE")


def test_a_plugin_that_forbids_connections_is_a_fault_that_costs_nothing(
    make_model: ModelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pytest-socket and pytest-recording do; the connections of before may still be open."""

    def forbidden(*address: object, **options: object) -> None:
        raise RuntimeError("A test tried to use socket.getaddrinfo.")

    monkeypatch.setattr(socket, "getaddrinfo", forbidden)
    with pytest.raises(ModelFault, match="no request can be sent: A test tried") as raised:
        make_model().complete([{"role": "user", "content": "x"}], sample="1")
    fault = raised.value
    assert (fault.fatal, fault.answered, fault.usage) == (True, False, Usage())


@each_row(
    ("variable", "url", "place"),
    [
        ("HTTPS_PROXY", "https://models.example/v1", "https://models.example through HTTPS_PROXY"),
        ("ALL_PROXY", "http://models.example/v1", "http://models.example through ALL_PROXY"),
        ("HTTPS_PROXY", "https://127.0.0.1:9/v1", "https://127.0.0.1:9"),
    ],
)
def test_a_proxy_that_is_not_there_is_named_by_its_variable(
    make_model: ModelMaker, variable: str, url: str, place: str
) -> None:
    model = make_model(base_url=url, key="k")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(variable, "http://joe:secret@127.0.0.1:9")
        with pytest.raises(ModelConfigError) as caught:
            model.probe()
    said = str(caught.value)
    assert f"cannot reach {place}: " in said
    assert said.endswith("(is the base URL right?)")


def test_a_proxy_that_does_not_connect_ends_a_session_before_its_first_rollout(
    chat_server: ChatServer, make_model: ModelMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", chat_server.url)
    model = make_model(base_url="https://models.example/v1", key="k")
    with pytest.raises(ModelConfigError, match="through HTTPS_PROXY: 501"):
        model.probe()


def test_a_reply_of_which_no_object_can_be_made_may_have_been_paid_for() -> None:
    sdk: dict[str, Any] = {"__name__": "openai._models"}
    exec("class Reply:\n def __init__(self): {}['id']\ndef request(): Reply()", sdk)
    with pytest.raises(KeyError) as caught:
        sdk["request"]()
    fault = classify(caught.value)
    assert fault is not None
    assert (fault.fatal, fault.answered) == (False, True)


@each_row(
    ("status", "code", "fatal", "retry"),
    [
        (400, "", False, False),
        (400, "unsupported_parameter", True, False),
        (400, "unsupported_value", True, False),
        (401, "", True, False),
        (402, "", True, False),
        (403, "", True, False),
        (404, "", True, False),
        (407, "", True, False),
        (408, "", False, True),
        (410, "", True, False),
        (409, "", False, True),
        (422, "", False, False),
        (429, "rate_limit_exceeded", False, True),
        (429, "insufficient_quota", True, False),
        (500, "", False, True),
        (529, "", False, True),
    ],
)
def test_refusals_are_passing_or_fatal(
    chat_server: ChatServer, status: int, code: str, fatal: bool, retry: bool
) -> None:
    made = chat_server.answer.error(status, "words", code=code, retry_after="3")
    fault = classify(raised_by_the_sdk(chat_server, made))
    assert fault is not None
    assert (fault.fatal, fault.retry, fault.status) == (fatal, retry, status)
    assert fault.retry_after == (3.0 if retry else 0.0)
    assert fault.message.startswith(f"HTTP {status}: words")


@each_row(
    "body",
    [
        {"detail": "the words"},
        {"error": "the words"},
        {"message": "the words"},
        {"error": {"message": "the words"}},
        {"object": "error", "message": "the words", "code": 40001},
    ],
)
def test_the_words_are_found_where_servers_put_them(
    chat_server: ChatServer, body: dict[str, object]
) -> None:
    made = chat_server.answer(raw=json.dumps(body), status=500)
    fault = classify(raised_by_the_sdk(chat_server, made))
    assert fault is not None
    assert fault.message.startswith("HTTP 500: the words")


@each_row(
    ("headers", "seconds"),
    [
        ({}, 0.0),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, 0.0),
        ({"retry-after": "inf"}, 0.0),
        ({"retry-after": "1e400"}, 0.0),
        ({"retry-after-ms": "inf", "retry-after": "9"}, 9.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:20:00 GMT"}, 0.0),
    ],
)
def test_the_pause_a_provider_asks_for_is_read(headers: dict[str, str], seconds: float) -> None:
    assert retry_after(headers) == seconds


@each_row(
    ("text", "hidden"),
    [
        ("key sk-proj-abcDEF123 is wrong", "key [key] is wrong"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer [key]"),
        ("a sk-etch of the task", "a sk-etch of the task"),
        ("ask-the-user-first", "ask-the-user-first"),
        ("<html><style>a {}</style><p>Sign in</p><script>go(", "Sign in"),
        ("<style" * 100_000, ""),
    ],
)
def test_keys_are_hidden_and_words_are_not(text: str, hidden: str) -> None:
    assert brief(text) == hidden
