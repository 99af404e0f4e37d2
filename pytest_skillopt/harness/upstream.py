"""The way to the provider: one meter, one limiter and one judge of faults with ``skill_agent``."""

from __future__ import annotations

import itertools
import json
import os
import random
import threading
import time
import uuid
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_skillopt.model import client as skill_agent
from pytest_skillopt.model.config import NO_KEY, is_local
from pytest_skillopt.model.faults import (
    Fault,
    ReplyBroken,
    ReplyTooLarge,
    brief,
    estimate_tokens,
    hide_keys,
    judge_status,
)
from pytest_skillopt.model.limits import Wish
from pytest_skillopt.model.types import ModelConfigError, ModelFault, Usage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_skillopt.harness.proxy import Ticket
    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.limits import Throttle

_NAP = 5.0
_PASSED_ON = ("content-type", "accept", "user-agent", "openai-beta", "x-goog-api-client")
_ENDS = ("message_stop", "response.completed", "response.incomplete")
_IN = ("input_tokens", "prompt_tokens", "promptTokenCount")
_IN_BESIDE = ("cache_read_input_tokens", "cache_creation_input_tokens")
_OUT = ("output_tokens", "completion_tokens", "candidatesTokenCount")
_OUT_BESIDE = ("thoughtsTokenCount",)
"""Counts of tokens by their names; Anthropic counts what its prompt cache answers apart, Gemini
what a model thinks."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request of an agent."""

    speaks: str
    """The protocol, as in ``Harness.speaks``."""
    path: str
    query: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    paid: bool
    """A call that draws from a model, not one that counts tokens."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider said in the end."""

    status: int = 502
    kind: str = "text/plain"
    """Content type."""
    body: bytes = b""
    usage: Usage = Usage()
    fault: Fault | None = None
    tries: int = 1


class Upstream:
    """Sends requests to the target's provider. Safe to use from many threads.

    Args:
        config: of the target.
        throttle: whom ``skill_agent`` asks, too, before each call.
    """

    def __init__(self, config: ModelConfig, throttle: Throttle) -> None:
        self.config = config
        self.throttle = throttle
        self._headers = config.headers(os.environ)
        self._key = NO_KEY if config.key_command else config.api_key(os.environ)
        self._client: Any = None
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._prefix = f"proxy-{uuid.uuid4().hex[:12]}"

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def send(self, request: Request, ticket: Ticket) -> Answer:
        """Call until there is a whole reply, no retry can help, or the retries are used up.

        Raises:
            CapReached: a spending cap allows no further call.
            RunOver: nobody waits for the reply any more.
        """
        attempt = answered = 0
        while True:
            answer = self._attempt(request, ticket)
            fault = answer.fault
            if fault is None:
                return replace(answer, tries=attempt + 1)
            answered += fault.answered
            hopeless = not fault.retry or answered >= skill_agent.MOST_ANSWERED
            again = not hopeless and attempt < self.config.retries
            if again and not fault.retry_after:
                delay = skill_agent.FIRST_DELAY * skill_agent.DELAY_FACTOR**attempt
                ticket.wait(min(skill_agent.LONGEST_DELAY, delay) * (0.5 + 0.5 * random.random()))
            if not again:
                return replace(answer, tries=attempt + 1)
            attempt += 1

    def failure(self, fault: Fault, tries: int = 1) -> ModelFault:
        """The fault as a reader is told of it, without the key."""
        again = f" (after {tries} tries)" if tries > 1 else ""
        secrets = {self._key, *self._headers.values()} - {NO_KEY}
        words = hide_keys(f"{self.config.name}: {fault.message}{again}", *secrets)
        return ModelFault(words, fatal=fault.fatal)

    def _attempt(self, request: Request, ticket: Ticket) -> Answer:
        text = json.dumps(request.body)
        if not request.paid:
            return self._post(request, text)
        call = f"{self._prefix}-{next(self._numbers)}"
        price = self.config.price
        wish = Wish(
            provider=self.config.base_url,
            asked=estimate_tokens(text),
            price=(price.input, price.output) if price else (0.0, 0.0),
        ).to_json()
        while seconds := self.throttle.ask(call, wish):
            if seconds > skill_agent.LONGEST_PAUSE:
                return Answer(fault=Fault(f"the provider asks to wait {seconds:.0f} s"))
            ticket.wait(min(seconds, _NAP))
        began = time.monotonic()
        answer = Answer(fault=Fault("interrupted"))
        try:
            answer = self._post(request, text)
            return answer
        finally:
            after, why = 0.0, ""
            if answer.fault is not None:
                after, why = answer.fault.retry_after, answer.fault.message
                ticket.lose(time.monotonic() - began)
            self.throttle.done(call, answer.usage.to_json(), ticket.account, after, why)

    def _post(self, request: Request, text: str) -> Answer:
        headers = {name.lower(): value for name, value in request.headers.items()}
        sent = {n: v for n, v in headers.items() if n in _PASSED_ON or n.startswith("anthropic-")}
        name = {"gemini": "x-goog-api-key", "messages": "x-api-key"}.get(request.speaks)
        if self.config.key_command:
            name = None
            try:
                self._key = self.config.api_key(os.environ)
            except ModelConfigError as error:
                return Answer(fault=Fault(str(error), fatal=True))
        if self._key != NO_KEY:
            sent[name or "authorization"] = self._key if name else f"Bearer {self._key}"
        sent |= {name.lower(): value for name, value in self._headers.items()}
        url = _address(self.config.base_url, request)
        try:
            reply = self._connections().post(url, content=text, headers=sent)
        except Exception as error:
            return Answer(fault=self._broken(error))
        body = reply.content
        said, kind = body.decode(errors="replace"), reply.headers.get("content-type", "")
        if reply.status_code != 200:
            fault = judge_status(reply.status_code, _error_in(said), reply.headers)
            return Answer(reply.status_code, kind, body, Usage(), fault)
        if not request.paid:
            return Answer(200, kind, body)
        events = list(_objects(said))
        found = next((e for e in events if _is_fault(e)), None)
        if not events:
            words = f"unreadable reply: {brief(said) or 'empty'}"
            return Answer(fault=Fault(words, retry=True, answered=True))
        if found is not None:
            inner = found.get("response") or found
            fault = judge_status(500, inner.get("error") or inner, reply.headers)
            words = fault.message.replace("HTTP 500", "an error in place of the reply")
            return Answer(fault=replace(fault, message=words, status=200))
        if not any(_is_end(event) for event in events):
            return Answer(fault=Fault("the reply broke off", retry=True, answered=True))
        return Answer(200, kind, body, self._usage(events, text, said))

    def _usage(self, events: list[dict[str, Any]], asked: str, said: str) -> Usage:
        tokens_in = max(_count(event, _IN, _IN_BESIDE) for event in events)
        tokens_out = max(_count(event, _OUT, _OUT_BESIDE) for event in events)
        estimated = not (tokens_in or tokens_out)
        if estimated:
            tokens_in, tokens_out = estimate_tokens(asked), estimate_tokens(said)
        price = self.config.price
        cost = price.cost(tokens_in, tokens_out) if price else None
        return Usage(1, 0, tokens_in, tokens_out, cost, estimated)

    def _broken(self, error: Exception) -> Fault:
        """Why there was no reply. Two libraries are the SDK's client, by its version."""
        kinds = {cls.__name__ for cls in type(error).__mro__}
        said = brief(str(error) or type(error).__name__)
        if isinstance(error, ReplyBroken | ReplyTooLarge):
            return Fault(said, retry=isinstance(error, ReplyBroken), answered=True)
        if kinds & {"TimeoutException", "APITimeoutError"}:
            words = "the provider did not answer in time (skillopt_request_timeout)"
            return Fault(words, retry=True, answered=True)
        if "TransportError" in kinds:
            where = urlsplit(self.config.base_url).netloc
            return Fault(f"cannot reach {where}: {said}", retry=True)
        raise error

    def _connections(self) -> Any:
        with self._lock:
            if self._client is None:
                from pytest_skillopt.model.transport import bounded_client

                self._client = bounded_client(
                    self.config.request_timeout,
                    self.config.max_reply_bytes,
                    timeout=self.config.request_timeout,
                    # A proxy from the environment cannot reach a server of this machine.
                    trust_env=not is_local(self.config.base_url),
                )
            return self._client


def _address(base_url: str, request: Request) -> str:
    """Where a request goes, from the base URL as users write it for ``skill_agent``."""
    path = request.path
    if request.speaks in ("chat", "responses"):
        path = path.removeprefix("/v1")
    else:
        for end in ("/openai", "/v1", "/v1beta"):
            base_url = base_url.removesuffix(end)
    return base_url + path + (f"?{request.query}" if request.query else "")


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a reply: one, a list of them, or the data of server-sent events."""
    lines = [line[5:] for line in text.splitlines() if line.startswith("data:")]
    for part in lines or [text]:
        try:
            value = json.loads(part)
        except ValueError:
            continue
        parts_of = value if isinstance(value, list) else [value]
        yield from (item for item in parts_of if isinstance(item, dict))


def _is_fault(event: dict[str, Any]) -> bool:
    return event.get("type") in ("error", "response.failed") or bool(event.get("error"))


def _is_end(event: dict[str, Any]) -> bool:
    """Whether an event ends a reply, whatever the protocol; a whole reply is its own end."""
    choices = [*(event.get("choices") or ()), *(event.get("candidates") or ())]
    return (
        event.get("type") in _ENDS
        or any(choice.get("finish_reason") or choice.get("finishReason") for choice in choices)
        or any(event.get(name) for name in ("stop_reason", "promptFeedback"))
        or str(event.get("object")).startswith("response")
    )


def _count(event: dict[str, Any], names: tuple[str, ...], beside: tuple[str, ...]) -> int:
    """Tokens that an event of a reply reports; each event repeats or extends the one before."""
    nested = event.get("message") or event.get("response") or {}
    usage = event.get("usage") or event.get("usageMetadata") or nested.get("usage") or {}
    first = next((usage[name] for name in names if usage.get(name)), 0)
    return int(first) + sum(int(usage.get(name) or 0) for name in beside)


def _error_in(text: str) -> Any:
    """The error in a refusal's body, as the SDK would hand it on."""
    try:
        body = json.loads(text)
    except ValueError:
        return text
    body = body[0] if isinstance(body, list) and body else body
    return body.get("error", body) if isinstance(body, dict) else body
