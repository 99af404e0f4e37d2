"""Every setting of the plugin: one frozen dataclass, made once from pytest's configuration.

Each is an ini key ``skillopt_<name>``; those that a run is often given by hand are an option
``--skillopt-<name>`` too, which wins. Ini keys have pytest's own types, so that numbers, booleans
and lists can be written as such in a native TOML configuration.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence

_BOOLEANS = {"yes": True, "true": True, "on": True, "1": True} | {
    "no": False, "false": False, "off": False, "0": False,
}  # fmt: skip
_IniType = Literal["linelist", "bool", "int", "float", "string"]
_INI_TYPES: dict[type, _IniType] = {bool: "bool", int: "int", float: "float", str: "string"}

_AT_URL = "write the server behind the model: skillopt_{0} = openai:MODEL@URL (--skillopt-{0})"
_REQUEST = "write it as a line of skillopt_requests: {}"
_GONE = {
    "api_key_env": _REQUEST.format("key_env = VARIABLE"),
    "temperature": _REQUEST.format("target.temperature = NUMBER"),
    "max_output_tokens": _REQUEST.format("max_output_tokens = NUMBER"),
    **{f"{role}_base_url": _AT_URL.format(role) for role in ("target", "optimizer", "judge")},
    "breaker": "a run stops after 20 infrastructure errors in a row",
    "memory": "what was tried is told to the later steps of a run, and to no later run",
    "prefetch": "no sample is taken before it is asked for",
    "call_retries": "a call that met a passing fault is repeated up to 6 times",
    "contrastive": "passed and failed samples of a task are always shown side by side",
    "optimizer_workers": "use skillopt_max_in_flight, which bounds the calls of all roles",
    "mixed_weight": "skillopt_metric=mixed weighs both scores alike",
    "gate_guard": "a harmless edit is blocked with a chance of 0.1",
}
"""Settings that were, and what to do instead."""


_ABOUT = {
    "low": -math.inf,
    "high": math.inf,
    "choices": (),
    "metavar": "",
    "many": "",  # what stands between the values of one that takes several
    "option": False,
    "published": False,  # of a mechanism that docs/published.md explains; an ini key alone
    "batch": False,  # without effect but in the search of that name
    "fixed": False,
}


def _setting(default: Any, help: str = "", **about: Any) -> Any:
    """A field with what it may be (``_ABOUT`` lists what can be said) and what is said of it."""
    return dataclasses.field(default=default, metadata=_ABOUT | {"help": help} | about)


def _option(default: Any, help: str, **how: Any) -> Any:
    return _setting(default, help, option=True, **how)


def _published(default: Any, **how: Any) -> Any:
    return _setting(default, published=True, **how)


def _batch(default: Any, **how: Any) -> Any:
    return _published(default, batch=True, **how)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session. Booleans are written ``yes`` or ``no``; 0 turns a cap off."""

    # the suite
    skill: str = _option("", "the skill file (default: the one SKILL.md there is)")
    split: str = _option("2:1:1", "ratio train:val:test", metavar="T:V:T")
    seed: int = _option(0, "of every random choice of a training", low=0)
    rollouts: int = _option(3, "K, rollouts of a task under one version", low=1)
    lanes: int = _option(1, "rollouts at once in each worker", low=1, high=256)
    timeout: float = _option(600.0, "seconds of a rollout; 0: no end", low=0)
    min_pass_rate: float = _setting(0.5, "pass rate at which a task has passed", low=0, high=1)
    max_attempts: int = _setting(3, "tries of a rollout that ends in an error", low=1)
    max_error_rate: float = _setting(
        0.05, "share of errors that lets nothing be decided", low=0, high=1
    )
    dir: str = _option(".skillopt", "where runs and the cache are kept")
    files: str = _setting("references/*.md", "files trained with the skill, or none", many=",")
    train_description: bool = _setting(False, "train the description, too, on trigger tasks")
    write: bool = _option(True, "write the better skill; no: only propose")
    propose_skills: str = _setting(
        "", "skills that proposals may change (default: the skill)", many=","
    )

    # models
    model: str = _option("", "provider:model, or provider:model@URL, of every role")
    target: str = _option("", "the model that uses the skill, written alike")
    optimizer: str = _option("", "the model that proposes edits")
    judge: str = _option("", "the model of skill_judge (default: the optimizer)")
    base_url: str = _option("", "server of models without @URL", metavar="URL")
    requests: str = _setting("", "[ROLE.]NAME = VALUE lines: temperature, key_env, ...", many="\n")
    request_timeout: float = _setting(120.0, "seconds a single model call may take", low=0.1)
    max_turns: int = _setting(16, "model calls of a skill_agent with tools", low=1)
    cache: Literal["rw", "ro", "off", "refresh"] = _option(
        "rw", "model replies: rw, ro, off or refresh", choices=("rw", "ro", "off", "refresh")
    )
    requests_per_minute: int = _setting(0, "model calls a minute, all workers together", low=0)
    tokens_per_minute: int = _setting(0, "tokens a minute, all workers together", low=0)
    max_in_flight: int = _setting(0, "model calls in flight, all workers together", low=0)

    # agents in a harness
    harness: str = _setting("", "agent of skill_harness: claude, codex, opencode, ...")
    harness_env: str = _setting("", "variables that an agent is given", many=",")
    sandbox: str = _setting("auto", "confines an agent: auto, bwrap, none or a command")

    # spending caps
    max_rollouts: int = _option(0, "stop cleanly after so many rollouts", low=0)
    max_calls: int = _option(0, "stop cleanly after so many paid calls", low=0)
    max_tokens: int = _option(0, "stop cleanly after so many tokens", low=0)
    max_cost: float = _option(0.0, "stop cleanly after so many US dollars", low=0)
    max_cost_increase: str = _setting("", "most that a rollout may take more tokens, such as 20%")
    max_time: float = _option(0.0, "stop cleanly after so many seconds", low=0)
    prices: str = _setting("", "MODEL=IN/OUT, ... in US dollars per million tokens", many=",")

    # the search
    search: str = _option(
        "trials",
        "trials[,shorten], batch or shorten",
        choices=("trials", "batch", "shorten", "trials,shorten"),
    )
    patience: int = _setting(3, "steps without a gain that end the search", low=1)
    preferences: str = _setting("", "house rules for the optimizer: a text or a Markdown file")
    prompts: str = _setting("", "folder of Markdown templates that replace ours")
    feedback: str = _setting(
        "full", "shown of a failure: full, message, score", choices=("full", "message", "score")
    )
    max_skill_tokens: int = _setting(0, "largest skill, at 4 characters a token", low=0)
    lint_allow: str = _setting("", "rules of the lint that do not apply", many=",")
    scan: str = _setting("", "command that scans the folder {skill} before a write")

    # the gate
    gate: str = _option(
        "staged",
        "staged, strict, off or a published one",
        choices=("staged", "strict", "confirm", "margin", "paired", "off"),
    )
    gate_alpha: float = _option(0.05, "chance of accepting a void edit", low=1e-6, high=0.5)
    metric: Literal["hard", "soft", "mixed"] = _setting(
        "hard", "hard, soft or mixed (half of each)", choices=("hard", "soft", "mixed")
    )
    final_rollouts: int = _setting(5, "fresh samples a task before a write", low=1)

    # what published mechanisms go by
    epochs: int = _published(4, low=1)
    batch_size: int = _published(0, low=0)
    minibatch_size: int = _batch(0, low=0)
    accumulation: int = _batch(1, low=1)
    merge_batch_size: int = _batch(8, low=2)
    failure_only: bool = _batch(False)
    update_mode: str = _published(
        "patch", choices=("patch", "rewrite_from_suggestions", "full_rewrite_minibatch")
    )
    autonomous_budget: bool = _batch(False)
    edit_budget: int = _published(4, low=1)
    min_edit_budget: int = _batch(0, low=0)
    schedule: str = _batch("cosine", choices=("constant", "linear", "cosine"))
    candidates: int = _batch(1, low=1)
    splitting: bool = _batch(True)
    pruning: bool = _published(True)
    slow_update: bool = _batch(True)
    slow_update_samples: int = _batch(8, low=1)
    slow_update_pairs: str = _batch("mixed", choices=("mixed", "changed", "unchanged"))
    meta_skill: bool = _batch(True)
    skill_aware: bool = _batch(False)
    appendix_threshold: int = _batch(6, low=1)
    gate_margin: float = _published(0.05, low=0, high=1)
    gate_k0: int = _published(3, low=1)
    gate_kc: int = _published(3, low=1)
    gate_kmax: int = _published(32, low=1)
    gate_alpha_run: float = _published(0.0, low=0, high=0.5)
    gate_veto: bool = _published(False)
    gate_broad: bool = _published(False)

    # no settings: what nobody has needed to change; tests and benchmarks do
    breaker: int = _setting(20, fixed=True)
    """Infrastructure errors in a row that stop the run."""
    call_retries: int = _setting(6, fixed=True)
    """Retries of a model call that met a passing fault."""
    max_reply_bytes: int = _setting(4_000_000, fixed=True)
    """Bytes of one reply above which it is refused."""
    contrastive: bool = _setting(True, fixed=True)
    """Show passed and failed samples of one task side by side."""
    optimizer_workers: int = _setting(8, fixed=True)
    """Optimizer calls at once."""

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Read options and ini keys; UsageError for a bad value."""
        fields = (f for f in dataclasses.fields(cls) if not f.metadata["fixed"])
        settings = cls(**{field.name: _read(config, field) for field in fields})
        if config.getoption("skillopt_train", None) == "description":
            settings = dataclasses.replace(settings, train_description=True)
        if settings.min_edit_budget > settings.edit_budget:
            raise pytest.UsageError(
                f"skillopt_min_edit_budget={settings.min_edit_budget} is above "
                f"skillopt_edit_budget={settings.edit_budget}: the budget falls during a training; "
                "lower the one or raise the other"
            )
        return settings

    def to_json(self) -> dict[str, Any]:
        fixed = {field.name for field in dataclasses.fields(self) if field.metadata["fixed"]}
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in fixed}


def declared() -> list[dataclasses.Field[Any]]:
    """The settings but those of published mechanisms, in the order of the documentation."""
    return [field for field in dataclasses.fields(Settings) if field.metadata["help"]]


def published() -> list[str]:
    """Names of the settings of published mechanisms."""
    return [field.name for field in dataclasses.fields(Settings) if field.metadata["published"]]


def add_settings(parser: pytest.Parser, group: pytest.OptionGroup) -> None:
    """Declare the options, and as ini keys what has no option.

    ``add_quiet_keys`` declares the other keys: ``pytest --help`` need not say everything twice.
    """
    for field in declared():
        meta = field.metadata
        text, default = meta["help"], shown(field.default)
        if default and "default:" not in text:
            text += f" (default: {default})"
        if meta["option"]:
            group.addoption(
                _flag(field.name),
                dest=_dest(field.name),
                default=None,
                metavar=meta["metavar"] or _metavar(field),
                help=text.replace("%", "%%"),
            )
        else:
            parser.addini(_key(field.name), text, type=_ini_type(field), default=None)


def add_quiet_keys(parser: pytest.Parser) -> None:
    """Declare the ini keys that ``pytest --help`` leaves out."""
    for field in dataclasses.fields(Settings):
        if field.metadata["option"] or field.metadata["published"]:
            parser.addini(_key(field.name), "", type=_ini_type(field), default=None)
    for name in _GONE:
        parser.addini(_key(name), "", default=None)


def refuse_old_options(args: Sequence[str]) -> None:
    """UsageError, which says what there is instead, for an option that is no more."""
    keys = {f.name for f in declared() if not f.metadata["option"]}.union(published())
    for word in args:
        prefix, flag, name = word.partition("=")[0].rpartition("--skillopt-")
        name = name.replace("-", "_")
        if flag and not prefix and name in _GONE.keys() | keys:
            how = f"write -o {_key(name)}=VALUE, or {_key(name)} in the configuration file"
            raise pytest.UsageError(f"{_flag(name)} is no option any more: {_GONE.get(name, how)}")


def refuse_old_keys(config: pytest.Config) -> None:
    """As ``refuse_old_options``, for the ini keys."""
    for name, instead in _GONE.items():
        if ini(config, name) is not None:
            raise pytest.UsageError(f"{_key(name)} is no setting any more: {instead}")


def ini(config: pytest.Config, name: str) -> Any:
    """The value of an ini key, None where it is not set; UsageError where pytest cannot read it."""
    try:
        return config.getini(_key(name))
    except (TypeError, ValueError, pytest.UsageError) as error:
        if "unknown configuration value" in str(error):
            # Loaded by a conftest file, the plugin comes too late for the keys that --help hides.
            return None
        raise pytest.UsageError(f"{_key(name)}: {error}") from None


def _read(config: pytest.Config, field: dataclasses.Field[Any]) -> Any:
    if field.metadata["option"]:
        option = config.getoption(_dest(field.name))
        if option is not None:
            return _converted(field, option, _flag(field.name))
    return _converted(field, ini(config, field.name), _key(field.name))


def _converted(field: dataclasses.Field[Any], value: Any, where: str) -> Any:
    """The value of an option or an ini key (a text, or what pytest's types make of it) as the field
    wants it; UsageError, naming ``where``, for a bad one."""
    default, meta = field.default, field.metadata
    if isinstance(value, list):
        # pytest hands a TOML list on where the file's form has no types, whatever was declared.
        if not meta["many"]:
            raise pytest.UsageError(f"{where}: {value} is a list where one text is wanted")
        value = meta["many"].join(value)
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "":
        return default
    if meta["choices"]:
        if value not in meta["choices"]:
            raise pytest.UsageError(f"{where}: {value!r} is none of {', '.join(meta['choices'])}")
        return value
    if isinstance(default, bool):
        if str(value).lower() not in _BOOLEANS:
            raise pytest.UsageError(f"{where}: {value!r} is neither yes nor no")
        return _BOOLEANS[str(value).lower()]
    return value if isinstance(default, str) else _number(field, value, where)


def _number(field: dataclasses.Field[Any], value: Any, where: str) -> float:
    kind: type[int] | type[float] = int if isinstance(field.default, int) else float
    low, high = field.metadata["low"], field.metadata["high"]
    try:
        number = kind(value)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise pytest.UsageError(f"{where}: {value!r} is not {noun}") from None
    if not low <= number <= high or not math.isfinite(number):
        bound = f"at least {low:g}" + (f" and at most {high:g}" if math.isfinite(high) else "")
        raise pytest.UsageError(f"{where}: {number} is out of range, it must be {bound}")
    return number


def _key(name: str) -> str:
    return f"skillopt_{name}"


def _flag(name: str) -> str:
    return "--skillopt-" + name.replace("_", "-")


def _dest(name: str) -> str:
    return f"skillopt_setting_{name}"


def _ini_type(field: dataclasses.Field[Any]) -> _IniType:
    return "linelist" if field.metadata["many"] else _INI_TYPES[type(field.default)]


def _metavar(field: dataclasses.Field[Any]) -> str:
    if field.metadata["choices"]:
        return "NAME"
    return {bool: "yes|no", int: "N", float: "X"}.get(type(field.default), "TEXT")


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
