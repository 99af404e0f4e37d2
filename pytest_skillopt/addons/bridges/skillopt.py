"""A SkillOpt ``EnvAdapter`` with its ``SplitDataLoader`` as tasks.

An adapter calls its model through a function that its modules import by name (``from
skillopt.model import chat_target``). ``chat="my_env.rollout:chat_target"`` names that place, and
the calls go to the target of the plugin: cached, capped and counted. Without it the adapter uses
SkillOpt's own backend, and what it spends is not known here.
"""

from __future__ import annotations

import contextvars
import importlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.bridges import Chat, as_test, settle
from pytest_skillopt.model.types import ModelFault

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.suite.context import Recorder, Skill

_OPTIONS = frozenset(
    {"max_completion_tokens", "max_tokens", "temperature", "retries", "stage", "timeout"}
    | {"reasoning_effort"}
)
"""Arguments of a call that change nothing of what is asked; the plugin's settings hold instead."""


@dataclass
class Batch:
    """SkillOpt's ``BatchSpec``, field by field, for a batch of one item."""

    phase: str
    split: str
    seed: int
    batch_size: int
    payload: object | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def tasks_of_adapter(
    adapter: Any, *, skill: str = "", cfg: dict[str, Any] | None = None, chat: str = ""
) -> Callable[..., None]:
    """See :func:`pytest_skillopt.addons.bridges.tasks_of`.

    Args:
        adapter: an ``EnvAdapter`` whose ``get_dataloader`` has ``train_items``, ``val_items`` and
            ``test_items``; its ``split_dir`` or ``split_ratio`` makes them in ``setup``.
        skill: path of the SKILL.md.
        cfg: SkillOpt's configuration; given, ``adapter.setup(cfg)`` is called first.
        chat: ``module:function`` through which the adapter calls its model.

    Raises:
        pytest.UsageError: no data loader or item, or no such function.
    """
    if cfg is not None:
        adapter.setup(cfg)
    loader = adapter.get_dataloader()
    if loader is None or not hasattr(loader, "train_items"):
        raise pytest.UsageError(
            f"tasks_of: {type(adapter).__name__} has no data loader with train_items, val_items "
            "and test_items (SplitDataLoader): without a fixed set of items there are no tasks"
        )
    splits = {name: list(getattr(loader, f"{name}_items", ())) for name in ("train", "val", "test")}
    line = _Line.at(chat) if chat else None

    def run(item: dict[str, Any], skill: Skill, rollout: Recorder, out: Path) -> None:
        __tracebackhide__ = True
        batch = Batch("eval", "train", rollout.seed, 1, [dict(item)])
        rows = adapter.rollout(adapter.build_env_from_batch(batch), skill.text, str(out))
        if not rows:
            raise TypeError(f"{type(adapter).__name__}.rollout gave no row")
        settle(rows[0], rollout)

    def own(item: dict[str, Any], skill: Skill, rollout: Recorder, tmp_path: Path) -> None:
        __tracebackhide__ = True
        run(item, skill, rollout, tmp_path)

    def through(
        item: dict[str, Any], skill: Skill, skill_agent: Agent, rollout: Recorder, tmp_path: Path
    ) -> None:
        __tracebackhide__ = True
        assert line is not None
        with line.taken(Chat(skill_agent)):
            run(item, skill, rollout, tmp_path)

    return as_test(through if line else own, splits, skill)


class _Line:
    """Stands where an adapter calls its model, and knows whose call it is.

    Rollouts may run side by side, and an adapter may call from threads of its own: those belong to
    the only rollout that is under way, or to none that can be told.
    """

    def __init__(self) -> None:
        self._mine: contextvars.ContextVar[Chat | None] = contextvars.ContextVar("chat")
        self._under_way: list[Chat] = []
        self._lock = threading.Lock()

    @classmethod
    def at(cls, place: str) -> _Line:
        """The one that stands at ``module:function``: several adapters may call one function."""
        module, _, name = place.partition(":")
        try:
            owner = importlib.import_module(module)
            found = getattr(owner, name)
        except (ImportError, AttributeError, ValueError) as error:
            raise pytest.UsageError(
                f"tasks_of: chat={place!r} names no function as 'module:function' ({error})"
            ) from None
        line = getattr(found, "__self__", None)
        if not isinstance(line, cls):
            line = cls()
            setattr(owner, name, line._call)
        return line

    def taken(self, chat: Chat) -> _Taken:
        return _Taken(self, chat)

    def _call(
        self, system: str = "", user: str = "", *_: Any, **options: Any
    ) -> tuple[str, dict[str, int]]:
        chat = self._mine.get(None)
        with self._lock:
            callers = [chat] if chat else list(self._under_way)
        words = ""
        if len(callers) != 1:
            words = (
                "an adapter that calls from threads of its own does not go with skillopt_lanes: "
                "use -n, or one lane"
            )
        odd = sorted(options.keys() - _OPTIONS)
        if odd or not (isinstance(system, str) and isinstance(user, str) and (system or user)):
            given = f"with {', '.join(odd)}" if odd else "without a system or user prompt"
            words = (
                f"the adapter calls its model {given}; chat= passes on a system and a user prompt "
                "as texts, of a function such as chat_target(system, user)"
            )
        if not words:
            return callers[0](system, user)
        fault = ModelFault(words, fatal=True)
        for caller in callers:  # An adapter may take it for a wrong answer.
            caller.fault = fault
        raise fault


class _Taken:
    def __init__(self, line: _Line, chat: Chat) -> None:
        self._line, self._chat = line, chat

    def __enter__(self) -> None:
        self._token = self._line._mine.set(self._chat)
        with self._line._lock:
            self._line._under_way.append(self._chat)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._line._mine.reset(self._token)
        with self._line._lock:
            self._line._under_way.remove(self._chat)
        if self._chat.fault is not None:
            raise self._chat.fault
