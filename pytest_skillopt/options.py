"""The options and ini keys of the core, as pytest shows them; ``settings.py`` reads them."""

from __future__ import annotations

import itertools
import os
import sys
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Sequence

    import pytest

    from pytest_skillopt.settings import Settings

    IniType = Literal["linelist", "bool", "int", "float", "string"]
    Declared = Sequence[tuple[str, str, IniType, str]]
    """Name, metavar of the option (empty: an ini key only), type and help of each setting."""


_OF_TASKS: Declared = (
    ("skill", "", "string", "skill file (default: the only SKILL.md)"),
    ("split", "", "string", "ratio of train:val:test tasks (default: 2:1:1)"),
    ("seed", "", "int", "seed for all random choices (default: 0)"),
)
_OF_ROLLOUTS: Declared = (
    ("rollouts", "K", "int", "rollouts per task and version (default: 3)"),
    ("timeout", "", "float", "seconds per rollout; 0: no limit (default: 600)"),
    ("min_pass_rate", "", "float", "pass rate from which a task passes (default: 0.5)"),
    ("max_attempts", "", "int", "attempts at a rollout that ends in an error (default: 3)"),
    ("max_error_rate", "", "float", "largest share of errors in a decision (default: 0.05)"),
)
_OF_FILES: Declared = (
    ("dir", "", "string", "folder of the runs and the cache (default: .skillopt)"),
    ("files", "", "linelist", "other trained files, or none (default: references/*.md)"),
    ("train_description", "", "bool", "train descriptions, too, on trigger tasks (default: no)"),
    ("write", "no", "bool", "write improved skills; no: only propose (default: yes)"),
)
_OF_MODELS: Declared = (
    ("model", "M", "string", "model of every role: provider:model[@URL]"),
    ("target", "M", "string", "model that uses the skill: provider:model[@URL]"),
    ("optimizer", "M", "string", "model that proposes edits: provider:model[@URL]"),
    ("judge", "", "string", "model of skill_judge (default: the optimizer)"),
    ("base_url", "", "string", "server of models without @URL"),
    ("requests", "", "linelist", "[ROLE.]NAME = VALUE lines: temperature, key_env, ..."),
    ("request_timeout", "", "float", "seconds per model call (default: 120)"),
    ("max_turns", "", "int", "maximum model calls per skill_agent prompt (default: 16)"),
    ("cache", "rw", "string", "reply cache: rw, ro, off or refresh (default: rw)"),
    ("max_in_flight", "", "int", "concurrent model calls, all workers (default: no limit)"),
)
_OF_CAPS: Declared = (
    ("max_rollouts", "N", "int", "stop after this many rollouts (default: no cap)"),
    ("max_calls", "N", "int", "stop after this many paid calls (default: no cap)"),
    ("max_tokens", "N", "int", "stop after this many tokens (default: no cap)"),
    ("max_cost", "X", "float", "stop after this many US dollars (default: no cap)"),
    ("max_time", "S", "float", "stop after this many seconds (default: no cap)"),
    (
        "prices",
        "",
        "linelist",
        "MODEL=IN/OUT or IN/OUT/CACHED, ... in US dollars per million tokens",
    ),
)
_OF_TRAINING: Declared = (
    (
        "search",
        "NAME",
        "string",
        "how edits are found: trials, batch, shorten, ... (default: trials)",
    ),
    ("preferences", "", "string", "rules for the optimizer: a text or a Markdown file"),
    ("max_skill_tokens", "", "int", "largest skill, 4 characters a token (default: no limit)"),
    ("lint_allow", "", "linelist", "lint rules to ignore"),
    (
        "gate",
        "",
        "string",
        "rule that accepts an edit: sequential, strict, off, ... (default: sequential)",
    ),
    ("gate_alpha", "", "float", "risk of accepting a useless edit (default: 0.05)"),
    ("metric", "", "string", "score: hard, soft (rollout.score) or mixed (default: hard)"),
    ("final_rollouts", "", "int", "fresh samples per task before a write (default: 5)"),
)


def given_options(options: argparse.Namespace) -> set[str]:
    """Return the destinations of the package's options that are given, such as that of a mode.

    Without one a session is ordinary, and nothing else is imported, whatever its ini keys are.
    """
    given = (name for name, value in vars(options).items() if value not in (None, False))
    return {name for name in given if name.startswith("skillopt_")}


def rollouts_at_once(config: pytest.Config, settings: Settings) -> int:
    """Return how many rollouts this session runs at once: its workers times their lanes."""
    specs = config.getoption("tx", None) or ["popen"]
    workers = sum(int(spec.partition("*")[0]) if "*" in spec else 1 for spec in specs)
    if hasattr(config, "workerinput"):
        workers = config.workerinput["workercount"]
    return workers * settings.lanes


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("skillopt", "training of agent skills; most options are ini keys, too")
    _add_modes(group)
    about = _OF_TASKS, _OF_ROLLOUTS, _OF_FILES, _OF_MODELS, _OF_CAPS, _OF_TRAINING
    for name, metavar, kind, text in itertools.chain.from_iterable(about):
        if metavar:
            flag = "--skillopt-" + name.replace("_", "-")
            group.addoption(flag, metavar=metavar, help=text)
        told = "see the option" if metavar else text
        parser.addini(f"skillopt_{name}", told, type=kind, default=None)


def _add_modes(group: pytest.OptionGroup) -> None:
    add = group.addoption
    on = "store_true"
    add("--skillopt", action=on, dest="skillopt_evaluate", help="measure every task K times")
    text = "improve SKILL.md; write it only if the pass rate rises"
    add("--skillopt-train", action=on, help=text)
    # "=description" is part of the name, so that no word after it is read as a value.
    add(
        "--skillopt-train=description",
        action="store_const",
        const="description",
        dest="skillopt_train",
        help="also improve its description, on trigger tasks",
    )
    text = "continue an unfinished training: =latest or its name"
    add("--skillopt-resume", metavar="RUN", help=text)
    text = "fail if SKILL.md is credibly worse than at revision REF"
    add("--skillopt-check", metavar="REF", help=text)
    text = "with --skillopt-check: also fail on too little evidence"
    add("--skillopt-check-strict", action=on, help=text)
    text = "compare two skills: files, revisions, run versions, none"
    add("--skillopt-compare", nargs=2, metavar=("A", "B"), help=text)
    text = "judge a change made elsewhere: SKILL.md, folder, patch"
    add("--skillopt-try", metavar="FILE", help=text)
    text = "measure the noise: compare the skill with itself"
    add("--skillopt-aa", action=on, help=text)
    text = "tell if the skill still helps today's model"
    add("--skillopt-drift", action=on, help=text)


def command_line(arguments: Sequence[str]) -> list[str]:
    """Return the command that repeats this run, without secrets."""
    from pytest_skillopt.untrusted import redact

    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] else "pytest"
    again = [redact(word) for word in _without("--skillopt-resume", arguments)]
    return ["pytest" if program in ("__main__.py", "py.test") else program, *again]


def with_setting(command: Sequence[str], setting: str) -> list[str]:
    """Return a command with ``skillopt_NAME=VALUE`` in place of what it gave, however written."""
    name = setting.partition("=")[0]
    kept = list[str]()
    for word in _without(f"--{name.replace('_', '-')}", command):
        if word.startswith(f"{name}="):
            kept.pop()  # the -o before it
        elif not word.startswith(f"-o{name}="):
            kept.append(word)
    return [*kept, "-o", setting]


def _without(option: str, words: Iterable[str]) -> Iterator[str]:
    """Yield words without an option, whose value may be the next word."""
    rest = iter(words)
    for word in rest:
        if word == option:
            next(rest, None)
        elif not word.startswith(f"{option}="):
            yield word
