"""Read a configuration of SkillOpt as settings."""

from __future__ import annotations

import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_skillopt.settings import REMOVED
from pytest_skillopt.skill.read import read_bounded
from pytest_skillopt.skill.text import SkillError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_SECTIONS = ("model", "train", "gradient", "optimizer", "evaluation", "env")
_NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
_SETTINGS = _NAMES["settings"]
_CHAT = (None, "openai_chat", "azure_openai")
"""Backends of models that are called here by the same name; the others are coding agents, or have
servers of their own."""
_MOST_BYTES = 1_000_000
"""Maximum bytes of a configuration."""
_OVERHEAD = 60
"""Seconds that SkillOpt adds to ``exec_timeout`` for a whole task."""


def read_settings(text: str, root: Path, own: Collection[str]) -> dict[str, Any]:
    """Translate a configuration into settings, by their names.

    ``exec_timeout`` is the time of a model call; a rollout has a minute more. A warning names the
    keys that are not used.

    Args:
        text: YAML, or the path of a YAML file; the file ``_base_`` is read, too.
        root: base of a relative path.
        own: names that are taken as they are, beside those of SkillOpt.

    Raises:
        pytest.UsageError: it cannot be read, or names a setting that is gone.
    """
    is_file = "\n" not in text and (root / text).is_file()
    given = _read_yaml(root / text, ()) if is_file else _merged(text, root, "the text", ())
    given = {name: value for name, value in given.items() if value not in ("", None, {})}
    for name in sorted(given.keys() & REMOVED.keys()):
        raise pytest.UsageError(f"skillopt_published: {name} no longer exists: {REMOVED[name]}")
    names = {name: name for name in own} | _SETTINGS
    found = {names[name]: value for name, value in given.items() if name in names}
    handled = {"use_gate", *_translate(given, found)}
    for role in ("target", "optimizer"):
        model, used = _model_of(role, given)
        if model:
            found[role] = model
        handled |= used
    if unused := ", ".join(sorted(given.keys() - names.keys() - handled)):
        warnings.warn(f"skillopt_published: not used: {unused}", stacklevel=2)
    return found


def _translate(given: Mapping[str, Any], found: dict[str, Any]) -> set[str]:
    """Set the keys whose values are written in another way here; return those of SkillOpt."""
    handled: set[str] = set()
    if pairs := found.get("slow_update_pairs"):
        found["slow_update_pairs"] = _NAMES["policies"].get(str(pairs).lower(), pairs)
    mode = given.get("lr_control_mode")
    mode = _NAMES["modes"].get(str(mode), mode)
    if "autonomous" in (found.get("schedule"), mode):
        found |= {"schedule": "constant", "autonomous_budget": True}
    if given.get("use_gate") is False:
        found["gate"] = "off"
    if mode in ("autonomous", "fixed"):
        handled.add("lr_control_mode")
    if effort := given.get("reasoning_effort"):
        found["requests"] = f"reasoning_effort = {effort}"
        handled.add("reasoning_effort")
    if (seconds := given.get("exec_timeout")) is not None:
        found["timeout"] = seconds + _OVERHEAD if seconds > 0 else 0
        if seconds > 0:
            found["request_timeout"] = seconds
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


def _read_yaml(path: Path, seen: tuple[Path, ...]) -> dict[str, Any]:
    if path.resolve() in seen:
        raise pytest.UsageError(f"skillopt_published: {path} is its own _base_")
    try:
        text = read_bounded(path, _MOST_BYTES).decode("utf-8")
    except (OSError, ValueError, SkillError) as error:
        raise pytest.UsageError(f"skillopt_published: {path}: {error}") from None
    return _merged(text, path.parent, str(path), (*seen, path.resolve()))


def _merged(text: str, folder: Path, name: str, seen: tuple[Path, ...]) -> dict[str, Any]:
    """Return the values of a text, over those of the file in the folder that it is based on."""
    found = _parsed(text, name)
    base = found.pop("_base_", None)
    below = _read_yaml(folder / str(base), seen) if base else {}
    return below | _flat(found)


def _parsed(text: str, name: str) -> dict[str, Any]:
    try:
        found = yaml.safe_load(text) or {}
    except (yaml.YAMLError, RecursionError) as error:
        raise pytest.UsageError(f"skillopt_published: {name}: {error}") from None
    if not isinstance(found, dict):
        raise pytest.UsageError(f"skillopt_published: {name} is neither a mapping nor a file")
    return found


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """Take the keys out of the sections."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= value if key in _SECTIONS and isinstance(value, dict) else {key: value}
    return found
