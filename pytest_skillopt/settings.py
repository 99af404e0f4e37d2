"""The settings that shape a run: one frozen dataclass, made once from pytest's configuration.

Each is an ini key ``skillopt_<name>``; those that a run is often given by hand are an option
``--skillopt-<name>`` too, which wins. ``options.py`` and the plugins declare them to pytest.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import iniconfig  # pytest's own parser of ini files
import pytest

from pytest_skillopt.plugins import merged, switched_off
from pytest_skillopt.untrusted import redact

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

_BOOLEANS = {"yes": True, "true": True, "on": True, "1": True} | {
    "no": False, "false": False, "off": False, "0": False,
}  # fmt: skip
_RAW_NUMBER = re.compile(r"(?:could not convert string to float|(invalid literal) .*?): (.*)")
"""Words of Python for a text that is not a number, which pytest passes on."""
_DEARER = (
    "read in the report what a rollout takes before and after, with skillopt_write = no; "
    "skillopt_max_skill_tokens bounds the skill's length"
)
_ROUNDS = "set skillopt_rollouts, which --skillopt-check follows too"
_PAUSED = (
    "leave it out: a pause that the provider asks for holds for all workers, and "
    "skillopt_max_in_flight bounds the calls at once"
)
REMOVED = {
    "proposer": "leave it out; have a coding agent change a copy of the skill, and compare it "
    "with --skillopt-try=FOLDER",
    "verify": "run --skillopt-check=REF with --skillopt-target of each further model, or with "
    "-o skillopt_harness of each further agent, in a matrix of the CI (docs/ci.md)",
    "verify_rule": "each job of a matrix of the CI with --skillopt-check=REF and its own "
    "--skillopt-target fails by itself (docs/ci.md)",
    "train_code": "leave it out, and name no scripts in skillopt_files: only texts are trained",
    "pruning": "leave it out: an edit that does not help is never offered to the final comparison",
    "max_cost_increase": _DEARER,
    "max_time_increase": _DEARER,
    "prompts": "return the text of a template from the hook pytest_skillopt_prompt(name) in "
    "conftest.py (docs/optimizer.md)",
    "requests_per_minute": _PAUSED,
    "tokens_per_minute": _PAUSED,
    "gate_margin": "leave it out: the gates margin and paired are gone, and the default gate tests "
    "what a rise can be by chance",
    "init": "write a SKILL.md of a name, a description and a heading (docs/getting-started.md)",
    "save_baseline": "leave it out: .skillopt/cache answers the calls for the earlier version of a "
    "skill, also in a CI that keeps it between jobs (docs/ci.md)",
    "gate_k0": _ROUNDS,
    "gate_kc": _ROUNDS,
    "gate_kmax": "leave it out: a decision follows a task for at most 32 samples of each version",
    "gate_alpha_run": "leave it out: the final comparison decides once, by skillopt_gate_alpha",
    "feedback": "leave it out; a test says by rollout.feedback(text) what the optimizer is told",
    "harness_login": "set skillopt_target = cli:claude or cli:codex, which runs agents under your "
    "own sign-in (docs/login.md)",
    "gate_veto": "mark the tasks that no edit may break, by must_pass=True (docs/reference.md)",
    "scan": "run the scanner as a check of the branch that `pytest-skillopt propose` pushes "
    "(docs/lint.md)",
}
"""Sentences that say what to do now, by the name of a setting, option or mode that is gone."""

_ABOUT = {
    "low": -math.inf,
    "high": math.inf,
    "choices": (),
    "many": "",  # separator between the values of a setting that takes several
    "search": "",  # the only search in which the setting has an effect
    "fixed": False,  # neither an option nor an ini key
    "published": False,  # read from the setting of that name
    "free": False,  # changes no sample: a run may be continued with another value
}


def _setting(default: Any, **about: Any) -> Any:
    """Declare a field of the settings.

    Args:
        default: its type is the setting's: bool, int, float or str.
        about: further properties, by the names in ``_ABOUT``.
    """
    return dataclasses.field(default=default, metadata=_ABOUT | about)


def _free(default: Any, **how: Any) -> Any:
    return _setting(default, free=True, **how)


def _fixed(default: Any) -> Any:
    return _setting(default, fixed=True)


def _published(default: Any, **how: Any) -> Any:
    return _setting(default, published=True, **how)


def _batch(default: Any, **how: Any) -> Any:
    return _published(default, search="batch", **how)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session. Booleans are written ``yes`` or ``no``; 0 turns a cap off."""

    # the suite
    skill: str = _setting("")
    split: str = _setting("2:1:1")
    split_seed: int = _published(0, low=0)
    seed: int = _setting(0, low=0)
    rollouts: int = _setting(3, low=1)
    timeout: float = _free(600.0, low=0)
    min_pass_rate: float = _setting(0.5, low=0, high=1)
    max_attempts: int = _free(3, low=1)
    max_error_rate: float = _setting(0.05, low=0, high=1)
    dir: str = _free(".skillopt")
    files: str = _setting("references/*.md", many=",")
    train_description: bool = _setting(False)
    write: bool = _setting(True)

    # models
    model: str = _free("")
    target: str = _free("")
    optimizer: str = _free("")
    judge: str = _free("")
    base_url: str = _free("")
    requests: str = _free("", many="\n")
    request_timeout: float = _free(120.0, low=0.1)
    max_turns: int = _setting(16, low=1)
    cache: Literal["rw", "ro", "off", "refresh"] = _free(
        "rw", choices=("rw", "ro", "off", "refresh")
    )
    max_in_flight: int = _free(0, low=0)

    # spending caps
    max_rollouts: int = _free(0, low=0)
    max_calls: int = _free(0, low=0)
    max_tokens: int = _free(0, low=0)
    max_cost: float = _free(0.0, low=0)
    max_time: float = _free(0.0, low=0)
    prices: str = _free("", many=",")

    # the search
    search: str = _setting("trials")
    preferences: str = _setting("")
    max_skill_tokens: int = _setting(0, low=0)
    lint_allow: str = _setting("", many=",")

    # the gate
    gate: str = _setting("sequential")
    gate_alpha: float = _setting(0.05, low=1e-6, high=0.5)
    metric: Literal["hard", "soft", "mixed"] = _setting("hard", choices=("hard", "soft", "mixed"))
    final_rollouts: int = _setting(5, low=1)

    # of plugins
    user: str = _free("")
    evals_pass: float = _setting(1.0, low=1e-6, high=1)
    harness: str = _setting("")
    harness_env: str = _setting("", many=",")
    sandbox: str = _setting("auto")
    lanes: int = _free(1, low=1, high=256)
    epochs: int = _published(4, low=1)
    edit_budget: int = _published(4, low=1)
    patience: int = _batch(3, low=1)
    batch_size: int = _batch(0, low=0)
    minibatch_size: int = _batch(0, low=0)
    accumulation: int = _batch(1, low=1)
    merge_batch_size: int = _batch(8, low=2)
    failure_only: bool = _batch(False)
    contrasts: int = _batch(0, low=0)
    update_mode: str = _batch(
        "patch", choices=("patch", "rewrite_from_suggestions", "full_rewrite_minibatch")
    )
    autonomous_budget: bool = _batch(False)
    min_edit_budget: int = _batch(0, low=0)
    schedule: str = _batch("cosine", choices=("constant", "linear", "cosine"))
    slow_update: bool = _batch(True)
    slow_update_samples: int = _batch(20, low=1)
    slow_update_pairs: str = _batch("mixed", choices=("mixed", "changed", "unchanged"))
    meta_skill: bool = _batch(True)
    skill_aware: bool = _batch(False)
    appendix_source: str = _batch("both", choices=("both", "failure_only"))
    appendix_threshold: int = _batch(6, low=0)

    # constants that only tests and benchmarks change
    breaker: int = _fixed(20)
    """Consecutive infrastructure errors that stop the run."""
    call_retries: int = _fixed(6)
    """Retries of a model call after a temporary fault; an ordinary run has 2."""
    longest_pause: float = _fixed(900.0)
    """Longest pause in seconds that a provider may ask for; in an ordinary run 10."""
    max_reply_bytes: int = _fixed(4_000_000)
    """Largest reply in bytes; a larger one is refused."""
    optimizer_workers: int = _fixed(0)
    """Concurrent optimizer calls; 0: as many as rollouts run at once, and at least 8."""

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Read options and ini keys; raise UsageError for a bad value."""
        refuse_table(config)
        told = _told(config)
        values = {field.name: _read(config, field, config.option, told) for field in FIELDS}
        if config.getoption("skillopt_train", None) == "description":
            values["train_description"] = True
        settings = cls(**values)
        settings._validate(config)
        return settings

    @classmethod
    def from_file(cls, found: Mapping[str, Any]) -> Settings:
        """Read ini keys, without ``skillopt_``, as a file has them; UsageError for a bad value."""
        values = {}
        for field in FIELDS:
            value = found.get(field.name)
            if isinstance(value, str):
                value = (field.metadata["many"] or " ").join(_lines(value))
            values[field.name] = _converted(field, value, f"skillopt_{field.name}")
        return cls(**values)

    def _validate(self, config: pytest.Config) -> None:
        """Raise UsageError for a search or gate that no plugin brings, and for contradictions."""
        searches = ["trials", *merged(config.hook.pytest_skillopt_searches())]
        gates = ["sequential", *merged(config.hook.pytest_skillopt_rules())]
        for name, value, known in (("search", self.search, searches), ("gate", self.gate, gates)):
            if value not in known:
                raise pytest.UsageError(
                    f"skillopt_{name}: {value!r} is not one of {', '.join(known)}"
                    f"{switched_off(config)}"
                )
        if self.min_edit_budget > self.edit_budget:
            raise pytest.UsageError(
                f"min_edit_budget={self.min_edit_budget} is above "
                f"edit_budget={self.edit_budget}: the budget falls during a training; "
                "lower the former or raise the latter"
            )
        if self.update_mode != "patch" and self.search == "trials":
            raise pytest.UsageError(
                f"update_mode={self.update_mode} rewrites the whole body, which cannot be "
                "sampled edit by edit: set --skillopt-search=batch, or omit this setting"
            )

    def to_json(self) -> dict[str, Any]:
        """Return every setting by its name, without secrets."""
        return {field.name: value for field, value in self.fields()}

    def fields(self) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
        """Yield each setting with its value, without secrets."""
        for field in FIELDS:
            value = getattr(self, field.name)
            yield field, redact(value) if isinstance(value, str) else value


FIELDS = [field for field in dataclasses.fields(Settings) if not field.metadata["fixed"]]


def refuse_options(config: pytest.Config, args: Iterable[str]) -> None:
    """Raise UsageError for an option that is gone, or is an ini key only; say what to do now."""
    for word in args:
        flag = word.partition("=")[0]
        name = flag.removeprefix("--skillopt-").replace("-", "_")
        if not flag.startswith("--skillopt-") or _has_option(config, name):
            continue
        if name in REMOVED:
            raise pytest.UsageError(f"{flag} no longer exists: {REMOVED[name]}")
        if _is_declared(config, f"skillopt_{name}"):
            how = f"-o skillopt_{name}=VALUE, or skillopt_{name} in the configuration file"
            raise pytest.UsageError(f"{flag} is not an option: write {how}")
        if off := switched_off(config):
            raise pytest.UsageError(f"{flag} is not an option here{off}")


def _has_option(config: pytest.Config, name: str) -> bool:
    return hasattr(config.known_args_namespace, f"skillopt_{name}")


def refuse_keys(config: pytest.Config, names: Iterable[str]) -> None:
    """Raise UsageError for an ini key like one of ours that nobody has declared: name the nearest.

    pytest only warns of it at the end, and a mistyped cap would be no cap.
    """
    known = [f"skillopt_{field.name}" for field in FIELDS]
    for name in sorted(names):
        if _is_declared(config, name):
            continue
        short = name.removeprefix("skillopt_")
        gone = REMOVED.get(short)
        if any(field.name == short and field.metadata["published"] for field in FIELDS):
            gone = f"write it into skillopt_published, as {short}: VALUE (docs/published.md)"
        if gone:
            raise pytest.UsageError(f"{name} no longer exists: {gone}")
        near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.0)
        hint = switched_off(config) or f"; the nearest is {near[0]} (docs/reference.md has all)"
        given = name in str(config.known_args_namespace.override_ini)
        place = "" if given or not config.inipath else f" in {config.inipath.name}"
        raise pytest.UsageError(f"{name}{place} is not a setting{hint}")


def refuse_table(config: pytest.Config) -> None:
    """Raise UsageError for a table or section of our name in the configuration file.

    Nothing reads it, so that a cap in it would be no cap.
    """
    path = config.inipath
    if path is None:
        return
    if path.suffix == ".toml":
        whole = tomllib.loads(path.read_text(encoding="utf-8"))
        names = {*whole, *(f"tool.{name}" for name in whole.get("tool", ()))}
    else:
        names = set(iniconfig.IniConfig(path).sections)
    for name in sorted(names & _TABLES):
        raise pytest.UsageError(
            f"[{name}] in {path.name} is not read: write its settings as skillopt_NAME beside "
            "those of pytest (docs/reference.md)"
        )


_TABLES = {f"{above}{name}" for above in ("", "tool.") for name in ("skillopt", "pytest-skillopt")}


def _is_declared(config: pytest.Config, name: str) -> bool:
    try:
        config.getini(name)
    except (TypeError, ValueError, pytest.UsageError) as error:
        return not _is_unknown(error)  # else a value that pytest cannot read
    return True


def _is_unknown(error: Exception) -> bool:
    """Return whether pytest has raised this for an ini key that nobody has declared."""
    return isinstance(error, ValueError) and isinstance(error.__cause__, KeyError)


def ini(config: pytest.Config, name: str) -> Any:
    """Return the value of an ini key, None if it is not set.

    Raises:
        UsageError: pytest cannot read the value.
    """
    try:
        return config.getini(f"skillopt_{name}")
    except (TypeError, ValueError, pytest.UsageError) as error:
        if _is_unknown(error):
            return None  # of a plugin that is switched off
        raw = _RAW_NUMBER.fullmatch(str(error))
        said = f"{raw[2]} is not {'a whole' if raw[1] else 'a'} number" if raw else str(error)
        raise pytest.UsageError(f"skillopt_{name}: {said}") from None


def early_value(config: pytest.Config, name: str) -> Any:
    """Return the value of a setting before pytest has parsed the whole command line."""
    (field,) = (field for field in FIELDS if field.name == name)
    return _read(config, field, config.known_args_namespace, {})


def _told(config: pytest.Config) -> dict[str, Any]:
    """Ask the plugins for settings; raise UsageError for a name that is none."""
    found = merged(config.hook.pytest_skillopt_settings(config=config))
    if unknown := found.keys() - {field.name for field in FIELDS}:
        said = f"{', '.join(sorted(unknown))} is not a setting"
        raise pytest.UsageError(f"pytest_skillopt_settings: {said} (docs/reference.md has all)")
    return found


def _read(
    config: pytest.Config,
    field: dataclasses.Field[Any],
    options: argparse.Namespace,
    told: Mapping[str, Any],
) -> Any:
    name = field.name
    option = getattr(options, f"skillopt_{name}", None)
    if option is not None:
        return _converted(field, option, "--skillopt-" + name.replace("_", "-"))
    place = f"skillopt_published: {name}" if field.metadata["published"] else f"skillopt_{name}"
    value = ini(config, name)
    if value is None:
        value = told.get(name)
    return _converted(field, value, place)


def _converted(field: dataclasses.Field[Any], value: Any, where: str) -> Any:
    """Return the value of an option or an ini key as the field's type.

    Raises:
        UsageError: the value is bad; ``where`` names its place in the message.
    """
    default = field.default
    meta = field.metadata
    if isinstance(value, list):
        # pytest passes a TOML list on, whatever type was declared, if the file's format is untyped.
        if not meta["many"]:
            raise pytest.UsageError(f"{where}: {value} is a list; one text is expected")
        value = meta["many"].join(value)
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "":
        return default
    if choices := meta["choices"]:
        if value not in choices:
            raise pytest.UsageError(f"{where}: {value!r} is not one of {', '.join(choices)}")
        return value
    if isinstance(default, bool):
        if str(value).lower() not in _BOOLEANS:
            raise pytest.UsageError(f"{where}: {value!r} is neither yes nor no")
        return _BOOLEANS[str(value).lower()]
    return value if isinstance(default, str) else _number(field, value, where)


def _number(field: dataclasses.Field[Any], value: Any, where: str) -> float:
    kind: type[int] | type[float] = int if isinstance(field.default, int) else float
    low = field.metadata["low"]
    high = field.metadata["high"]
    try:
        number = kind(value)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise pytest.UsageError(f"{where}: {value!r} is not {noun}") from None
    if not low <= number <= high or not math.isfinite(number):
        most = f"at most {high:g}" if math.isfinite(high) else "finite"
        bound = f"at least {low:g} and {most}"
        raise pytest.UsageError(f"{where}: {number} is out of range; it must be {bound}")
    return number


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def in_words(value: Any) -> str:
    """Write a value as a configuration file has it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
