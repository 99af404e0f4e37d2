"""Every setting of the plugin: one frozen dataclass, made once from pytest's configuration.

Each field is an ini key ``skillopt_<name>`` (so it works in ``pyproject.toml``, ``pytest.ini`` and
with ``-o``) and an option ``--skillopt-<name>``. The option wins over the ini key, the ini key over
the default. Ini keys have pytest's own types, so that numbers, booleans and lists can be written as
such in a native TOML configuration.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_YES = {"yes": True, "true": True, "on": True, "1": True}
_INI_TYPES: dict[type, Literal["bool", "int", "float"]] = {
    bool: "bool",
    int: "int",
    float: "float",
}
"""In this order: a bool is an int too."""
_NO = {"no": False, "false": False, "off": False, "0": False}


def _setting(
    default: Any,
    help: str,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    choices: tuple[str, ...] = (),
    metavar: str | None = None,
    many: bool = False,
) -> Any:
    metadata = {
        "help": help,
        "low": low,
        "high": high,
        "choices": choices,
        "metavar": metavar,
        "many": many,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session. Booleans are written ``yes`` or ``no``; 0 turns a cap off."""

    # the suite
    skill: str = _setting("", "the skill file (default: the one SKILL.md under the root directory)")
    split: str = _setting("2:1:1", "ratio of the splits train:val:test", metavar="T:V:T")
    seed: int = _setting(0, "seed of every random choice of a training", low=0)
    rollouts: int = _setting(3, "K, rollouts of a task under one version of the skill", low=1)
    min_pass_rate: float = _setting(
        0.5, "pass rate at which a task counts as passed with --skillopt", low=0, high=1
    )
    lanes: int = _setting(1, "rollouts at once in each process", low=1, high=256)
    timeout: float = _setting(600.0, "seconds after which a rollout is killed; 0: never", low=0)
    max_attempts: int = _setting(
        3, "tries of a rollout that ends in an infrastructure error", low=1
    )
    max_error_rate: float = _setting(
        0.05, "share of infrastructure errors above which nothing is decided", low=0, high=1
    )
    breaker: int = _setting(20, "infrastructure errors in a row that stop the run", low=1)
    prefetch: bool = _setting(True, "let idle workers take samples that are likely needed soon")
    dir: str = _setting(".skillopt", "where runs and the cache are kept")
    write: bool = _setting(
        True, "write the skill file when a better one is found; no: only propose"
    )
    propose_skills: str = _setting(
        "",
        "skill files that a proposal may change, with commas (default: skillopt_skill)",
        many=True,
    )

    # models
    model: str = _setting("", "provider:model of every role that has none of its own")
    target: str = _setting("", "provider:model of the agent that uses the skill")
    optimizer: str = _setting("", "provider:model that proposes edits")
    judge: str = _setting("", "provider:model of skill_judge (default: the optimizer)")
    base_url: str = _setting("", "base URL of an OpenAI-compatible server", metavar="URL")
    target_base_url: str = _setting("", "base URL for the target alone", metavar="URL")
    optimizer_base_url: str = _setting("", "base URL for the optimizer alone", metavar="URL")
    judge_base_url: str = _setting("", "base URL for the judge alone", metavar="URL")
    api_key_env: str = _setting("OPENAI_API_KEY", "environment variable that holds the API key")
    temperature: str = _setting("", "temperature of the target (default: the provider's)")
    max_output_tokens: int = _setting(0, "output tokens of one reply; 0: the provider's", low=0)
    request_timeout: float = _setting(120.0, "seconds a single model call may take", low=0.1)
    max_reply_bytes: int = _setting(
        4_000_000, "bytes of one reply above which it is refused", low=1_000
    )
    max_turns: int = _setting(16, "model calls of one skill_agent call with tools", low=1)
    call_retries: int = _setting(6, "retries of a model call that met a passing fault", low=0)
    cache: Literal["rw", "ro", "off", "refresh"] = _setting(
        "rw", "model replies: rw, ro, off or refresh", choices=("rw", "ro", "off", "refresh")
    )
    requests_per_minute: int = _setting(0, "model calls a minute, all workers together", low=0)
    tokens_per_minute: int = _setting(0, "tokens a minute, all workers together", low=0)
    max_in_flight: int = _setting(0, "model calls in flight, all workers together", low=0)

    # agents in a harness
    harness: str = _setting(
        "",
        "coding agent of skill_harness: claude, codex, opencode, gemini, copilot, qwen, pi, "
        "acp:COMMAND or module:object",
    )
    harness_env: str = _setting(
        "", "environment variables that an agent in a harness is given", many=True
    )
    sandbox: str = _setting(
        "auto", "what confines an agent in a harness: auto, bwrap, none or a command"
    )

    # spending caps
    max_rollouts: int = _setting(0, "stop cleanly after so many rollouts", low=0)
    max_calls: int = _setting(0, "stop cleanly after so many paid model calls", low=0)
    max_tokens: int = _setting(0, "stop cleanly after so many tokens", low=0)
    max_cost: float = _setting(0.0, "stop cleanly after so many US dollars", low=0)
    max_time: float = _setting(0.0, "stop cleanly after so many seconds", low=0)
    prices: str = _setting("", "MODEL=IN/OUT, ... in US dollars per million tokens", many=True)

    # the search
    search: str = _setting(
        "trials", "how edits are searched: trials or batch", choices=("trials", "batch")
    )
    epochs: int = _setting(4, "passes over the train tasks", low=1)
    batch_size: int = _setting(0, "train tasks of a step; 0: fits the suite", low=0)
    accumulation: int = _setting(
        1, "search batch: rounds of rollout and reflection before one update", low=1
    )
    patience: int = _setting(3, "steps without an accepted edit before the training stops", low=1)
    minibatch_size: int = _setting(
        0, "tasks an analyst sees at once; 0: 1 in the search trials, 8 in batch", low=0
    )
    merge_batch_size: int = _setting(8, "search batch: patches merged in one call", low=2)
    failure_only: bool = _setting(False, "search batch: no analysts for successes")
    contrastive: bool = _setting(True, "show passed and failed samples of one task side by side")
    edit_budget: int = _setting(4, "edits of one update at the start", low=1)
    min_edit_budget: int = _setting(
        0, "edits of one update at the end; 0: 2, or edit_budget where that is less", low=0
    )
    schedule: str = _setting(
        "cosine",
        "how the edit budget falls: constant, linear or cosine",
        choices=("constant", "linear", "cosine"),
    )
    autonomous_budget: bool = _setting(
        False, "search batch: let the optimizer say how many edits to apply"
    )
    update_mode: str = _setting(
        "patch",
        "patch, rewrite_from_suggestions or full_rewrite_minibatch",
        choices=("patch", "rewrite_from_suggestions", "full_rewrite_minibatch"),
    )
    candidates: int = _setting(1, "candidates raced in a step", low=1)
    splitting: bool = _setting(True, "take a patch apart that fixes some tasks and breaks others")
    pruning: bool = _setting(True, "leave out accepted edits that turn out useless")
    memory: bool = _setting(True, "remember what was tried, over steps and runs")
    slow_update: bool = _setting(True, "compare epochs and write guidance, through the gate")
    slow_update_samples: int = _setting(8, "train tasks of a slow update", low=1)
    slow_update_pairs: str = _setting(
        "mixed",
        "tasks shown to a slow update: mixed, changed or unchanged",
        choices=("mixed", "changed", "unchanged"),
    )
    meta_skill: bool = _setting(True, "advice to the optimizer about edits that worked")
    skill_aware: bool = _setting(False, "tell defects of the skill from lapses in following it")
    appendix_threshold: int = _setting(6, "reminders in the appendix before they are merged", low=1)
    preferences: str = _setting("", "house rules for the optimizer: a text or a Markdown file")
    prompts: str = _setting("", "folder of Markdown templates that replace ours")
    feedback: str = _setting(
        "full",
        "what analysts see of a failure: full, message or score",
        choices=("full", "message", "score"),
    )
    max_skill_tokens: int = _setting(0, "largest skill, in tokens of about 4 characters", low=0)
    lint_allow: str = _setting(
        "", "rules of the lint that do not apply, separated by commas", many=True
    )
    scan: str = _setting(
        "", "command that scans the skill's folder, as {skill}, before anything is written"
    )
    optimizer_workers: int = _setting(8, "optimizer calls at once", low=1)

    # the gate
    gate: str = _setting(
        "staged",
        "staged, strict, confirm, margin, paired or off",
        choices=("staged", "strict", "confirm", "margin", "paired", "off"),
    )
    metric: Literal["hard", "soft", "mixed"] = _setting(
        "hard", "what is compared: hard, soft or mixed", choices=("hard", "soft", "mixed")
    )
    mixed_weight: float = _setting(0.5, "weight of the soft score in mixed", low=0, high=1)
    gate_alpha: float = _setting(
        0.05, "chance of accepting an edit without effect", low=1e-6, high=0.5
    )
    gate_guard: float = _setting(0.10, "chance of blocking a harmless edit", low=1e-6, high=0.5)
    gate_k0: int = _setting(3, "samples of the current skill before a comparison", low=1)
    gate_kc: int = _setting(3, "complete rounds of a candidate before it is accepted", low=1)
    gate_kmax: int = _setting(32, "most samples of one task and skill in one decision", low=1)
    gate_margin: float = _setting(0.05, "margin of the gate named margin", low=0, high=1)
    gate_alpha_run: float = _setting(0.0, "alpha of a whole run; 0: per decision", low=0, high=0.5)
    gate_trades: bool = _setting(False, "weigh fixed against broken tasks instead of the guard")
    gate_broad: bool = _setting(False, "a second test for thin effects on many tasks")
    final_rollouts: int = _setting(5, "fresh samples a task before the skill is written", low=1)

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Read options and ini keys.

        Raises:
            pytest.UsageError: a value that cannot be read or lies out of range.
        """
        settings = cls(**{field.name: _read(config, field) for field in dataclasses.fields(cls)})
        if settings.min_edit_budget > settings.edit_budget:
            raise pytest.UsageError(
                f"skillopt_min_edit_budget={settings.min_edit_budget} is above "
                f"skillopt_edit_budget={settings.edit_budget}: the budget falls during a training; "
                "lower the one or raise the other"
            )
        return settings

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def add_settings(parser: pytest.Parser, group: pytest.OptionGroup) -> None:
    """Declare every setting as an ini key and as an option of ``group``."""
    for field in dataclasses.fields(Settings):
        meta = field.metadata
        shown = _show(field.default)
        text = meta["help"] + (
            f" (default: {shown})" if shown and "default:" not in meta["help"] else ""
        )
        group.addoption(
            _flag(field.name),
            dest=_dest(field.name),
            default=None,
            metavar=meta["metavar"] or _metavar(field),
            help=text.replace("%", "%%"),
        )
        parser.addini(_key(field.name), text, type=_ini_type(field), default=None)


def _read(config: pytest.Config, field: dataclasses.Field[Any]) -> Any:
    option = config.getoption(_dest(field.name))
    if option is not None:
        return _parse(field, option, _flag(field.name)) if option else field.default
    where = _key(field.name)
    try:
        value = config.getini(where)
    except (TypeError, ValueError, pytest.UsageError) as error:
        raise pytest.UsageError(f"{where}: {error}") from None
    if isinstance(value, list):
        value = _joined(field, value, where)
    if value is None or value == "":
        return field.default
    if isinstance(value, str):
        return _parse(field, value, where)
    if isinstance(value, bool):
        return value
    number = _in_range(field, value, where)
    return int(number) if isinstance(field.default, int) else float(number)


def _joined(field: dataclasses.Field[Any], values: list[str], where: str) -> str:
    """pytest hands a TOML list on where the file's form has no types, whatever was declared."""
    if not field.metadata["many"]:
        raise pytest.UsageError(f"{where}: {values} is a list where one text is wanted")
    return ",".join(values)


def _parse(field: dataclasses.Field[Any], raw: str, where: str) -> Any:
    raw = raw.strip()
    meta = field.metadata
    if meta["choices"]:
        if raw not in meta["choices"]:
            raise pytest.UsageError(f"{where}: {raw!r} is none of {', '.join(meta['choices'])}")
        return raw
    if isinstance(field.default, bool):
        if raw.lower() in _YES or raw.lower() in _NO:
            return raw.lower() in _YES
        raise pytest.UsageError(f"{where}: {raw!r} is neither yes nor no")
    if isinstance(field.default, int | float):
        return _number(field, raw, where)
    return raw


def _number(field: dataclasses.Field[Any], raw: str, where: str) -> float:
    kind: type[int] | type[float] = int if isinstance(field.default, int) else float
    try:
        return _in_range(field, kind(raw), where)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise pytest.UsageError(f"{where}: {raw!r} is not {noun}") from None


def _in_range(field: dataclasses.Field[Any], value: float, where: str) -> float:
    low, high = field.metadata["low"], field.metadata["high"]
    if not low <= value <= high or not math.isfinite(value):
        bound = f"at least {low:g}" + (f" and at most {high:g}" if math.isfinite(high) else "")
        raise pytest.UsageError(f"{where}: {value} is out of range, it must be {bound}")
    return value


def _key(name: str) -> str:
    return f"skillopt_{name}"


def _flag(name: str) -> str:
    return "--skillopt-" + name.replace("_", "-")


def _dest(name: str) -> str:
    return f"skillopt_setting_{name}"


def _ini_type(
    field: dataclasses.Field[Any],
) -> Literal["linelist", "bool", "int", "float", "string"]:
    if field.metadata["many"]:
        return "linelist"
    for kind, name in _INI_TYPES.items():
        if isinstance(field.default, kind):
            return name
    return "string"


def _metavar(field: dataclasses.Field[Any]) -> str:
    if field.metadata["choices"]:
        return "NAME"
    if isinstance(field.default, bool):
        return "yes|no"
    return {int: "N", float: "X"}.get(type(field.default), "TEXT")


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)


def names() -> Iterator[str]:
    """The names of all settings, in the order of the help."""
    return (field.name for field in dataclasses.fields(Settings))
