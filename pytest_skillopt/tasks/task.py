"""Tasks: tests with the marker ``skill_task``, their arguments, their identity and their skills."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_skillopt.errors import UserError
from pytest_skillopt.settings import ini
from pytest_skillopt.skill.find import find_skill, project_path, skill_paths
from pytest_skillopt.skill.text import SkillError
from pytest_skillopt.tasks.recorded import refuse_recording
from pytest_skillopt.untrusted import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_skillopt.settings import Settings


@dataclass(frozen=True, slots=True)
class SkillTask:
    """A task as plain data, which a worker can send."""

    id: str
    """Node id."""
    source: str = ""
    """SHA-256 of ``content`` and of what the test uses of the project's files; if empty, the id."""
    skill: str = "SKILL.md"
    """Path of the skill file relative to the root directory, with ``/``."""
    group: str = ""
    """Name shared by tasks that must be in one split; if empty, the id."""
    split: str = ""
    """``train``, ``val``, ``test`` or ``both``; empty until the splits are assigned."""
    rollouts: int | None = None
    min_pass_rate: float | None = None
    must_pass: bool = False
    trigger: bool | None = None
    """Expectation of a task that asks whether an agent uses the skill: True if it should."""
    contract: str = ""
    """Requirements of the task on the answer, which the optimizer must not change."""
    doc: str = ""
    """Docstring of the test function, which describes the task to the optimizer."""
    roles: tuple[str, ...] = ()
    """Roles of models that the test uses through a fixture: ``target``, ``judge``."""
    agent: str = ""
    """Agents and versions, such as ``codex 0.163.0``; see the hook ``pytest_skillopt_task``."""
    kind: str = ""
    """Name of the kind of task, by which the report has the pass rates."""
    text: str = ""
    """Source and parameters (shortened), for the leak check; never shown to the optimizer."""
    content: str = ""
    """SHA-256 of the test function's source and its parameters; if empty, the ``source``."""
    proxied: bool = False
    """True if its own agent calls the target by ``skill_proxy``."""

    def __post_init__(self) -> None:
        for name in ("source", "group"):
            if not getattr(self, name):
                object.__setattr__(self, name, self.id)
        if not self.content:
            object.__setattr__(self, "content", self.source)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> SkillTask:
        return cls(**{**data, "roles": tuple(data.get("roles", ()))})


MARKER = "skill_task"
_TEXT_LIMIT = 20_000


def marker_arguments(item: pytest.Item) -> dict[str, Any] | None:
    """Return the arguments of an item's ``skill_task`` markers; the closest mark wins.

    Returns:
        The given arguments; None if the item is not marked.

    Raises:
        UsageError: an argument is wrong.
    """
    given: dict[str, Any] = {}
    marks = list(item.iter_markers(MARKER))
    if not any(mark.args or mark.kwargs for mark in marks):
        return given if marks else None
    for mark in marks:
        if mark.args:
            said = f"skill_task takes keyword arguments only ({', '.join(_VALID)})"
            raise pytest.UsageError(f"{item.nodeid}: {said}, got {mark.args[0]!r}")
        for name, value in mark.kwargs.items():
            if name not in _VALID:
                said = f"skill_task has no argument {name!r} (valid: {', '.join(_VALID)})"
                raise pytest.UsageError(f"{item.nodeid}: {said}")
            form = _VALID[name]
            if value is not None and not form.is_valid(value):
                said = f"skill_task({name}={value!r}): {name} must be {form.words}"
                raise pytest.UsageError(f"{item.nodeid}: {said}")
            given.setdefault(name, value)
    return {name: value for name, value in given.items() if value is not None}


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | PurePath)


def _is_share(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


class _Argument(NamedTuple):
    """Form of the values of an argument of the marker."""

    is_valid: Callable[[Any], bool]
    words: str


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1


_SPLIT = _Argument(("train", "val", "test").__contains__, "'train', 'val' or 'test'")
_NAME, _YES = _Argument(_is_text, "a name"), _Argument(_is_bool, "True or False")
_VALID = {
    "skill": _Argument(_is_path, "a path relative to the root directory"),
    "split": _SPLIT,
    "rollouts": _Argument(_is_count, "a whole number of at least 1"),
    "min_pass_rate": _Argument(_is_share, "a number from 0 to 1"),
    "group": _NAME,
    "must_pass": _YES,
    "trigger": _YES,
    "contract": _Argument(_is_text, "a text"),
    "kind": _NAME,
    "harness": _Argument(_is_text, "the name of a coding agent, such as 'codex'"),
}


def _is_of_plugin(parameter: str) -> bool:
    """Tell whether a parameter repeats a test and says nothing about its content.

    pytest-repeat and pytest-flakefinder number the repetitions under such names; the plugin of
    anyio has a test for each library.
    """
    return parameter.startswith("__") or parameter == "anyio_backend"


def collect_task(item: pytest.Item, skill_path: Callable[[pytest.Item], str]) -> SkillTask | None:
    """Describe an item as a task; None if it is not marked.

    ``skill_path`` returns a path relative to the root.
    """
    # An ordinary run does without these imports.
    from pytest_skillopt.tasks.identity import core, parameter_json, source_text
    from pytest_skillopt.tasks.surroundings import Surroundings

    given = marker_arguments(item)
    if given is None:
        return None
    for name in ("skill", "harness"):  # not fields of SkillTask
        given.pop(name, None)
    refuse_recording(item)
    function = getattr(item, "obj", None)
    callspec = getattr(item, "callspec", None)
    params = {k: v for k, v in getattr(callspec, "params", {}).items() if not _is_of_plugin(k)}
    given_params = {name: parameter_json(value) for name, value in sorted(params.items())}
    if any(value is None for value in given_params.values()):
        given_params["id"] = getattr(callspec, "id", "")
    text = source_text(function)
    skill = skill_path(item)
    told = _told(item, skill)
    agent = told.pop("agent", "")
    roles = {*told.pop("roles", ())}
    if agent or told.get("proxied") or "skill_agent" in getattr(item, "fixturenames", ()):
        roles.add("target")
    parts: list[Any] = [core(text), given_params]
    if agent:
        parts.append(agent)
    content = _sha256(parts)
    around = Surroundings.of(item.config).digest(item, text)
    source = _sha256([content, around])
    excerpt = f"{text}\n{json.dumps(given_params, ensure_ascii=False)}"[:_TEXT_LIMIT]
    return SkillTask(
        id=item.nodeid,
        source=source,
        content=content,
        skill=skill,
        doc=inspect.getdoc(function) or "",
        roles=tuple(sorted(roles, reverse=True)),
        agent=agent,
        text=excerpt,
        **(told | given),
    )


_TOLD = ("agent", "contract", "group", "proxied", "roles")
"""Fields of a task that plugins may tell."""


def _told(item: pytest.Item, skill: str) -> dict[str, Any]:
    """Ask the plugins for fields of a task; raise UsageError for an unknown one."""
    found: dict[str, Any] = {}
    for told in reversed(item.config.hook.pytest_skillopt_task(item=item, skill=skill)):
        for name, value in told.items():
            if name not in _TOLD:
                said = f"pytest_skillopt_task: {name!r} is none of {', '.join(_TOLD)}"
                raise pytest.UsageError(f"{item.nodeid}: {said}")
            found[name] = (*found.get(name, ()), *value) if name == "roles" else value
    return found


def _sha256(values: list[Any]) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


_SELECTED = pytest.StashKey[pytest.Item]()
_LOCATOR = pytest.StashKey["SkillLocator"]()
_LIVE = pytest.StashKey[tuple[pytest.FixtureRequest, str]]()


class SkillLocator:
    """Find the path of an item's skill file, relative to the root, with ``/``.

    The first of these counts: the marker's ``skill=``, the setting, the nearest SKILL.md (see
    ``find_skill``).

    Raises:
        SkillError: there is none, or the choice between several is ambiguous.
    """

    def __init__(self, root: Path, setting: str) -> None:
        self._root = root
        self._setting = setting
        self._found: dict[Path, str] = {}
        self._skills: list[Path] | None = None
        self._paths: dict[str | PurePath, str] = {}

    def _real(self, path: str | PurePath) -> str:
        if path not in self._paths:
            self._paths[path] = project_path(path, self._root)
        return self._paths[path]

    def __call__(self, item: pytest.Item) -> str:
        for mark in item.iter_markers(MARKER):
            if mark.kwargs.get("skill"):
                return self._real(mark.kwargs["skill"])
        return self.nearest(item.path.parent)

    def nearest(self, folder: Path) -> str:
        """Return the skill of tests in a folder whose markers name none."""
        if self._setting:
            return self._real(self._setting)
        if folder not in self._found:
            if self._skills is None:
                self._skills = skill_paths(self._root)
            found = find_skill(self._root, folder, self._skills)
            self._found[folder] = self._real(found)
        return self._found[folder]


def select_skill(item: pytest.Item) -> None:
    """Select the test's skill for the session-wide ``skill`` fixture, in an ordinary run.

    If the previous test had another skill, tear down the fixture and all that depend on it.
    """
    stash = item.config.stash
    stash[_SELECTED] = item
    live = stash.get(_LIVE, None)
    if live is not None and live[1] != chosen_skill(item):
        from pytest_skillopt.internals import finish_fixture

        del stash[_LIVE]
        finish_fixture(live[0])


def selected_skill(request: pytest.FixtureRequest) -> Path:
    """Return the skill file for a ``skill`` fixture that is set up outside of a rollout."""
    config = request.config
    locate = _locator(config)
    item = config.stash.get(_SELECTED, None)
    if item is None:  # requested by name in a test that does not declare it
        return config.rootpath / locate.nearest(config.rootpath)
    config.stash[_LIVE] = (request, chosen_skill(item))
    return config.rootpath / locate(item)


def chosen_skill(item: pytest.Item) -> str:
    """Return the skill of a test; empty if there is none, which the fixture reports."""
    try:
        return _locator(item.config)(item)
    except SkillError:
        return ""


def _locator(config: pytest.Config) -> SkillLocator:
    if _LOCATOR not in config.stash:
        given = config.getoption("skillopt_skill", None) or ini(config, "skill")
        config.stash[_LOCATOR] = SkillLocator(config.rootpath, given or "")
    return config.stash[_LOCATOR]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Numbers of collected tests of which no rollout is taken."""

    unmarked: int = 0
    """Tests without the marker."""
    skipped: dict[str, int] = dataclasses.field(default_factory=dict)
    """Tasks that are always skipped, by the reason."""

    @property
    def count(self) -> int:
        return self.unmarked + sum(self.skipped.values())


LEFT_OUT = pytest.StashKey[LeftOut]()
"""Tests that ``keep_tasks`` has deselected; on the controller of workers, those of one worker."""


def keep_tasks(config: pytest.Config, items: list[pytest.Item]) -> LeftOut:
    """Deselect the tests that are not tasks or are always skipped."""
    tasks: list[pytest.Item] = []
    others: list[pytest.Item] = []
    unmarked = 0
    skipped: Counter[str] = Counter()
    for item in items:
        skip = item.get_closest_marker("skip")
        if not item.get_closest_marker(MARKER):
            unmarked += 1
        elif skip:
            skipped[_reason_of(skip)] += 1
        else:
            tasks.append(item)
            continue
        others.append(item)
    if others:
        items[:] = tasks
        config.hook.pytest_deselected(items=others)
    config.stash[LEFT_OUT] = LeftOut(unmarked, dict(skipped))
    return config.stash[LEFT_OUT]


def _reason_of(skip: pytest.Mark) -> str:
    given = skip.kwargs.get("reason") or next(iter(skip.args), "")
    return " ".join(str(given).split()) or "no reason is given"


def describe_tasks(
    config: pytest.Config, settings: Settings, items: Sequence[pytest.Item]
) -> list[SkillTask]:
    """Return the tasks among the items, sorted by id: shuffled tests do not change a training.

    Raises:
        UsageError: a wrong marker, an unknown skill, or two tests of one id.
    """
    locate = SkillLocator(config.rootpath, settings.skill)
    try:
        found = [collect_task(item, locate) for item in items]
    except UserError as error:
        raise pytest.UsageError(shown(str(error))) from None
    tasks = sorted(filter(None, found), key=lambda task: task.id)
    for task, following in pairwise(tasks):
        if task.id == following.id:
            way = "leave out --keep-duplicates, or give each test a name of its own"
            raise pytest.UsageError(f"{task.id} is collected twice, and would count twice: {way}")
    return tasks
