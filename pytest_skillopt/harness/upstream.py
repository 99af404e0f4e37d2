"""The way to the provider: one meter, one limiter and one judge of faults with ``skill_agent``."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_skillopt.harness.protocols import Content, read_content
from pytest_skillopt.model.client import (
    DELAY_FACTOR,
    FIRST_DELAY,
    LONGEST_DELAY,
    LONGEST_PAUSE,
    MOST_ANSWERED,
)
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
from pytest_skillopt.model.types import ModelFault, Usage

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_skillopt.harness.protocols import Request
    from pytest_skillopt.harness.records import Protocol
    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.limits import Throttle

_NAP = 5.0
_PASSED_ON = ("content-type", "accept", "user-agent", "openai-beta", "x-goog-api-client")


class Ended(Exception):
    """The rollout that asked is over: nobody waits for the reply."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the provider said in the end."""

    status: int
    kind: str
    """Content type."""
    body: bytes
    usage: Usage
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
        self._throttle = throttle
        self._key = config.api_key(os.environ)
        self._client: Any = None
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._prefix = f"proxy-{uuid.uuid4().hex[:12]}"

    def note_kept(self, usage: Usage, account: tuple[str, str, str]) -> None:
        """Enter a run that was kept: its calls were answered for nothing."""
        self._throttle.note(usage.to_json(), account)

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()

    def send(
        self,
        request: Request,
        body: dict[str, Any],
        headers: Mapping[str, str],
        query: str,
        account: tuple[str, str, str],
        wait: Callable[[float], None],
        on_attempt: Callable[[float, bool], None],
    ) -> Answer:
        """Call until there is a whole reply, no retry can help, or the retries are used up.

        Args:
            wait: sleeps so many seconds; raises ``Ended`` when the rollout is over.
            on_attempt: told of each try how many seconds it took, waiting included, and whether
                they were lost.

        Raises:
            CapReached: a spending cap allows no further call.
            Ended: from ``wait``.
        """
        attempt = answered = 0
        while True:
            began = time.monotonic()
            answer = self._attempt(request, body, headers, query, account, wait)
            fault = answer.fault
            answered += fault is not None and fault.answered
            hopeless = fault is None or not fault.retry or answered >= MOST_ANSWERED
            if fault is None or hopeless or attempt >= self.config.retries:
                on_attempt(time.monotonic() - began, fault is not None)
                return dataclasses.replace(answer, tries=attempt + 1)
            if not fault.retry_after:
                delay = min(LONGEST_DELAY, FIRST_DELAY * DELAY_FACTOR**attempt)
                wait(delay * (0.5 + 0.5 * random.random()))
            on_attempt(time.monotonic() - began, True)
            attempt += 1

    def _attempt(
        self,
        request: Request,
        body: dict[str, Any],
        headers: Mapping[str, str],
        query: str,
        account: tuple[str, str, str],
        wait: Callable[[float], None],
    ) -> Answer:
        text = json.dumps(body)
        if not request.paid:
            return self._post(request, text, headers, query)
        call = f"{self._prefix}-{next(self._numbers)}"
        refusal = self._enter(call, text, wait)
        if refusal is not None:
            return Answer(503, "text/plain", b"", Usage(), refusal)
        answer = None
        try:
            answer = self._post(request, text, headers, query)
            return answer
        finally:
            usage = answer.usage if answer else Usage()
            fault = answer.fault if answer else Fault("interrupted")
            after, why = (fault.retry_after, fault.message) if fault else (0.0, "")
            self._throttle.done(call, usage.to_json(), account, after, why)

    def _enter(self, call: str, text: str, wait: Callable[[float], None]) -> Fault | None:
        """Wait for leave to go."""
        price = self.config.price
        wish = Wish(
            provider=self.config.base_url,
            asked=estimate_tokens(text),
            price=(price.input, price.output) if price else (0.0, 0.0),
        ).to_json()
        while seconds := self._throttle.ask(call, wish):
            if seconds > LONGEST_PAUSE:
                return Fault(f"{self.config.name}: the provider asks to wait {seconds:.0f} s")
            wait(min(seconds, _NAP))
        return None

    def _post(self, request: Request, text: str, headers: Mapping[str, str], query: str) -> Answer:
        url = address(self.config.base_url, request) + (f"?{query}" if query else "")
        sent = {**_passed_on(headers), **self._authorization(request.protocol)}
        try:
            reply = self._connections().post(url, content=text, headers=sent)
        except Exception as error:
            return _no_answer(self._broken(error))
        return self._judged(request, text, reply, reply.content)

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

    def _judged(self, request: Request, text: str, reply: Any, body: bytes) -> Answer:
        kind = reply.headers.get("content-type", "application/json")
        said = body.decode(errors="replace")
        if reply.status_code != 200:
            fault = judge_status(reply.status_code, _parsed(said), reply.headers)
            return Answer(reply.status_code, kind, body, Usage(), fault)
        if not request.paid:
            return Answer(200, kind, body, Usage())
        content = read_content(request, said)
        if content is None:
            words = f"unreadable reply: {brief(said) or 'empty'}"
            fault = Fault(words, retry=True, answered=True)
        elif content.fault is not None:
            inner = content.fault.get("response") or content.fault
            fault = judge_status(500, inner.get("error") or inner, reply.headers)
            said = fault.message.replace("HTTP 500", "an error in place of the reply")
            fault = dataclasses.replace(fault, message=said, status=200)
        elif not content.whole:
            fault = Fault("the reply broke off", retry=True, answered=True)
        else:
            return Answer(200, kind, body, self._usage(content, text, said))
        return Answer(502, kind, body, Usage(), fault)

    def _usage(self, content: Content, asked: str, said: str) -> Usage:
        tokens_in, tokens_out = content.input_tokens, content.output_tokens
        estimated = not (tokens_in or tokens_out)
        if estimated:
            tokens_in, tokens_out = estimate_tokens(asked), estimate_tokens(said)
        price = self.config.price
        cost = price.cost(tokens_in, tokens_out) if price else None
        return Usage(1, 0, tokens_in, tokens_out, cost, estimated)

    def _authorization(self, protocol: Protocol) -> dict[str, str]:
        if self._key == NO_KEY:
            return {}
        if protocol == "gemini":
            return {"x-goog-api-key": self._key}
        if protocol == "messages":
            return {"x-api-key": self._key}
        return {"authorization": f"Bearer {self._key}"}

    def failure(self, fault: Fault, tries: int = 1) -> ModelFault:
        """The fault as a reader is told of it, without the key."""
        again = f" (after {tries} tries)" if tries > 1 else ""
        secrets = () if self._key == NO_KEY else (self._key,)
        words = hide_keys(f"{self.config.name}: {fault.message}{again}", *secrets)
        return ModelFault(words, fatal=fault.fatal)

    def failure_of(self, error: Exception) -> ModelFault:
        """Anything unexpected: the run is not to be judged by it."""
        return self.failure(Fault(f"the proxy failed: {type(error).__name__}: {error}"))

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


def address(base_url: str, request: Request) -> str:
    """Where a request goes, from the base URL as users write it for ``skill_agent``."""
    if request.protocol in ("chat", "responses"):
        return base_url + request.path.removeprefix("/v1")
    for end in ("/openai", "/v1", "/v1beta"):
        base_url = base_url.removesuffix(end)
    return base_url + request.path


def _passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    names = {name.lower(): value for name, value in headers.items()}
    kept = {n: v for n, v in names.items() if n in _PASSED_ON or n.startswith("anthropic-")}
    return {"content-type": "application/json", **kept}


def _no_answer(fault: Fault) -> Answer:
    return Answer(502, "text/plain", b"", Usage(), fault)


def _parsed(text: str) -> Any:
    """The error in a refusal's body, as the SDK would hand it on."""
    try:
        body = json.loads(text)
    except ValueError:
        return text
    if isinstance(body, list):
        body = body[0] if body else {}
    return body.get("error", body) if isinstance(body, dict) else body
