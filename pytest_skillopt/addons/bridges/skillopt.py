"""Turn a SkillOpt ``EnvAdapter`` into tests, and its ``reflect`` into a hook.

An adapter calls its model through a function that its modules import by name (``from
skillopt.model import chat_target``). With ``chat="my_env.rollout:chat_target"`` this function is
replaced, and its calls go to the plugin's target: cached, capped and counted. Otherwise the adapter
uses SkillOpt's own backend, and its costs are unknown here.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import json
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.addons.bridges.config import patch_of
from pytest_skillopt.addons.bridges.environments import Chat, as_test, settle, two_messages
from pytest_skillopt.model.types import ModelFault
from pytest_skillopt.suite.sampler import Stop, StopRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_skillopt import TaskRecord
    from pytest_skillopt.edits.combine import Patch
    from pytest_skillopt.edits.context import Context
    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.suite.context import Recorder, Skill
    from pytest_skillopt.suite.rollouts import Rollout

_OPTIONS = frozenset(
    {"max_completion_tokens", "max_tokens", "temperature", "retries", "stage", "timeout"}
    | {"reasoning_effort"}
)
"""Arguments of a call that are ignored in favour of the plugin's settings."""
_ROW = "result"
"""Role of the transcript's turn that holds the row of an adapter's rollout."""


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
    adapter: Any,
    *,
    skill: str = "",
    cfg: dict[str, Any] | None = None,
    chat: str = "",
    episodes: Mapping[str, int] | None = None,
) -> Callable[..., None]:
    """Make a test with a task for each item of an adapter.

    Args:
        adapter: an ``EnvAdapter`` whose ``get_dataloader`` has ``train_items``, ``val_items`` and
            ``test_items``; its ``split_dir`` or ``split_ratio`` makes them in ``setup``.
        skill: path of the SKILL.md.
        cfg: SkillOpt's configuration; if given, ``adapter.setup(cfg)`` is called first.
        chat: ``module:function`` through which the adapter calls its model.
        episodes: number of tasks by split, such as ``{"train": 20, "val": 10}``, for a loader that
            only plans batches: each task is a batch of one, planned with a seed of its own.

    Raises:
        pytest.UsageError: there is neither an item nor ``episodes``, or no such function.
    """
    if cfg is not None:
        adapter.setup(cfg)
    loader = adapter.get_dataloader()
    if episodes is not None:
        splits = _planned(episodes)
    elif loader is not None and hasattr(loader, "train_items"):
        names = ("train", "val", "test")
        splits = {name: list(getattr(loader, f"{name}_items", ())) for name in names}
    else:
        raise pytest.UsageError(
            f"tasks_of: {type(adapter).__name__} has no data loader with train_items, val_items "
            "and test_items (SplitDataLoader): without a fixed set of items, say how many episodes "
            'to plan, such as episodes={"train": 20, "val": 10}'
        )
    redirect = _Redirect.of(chat) if chat else None

    def run(item: dict[str, Any], skill: Skill, rollout: Recorder, out: Path) -> None:
        __tracebackhide__ = True
        batch: Any = Batch("eval", "train", rollout.seed, 1, [dict(item)])
        if episodes is not None:
            batch = _plan(loader, item["split"], item["seed"])
        rows = adapter.rollout(adapter.build_env_from_batch(batch), skill.text, str(out))
        if not rows:
            raise TypeError(f"{type(adapter).__name__}.rollout returned no row")
        row = rows[0] if isinstance(rows[0], dict) else vars(rows[0])
        if _reflects(adapter):
            rollout.record(_ROW, json.dumps(row, default=str))
        hint = getattr(adapter, "build_reference_text", None)
        settle(row, rollout, str(hint(item) or "") if hint and episodes is None else "")

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


def _planned(episodes: Mapping[str, int]) -> dict[str, list[dict[str, Any]]]:
    """Name the episodes of each split; seeds differ between splits."""
    starts = {"train": 0, "val": 1_000_000, "test": 2_000_000}
    if unknown := episodes.keys() - starts:
        raise pytest.UsageError(f"tasks_of: episodes has {min(unknown)!r}; use train, val, test")
    return {
        split: [{"id": f"{split}-{n}", "split": split, "seed": starts[split] + n} for n in range(m)]
        for split, m in episodes.items()
    }


def _plan(loader: Any, split: str, seed: int) -> Any:
    phase = "train" if split == "train" else "eval"
    if loader is None:
        return Batch(phase, split, seed, 1)
    if split == "train":
        return loader.build_train_batch(batch_size=1, seed=seed)
    return loader.build_eval_batch(env_num=1, split=split, seed=seed)


def _reflects(adapter: Any) -> bool:
    """Tell whether an adapter has a ``reflect`` that is not SkillOpt's own."""
    method = getattr(type(adapter), "reflect", None)
    return method is not None and getattr(method, "__module__", "") != "skillopt.envs.base"


def reflect_with(
    adapter: Any, *, chat: str = ""
) -> Callable[[Sequence[TaskRecord], Context], list[Patch] | None]:
    """Make the hook ``pytest_skillopt_reflect`` from the ``reflect`` of a SkillOpt ``EnvAdapter``.

    ::

        # conftest.py
        pytest_skillopt_reflect = reflect_with(MyAdapter(), chat="my_env.reflect:chat_optimizer")

    Args:
        adapter: it is given the rows that its ``rollout`` returned.
        chat: ``module:function`` through which it calls its optimizer; these calls go to the
            plugin's optimizer, else their costs are unknown here.

    Raises:
        pytest.UsageError: it has no ``reflect`` of its own, or no such function.
    """
    if not _reflects(adapter):
        raise pytest.UsageError(f"reflect_with: {type(adapter).__name__} has no reflect of its own")
    redirect = _Redirect.of(chat) if chat else None

    def pytest_skillopt_reflect(
        records: Sequence[TaskRecord], context: Context
    ) -> list[Patch] | None:
        tasks = tuple(record.task.id for record in records if record.failed)
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            rows = [_row(r, Path(folder)) for record in records for r in record.rollouts[:1]]
            rows = [row for row in rows if row]
            if not rows:
                return None  # tasks of another kind
            if redirect is not None:
                stack.enter_context(redirect.to(_Optimizer(context)))
            try:
                found = adapter.reflect(
                    rows,
                    context.document.text,
                    folder,
                    prediction_dir=str(Path(folder, "predictions")),
                    patches_dir=str(Path(folder, "patches")),
                    random_seed=context.settings.seed + context.step,
                    step_buffer_context=context.memory.render(),
                    meta_skill_context=context.memory.advice,
                )
            except ModelFault:  # counted as lost
                return []
        try:
            return [patch_of(patch, tasks, context.step) for patch in found or () if patch]
        except ValueError as error:
            raise pytest.UsageError(f"{type(adapter).__name__}.reflect: {error}") from None

    return pytest_skillopt_reflect


def _row(rollout: Rollout, folder: Path) -> dict[str, Any] | None:
    """Return the row of a rollout, with its conversation in the folder as SkillOpt has it."""
    said = [turn for turn in rollout.transcript if turn.role == _ROW]
    try:
        row = json.loads(said[-1].content) if said else None
    except ValueError:  # too long to be kept
        row = None
    if not isinstance(row, dict):
        return None
    place = folder / "predictions" / Path(str(row.get("id") or "episode")).name
    place.mkdir(parents=True, exist_ok=True)
    turns = [{"role": t.role, "content": t.content} for t in rollout.transcript if t.role != _ROW]
    (place / "conversation.json").write_text(json.dumps(turns), encoding="utf-8")
    return row


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

    def _call(self, *given: Any, **options: Any) -> tuple[Any, dict[str, int]]:
        """Answer a call of ``(system, user)`` texts, or of a list of messages, also with tools."""
        chat = self._mine.get(None)
        with self._lock:
            callers = [chat] if chat else list(self._current)
        words = ""
        if len(callers) != 1:
            words = (
                "an adapter that calls its model from its own threads needs skillopt_lanes = 1: "
                "use -n to run rollouts in parallel"
            )
        names = ("messages",) if given and isinstance(given[0], list) else ("system", "user")
        asked = {**dict(zip(names, given, strict=False)), **options}
        messages = asked.pop("messages", None)
        texts = asked.pop("system", ""), asked.pop("user", "")
        tools, whole = asked.pop("tools", None) or [], asked.pop("return_message", False)
        if asked.get("tool_choice") in (None, "auto"):
            asked.pop("tool_choice", None)
        odd = sorted(asked.keys() - _OPTIONS)
        if messages is None and any(texts) and all(isinstance(text, str) for text in texts):
            messages = two_messages(*texts)
        if odd or not messages:
            given_as = f"with {', '.join(odd)}" if odd else "without a prompt"
            words = (
                f"the adapter calls its model {given_as}; chat= supports functions of a system and "
                "a user prompt, or of messages and tools, such as chat_target_messages"
            )
        if not words:
            message, used = callers[0].messages(messages, tools)
            if not whole:
                return str(message["content"] or ""), used
            from openai.types.chat import ChatCompletionMessage

            return ChatCompletionMessage.model_validate(message), used
        fault = ModelFault(words, fatal=True)
        for caller in callers:  # An adapter may catch it and score a wrong answer.
            caller.fault = fault
        raise fault


class _Optimizer(Chat):
    """The plugin's optimizer, for the ``reflect`` of an adapter."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._asked = 0
        self.fault: Exception | None = None

    def messages(
        self, messages: Sequence[dict[str, Any]], tools: Sequence[dict[str, Any]] = ()
    ) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the optimizer's reply as a message; its tokens are counted by the plugin."""
        self._asked += 1
        label = f"{self._context.label}/adapter/{self._context.draw}/{self._asked}"
        try:
            if tools:
                words = "reflect_with: the adapter's reflect calls its optimizer with tools; only"
                raise StopRun(f"{words} messages are passed on", kind=Stop.FATAL)
            text = self._context.calls.count(
                lambda model: model.complete(messages, sample=label, stage="reflect")
            )
        except StopRun as stop:
            self.fault = stop  # an adapter may catch it
            raise
        used = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
        return {"role": "assistant", "content": text}, used
