from __future__ import annotations

import contextlib
import dataclasses
import os
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.model import config as configuration
from pytest_skillopt.model.config import (
    ModelConfig,
    Server,
    canonical_url,
    check_prices,
    is_local,
    parse_prices,
    price_of,
    protect_requests,
    read_requests,
)
from pytest_skillopt.model.types import ModelConfigError, Price
from pytest_skillopt.settings import Settings
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from pytest_skillopt.model.types import Role

KEY = {"OPENAI_API_KEY": "sk-something-long"}


def model_config(
    settings: Settings, role: Role, environ: dict[str, str], server: Server | None = None
) -> ModelConfig:
    with mock.patch.dict(os.environ, environ, clear=True):
        config = configuration.model_config(settings, role, server)
        config.headers()
        if not config.key_command:
            config.api_key()
        return config


def settings(**changes: Any) -> Settings:
    return dataclasses.replace(Settings(), **changes)


@each_row(
    ("named", "model"),
    [
        ("openai:gpt-5-mini", "gpt-5-mini"),
        ("openai:qwen2.5:7b", "qwen2.5:7b"),
        ("openai:meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-8B-Instruct"),
    ],
)
def test_model_names_keep_their_colons_and_slashes(named: str, model: str) -> None:
    config = model_config(settings(target=named), "target", KEY)
    assert (config.provider, config.model, config.name) == ("openai", model, named)


@each_row(
    ("given", "role", "model"),
    [
        ({"model": "openai:a"}, "target", "a"),
        ({"model": "openai:a"}, "judge", "a"),
        ({"model": "openai:a", "target": "openai:b"}, "optimizer", "a"),
        ({"target": "openai:b"}, "optimizer", "b"),
        ({"target": "openai:b"}, "judge", "b"),
        ({"target": "openai:b", "optimizer": "openai:c"}, "judge", "c"),
        ({"model": "openai:a", "optimizer": "openai:c"}, "judge", "c"),
        ({"model": "openai:a", "judge": "openai:d", "optimizer": "openai:c"}, "judge", "d"),
    ],
)
def test_a_role_without_a_model_falls_back(given: dict[str, str], role: Any, model: str) -> None:
    assert model_config(settings(**given), role, KEY).model == model


def test_the_base_url_goes_with_the_model_it_was_given_for() -> None:
    """So does the name under which the server knows the limit of a reply."""
    local = {"target": "openai:b@http://localhost:8000/v1/", "requests": "max_output_tokens = 9"}
    borrowed = model_config(settings(**local), "optimizer", {})
    own = model_config(settings(**local, optimizer="openai:gpt-5"), "optimizer", KEY)
    assert borrowed.base_url == "http://localhost:8000/v1"
    assert own.base_url == "https://api.openai.com/v1"
    assert borrowed.parameters == {"max_tokens": 9}
    assert own.parameters == {"max_completion_tokens": 9}


@each_row(
    ("named", "model", "url"),
    [
        ("openai:m@http://gpu:8000/v1", "m", "http://gpu:8000/v1"),
        ("openai:org/m@2024@HTTPS://Gpu/v1", "org/m@2024", "https://gpu/v1"),
        ("openai:org/m@2024", "org/m@2024", "https://other.example/v1"),
        ("openai:m:7b@http://[::1]:80", "m:7b", "http://[::1]"),
    ],
)
def test_a_server_stands_behind_its_model(named: str, model: str, url: str) -> None:
    found = model_config(settings(target=named, base_url="https://other.example/v1"), "target", KEY)
    assert (found.model, found.base_url, found.name) == (model, url, f"openai:{model}")


def test_the_environment_names_the_base_url_where_no_setting_does() -> None:
    environ = KEY | {"OPENAI_BASE_URL": "https://Gateway.example/v1/"}
    assert model_config(settings(model="openai:m"), "target", environ).base_url == (
        "https://gateway.example/v1"
    )
    chosen = settings(model="openai:m", base_url="https://other.example/v1")
    assert model_config(chosen, "target", environ).base_url == "https://other.example/v1"


@each_row(
    ("given", "environ", "words"),
    [
        ({}, KEY, ["skillopt_target", "skillopt_model", "provider:model"]),
        ({"target": "gpt-5-mini"}, KEY, ["provider:model", "openai:MODEL@URL"]),
        ({"target": "claude:opus"}, KEY, ["or one that a conftest.py serves"]),
        ({"target": "openai:"}, KEY, ["provider:model"]),
        ({"target": "openai:m"}, {}, ["OPENAI_API_KEY", "target.key_env = "]),
        ({"target": "openai:m", "requests": "key_env = MY_KEY"}, KEY, ["MY_KEY"]),
        ({"target": "openai:m"}, {"OPENAI_API_KEY": "a\nb"}, ["is not a key"]),
        ({"target": "openai:m", "base_url": "localhost:8000"}, KEY, ["skillopt_base_url"]),
        ({"target": "openai:m", "base_url": "http://u:pw@h/v1"}, KEY, ["credentials"]),
        ({"target": "openai:m", "base_url": "http://h/v1?key=pw"}, KEY, ["what follows the path"]),
        ({"target": "openai:m", "prices": "m=1"}, KEY, ["skillopt_prices", "MODEL=IN/OUT"]),
    ],
)
def test_what_cannot_work_says_what_to_set(
    given: dict[str, Any], environ: dict[str, str], words: list[str]
) -> None:
    with pytest.raises(ModelConfigError) as caught:
        model_config(settings(**given), "target", environ)
    assert all(word in str(caught.value) for word in words)
    assert "pw" not in str(caught.value)
    assert "sk-something-long" not in str(caught.value)


def test_a_server_on_this_machine_needs_no_key() -> None:
    config = model_config(settings(model="openai:m@http://127.0.0.1:11434/v1"), "target", {})
    with mock.patch.dict(os.environ, clear=True):
        assert config.api_key() == "none"
    with mock.patch.dict(os.environ, KEY):
        assert config.api_key() == "sk-something-long"


def test_a_server_elsewhere_needs_no_key_when_the_user_says_so() -> None:
    given = settings(model="openai:m", base_url="http://gpu.example/v1", requests="key_env = none")
    with mock.patch.dict(os.environ, KEY):
        assert model_config(given, "target", {}).api_key() == "none"


REQUESTS = """
max_output_tokens = 100
target.temperature = 0.7
target.extra_body = {"enable_thinking": false}

optimizer.reasoning_effort = high
optimizer.max_output_tokens = 9000
optimizer.top_p=0.9
key_command = print-a-token
judge.key_env = JUDGE_KEY
judge.headers_env = {"X-Team": "MY_TEAM"}
"""


def test_a_line_holds_for_every_role_or_for_one_which_wins() -> None:
    assert read_requests(REQUESTS, "target") == {
        "max_output_tokens": 100,
        "temperature": 0.7,
        "extra_body": {"enable_thinking": False},
        "key_command": "print-a-token",
    }
    assert read_requests(REQUESTS, "optimizer") == {
        "max_output_tokens": 9000,
        "reasoning_effort": "high",
        "top_p": 0.9,
        "key_command": "print-a-token",
    }
    assert read_requests(REQUESTS, "judge") == {
        "max_output_tokens": 100,
        "key_env": "JUDGE_KEY",
        "headers_env": {"X-Team": "MY_TEAM"},
    }
    protect_requests(settings(requests=REQUESTS))
    hidden = redact("of-judges of-a-team", {"JUDGE_KEY": "of-judges", "MY_TEAM": "of-a-team"})
    assert hidden == "[redacted JUDGE_KEY] [redacted MY_TEAM]"


@each_row(
    ("line", "words"),
    [
        ("temperature", ["line 2 (no =)", "NAME = VALUE"]),
        ("warmth = 1", ["line 2 (warmth)", "temperature, top_p"]),
        ("critic.temperature = 1", ["line 2 (critic.temperature)", "target, optimizer, judge"]),
        ("judge.temperature = hot", ["line 2 (judge.temperature)", "a number from 0 to 2"]),
        ("judge.temperature = 3", ["a number from 0 to 2"]),
        ("top_p = nan", ["a number from 0 to 1"]),
        ("max_output_tokens = 0", ["a whole number of at least 1"]),
        ("extra_body = [1]", ["a JSON object"]),
        ('extra_body = {"max_tokens": 1}', ["without", "max_tokens"]),
        ('headers_env = {"X Y": "Z"}', ["a JSON object of environment variables"]),
        ('headers_env = {"X-Key": "sk-secret-0123"}', ["a JSON object of environment variables"]),
        ('headers_env = {"X-Key": 1}', ["a JSON object of environment variables"]),
        ("key_env = sk-secret-0123", ["line 2 (key_env)", "an environment variable, or none"]),
        ("key_command =", ["a command that prints a key"]),
        ("key_command = 'open", ["a command that prints a key"]),
        ('headers_env = {"X-Key": "UNSET"}', ["variable UNSET of the header X-Key is not set"]),
    ],
)
def test_a_line_that_cannot_be_is_named_and_its_value_is_not(line: str, words: list[str]) -> None:
    given = settings(model="openai:m", requests=f"target.top_p = 1\n\n{line}")
    with pytest.raises(ModelConfigError, match="skillopt_requests") as caught:
        model_config(given, "target", KEY)
    assert all(word in str(caught.value) for word in words)
    assert "secret" not in str(caught.value)


def test_the_fingerprint_tells_models_apart_and_holds_no_key() -> None:
    base = ModelConfig("target", "openai", "m", "http://h/v1")
    same = dataclasses.replace(base, role="judge", key_env="OTHER", headers_env={"A": "B"})
    others = [
        dataclasses.replace(base, model="n"),
        dataclasses.replace(base, base_url="http://i/v1"),
        dataclasses.replace(base, temperature=0.0),
        dataclasses.replace(base, max_output_tokens=5),
        dataclasses.replace(base, top_p=0.5),
        dataclasses.replace(base, reasoning_effort="low"),
        dataclasses.replace(base, extra_body={"a": 1}),
    ]
    assert same.fingerprint == base.fingerprint
    assert len({base.fingerprint, *(o.fingerprint for o in others)}) == 8


def test_a_server_of_the_projects_own_has_no_port_in_its_fingerprint() -> None:
    given = settings(model="mine:m", base_url="http://h/v1")
    config = model_config(given, "target", {}, Server("mine", lambda: "http://h:1/v1"))
    assert (config.base_url, config.name, config.simulated) == ("mine", "mine:m", False)
    other = model_config(given, "target", {}, Server("mine", lambda: "http://h:2/v1"))
    assert other.fingerprint == config.fingerprint
    played = model_config(given, "target", {}, Server("mine", lambda: "", simulated=True))
    assert played.simulated
    assert (config.price, played.price) == (None, Price(0.0, 0.0))


@each_row(
    ("url", "canonical"),
    [
        ("HTTP://LocalHost:80/v1/", "http://localhost/v1"),
        ("https://h:443", "https://h"),
        ("http://h:8000/a/v1", "http://h:8000/a/v1"),
        ("http://[::1]:8000/v1", "http://[::1]:8000/v1"),
    ],
)
def test_urls_have_one_spelling(url: str, canonical: str) -> None:
    assert canonical_url(url) == canonical
    assert canonical_url(canonical) == canonical


@given(st.text(max_size=30))
def test_any_text_as_a_url_is_taken_or_refused_with_a_message(text: str) -> None:
    with contextlib.suppress(ModelConfigError):
        url = canonical_url(f"http://{text}")
        assert canonical_url(url) == url


@each_row(
    ("url", "local"),
    [
        ("http://127.0.0.1:1/v1", True),
        ("http://[::1]/v1", True),
        ("http://app.localhost/v1", True),
        ("http://10.0.0.1/v1", False),
        ("https://localhost.example/v1", False),
    ],
)
def test_local_servers_are_told_from_others(url: str, local: bool) -> None:
    assert is_local(url) is local


def test_prices_hold_for_the_providers_own_server_alone() -> None:
    own = "https://api.openai.com/v1"
    assert price_of("gpt-4o-mini-2024-07-18", own, "") == Price(0.15, 0.60, 0.075)
    assert price_of("gpt-4o-mini", "http://gateway/v1", "") is None
    assert price_of("unheard-of", own, "") is None
    assert price_of("gpt-4o", own, "gpt-4o=1/2") == Price(1, 2)
    assert price_of("qwen2.5:7b", "http://own/v1", "openai:qwen2.5:7b=1/2") == Price(1, 2)


def test_prices_of_the_user_are_read() -> None:
    assert parse_prices(" qwen2.5:7b=0.1/0.4, a=b=1/2,, ") == {
        "qwen2.5:7b": Price(0.1, 0.4),
        "a=b": Price(1.0, 2.0),
    }
    assert Price(0.25, 2.0).cost(1_000_000, 500_000) == 1.25
    assert parse_prices("m=1/2/0.1, n=3/15/0.3/3.75") == {
        "m": Price(1.0, 2.0, 0.1),
        "n": Price(3.0, 15.0, 0.3, 3.75),
    }
    tokens = (1_000_000, 0, 600_000, 200_000)
    assert Price(3.0, 15.0, 0.3, 3.75).cost(*tokens) == pytest.approx(1.53)
    assert Price(3.0, 15.0).cost(*tokens) == pytest.approx(3.0)


@each_row(
    "text",
    [
        *("m", "m=1", "=1/2", "m=a/b", "m=-1/2", "m=nan/1", "m=1/inf", "m=1/2/x", "m=1/2/3/4/5"),
        "m=1/2 n=3/4",
    ],
)
def test_prices_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(ModelConfigError, match="skillopt_prices"):
        parse_prices(text)


def test_a_cap_in_money_needs_a_price_of_every_model() -> None:
    priced = model_config(settings(model="openai:gpt-5"), "target", KEY)
    unpriced = model_config(settings(model="openai:my-tune"), "optimizer", KEY)
    check_prices([priced])
    with pytest.raises(ModelConfigError, match=r"my-tune.*skillopt_prices.*my-tune=0\.10/0\.40"):
        check_prices([priced, unpriced])
