"""The model of each role: its server, key, parameters and price."""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import shlex
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pytest_skillopt.model.limits import CallEstimate
from pytest_skillopt.model.tokens import Tokens, estimate_tokens
from pytest_skillopt.model.types import NO_KEY, ROLES, ModelConfigError, ModelFault, Price, Usage
from pytest_skillopt.untrusted import printable, protect, protect_named, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pytest_skillopt.model.types import Messages, Role
    from pytest_skillopt.settings import Settings

OPENAI_URL = "https://api.openai.com/v1"
PROVIDER = "openai"

_AT_URL = re.compile(r"([^\s@]+(?:@[^\s@/:]+)?)@([a-zA-Z][a-zA-Z0-9+.-]*://\S*)")
"""``MODEL@URL``; a model's name may hold an ``@`` too."""
_NUMBER = r"(\d+\.?\d*|\.\d+)"
_PRICE = re.compile(
    rf"(\S+)\s*=\s*{_NUMBER}\s*/\s*{_NUMBER}(?:\s*/\s*{_NUMBER})?(?:\s*/\s*{_NUMBER})?"
)

# The provider's price list in 2026-03 (standard tier; input, output, cached input).
_OPENAI = """\
gpt-4o=2.50/10.00/1.25, gpt-4o-mini=0.15/0.60/0.075,
gpt-4.1=2.00/8.00/0.50, gpt-4.1-mini=0.40/1.60/0.10, gpt-4.1-nano=0.10/0.40/0.025,
gpt-5=1.25/10.00/0.125, gpt-5-mini=0.25/2.00/0.025, gpt-5-nano=0.05/0.40/0.005,
gpt-5.1=1.25/10.00/0.125, gpt-5.2=1.75/14.00/0.175, gpt-5.4=2.50/15.00/0.25"""
_SNAPSHOT = re.compile(r"-\d{4}-\d{2}-\d{2}$")


@dataclass(frozen=True, slots=True)
class Server:
    """A model server that a project itself starts, under a provider's name."""

    provider: str
    url: Callable[[], str]
    """Returns its base URL; called before the first request."""
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model in one role. Holds the names of the variables with key and headers, no values."""

    role: Role
    provider: str
    """``PROVIDER``, or the provider of ``server``."""
    model: str
    base_url: str
    """Canonical URL; the provider's name if ``server`` is set."""
    key_env: str = "OPENAI_API_KEY"
    key_command: str = ""
    """Command that prints the key; wins over ``key_env``."""
    headers_env: Mapping[str, str] = field(default_factory=dict)
    """Environment variable with the value of each header, by the header's name."""
    temperature: float | None = None
    """None: the provider's default."""
    top_p: float | None = None
    reasoning_effort: str | None = None
    max_output_tokens: int = 0
    """0: the provider's default."""
    system_role: Literal["system", "developer", "user"] = "system"
    """Role of the instructions; as ``user`` they begin the user's next message."""
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    request_timeout: float = 120.0
    """Seconds."""
    max_reply_bytes: int = 4_000_000
    retries: int = 6
    longest_pause: float = 900.0
    """Longest pause in seconds that a provider may ask for."""
    price: Price | None = None
    """None if no price is known."""
    server: Server | None = None
    """Server that the project starts; None: the server at ``base_url``."""

    @property
    def simulated(self) -> bool:
        """True if each request carries a seed that tells its draw."""
        return self.server is not None and self.server.simulated

    @property
    def name(self) -> str:
        return f"{self.provider}:{self.model}"

    @property
    def parameters(self) -> dict[str, Any]:
        """Arguments of the SDK's call that influence the reply."""
        most: int | None = self.max_output_tokens or None
        # OpenAI's reasoning models refuse max_tokens; many servers know only max_tokens.
        host = urlsplit(self.base_url).hostname or ""
        newer = host == "api.openai.com" or host.endswith(".azure.com")
        found = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "reasoning_effort": self.reasoning_effort,
            "max_completion_tokens" if newer else "max_tokens": most,
            "extra_body": dict(self.extra_body) or None,
        }
        return {name: value for name, value in found.items() if value is not None}

    @property
    def fingerprint(self) -> str:
        """SHA-256 over base URL, model and parameters, without key and headers."""
        fields = [self.base_url, self.model, self.parameters]
        if self.system_role != "system":
            fields.append(self.system_role)
        return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()

    def api_key(self) -> str:
        """Return the key for the ``Authorization`` header; ``NO_KEY`` if the server needs none.

        Raises:
            ModelConfigError: the variable is not set.
            ModelFault: the command prints no key (fatal).
        """
        if self.server is not None:
            return NO_KEY
        if self.key_command:
            return _printed_key(self.key_command)
        key = self._value(self.key_env)
        if self.key_env == NO_KEY or (not key and is_local(self.base_url)):
            return NO_KEY
        if not key:
            wanted = f"set {self.key_env}, or '{self.role}.key_env = VARIABLE' in skillopt_requests"
            raise ModelConfigError(
                f"{self.name} ({self.role}): no API key: {wanted} ('{NO_KEY}': none)"
            )
        return key

    def headers(self) -> dict[str, str]:
        """Return the extra headers of a request; ModelConfigError if a variable is not set."""
        found = {header: self._value(variable) for header, variable in self.headers_env.items()}
        if missing := [header for header, value in found.items() if not value]:
            place = f"the variable {self.headers_env[missing[0]]} of the header {missing[0]}"
            raise ModelConfigError(f"skillopt_requests: {place} is not set")
        return found

    def estimate(self, text: str) -> CallEstimate:
        """Estimate a call with the prompt ``text``."""
        price = self.price or Price(0.0, 0.0)
        tokens = estimate_tokens(text)
        return CallEstimate(self.base_url, self.role, tokens, self.max_output_tokens, price)

    def usage(self, told: Tokens, request: str, reply: str = "") -> Usage:
        """Return the usage of a call; what was not told is estimated by its texts."""
        found = told
        if not told.input:
            found = found._replace(input=estimate_tokens(request))
        if reply and not told.output:
            found = found._replace(output=estimate_tokens(reply))
        return usage_at(self.price, 1, found, estimated=found != told)

    def guess(self, messages: Messages) -> Usage:
        """Estimate the usage of a call without a reply by the texts of its messages."""
        return self.usage(Tokens(), json.dumps(list(messages)))

    def _value(self, variable: str) -> str:
        """Return the value of a variable; empty if it is not set."""
        value = os.environ.get(variable, "").strip()
        if value and not _fits_a_header(value):
            words = f"the value of {variable} is not a key: no HTTP header can carry it"
            raise ModelConfigError(f"{self.name} ({self.role}): {words}")
        protect(value=value)
        return value


def _fits_a_header(value: str) -> bool:
    return value != "" and value.isascii() and value.isprintable()


def model_config(settings: Settings, role: Role, server: Server | None = None) -> ModelConfig:
    """Read the model of a role from the settings.

    A role without its own model uses ``settings.model``; without that, the optimizer uses the
    target's model, and the judge and the simulated user the optimizer's. The base URL is the URL
    after the model's ``@``, else ``settings.base_url``, else ``OPENAI_BASE_URL``.

    Raises:
        ModelConfigError: no model, an unknown provider, a bad URL, price or request.
    """
    provider = server.provider if server else PROVIDER
    model, base_url = _split(_named(settings, role), role, provider)
    if server is not None:
        base_url = provider
    elif base_url:
        base_url = canonical_url(base_url, f"the URL of the {role} model")
    else:
        named = settings.base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL
        base_url = canonical_url(named, "skillopt_base_url or OPENAI_BASE_URL")
    price = price_of(model, base_url, settings.prices)
    if server is not None and server.simulated:
        price = price or Price(0.0, 0.0)
    return ModelConfig(
        role=role,
        provider=provider,
        model=model,
        base_url=base_url,
        request_timeout=settings.request_timeout,
        max_reply_bytes=settings.max_reply_bytes,
        retries=settings.call_retries,
        longest_pause=settings.longest_pause,
        price=price,
        server=server,
        **read_requests(settings.requests, role),
    )


def check_prices(configs: Iterable[ModelConfig]) -> None:
    """Refuse a cap in money that could not be kept: ModelConfigError if a price is unknown."""
    unpriced = sorted({config.model for config in configs if config.price is None})
    if unpriced:
        names = ", ".join(unpriced)
        example = f"skillopt_prices, e.g. {unpriced[0]}=0.10/0.40 (dollars per million tokens)"
        raise ModelConfigError(f"skillopt_max_cost: no price is known for {names}; use {example}")


def price_of(model: str, base_url: str, prices: str) -> Price | None:
    """Return the price of a model, None if unknown; ``prices`` as in ``skillopt_prices``.

    The built-in list holds only for OpenAI's server: elsewhere the same name may cost anything.
    """
    listed = parse_prices(_OPENAI) if base_url == OPENAI_URL else {}
    own = parse_prices(prices).get(model)
    return own or listed.get(model) or listed.get(_SNAPSHOT.sub("", model))


def parse_prices(text: str) -> dict[str, Price]:
    """Read ``MODEL=IN/OUT, ...``, in US dollars per million tokens; ModelConfigError otherwise.

    ``MODEL=IN/OUT/CACHED/WRITTEN`` prices input that is read from a prompt cache, or written to
    it. A model may be named as in ``skillopt_model``, with its provider.
    """
    found = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        match = _PRICE.fullmatch(entry)
        if match is None:
            form = (
                "MODEL=IN/OUT or MODEL=IN/OUT/CACHED, in US dollars per million tokens, "
                "e.g. qwen2.5:7b=0.10/0.40"
            )
            raise ModelConfigError(f"skillopt_prices: {entry!r} is not of the form {form}")
        plain = (float(match[2]), float(match[3]))
        cached = (match[4], match[5])
        prices = (None if price is None else float(price) for price in cached)
        found[match[1].removeprefix(f"{PROVIDER}:")] = Price(*plain, *prices)
    return found


def usage_at(price: Price | None, calls: int, tokens: Tokens, *, estimated: bool = False) -> Usage:
    """Return the usage of calls at a price, None if it is not known."""
    usage = Usage(
        calls,
        input_tokens=tokens.input,
        output_tokens=tokens.output,
        estimated=estimated,
        read_tokens=tokens.read,
        written_tokens=tokens.written,
    )
    if price is None:
        return usage
    full_price = price.cached is None and price.input > 0 and tokens.read > 0
    return replace(usage, cost=price.cost(*tokens), full_price=full_price)


def is_local(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def canonical_url(url: str, where: str = "base URL") -> str:
    """Spell the URL of a server in one way: lower-case host, no default port, no final slash.

    Raises:
        ModelConfigError: not an http(s) URL, or one with a user, a password, a query or a fragment.
    """
    try:
        parts = urlsplit(url.strip())
        valid = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        raise ModelConfigError(f"{where}: {url!r} is not a URL") from None
    if "@" in parts.netloc:
        raise ModelConfigError(f"{where}: leave the credentials out of the URL, use a key variable")
    if parts.query or parts.fragment:
        raise ModelConfigError(f"{where}: leave out what follows the path; a key is in a variable")
    if not valid:
        raise ModelConfigError(f"{where}: {url!r} is not a URL such as http://localhost:8000/v1")
    default = {"http": ":80", "https": ":443"}[parts.scheme]
    place = parts.netloc.lower().removesuffix(default).removesuffix(":")
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}"


def _named(settings: Settings, role: Role) -> str:
    """Return the model of a role as the settings write it; empty if they name none."""
    own: str = getattr(settings, role)
    optimizers = settings.optimizer if role in ("judge", "user") else ""
    others = settings.target if role != "target" else ""
    return own or optimizers or settings.model or others


def provider_of(settings: Settings, role: Role) -> str:
    """Return the provider's name in the setting of a role; empty if there is none."""
    return _named(settings, role).partition(":")[0]


def _split(named: str, role: Role, provider: str) -> tuple[str, str]:
    """Return model and URL (empty if not given) of ``provider:model@URL``."""
    if not named:
        raise ModelConfigError(
            f"no {role} model is configured. Set skillopt_{role}, or for every role "
            "skillopt_model, as provider:model, in one of three ways: openai:gpt-5-mini with the "
            "key in OPENAI_API_KEY; openai:MODEL@URL for another server, such as "
            "openai:qwen3@http://127.0.0.1:11434/v1; cli:claude or cli:codex under your own "
            "sign-in (docs/login.md)"
        )
    given, _, rest = named.partition(":")
    match = _AT_URL.fullmatch(rest.strip())
    model, url = (match[1], match[2]) if match else (rest.strip(), "")
    if given != provider or not model:
        raise ModelConfigError(
            f"{role} model {named!r}: write provider:model, where provider is {PROVIDER} "
            "(any OpenAI-compatible server is openai:MODEL@URL), or one that a conftest.py serves"
        )
    if "," in model:
        raise ModelConfigError(
            f"{role} model {named!r}: name one; only --skillopt takes several, for the target"
        )
    return model, url


_VARIABLE = re.compile(r"[A-Za-z_]\w*")
_OURS = frozenset(
    {"model", "messages", "tools", "response_format", "stream", "n", "seed", "max_tokens"}
    | {"max_completion_tokens", "temperature", "top_p", "reasoning_effort"}
)
"""Fields of a request that have their own line, or that samples and caps depend on."""


def _are_headers(value: Any) -> bool:
    return isinstance(value, dict) and all(
        re.fullmatch(r"[A-Za-z0-9_-]+", name) and _VARIABLE.fullmatch(variable)
        for name, variable in value.items()
    )


def _is_body(value: Any) -> bool:
    return isinstance(value, dict) and not _OURS & value.keys()


class _Line(NamedTuple):
    """Form of the values of one field of ``ModelConfig``."""

    read: Callable[[str], Any]
    is_fine: Callable[[Any], object]
    words: str
    """The form in words."""


_ROLES_OF_SYSTEM = ("system", "developer", "user")
_BODY = f"a JSON object without {', '.join(sorted(_OURS))}"
_HEADERS = 'a JSON object of environment variables, such as {"X-Team": "MY_TEAM"}'
_LINES_OF_REPLY = {
    "temperature": _Line(float, lambda v: 0 <= v <= 2, "a number from 0 to 2"),
    "top_p": _Line(float, lambda v: 0 <= v <= 1, "a number from 0 to 1"),
    "reasoning_effort": _Line(str, re.compile(r"\w+").fullmatch, "a word such as low"),
    "max_output_tokens": _Line(int, lambda v: v >= 1, "a whole number of at least 1"),
}
"""Lines about the reply."""
_LINES_OF_CALL = {
    "system_role": _Line(str, _ROLES_OF_SYSTEM.__contains__, "system, developer or user"),
    "extra_body": _Line(json.loads, _is_body, _BODY),
    "headers_env": _Line(json.loads, _are_headers, _HEADERS),
    "key_env": _Line(str, _VARIABLE.fullmatch, f"an environment variable, or {NO_KEY}"),
    "key_command": _Line(str, shlex.split, "a command that prints a key"),
}
"""Lines about how a model is called."""
_LINES = _LINES_OF_REPLY | _LINES_OF_CALL


def read_requests(text: str, role: Role) -> dict[str, Any]:
    """Read the fields of ``ModelConfig`` that ``skillopt_requests`` sets for a role.

    A line is ``NAME = VALUE`` for every role, or ``ROLE.NAME = VALUE`` for one, which wins.

    Raises:
        ModelConfigError: a line of another form; the message quotes no value, since it may be a
            key.
    """
    common: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for number, line in enumerate(filter(None, map(str.strip, text.split("\n"))), 1):
        left, equals, value = (part.strip() for part in line.partition("="))
        owner, _, name = left.rpartition(".")
        where = f"skillopt_requests, line {number} ({redact(left) if equals else 'no ='})"
        if not equals or name not in _LINES or owner not in ("", *ROLES):
            raise ModelConfigError(
                f"{where}: write NAME = VALUE or ROLE.NAME = VALUE, where ROLE is one of "
                f"{', '.join(ROLES)} and NAME one of {', '.join(_LINES)}"
            )
        form = _LINES[name]
        try:
            found = form.read(value)
            fine = form.is_fine(found)
        except (ValueError, TypeError):
            fine = False
        if not fine:
            raise ModelConfigError(f"{where}: the value must be {form.words}")
        if owner == role:
            own[name] = found
        elif not owner:
            common[name] = found
    if "key_env" in own:
        common.pop("key_command", None)
    return common | own


def protect_requests(settings: Settings) -> None:
    """Redact from now on the keys and headers of any role, and the secrets in its requests."""
    names = {"OPENAI_API_KEY"}
    for role in ROLES:
        with suppress(ModelConfigError):
            found = read_requests(settings.requests, role)
            names |= {found.get("key_env", ""), *found.get("headers_env", {}).values()}
            protect_named(found.get("extra_body", {}))
    protect(names - {NO_KEY})


_KEY_SECONDS = 200.0
"""Seconds for which a printed key is reused; those of cloud command lines are valid for longer."""
_KEYS: dict[str, tuple[float, str]] = {}
_KEYS_LOCK = threading.Lock()


def _printed_key(command: str) -> str:
    """Return the key that a command prints, or printed less than ``_KEY_SECONDS`` ago."""
    with _KEYS_LOCK:
        when, key = _KEYS.get(command, (0.0, ""))
        if key and time.monotonic() - when < _KEY_SECONDS:
            return key
        words = shlex.split(command)
        try:
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                timeout=60,
            )
            key = "" if done.returncode else done.stdout.strip()
            said = (
                f"exit status {done.returncode}; {done.stderr.strip() or 'it must print one line'}"
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            key = ""
            said = str(error)
        if not _fits_a_header(key):
            said = redact(printable(said))[:400]
            raise ModelFault(f"key_command {words[0]} gave no key: {said}", fatal=True)
        protect(value=key)
        _KEYS[command] = time.monotonic(), key
        return key
