"""The lines of ``skillopt_requests``: what the calls of each role carry."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, Field, Json, ValidationError, field_validator

from pytest_skillopt.model.types import NO_KEY, ROLES, ModelConfigError
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from pytest_skillopt.model.types import Role

_Variable = Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")]
_OURS = frozenset(
    {"model", "messages", "tools", "response_format", "stream", "n", "seed", "max_tokens"}
    | {"max_completion_tokens", "temperature", "top_p", "reasoning_effort"}
)
"""Fields of a request that have a line of their own, or that samples and caps depend on."""


class _Requests(BaseModel):
    """Fields of ``ModelConfig`` that a line may set."""

    temperature: float = Field(0, ge=0, le=2, description="a number from 0 to 2")
    top_p: float = Field(0, ge=0, le=1, description="a number from 0 to 1")
    reasoning_effort: str = Field("", pattern=r"^\w+$", description="a word such as low")
    max_output_tokens: int = Field(0, ge=1, description="a whole number of at least 1")
    extra_body: Json[dict[str, Any]] = Field(
        {}, description=f"a JSON object without {', '.join(sorted(_OURS))}"
    )
    headers_env: Json[dict[Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")], _Variable]] = Field(
        {}, description='a JSON object of environment variables, such as {"X-Team": "MY_TEAM"}'
    )
    key_env: _Variable = Field("", description=f"an environment variable, or {NO_KEY}")
    key_command: str = Field("", description="a command that prints a key")

    @field_validator("extra_body")
    @classmethod
    def _not_ours(cls, value: dict[str, Any]) -> dict[str, Any]:
        if _OURS & value.keys():
            raise ValueError
        return value

    @field_validator("key_command")
    @classmethod
    def _with_words(cls, value: str) -> str:
        if not shlex.split(value):
            raise ValueError
        return value


def read_requests(text: str, role: Role) -> dict[str, Any]:
    """What ``skillopt_requests`` says of a role: fields of ``ModelConfig``.

    A line is ``NAME = VALUE`` for every role, ``ROLE.NAME = VALUE`` for one, which wins. One of
    another form is a ModelConfigError without any value in it: a key may have been written there.
    """
    common: dict[str, Any] = {}
    own: dict[str, Any] = {}
    fields = _Requests.model_fields
    for number, line in enumerate(filter(None, map(str.strip, text.splitlines())), 1):
        left, equals, value = (part.strip() for part in line.partition("="))
        owner, _, name = left.rpartition(".")
        where = f"skillopt_requests, line {number} ({redact(left) if equals else 'no ='})"
        if not equals or name not in fields or owner not in ("", *ROLES):
            raise ModelConfigError(
                f"{where}: write NAME = VALUE or ROLE.NAME = VALUE, where ROLE is one of "
                f"{', '.join(ROLES)} and NAME one of {', '.join(fields)}"
            )
        try:
            found = getattr(_Requests.model_validate({name: value}), name)
        except ValidationError:
            words = fields[name].description
            raise ModelConfigError(f"{where}: the value must be {words}") from None
        if owner in ("", role):
            (own if owner else common)[name] = found
    if "key_env" in own:
        common.pop("key_command", None)
    return common | own
