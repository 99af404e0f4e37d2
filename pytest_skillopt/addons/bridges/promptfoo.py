"""Read a promptfoo configuration as cases; refuse by name what cannot be read.

::

    @pytest.mark.skill_task
    @pytest.mark.parametrize("case", read_cases("promptfooconfig.yaml"))
    def test_promptfoo(skill, skill_agent, skill_judge, rollout, case):
        case.check(case.answer(skill, skill_agent), skill_judge, rollout)

The prompt file is the skill. Its ``{{name}}`` are filled in with the case's variables, and the
whole is one message of the user, as in promptfoo.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from pytest_skillopt.addons.bridges.environments import complete, two_messages
from pytest_skillopt.cases import Case

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.suite.context import Recorder, Skill

RUBRIC = "llm-rubric"
_CONFIG = frozenset(
    {"description", "prompts", "providers", "tests", "defaultTest", "outputPath", "sharing"}
    | {"evaluateOptions", "commandLineOptions", "tags"}
)
_TEST = frozenset({"description", "vars", "assert", "metadata"})
_ASSERT = frozenset({"type", "value", "metric", "provider", "weight"})
_NAME = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)\s*-?\}\}")
_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)


def _is_json(answer: str, value: str) -> bool:
    with suppress(ValueError, RecursionError):
        json.loads(answer)
        return True
    return False


_CHECKS: dict[str, Callable[[str, str], bool]] = {
    "contains": lambda answer, value: value in answer,
    "icontains": lambda answer, value: value.lower() in answer.lower(),
    "regex": lambda answer, value: re.search(value, answer) is not None,
    "equals": lambda answer, value: answer.strip() == value.strip(),
    "is-json": _is_json,
}


class PromptfooCase(Case):
    """One test: its variables as items, and all of them in ``prompt``."""

    skill: str
    asserts: list[tuple[str, str]]
    """Type, perhaps with ``not-``, and value of each assertion."""

    def answer(self, skill: Skill, skill_agent: Agent) -> str:
        """Fill the variables into the prompt file, and ask the model."""
        prompt = filled(skill.body.strip(), self)
        return complete(skill_agent, two_messages("", prompt)).text

    def check(self, answer: str, judge: Any = None, rollout: Recorder | None = None) -> None:
        """Assert that all assertions hold; their share is the rollout's soft score.

        Raises:
            TypeError: an ``llm-rubric`` needs the fixture ``skill_judge``.
        """
        __tracebackhide__ = True
        held: dict[tuple[str, str], bool] = {}
        for kind, value in self.asserts:
            if not kind.endswith(RUBRIC):
                found = _CHECKS[kind.removeprefix("not-")](answer, value)
                held[kind, value] = found != kind.startswith("not-")
        rubrics = [each for each in self.asserts if each[0].endswith(RUBRIC)]
        if rubrics:
            if judge is None:
                raise TypeError("an llm-rubric needs a judge: pass the fixture skill_judge")
            grades = judge.statements([v for _, v in rubrics], answer, question=self.prompt)
            for each, (holds, _) in zip(rubrics, grades, strict=True):
                held[each] = holds != each[0].startswith("not-")
        if rollout is not None:
            rollout.score(sum(held.values()) / len(held))
        missed = [f"{kind}: {value}" for (kind, value), holds in held.items() if not holds]
        if missed:
            if judge is not None and all(held[e] for e in held if e not in rubrics):
                judge.verdicts.append(missed)
            lines = "\n- ".join(missed)
            pytest.fail(f"{len(missed)} of {len(held)} do not hold:\n- {lines}", pytrace=False)


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Fill ``{{name}}`` into a template; unknown names stay."""
    return _NAME.sub(lambda match: str(values.get(match[1], match[0])), text)


def read_config(path: Path) -> Iterator[tuple[str, PromptfooCase]]:
    """Yield place and case of each test.

    Raises:
        pytest.UsageError: a part of the file cannot be read; the message names it.
    """
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    if not isinstance(config, dict) or not isinstance(config.get("tests"), list):
        raise pytest.UsageError(f"{path}: a promptfoo configuration with a list 'tests' is read")
    _refuse(str(path), config.keys() - _CONFIG)
    skill = _prompt_file(path, config.get("prompts"))
    default = config.get("defaultTest") or {}
    _refuse(f"{path}, defaultTest", _keys(default, path) - _TEST)
    for number, test in enumerate(config["tests"], 1):
        where = f"{path}, test {number}"
        _refuse(where, _keys(test, where) - _TEST)
        given = {**(default.get("vars") or {}), **(test.get("vars") or {})}
        values = {name: _value(value, path, where) for name, value in given.items()}
        case = PromptfooCase({"id": str(test.get("description") or number), **values})
        named = [f"{name}: {value}" for name, value in values.items()]
        case.setdefault("prompt", "\n".join(values.values() if len(values) == 1 else named))
        case.skill = str(skill)
        rows = [*(default.get("assert") or ()), *(test.get("assert") or ())]
        case.asserts = [_assertion(row, values, where) for row in rows]
        if not case.asserts:
            raise pytest.UsageError(f"{where}: there is no assertion")
        yield where, case


def _keys(value: Any, where: object) -> set[str]:
    if not isinstance(value, dict):
        raise pytest.UsageError(f"{where}: an object is expected, not {value!r:.60}")
    return set(value)


def _refuse(where: str, unread: set[str]) -> None:
    if unread:
        raise pytest.UsageError(f"{where}: cannot be read here: {', '.join(sorted(unread))}")


def _prompt_file(path: Path, prompts: Any) -> Path:
    listed = prompts if isinstance(prompts, list) else [prompts]
    name = listed[0].get("id") if isinstance(listed[0], dict) else listed[0]
    file = path.parent / str(name).removeprefix("file://")
    if len(listed) != 1 or len(str(name)) > 500 or not file.is_file():
        raise pytest.UsageError(
            f"{path}: 'prompts' must name one file, which is the skill; it has {listed!r:.80}"
        )
    text = file.read_text(encoding="utf-8")
    odd = [found for found in _TEMPLATE.findall(text) if not _NAME.fullmatch(found)]
    if odd:
        raise pytest.UsageError(f"{file}: only {{{{name}}}} is filled in, not {odd[0]!r:.60}")
    return file.resolve()


def _value(value: Any, path: Path, where: str) -> str:
    if isinstance(value, list | dict):
        raise pytest.UsageError(f"{where}: a variable is {value!r:.60}; only texts are read")
    if isinstance(value, str) and value.startswith("file://"):
        return (path.parent / value.removeprefix("file://")).read_text(encoding="utf-8")
    return str(value)


def _assertion(row: Any, values: Mapping[str, str], where: str) -> tuple[str, str]:
    unread = _keys(row, where) - _ASSERT
    kind, value = str(row.get("type")), row.get("value", "")
    plain = kind.removeprefix("not-")
    if plain not in (*_CHECKS, RUBRIC):
        known = ", ".join((*_CHECKS, RUBRIC))
        raise pytest.UsageError(f"{where}: the assertion {kind!r} cannot be read; {known} are")
    if unread or isinstance(value, list | dict) or (plain == "is-json" and value):
        _refuse(f"{where}, assertion {kind}", unread or {"value"})
    value = filled(str(value), values)
    if plain == "regex":
        try:
            re.compile(value)
        except re.error as error:
            raise pytest.UsageError(
                f"{where}: {value!r:.60} is not a regular expression: {error}"
            ) from None
    return kind, value
