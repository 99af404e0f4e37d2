"""Input from a provider's prompt cache: counted from every record, priced apart, never $0.00."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from chat_server import Answer
from greetings import HELLO
from hypothesis import given
from hypothesis import strategies as st
from tables import each_row

from pytest_skillopt.model.tokens import Tokens

if TYPE_CHECKING:
    from chat_server import Body, ChatServer

RECORDS: dict[str, tuple[dict[str, Any], tuple[int, int]]] = {
    "OpenAI chat": ({"prompt_tokens_details": {"cached_tokens": 9}}, (9, 0)),
    "OpenAI responses": ({"input_tokens_details": {"cached_tokens": 9}}, (9, 0)),
    "OpenRouter": (
        {"prompt_tokens_details": {"cached_tokens": 9, "cache_write_tokens": 3}},
        (9, 3),
    ),
    "DeepSeek": ({"prompt_cache_hit_tokens": 9, "prompt_cache_miss_tokens": 1}, (9, 0)),
    "Anthropic": ({"cache_read_input_tokens": 9, "cache_creation_input_tokens": 3}, (9, 3)),
    "LiteLLM": (
        {
            "prompt_tokens_details": {"cached_tokens": 9},
            "cache_read_input_tokens": 9,
            "cache_creation_input_tokens": 3,
        },
        (9, 3),
    ),
    "Gemini": ({"cachedContentTokenCount": 9}, (9, 0)),
    "Codex": ({"input_tokens": 10, "cached_input_tokens": 9}, (9, 0)),
    "Gemini CLI": ({"input_tokens": 10, "cached": 9}, (9, 0)),
    "pi": ({"input": 1, "cacheRead": 9, "cacheWrite": 3}, (9, 3)),
    "OpenCode": ({"input": 1, "cache": {"read": 9, "write": 3}}, (9, 3)),
}
TESTS = """
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("guest", range(10))
def test_greeting(skill_agent, rollout, guest):
    if OWN:
        rollout.usage(input_tokens=10_000, cached_tokens=9_000, model="worker")
    else:
        skill_agent(f"Greet guest {guest}.")
"""


@each_row("name", RECORDS)
def test_every_record_tells_its_cached_input(name: str) -> None:
    told, found = RECORDS[name]
    assert Tokens.of({"prompt_tokens": 12, **told}) == (12, 0, *found)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["prompt_tokens_details", "cached_tokens", "cache", "read", "cached"]),
            inner,
            max_size=3,
        )
    ),
)


@given(anything, st.integers(0, 10))
def test_what_is_not_a_count_is_none(told: Any, asked: int) -> None:
    record = {**told, "prompt_tokens": asked} if isinstance(told, dict) else told
    tokens = Tokens.of(record)
    assert 0 <= tokens.read + tokens.written <= tokens.input


def spent(pytester: pytest.Pytester, server: ChatServer, prices: str, *, own: bool) -> str:
    """Measure ten rollouts of 10,000 input tokens, of which 9,000 were cached; return the cost."""

    def reply(body: Body) -> Answer:
        message = {"role": "assistant", "content": "Hello!"}
        details = {"prompt_tokens_details": {"cached_tokens": 9_000}}
        usage = {"prompt_tokens": 10_000, "completion_tokens": 1, "total_tokens": 10_001}
        choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
        return Answer(raw=json.dumps({"choices": choices, "usage": usage | details}))

    server.reply = reply
    (pytester.path / "SKILL.md").write_text(HELLO)
    pytester.makepyfile(test_greeting=f"OWN = {own}\n{TESTS}")
    options = ("--skillopt-target=openai:worker", f"-oskillopt_base_url={server.url}")
    more = ("--skillopt", "--skillopt-rollouts=1", f"-oskillopt_prices={prices}")
    said = pytester.runpytest_inprocess(*options, *more).stdout.str()
    (line,) = (line for line in said.splitlines() if line.strip().startswith("cost "))
    return line.strip().removeprefix("cost").strip()


@pytest.mark.parametrize(
    ("prices", "cost", "own"),
    [
        ("worker=1.2/0/0.2", "$0.03", False),
        ("worker=1.2/0/0.2", "$0.03", True),
        ("worker=1.2/0", "at most $0.12, with cached input at the full price", False),
        ("other=1/1", "not known (no price for the model; see skillopt_prices)", True),
        ("worker=0/0", "$0.00", False),
    ],
)
def test_cached_input_is_priced_apart(
    pytester: pytest.Pytester,
    chat_server: ChatServer,
    api_key: str,
    prices: str,
    cost: str,
    own: bool,
) -> None:
    assert spent(pytester, chat_server, prices, own=own).startswith(cost)
    if not own:  # the same from the cache of replies: nothing is paid
        assert spent(pytester, chat_server, prices, own=own) in ("$0.00", "")
