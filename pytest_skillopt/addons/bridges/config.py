"""Read configurations, prompts and patches of SkillOpt and skillrl; name each unused part once."""

from __future__ import annotations

import tomllib
import warnings
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest
import yaml

from pytest_skillopt.edits.combine import Patch
from pytest_skillopt.skill.edits import Edit, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SECTIONS = ("model", "train", "gradient", "optimizer", "evaluation", "env")
_NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
_SETTINGS, _PROMPTS = _NAMES["settings"], _NAMES["prompts"]
_FIXED = {"skillopt_search": "batch", "skillopt_rollouts": 1, "skillopt_patience": 10**6}
"""Settings that SkillOpt and skillrl do not have: one sample of a task, and no early end."""
_CHAT = (None, "openai_chat", "azure_openai")
"""Backends of models that are called here by the same name; the others are coding agents, or have
servers of their own."""
_OVERHEAD = 60
"""Seconds that SkillOpt adds to ``exec_timeout`` for a whole task."""


def settings_of(config: Any) -> dict[str, Any]:
    """Translate a configuration into ini keys.

    They select the published search, ``skillopt_search = "batch"``, with this package's gate, one
    rollout of a task in a step and no end before the last epoch. ``exec_timeout`` is the time of a
    model call; a rollout has a minute more. A warning names the keys that are not used.

    Args:
        config: a ``skillrl.SkillOptConfig``, a mapping with its keys, or the path of a YAML
            configuration of SkillOpt, whose ``_base_`` is read, too.

    Raises:
        pytest.UsageError: the YAML file cannot be read.
    """
    given = {name: value for name, value in _keys(config).items() if value not in ("", None, {})}
    found = {f"skillopt_{_SETTINGS[name]}": v for name, v in given.items() if name in _SETTINGS}
    handled = {"use_gate", *_translate(given, found)}
    for role in ("target", "optimizer"):
        model, used = _model_of(role, given)
        if model:
            found[f"skillopt_{role}"] = model
        handled |= used
    _warn("configuration", given.keys() - _SETTINGS.keys() - handled)
    return {**_FIXED, **found}


def _keys(config: Any) -> dict[str, Any]:
    if isinstance(config, str | Path):
        return _read_yaml(Path(config), ())
    if not is_dataclass(config):
        return _flat(config)
    default = {f.name: f.default for f in fields(config)}
    return {
        name: value
        for name, value in vars(config).items()
        if name in _SETTINGS or value not in (default[name], {})
    }


def _translate(given: Mapping[str, Any], found: dict[str, Any]) -> set[str]:
    """Set the keys whose values are written in another way here; return those of SkillOpt."""
    handled: set[str] = set()
    if pairs := found.get("skillopt_slow_update_pairs"):
        found["skillopt_slow_update_pairs"] = _NAMES["policies"].get(str(pairs).lower(), pairs)
    mode = given.get("lr_control_mode")
    mode = _NAMES["modes"].get(str(mode), mode)
    if "autonomous" in (found.get("skillopt_schedule"), mode):
        found |= {"skillopt_schedule": "constant", "skillopt_autonomous_budget": True}
    if given.get("use_gate") is False:
        found["skillopt_gate"] = "off"
    if mode in ("autonomous", "fixed"):
        handled.add("lr_control_mode")
    if effort := given.get("reasoning_effort"):
        found["skillopt_requests"] = f"reasoning_effort = {effort}"
        handled.add("reasoning_effort")
    if (seconds := given.get("exec_timeout")) is not None:
        found["skillopt_timeout"] = seconds + _OVERHEAD if seconds > 0 else 0
        if seconds > 0:
            found["skillopt_request_timeout"] = seconds
        handled.add("exec_timeout")
    return handled


def _model_of(role: str, given: Mapping[str, Any]) -> tuple[str, set[str]]:
    """Return the model of a role as a setting here, if any, and the keys that name it."""
    backend = given.get(f"{role}_backend") or given.get("model_backend") or given.get("backend")
    named = {n: given[n] for n in (role, f"{role}_model") if isinstance(given.get(n), str)}
    if not named or backend not in _CHAT:
        return "", set()
    endpoints = [f"{role}_azure_openai_endpoint", "azure_openai_endpoint"]
    endpoints = [name for name in endpoints if name in given]
    at = f"@{str(given[endpoints[0]]).rstrip('/')}/openai/v1" if endpoints else ""
    return f"openai:{next(iter(named.values()))}{at}", {*named, *endpoints}


def prompts_of(overrides: Mapping[str, str]) -> Callable[[str], str | None]:
    """Make the hook ``pytest_skillopt_prompt`` from skillrl's ``prompt_overrides``.

    ::

        # conftest.py
        pytest_skillopt_prompt = prompts_of({"analyst_error": "..."})

    The form of the answer is added to each prompt. A warning names the prompts that are not used.
    """
    _warn("prompt_overrides", overrides.keys() - _PROMPTS)
    texts = {_PROMPTS[k]: text.replace("$", "$$") for k, text in overrides.items() if k in _PROMPTS}

    def pytest_skillopt_prompt(name: str) -> str | None:
        return texts.get(name)

    return pytest_skillopt_prompt


def patch_of(data: Any, tasks: tuple[str, ...] = (), step: int = 0) -> Patch:
    """Read a patch of SkillOpt; raise ValueError if it has no readable list of edits."""
    whole = data if isinstance(data, dict) else {"edits": data}
    inner = whole["patch"] if isinstance(whole.get("patch"), dict) else whole
    rows = inner.get("edits")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("there is no list of objects under 'edits'")
    unused: set[str] = set()
    edits = []
    for number, row in enumerate(rows, 1):
        op, content = row.get("op", "append"), row.get("content", "")
        if op not in get_args(Op) or not isinstance(content, str):
            raise ValueError(f"edit {number} has op={op!r}; {', '.join(get_args(Op))} are read")
        kind = str(row.get("source_type") or whole.get("source_type") or "failure")
        edits.append(
            Edit(
                op,
                str(row.get("target") or ""),
                content,
                str(inner.get("reasoning") or ""),
                tasks,
                support=int(row.get("support_count") or 1),
                origin="success" if kind == "success" else "failure",
                step=step,
            )
        )
        known = {"op", "target", "content", "support_count", "source_type", "merge_level"}
        unused |= row.keys() - known
    known = {"edits", "patch", "reasoning", "source_type", "ranking_details"}
    _warn("patch", unused | ((whole.keys() | inner.keys()) - known))
    return Patch(tuple(edits), str(inner.get("reasoning") or ""))


def _read_yaml(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in seen:
        raise pytest.UsageError(f"settings_of: {path} is its own _base_")
    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise pytest.UsageError(f"settings_of: {path}: {error}") from None
    if not isinstance(found, dict):
        raise pytest.UsageError(f"settings_of: {path} is not a mapping")
    base = found.pop("_base_", None)
    below = _read_yaml(path.parent / str(base), (*seen, path.resolve())) if base else {}
    return below | _flat(found)


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Take the keys out of the sections."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= value if key in _SECTIONS and isinstance(value, dict) else {key: value}
    return found


def _warn(noun: str, unused: Iterable[str]) -> None:
    if names := ", ".join(sorted(unused)):
        warnings.warn(f"not used of the {noun}: {names}", stacklevel=3)
