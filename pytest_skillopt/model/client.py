"""The model of every role: Chat Completions through the official SDK.

The SDK's own retries are off. The throttle, which all processes share, decides if a call may be
sent now; this module decides how often a call is repeated.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import random
import threading
import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.cache import Replies, request_key
from pytest_skillopt.model.config import is_local
from pytest_skillopt.model.faults import CONNECT_SECONDS, classify
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.model.response import read_response
from pytest_skillopt.model.tokens import Tokens
from pytest_skillopt.model.types import (
    NO_KEY,
    Completion,
    ModelConfigError,
    ModelFault,
    Usage,
    hide_frames,
)
from pytest_skillopt.untrusted import encodable, logger, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_skillopt.model.config import ModelConfig
    from pytest_skillopt.model.limits import Throttle
    from pytest_skillopt.model.types import Account, Messages

    Keep = Callable[[Completion], object]
    Request = dict[str, Any]
    """Arguments of the SDK's call, or what a subclass sends in place of them."""

__tracebackhide__ = hide_frames
_LOG = logger(__name__)
FIRST_DELAY = 0.25
DELAY_FACTOR = 3.0
LONGEST_DELAY = 60.0
"""Seconds between tries: 0.25, 0.75, 2.25, ... at most 60, each times a factor in [0.5, 1). With
six retries a call survives an outage of 40 s."""
_RECHECK_SECONDS = 1.0
"""Seconds after which a waiting call checks again if a cap or a pause has changed."""
MOST_ANSWERED = 2
"""Number of times that a request is sent if each may have been paid for: a useless, broken or late
reply. See docs/decisions/replies.md."""
PROBE = "Reply with the word OK."
_PROBE = [
    {"role": "system", "content": "Follow the user's instructions."},
    {"role": "user", "content": PROBE},
]
"""A tiny call in the form of a rollout, which sends a skill as the system's message."""


class _ReadingLock(threading.local):
    """Lets only one of the threads whose replies have arrived read its reply at a time.

    Replies that arrive together are then used one after another, each as soon as it is read,
    instead of all of them after the last one.
    """

    _lock = threading.Lock()
    _held = False

    _within = False

    def __enter__(self) -> None:
        """Have ``note`` take the lock; a request outside of ``with`` never does."""
        self._within = True

    def __exit__(self, *_: object) -> None:
        self._within = False
        self._release()

    def note(self, step: str) -> None:
        """Take or release the lock at a step of this thread's request."""
        if step in _ARRIVED and self._within and not self._held:
            self._lock.acquire()
            self._held = True
        elif step == _AWAITED:
            self._release()

    def _release(self) -> None:
        if self._held:
            self._held = False
            self._lock.release()


_PLAINLY = (
    "This is ordinary software work: a document is to be worded better, or an answer to be graded. "
    "What is quoted are logs of automatic tests."
)
_ARRIVED = ("http11.receive_response_headers.complete", "http11.receive_response_body.complete")
_AWAITED = "http11.receive_response_body.started"
_READING = _ReadingLock()


class Client:
    """Sends requests to a model's server, from any thread, within the limits and with retries.

    A subclass makes the requests and overrides ``_send``. ModelConfigError without a key.

    Args:
        throttle: asked before each call; None: no limits, but a provider's pauses are observed.
        replies: those that are already paid for; None: every call is sent.
        sleep: waits a number of seconds; None: a wait that ``close`` ends.
        jitter: returns a random number in [0, 1).
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        throttle: Throttle | None = None,
        replies: Replies | None = None,
        sleep: Callable[[float], object] | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.config = config
        self.name = config.name
        self._throttle: Throttle = throttle or Meter()
        self._headers = config.headers()
        self._key = NO_KEY if config.key_command else config.api_key()
        self._ended = threading.Event()
        self._sleep = sleep or self._ended.wait
        self._jitter = jitter
        self._sdk: Any = None
        self._sdk_lock = threading.Lock()
        self._takes_schema = True
        self._replies = replies or Replies("off")

    def close(self) -> None:
        """Close the connections; calls in flight end at once and are not repeated."""
        self._ended.set()
        with self._sdk_lock:
            if self._sdk is not None:
                self._sdk.close()
                self._sdk = None

    def _pay(self, request: Request, account: Account, keep: Keep) -> Completion:
        """Call until a reply, a lasting fault or the end of the retries.

        Args:
            request: what ``_send`` is given; its ``messages`` are JSON, for the estimate.
            account: role, stage and task.
            keep: called with a reply as soon as it is there, before anything else can fail. The
                reply's usage is the sum over all its calls.
        """
        attempt = answered = 0
        paid = Usage()
        without_schema = plain = False
        while True:
            try:
                reply = self._call(request, account, keep)
                self._takes_schema &= not without_schema
                if paid.calls:  # The cached reply must name the usage of all its calls.
                    reply = dataclasses.replace(reply, usage=paid + reply.usage)
                    keep(reply)
                return reply
            except ModelFault as caught:
                fault = caught
            paid += fault.usage
            # The target's prompt is the test's: another framing would measure something else.
            if fault.filtered and not plain and self.config.role != "target":
                request = {**request, "messages": _plain(request["messages"])}
                plain = True
                continue
            # A server that does not support json_schema may refuse in this way.
            refused = fault.status in (400, 422) and not (fault.fatal or fault.filtered)
            if refused and "response_format" in request:
                request = {k: v for k, v in request.items() if k != "response_format"}
                without_schema = True
                continue
            answered += fault.answered
            give_up = not fault.retry or answered >= MOST_ANSWERED
            if give_up or attempt >= self.config.retries:
                tries = f" (after {attempt + 1} tries)" if attempt else ""
                tries += ", also with a plain framing" if plain and fault.filtered else ""
                reply = self._last_resort(fault, paid, tries)
                keep(reply)
                return reply
            attempt += 1
            purpose = _purpose(account)
            _LOG.info("%s for %s, try %d failed: %s", self.name, purpose, attempt, fault)
            if not fault.retry_after:
                delay = min(LONGEST_DELAY, FIRST_DELAY * DELAY_FACTOR ** (attempt - 1))
                self._wait_in_time(delay * (0.5 + 0.5 * self._jitter()))

    def _last_resort(self, fault: ModelFault, paid: Usage, tries: str) -> Completion:
        """Return the reply that serves if no better one comes; raise the fault without one."""
        if fault.fallback is not None:
            return dataclasses.replace(fault.fallback, usage=paid)
        raise ModelFault(
            f"{self.name}: {fault}{tries}", fatal=fault.fatal, refused=fault.refused, usage=paid
        )

    def _call(self, request: Request, account: Account, keep: Keep) -> Completion:
        """Send one call when the throttle allows it (CapReached, ModelFault).

        The reply is kept before anything else can fail.
        """
        call = uuid.uuid4().hex
        estimate = self.config.estimate(json.dumps(request["messages"]))
        while wait := self._throttle.ask(call, estimate):
            if wait > self.config.longest_pause:
                most = f"at most {self.config.longest_pause:.0f} s are waited"
                words = f"asks to wait {round(wait):.6g} s, {most}"
                raise ModelFault(f"{estimate.provider} {words}; run again later")
            purpose = _purpose(account)
            seconds = min(wait, _RECHECK_SECONDS)
            _LOG.debug("%s for %s waits %.1f s: rate limit or pause", self.name, purpose, seconds)
            self._wait(seconds * (1 + 0.1 * self._jitter()))
        used = Usage()
        pause = 0.0
        failure = ""
        try:
            with _READING:
                reply = self._send(request)
            used = reply.usage
            keep(reply)
            return reply
        except ModelFault as fault:
            used = fault.usage
            pause = fault.retry_after
            failure = str(fault) if fault.retry else ""
            raise
        except BaseException as error:
            if not (used.calls or isinstance(error, Exception)):  # an interrupt, or a time-out
                used = self.config.guess(request["messages"])
            raise
        finally:
            self._throttle.done(call, used, account, pause, failure)

    def _send(self, request: Request) -> Completion:
        """Send one request; ModelFault, with its usage, if it brings no reply."""
        raise NotImplementedError

    def _wait(self, seconds: float) -> None:
        self._sleep(seconds)
        self._check_open()

    def _wait_in_time(self, seconds: float) -> None:
        """Wait as long as ``skillopt_max_time`` allows (CapReached)."""
        while seconds > 0:
            self._wait(min(seconds, _RECHECK_SECONDS))
            self._throttle.check_time()
            seconds -= _RECHECK_SECONDS

    def _check_open(self) -> None:
        if self._ended.is_set():
            raise ModelFault("the session has ended")

    def _login(self) -> Mapping[str, str]:
        """Return the headers to add to the SDK's own.

        A key that a command prints is asked for each time, since it may expire.
        """
        if not self.config.key_command:
            return self._headers
        self._key = self.config.api_key()
        return {"Authorization": f"Bearer {self._key}"} | self._headers

    def _client(self) -> Any:
        """Return the SDK's client, made on the first call: importing it takes half a second."""
        with self._sdk_lock:
            self._check_open()
            if self._sdk is None:
                import ssl

                import openai

                from pytest_skillopt.model.transport import BoundedClient

                config = self.config
                base_url = config.server.url() if config.server else config.base_url
                # A proxy from the environment cannot reach a server on this machine. Without it the
                # SDK reads no SSL_CERT_FILE, and HTTP needs no certificates, which take 30 ms.
                local = is_local(base_url)
                verify: bool | ssl.SSLContext = not local
                if local and base_url.startswith("https:"):
                    verify = ssl.create_default_context()
                client = BoundedClient(
                    config.request_timeout,
                    config.max_reply_bytes,
                    _READING.note,
                    trust_env=not local,
                    verify=verify,
                )
                self._sdk = openai.OpenAI(
                    api_key=self._key,
                    base_url=base_url,
                    max_retries=0,
                    timeout=openai.Timeout(
                        config.request_timeout,
                        connect=min(CONNECT_SECONDS, config.request_timeout),
                    ),
                    http_client=client,
                )
            return self._sdk


class ChatModel(Client):
    """A thread-safe ``Model`` over Chat Completions, with the arguments of ``Client``."""

    def __init__(self, config: ModelConfig, **options: Any) -> None:
        super().__init__(config, **options)
        self.fingerprint = config.fingerprint
        self.simulated = config.simulated

    def complete(
        self,
        messages: Messages,
        *,
        sample: str,
        stage: str = "",
        task: str = "",
        tools: Sequence[dict[str, Any]] = (),
        response_format: dict[str, Any] | None = None,
    ) -> Completion:
        account = (self.config.role, stage, task)
        key, request = self._request(messages, sample, tools, response_format)
        with self._replies.claim(key, self._wait_in_time):
            what = f"the {stage or 'model'} call" + (f" of {task}" if task else "")
            found = self._replies.find(key, f"{what} (sample {sample}, {self.name})")
            if found is None:
                return self._pay(request, account, partial(self._replies.keep, key))
        # The original tokens count at today's price.
        paid = Tokens(found.usage.input_tokens, found.usage.output_tokens)
        usage = self.config.usage(paid, json.dumps(list(messages)), found.text).again()
        self._throttle.note(usage, account)
        return dataclasses.replace(found, usage=usage)

    def probe(self) -> str:
        """Check with one tiny call, cached like any other, that the model and the key work.

        Returns:
            A passing fault in words; empty if there is none.

        Raises:
            ModelConfigError: the server refuses the model or the key, or is not there.
        """
        if self.simulated or self._replies.mode == "ro":
            return ""
        key, request = self._request(_PROBE, "probe", (), None)
        keep = partial(self._replies.keep, key)
        try:
            with self._replies.claim(key, self._wait_in_time):
                if self._replies.find(key) is None:
                    self._call(request, (self.config.role, "probe", ""), keep)
        except ModelFault as fault:
            if fault.fallback is not None:
                keep(fault.fallback)
                return ""
            said = f"{self.name}: {fault}"
            if not (fault.fatal or fault.unreached or fault.refused):
                return said
            words = f"the {self.config.role} model cannot be used: {said}"
            raise ModelConfigError(words) from None
        return ""

    def _request(
        self,
        messages: Messages,
        sample: str,
        tools: Sequence[dict[str, Any]],
        response_format: dict[str, Any] | None,
    ) -> tuple[str, Request]:
        """Return the cache key of the reply and the arguments of the SDK's call."""
        config = self.config
        # A test's output can hold lone surrogates, which no request can.
        messages = json.loads(encodable(json.dumps(list(messages), ensure_ascii=False)))
        messages = with_system_role(messages, config.system_role)
        key = request_key(
            base_url=config.base_url,
            model=config.model,
            messages=messages,
            parameters=config.parameters,
            tools=tools,
            response_format=response_format,
            sample=sample,
        )
        request = {"model": config.model, "messages": messages, **config.parameters}
        if tools:
            request["tools"] = list(tools)
        if response_format is not None and self._takes_schema:
            request["response_format"] = response_format
        if self.simulated:
            # A simulated model draws by this seed; a real one needs none.
            request["seed"] = int(hashlib.sha256(sample.encode()).hexdigest()[:8], 16)
        return key, request

    def _send(self, request: Request) -> Completion:
        """Send one HTTP request; ModelFault with its usage if it brings no reply.

        A call that may have been paid for counts: with the provider's usage, else with an estimate.
        """
        try:
            headers = self._login()
            body = dict(request)
            body |= body.pop("extra_body", {})
            # Half the cost of chat.completions.create, which inspects every part of the request.
            content = self._client().post(
                "/chat/completions", cast_to=bytes, body=body, options={"headers": headers}
            )
            reply = read_response(content, request["messages"], self.config)
            if self.config.role != "target":  # the test judges the target's reply unchanged
                reply = dataclasses.replace(reply, text=redact(reply.text))
            return reply
        except Exception as error:
            fault = classify(error)
            if fault is None:
                raise
            if fault.answered and not fault.usage.calls:
                fault.usage = self.config.guess(request["messages"])
            raise fault from None


def with_system_role(messages: Messages, role: str) -> list[dict[str, Any]]:
    """Return the messages with the system's under another role.

    As ``user`` they begin the next message of the user: servers that know no system role often
    refuse two messages of the user in a row, too.
    """
    found: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "system":
            message = {**message, "role": role}
        before = found[-1] if found else {"role": ""}
        if role == message["role"] == before["role"] == "user":
            content = _joined(before["content"], message["content"])
            found[-1] = {**message, "content": content}
        else:
            found.append(message)
    return found


def _joined(first: Any, second: Any) -> Any:
    """Join the contents of two messages, texts or lists of parts."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    parts: list[Any] = []
    for content in (first, second):
        parts += [{"type": "text", "text": content}] if isinstance(content, str) else content
    return parts


def _plain(messages: Messages) -> list[dict[str, Any]]:
    """Return the messages without a system role, which filters take for an attempt to command."""
    return with_system_role([{"role": "system", "content": _PLAINLY}, *messages], "user")


def _purpose(account: Account) -> str:
    """Return the purpose of a call in words: ``target, rollout, test_it.py::test_it``."""
    return ", ".join(filter(None, account))
