"""Every setting of the plugin: one frozen dataclass, made once from pytest's configuration.

Each is an ini key ``skillopt_<name>``; those that a run is often given by hand are an option
``--skillopt-<name>`` too, which wins. Ini keys have pytest's own types: a native TOML configuration
writes numbers, booleans and lists as such.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

from pytest_skillopt.registry import addons, merged, register_addons

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

_BOOLEANS = {"yes": True, "true": True, "on": True, "1": True} | {
    "no": False, "false": False, "off": False, "0": False,
}  # fmt: skip
_RAW_NUMBER = re.compile(r"(?:could not convert string to float|(invalid literal) .*?): (.*)")
"""Words of Python for a text that is not a number, which pytest passes on."""
_IniType = Literal["linelist", "bool", "int", "float", "string"]
_INI_TYPES: dict[type, _IniType] = {bool: "bool", int: "int", float: "float", str: "string"}

_DEARER = (
    "read in the report what a rollout takes before and after, with skillopt_write = no; "
    "skillopt_max_skill_tokens bounds the skill's length"
)
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
    "feedback": "leave it out; a test says by rollout.feedback(text) what the optimizer is told",
    "scan": "run the scanner as a check of the branch that `pytest-skillopt propose` pushes "
    "(docs/lint.md)",
}
"""Sentences that say what to do now, by the name of a setting, option or mode that is gone."""

_ABOUT = {
    "low": -math.inf,
    "high": math.inf,
    "choices": (),
    "metavar": "",
    "many": "",  # separator between the values of a setting that takes several
    "option": False,
    "more": None,  # from an add-on to its table of further choices
    "quiet": False,  # an ini key that ``pytest --help`` leaves out
    "search": "",  # the only search in which the setting has an effect
    "fixed": False,  # neither an option nor an ini key
    "free": False,  # changes no sample: a run may be continued with another value
}


def setting(default: Any, help: str = "", **about: Any) -> Any:
    """Declare a field of a class of settings.

    Args:
        default: its type is the setting's: bool, int, float or str.
        help: one line; ``{choices}`` in it is replaced by the choices.
        about: further properties, by the names in ``_ABOUT``.
    """
    return dataclasses.field(default=default, metadata=_ABOUT | {"help": help} | about)


def _option(default: Any, help: str, **how: Any) -> Any:
    return setting(default, help, option=True, **how)


def _cap(default: float, unit: str) -> Any:
    return _option(default, f"stop after this many {unit} (default: no cap)", low=0, free=True)


def _quiet(default: Any, **how: Any) -> Any:
    return setting(default, quiet=True, **how)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AddOnSettings:
    """The settings of an add-on: fields of a subclass, each a ``setting``."""

    @property
    def slots(self) -> int:
        """Number of rollouts that a worker runs at once."""
        return 1

    def validate(self, settings: Settings) -> None:
        """Raise UsageError for settings that contradict each other or those of the core."""


Own = TypeVar("Own", bound=AddOnSettings)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session. Booleans are written ``yes`` or ``no``; 0 turns a cap off."""

    # the suite
    skill: str = _option("", "skill file (default: the only SKILL.md)")
    split: str = _option("2:1:1", "ratio of train:val:test tasks")
    split_seed: int = setting(0, "seed of the splits", low=0)
    seed: int = _option(0, "seed for all random choices", low=0)
    rollouts: int = _option(3, "K: rollouts per task and version", low=1)
    timeout: float = _option(600.0, "seconds per rollout; 0: no limit", low=0, free=True)
    min_pass_rate: float = setting(0.5, "pass rate from which a task passes", low=0, high=1)
    max_attempts: int = setting(3, "attempts at a rollout that ends in an error", low=1, free=True)
    max_error_rate: float = setting(0.05, "largest share of errors in a decision", low=0, high=1)
    dir: str = _option(".skillopt", "folder of the runs and the cache", free=True)
    files: str = setting("references/*.md", "other trained files, or none", many=",")
    train_description: bool = setting(False, "train descriptions, too, on trigger tasks")
    write: bool = _option(True, "write improved skills; no: only propose", metavar="no")

    # models
    model: str = _option("", "model of every role: provider:model[@URL]", free=True)
    target: str = _option("", "model that uses the skill: provider:model[@URL]", free=True)
    optimizer: str = _option("", "model that proposes edits: provider:model[@URL]", free=True)
    judge: str = _option("", "model of skill_judge (default: the optimizer)", free=True)
    base_url: str = _option("", "server of models without @URL", metavar="URL", free=True)
    requests: str = setting(
        "", "[ROLE.]NAME = VALUE lines: temperature, key_env, ...", many="\n", free=True
    )
    request_timeout: float = setting(120.0, "seconds per model call", low=0.1, free=True)
    max_turns: int = setting(16, "maximum model calls per skill_agent prompt", low=1)
    cache: Literal["rw", "ro", "off", "refresh"] = _option(
        "rw", "reply cache: {choices}", choices=("rw", "ro", "off", "refresh"), free=True
    )
    max_in_flight: int = setting(
        0, "concurrent model calls, all workers (default: no limit)", low=0, free=True
    )

    # spending caps
    max_rollouts: int = _cap(0, "rollouts")
    max_calls: int = _cap(0, "paid calls")
    max_tokens: int = _cap(0, "tokens")
    max_cost: float = _cap(0.0, "US dollars")
    max_time: float = _cap(0.0, "seconds")
    prices: str = setting(
        "",
        "MODEL=IN/OUT or IN/OUT/CACHED, ... in US dollars per million tokens",
        many=",",
        free=True,
    )

    # the search
    search: str = _option(
        "trials",
        "how edits are found: {choices}",
        choices=("trials",),
        more=lambda addon: addon.searches,
    )
    patience: int = setting(
        3, "steps without a gain that end the search batch", low=1, search="batch"
    )
    preferences: str = setting("", "rules for the optimizer: a text or a Markdown file")
    max_skill_tokens: int = setting(
        0, "largest skill, 4 characters a token (default: no limit)", low=0
    )
    lint_allow: str = setting("", "lint rules to ignore", many=",")

    # the gate
    gate: str = _option(
        "sequential",
        "rule that accepts an edit: {choices}",
        choices=("sequential",),
        more=lambda addon: addon.gates,
    )
    gate_alpha: float = _option(0.05, "risk of accepting a useless edit", low=1e-6, high=0.5)
    metric: Literal["hard", "soft", "mixed"] = setting(
        "hard", "score: hard, soft (rollout.score), mixed", choices=("hard", "soft", "mixed")
    )
    final_rollouts: int = setting(5, "fresh samples per task before a write", low=1)

    # ini keys that few suites need
    epochs: int = _quiet(4, low=1)
    batch_size: int = _quiet(0, low=0, search="batch")
    edit_budget: int = _quiet(4, low=1)
    gate_k0: int = _quiet(3, low=1)
    gate_kc: int = _quiet(3, low=1)
    gate_kmax: int = _quiet(32, low=1)
    gate_alpha_run: float = _quiet(0.0, low=0, high=0.5)
    gate_veto: bool = _quiet(False)

    # constants that only tests and benchmarks change
    breaker: int = setting(20, fixed=True)
    """Consecutive infrastructure errors that stop the run."""
    call_retries: int = setting(6, fixed=True)
    """Retries of a model call after a temporary fault; an ordinary run has 2."""
    longest_pause: float = setting(900.0, fixed=True)
    """Longest pause in seconds that a provider may ask for; in an ordinary run 10."""
    max_reply_bytes: int = setting(4_000_000, fixed=True)
    """Largest reply in bytes; a larger one is refused."""
    optimizer_workers: int = setting(8, fixed=True)
    """Concurrent optimizer calls."""

    addons: tuple[AddOnSettings, ...] = setting((), fixed=True)
    """Settings of add-ons; ``of`` finds them."""

    @classmethod
    def from_config(cls, config: pytest.Config) -> Settings:
        """Read options and ini keys; raise UsageError for a bad value.

        A session that had not mentioned the plugin before gets its add-ons now.
        """
        register_addons(config.pluginmanager)
        _refuse_removed_keys(config)
        settings = cls.make(
            **{field.name: _read(config, field, config.option) for field in _all_fields()}
        )
        if config.getoption("skillopt_train", None) == "description":
            settings = dataclasses.replace(settings, train_description=True)
        for part in settings.addons:
            part.validate(settings)
        return settings

    @classmethod
    def make(cls, **values: Any) -> Settings:
        """Make settings, those of add-ons included, from values by name."""
        more: list[AddOnSettings] = []
        for kind in _kinds():
            names = {field.name for field in dataclasses.fields(kind)} & values.keys()
            more.append(kind(**{name: values.pop(name) for name in names}))
        return cls(**values, addons=tuple(more))

    def of(self, kind: type[Own]) -> Own:
        """Return the settings of an add-on; its defaults if none were given."""
        found = next((value for value in self.addons if isinstance(value, kind)), None)
        return kind() if found is None else found

    @property
    def slots(self) -> int:
        return max((part.slots for part in self.addons), default=1)

    def to_json(self) -> dict[str, Any]:
        """Return every setting, those of add-ons included, by its name."""
        return {field.name: value for field, value in self.fields()}

    def fields(self) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
        """Yield each setting, those of add-ons included, with its value."""
        parts: tuple[Settings | AddOnSettings, ...] = (self, *self.addons)
        for part in parts:
            for field in dataclasses.fields(part):
                if not field.metadata["fixed"]:
                    yield field, getattr(part, field.name)


def _kinds() -> list[type[AddOnSettings]]:
    return [addon.settings for addon in addons() if addon.settings]


def _all_fields() -> list[dataclasses.Field[Any]]:
    kinds: list[type[Settings | AddOnSettings]] = [Settings, *_kinds()]
    fields = (field for kind in kinds for field in dataclasses.fields(kind))
    return [field for field in fields if not field.metadata["fixed"]]


def documented() -> list[dataclasses.Field[Any]]:
    """List the settings that ``pytest --help`` shows, in its order."""
    return [field for field in _all_fields() if field.metadata["help"]]


def quiet() -> list[dataclasses.Field[Any]]:
    """List the settings that ``pytest --help`` leaves out."""
    return [field for field in _all_fields() if field.metadata["quiet"]]


def meaning(field: dataclasses.Field[Any]) -> str:
    """Return the one-line help of a setting."""
    choices = choices_of(field)
    listed = f"{', '.join(choices[:-1])} or {choices[-1]}" if choices else ""
    return str(field.metadata["help"]).replace("{choices}", listed)


def choices_of(field: dataclasses.Field[Any]) -> list[str]:
    """List the values that a setting may have; empty if any value is allowed."""
    more = merged(field.metadata["more"] or (lambda addon: {}))
    return [*field.metadata["choices"], *(name for name in more if ", " not in name)]


def add_settings(parser: pytest.Parser, group: pytest.OptionGroup) -> None:
    """Declare the options, and the ini keys of settings that have no option.

    ``add_quiet_keys`` declares the other keys, so that ``pytest --help`` shows each setting once.
    """
    for field in documented():
        meta = field.metadata
        text, default = meaning(field), shown(field.default)
        if default and "default:" not in text:
            text += f" (default: {default})"
        if meta["option"]:
            group.addoption(
                _flag(field.name),
                dest=_dest(field.name),
                default=None,
                metavar=meta["metavar"] or {int: "N", float: "X"}.get(type(field.default), "S"),
                help=text.replace("%", "%%"),
            )
        else:
            parser.addini(_key(field.name), text, type=_ini_type(field), default=None)


def add_quiet_keys(parser: pytest.Parser) -> None:
    """Declare the ini keys that ``pytest --help`` leaves out."""
    for field in _all_fields():
        if field.metadata["option"] or field.metadata["quiet"]:
            parser.addini(_key(field.name), "", type=_ini_type(field), default=None)
    for name in REMOVED:
        parser.addini(_key(name), "", type="string", default=None)


def _refuse_removed_keys(config: pytest.Config) -> None:
    for name, sentence in REMOVED.items():
        try:
            is_given = ini(config, name) is not None
        except pytest.UsageError:  # a number, a boolean or a list
            is_given = True
        if is_given:
            raise pytest.UsageError(f"{_key(name)} no longer exists: {sentence}")


def refuse_unknown_keys(config: pytest.Config) -> None:
    """Raise UsageError for an ini key like one of ours that nobody has declared: name the nearest.

    pytest only warns of it at the end, and a mistyped cap would be no cap.
    """
    # pytest tells these names only in its warning; before version 9 without those of ``-o``.
    unknown = {*config._get_unknown_ini_keys()}
    unknown |= {word.partition("=")[0].strip() for word in config.getoption("override_ini") or ()}
    known = {_key(field.name) for field in _all_fields()} | {_key(name) for name in REMOVED}
    for name in sorted(unknown - known):
        if not name.lower().startswith("skillopt") or _is_declared(config, name):
            continue
        near = difflib.get_close_matches(name.lower().replace("-", "_"), known, n=1, cutoff=0.0)
        place = f" in {config.inipath.name}" if config.inipath else ""
        raise pytest.UsageError(
            f"{name}{place} is not a setting; the nearest is {near[0]} (docs/reference.md has all)"
        )


def _is_declared(config: pytest.Config, name: str) -> bool:
    try:
        config.getini(name)
    except ValueError as error:
        return not isinstance(error.__cause__, KeyError)
    return True


def refuse_removed_options(args: Sequence[str]) -> None:
    """Raise UsageError for an option that is gone; say what to do now."""
    sentences = {_flag(name): sentence for name, sentence in REMOVED.items()}
    for word in args:
        flag = word.partition("=")[0]
        if flag in sentences:
            raise pytest.UsageError(f"{flag} no longer exists: {sentences[flag]}")


def refuse_key_as_option(args: Sequence[str]) -> None:
    """Raise UsageError if an ini key is given as an option; say how to set the key."""
    keys = {_flag(f.name): _key(f.name) for f in _all_fields() if not f.metadata["option"]}
    for word in args:
        flag = word.partition("=")[0]
        if flag in keys:
            how = f"write -o {keys[flag]}=VALUE, or {keys[flag]} in the configuration file"
            raise pytest.UsageError(f"{flag} is not an option: {how}")


def ini(config: pytest.Config, name: str) -> Any:
    """Return the value of an ini key, None if it is not set.

    Raises:
        UsageError: pytest cannot read the value.
    """
    try:
        return config.getini(_key(name))
    except (TypeError, ValueError, pytest.UsageError) as error:
        if "unknown configuration value" in str(error):
            # A plugin loaded by a conftest file comes too late for the keys that --help hides.
            return None
        raw = _RAW_NUMBER.fullmatch(str(error))
        said = f"{raw[2]} is not {'a whole' if raw[1] else 'a'} number" if raw else str(error)
        raise pytest.UsageError(f"{_key(name)}: {said}") from None


def early_value(config: pytest.Config, name: str) -> Any:
    """Return the value of a setting before pytest has parsed the whole command line."""
    (field,) = (field for field in _all_fields() if field.name == name)
    return _read(config, field, config.known_args_namespace)


def _read(config: pytest.Config, field: dataclasses.Field[Any], options: argparse.Namespace) -> Any:
    if field.metadata["option"]:
        option = getattr(options, _dest(field.name), None)
        if option is not None:
            return _converted(field, option, _flag(field.name))
    return _converted(field, ini(config, field.name), _key(field.name))


def _converted(field: dataclasses.Field[Any], value: Any, where: str) -> Any:
    """Return the value of an option or an ini key as the field's type.

    Raises:
        UsageError: the value is bad; ``where`` names its place in the message.
    """
    default, meta = field.default, field.metadata
    if isinstance(value, list):
        # pytest passes a TOML list on, whatever type was declared, if the file's format is untyped.
        if not meta["many"]:
            raise pytest.UsageError(f"{where}: {value} is a list; one text is expected")
        value = meta["many"].join(value)
    value = value.strip() if isinstance(value, str) else value
    if value is None or value == "":
        return default
    if choices := choices_of(field):
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
    low, high = field.metadata["low"], field.metadata["high"]
    try:
        number = kind(value)
    except ValueError:
        noun = "a whole number" if kind is int else "a number"
        raise pytest.UsageError(f"{where}: {value!r} is not {noun}") from None
    if not low <= number <= high or not math.isfinite(number):
        bound = f"at least {low:g}" + (f" and at most {high:g}" if math.isfinite(high) else "")
        raise pytest.UsageError(f"{where}: {number} is out of range; it must be {bound}")
    return number


def _key(name: str) -> str:
    return f"skillopt_{name}"


def _flag(name: str) -> str:
    return "--skillopt-" + name.replace("_", "-")


def _dest(name: str) -> str:
    return f"skillopt_setting_{name}"


def _ini_type(field: dataclasses.Field[Any]) -> _IniType:
    return "linelist" if field.metadata["many"] else _INI_TYPES[type(field.default)]


def shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
