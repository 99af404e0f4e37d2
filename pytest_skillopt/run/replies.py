"""An optimizer whose replies are in the journal: a resumed run asks nothing twice."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from typing import TYPE_CHECKING, Any

from pytest_skillopt.model.types import Completion, ToolCall, Usage
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.model.types import Model
    from pytest_skillopt.run.journal import Journal


class JournaledModel:
    """A ``Model`` that keeps each reply in the journal before it is used.

    Secrets are taken out before both, so that a resumed run sees what the first one saw.
    """

    def __init__(
        self, model: Model, journal: Journal, on_call: Callable[[int], None] | None = None
    ) -> None:
        """Args:
        on_call: told 1 when a call is made, from any thread, and -1 when it has ended.
        """
        self._model = model
        self._journal = journal
        self._on_call = on_call or (lambda calls: None)

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def fingerprint(self) -> str:
        return self._model.fingerprint

    @property
    def simulated(self) -> bool:
        return self._model.simulated

    def complete(
        self,
        messages: Sequence[dict[str, Any]],
        *,
        sample: str,
        stage: str = "",
        task: str = "",
        tools: Sequence[dict[str, Any]] = (),
        response_format: dict[str, Any] | None = None,
    ) -> Completion:
        """As ``Model.complete``; a reply that is in the journal is not asked for again."""
        asked = [self.fingerprint, list(messages), sample, list(tools), response_format]
        key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        kept = self._journal.read("reply", key)
        if kept is not None:
            return _from_json(kept)
        self._on_call(1)
        try:
            raw = self._model.complete(
                messages,
                sample=sample,
                stage=stage,
                task=task,
                tools=tools,
                response_format=response_format,
            )
        finally:
            self._on_call(-1)
        completion = dataclasses.replace(raw, text=redact(raw.text))
        data = {"stage": stage, "sample": sample, **dataclasses.asdict(completion)}
        self._journal.write("reply", data, key=key)
        return completion


def _from_json(data: dict[str, Any]) -> Completion:
    return Completion(
        text=data["text"],
        tool_calls=tuple(ToolCall(**call) for call in data["tool_calls"]),
        finish_reason=data["finish_reason"],
        usage=Usage.from_json(data["usage"]),
    )
