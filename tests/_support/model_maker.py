"""Models of the real SDK against a ``ChatServer``, whose waiting is only noted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any
from unittest import mock

from pytest_skillopt.model.client import ChatModel
from pytest_skillopt.model.config import ModelConfig

if TYPE_CHECKING:
    from pytest_skillopt.model.cache import Replies
    from pytest_skillopt.model.limits import Throttle


class ModelMaker:
    """``make_model(replies=..., throttle=..., key=..., <fields of ModelConfig>)``."""

    def __init__(self, url: str) -> None:
        self.slept: list[float] = []
        """Seconds that models wanted to wait."""
        self._made: list[ChatModel] = []
        self._url = url

    def __call__(
        self,
        *,
        replies: Replies | None = None,
        throttle: Throttle | None = None,
        key: str = "",
        **fields: Any,
    ) -> ChatModel:
        given = {"role": "target", "provider": "openai", "model": "m", "base_url": self._url}
        with mock.patch.dict(os.environ, {"OPENAI_API_KEY": key}):
            model = ChatModel(
                ModelConfig(**given | fields),
                replies=replies,
                throttle=throttle,
                sleep=self.slept.append,
                jitter=lambda: 0.0,
            )
        self._made.append(model)
        return model

    def close(self) -> None:
        for model in self._made:
            model.close()
