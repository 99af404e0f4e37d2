"""Turn a SkillOpt ``EnvAdapter`` with a ``SplitDataLoader`` into tests.

An adapter calls its model through a function that its modules import by name (``from
skillopt.model import chat_target``). With ``chat="my_env.rollout:chat_target"`` this function is
replaced, and its calls go to the plugin's target: cached, capped and counted. Otherwise the adapter
uses SkillOpt's own backend, and its costs are unknown here.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.bridges import Chat, as_test, settle
from pytest_skillopt.model.types import ModelFault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.suite.context import Recorder, Skill

_OPTIONS = frozenset(
    {"max_completion_tokens", "max_tokens", "temperature", "retries", "stage", "timeout"}
    | {"reasoning_effort"}
)
"""Arguments of a call that are ignored in favour of the plugin's settings."""


@dataclass
class Batch:
    """Copy of SkillOpt's ``BatchSpec`` for a batch of one item."""

    phase: str
    split: str
    seed: int
    batch_size: int
    payload: object | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


def tasks_of_adapter(
    adapter: Any, *, skill: str = "", cfg: dict[str, Any] | None = None, chat: str = ""
) -> Callable[..., None]:
    """Make a test with a task for each item of an adapter.

    Args:
        adapter: an ``EnvAdapter`` whose ``get_dataloader`` has ``train_items``, ``val_items`` and
            ``test_items``; its ``split_dir`` or ``split_ratio`` makes them in ``setup``.
        skill: path of the SKILL.md.
        cfg: SkillOpt's configuration; if given, ``adapter.setup(cfg)`` is called first.
        chat: ``module:function`` through which the adapter calls its model.

    Raises:
        pytest.UsageError: there is no data loader, no item, or no such function.
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
    redirect = _Redirect.of(chat) if chat else None

    def run(item: dict[str, Any], skill: Skill, rollout: Recorder, out: Path) -> None:
        __tracebackhide__ = True
        batch = Batch("eval", "train", rollout.seed, 1, [dict(item)])
        rows = adapter.rollout(adapter.build_env_from_batch(batch), skill.text, str(out))
        if not rows:
            raise TypeError(f"{type(adapter).__name__}.rollout returned no row")
        settle(rows[0], rollout)

    def own(item: dict[str, Any], skill: Skill, rollout: Recorder, tmp_path: Path) -> None:
        __tracebackhide__ = True
        run(item, skill, rollout, tmp_path)

    def through(
        item: dict[str, Any], skill: Skill, skill_agent: Agent, rollout: Recorder, tmp_path: Path
    ) -> None:
        __tracebackhide__ = True
        assert redirect is not None
        with redirect.to(Chat(skill_agent)):
            run(item, skill, rollout, tmp_path)

    return as_test(through if redirect else own, splits, skill)


class _Redirect:
    """Replacement of the function by which an adapter calls its model.

    It finds the rollout that a call belongs to. Rollouts may run in parallel: a call from a thread
    of the adapter's own is assigned only if there is just one current rollout.
    """

    def __init__(self) -> None:
        self._mine: contextvars.ContextVar[Chat | None] = contextvars.ContextVar("chat")
        self._current: list[Chat] = []
        self._lock = threading.Lock()

    @classmethod
    def of(cls, place: str) -> _Redirect:
        """Replace ``module:function``, or return its replacement if another adapter made it."""
        module, _, name = place.partition(":")
        try:
            owner = importlib.import_module(module)
            found = getattr(owner, name)
        except (ImportError, AttributeError, ValueError) as error:
            raise pytest.UsageError(
                f"tasks_of: chat={place!r} is not an existing 'module:function' ({error})"
            ) from None
        redirect = getattr(found, "__self__", None)
        if not isinstance(redirect, cls):
            redirect = cls()
            setattr(owner, name, redirect._call)
        return redirect

    @contextlib.contextmanager
    def to(self, chat: Chat) -> Iterator[None]:
        """Answer a rollout's calls by its chat; at the end raise the chat's fault, if any."""
        token = self._mine.set(chat)
        with self._lock:
            self._current.append(chat)
        try:
            yield
        finally:
            self._mine.reset(token)
            with self._lock:
                self._current.remove(chat)
            if chat.fault is not None:
                raise chat.fault

    def _call(
        self, system: str = "", user: str = "", *_: Any, **options: Any
    ) -> tuple[str, dict[str, int]]:
        chat = self._mine.get(None)
        with self._lock:
            callers = [chat] if chat else list(self._current)
        words = ""
        if len(callers) != 1:
            words = (
                "an adapter that calls its model from its own threads needs skillopt_lanes = 1: "
                "use -n to run rollouts in parallel"
            )
        odd = sorted(options.keys() - _OPTIONS)
        if odd or not (isinstance(system, str) and isinstance(user, str) and (system or user)):
            given = f"with {', '.join(odd)}" if odd else "without a system or user prompt"
            words = (
                f"the adapter calls its model {given}; chat= supports only functions of a system "
                "and a user prompt as texts, such as chat_target(system, user)"
            )
        if not words:
            return callers[0](system, user)
        fault = ModelFault(words, fatal=True)
        for caller in callers:  # An adapter may catch it and score a wrong answer.
            caller.fault = fault
        raise fault
