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

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.suite.context import Recorder, Skill


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
    line = _Line(chat) if chat else None

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

    def __init__(self, place: str) -> None:
        module, _, name = place.partition(":")
        try:
            owner = importlib.import_module(module)
            getattr(owner, name)
        except (ImportError, AttributeError, ValueError) as error:
            raise pytest.UsageError(
                f"tasks_of: chat={place!r} names no function as 'module:function' ({error})"
            ) from None
        self._mine: contextvars.ContextVar[Chat | None] = contextvars.ContextVar("chat")
        self._under_way: list[Chat] = []
        self._lock = threading.Lock()
        setattr(owner, name, self._call)

    def taken(self, chat: Chat) -> _Taken:
        return _Taken(self, chat)

    def _call(
        self, system: str = "", user: str = "", *_: Any, **__: Any
    ) -> tuple[str, dict[str, int]]:
        chat = self._mine.get(None)
        if chat is None:
            with self._lock:
                if len(self._under_way) != 1:
                    raise RuntimeError(
                        "an adapter that calls from threads of its own does not go with "
                        "skillopt_lanes: use -n, or one lane"
                    )
                chat = self._under_way[0]
        return chat(system, user)


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
