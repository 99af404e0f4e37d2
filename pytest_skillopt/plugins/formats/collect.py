"""Collect the eval files of skills as pytest modules whose tests are the evals."""

from __future__ import annotations

import functools
import inspect
import os
import shutil
import warnings
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_skillopt.model.roles import Models
from pytest_skillopt.model.types import ModelError, hide_frames
from pytest_skillopt.plugins.formats.read import Case, EvalsError, read_evals
from pytest_skillopt.settings import Settings
from pytest_skillopt.skill.find import skill_paths
from pytest_skillopt.skill.folder import is_within
from pytest_skillopt.skill.version import SKILL_FILE
from pytest_skillopt.untrusted import fence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_skillopt.model.agent import Agent
    from pytest_skillopt.rollouts.context import Recorder

__tracebackhide__ = hide_frames
EVALS, QUERIES = "evals.json", "eval_queries.json"
GRADING = "grading"
"""Role of the transcript's turn that holds the grades."""
_MOST_FILE = 200_000
"""Maximum characters of a file in a prompt."""
_PROBLEMS = pytest.StashKey[list[str]]()


class Evals:
    """pytest plugin that collects eval files, and reports each problem with them once."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._harness = Settings.from_config(config).harness
        config.stash[_PROBLEMS] = []
        # An xdist worker does not know the named paths.
        worker = getattr(config, "workerinput", None)
        self._found = worker["skillopt_evals"] if worker else self._search()
        root = config.rootpath
        hidden, others = self._found
        self._hidden = [root / name for name in hidden]
        """Eval files in hidden folders, which pytest would skip."""
        config.args += [str(root / name) for name in others]

    def _search(self) -> tuple[list[str], list[str]]:
        """List the evals of all skills if no path is named, else hidden ones in a named folder.

        Returns:
            Paths below the root directory: in hidden folders, and where pytest does not look.
        """
        config = self._config
        hidden: list[str] = []
        others: list[str] = []
        named = config.args_source is config.ArgsSource.ARGS
        starts = [config.invocation_params.dir / arg for arg in config.args]
        for path in skill_paths(config.rootpath):
            for file in (path.parent / "evals" / EVALS, path.parent / "evals" / QUERIES):
                above = [start for start in starts if file.is_relative_to(start)]
                found = [file.relative_to(config.rootpath).as_posix()] if file.is_file() else []
                if not above and not named:
                    others += found
                elif above and "/." in f"/{file.relative_to(above[0]).as_posix()}":
                    hidden += found
        return hidden, others

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["skillopt_evals"] = self._found

    @pytest.hookimpl(tryfirst=True)
    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Collect the eval files in hidden folders, but nothing else there."""
        if not self._hidden:
            return None
        if any(file.is_relative_to(collection_path) for file in self._hidden):
            return False
        root = self._config.rootpath
        parents = {parent for file in self._hidden for parent in file.parents}
        if collection_path.parent not in parents or not collection_path.is_relative_to(root):
            return None
        above = collection_path.relative_to(root).parts[:-1]
        return True if any(part.startswith(".") for part in above) else None

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> EvalFile | None:
        if file_path.name not in (EVALS, QUERIES) or file_path.parent.name != "evals":
            return None
        if not (file_path.parent.parent / SKILL_FILE).is_file():
            return None
        return EvalFile.from_parent(parent, path=file_path, harness=self._harness)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """End the session if an xdist worker, which cannot do so, failed to collect a file."""
        from_worker = self._config.getoption("dist", "no") != "no"
        if from_worker and report.failed and report.nodeid.endswith((EVALS, QUERIES)):
            raise pytest.UsageError(str(report.longrepr))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config) -> None:
        if problems := config.stash[_PROBLEMS]:
            raise pytest.UsageError("\n".join(problems))


class EvalFile(pytest.Module):
    """Eval file, presented to pytest as a module of tests."""

    def __init__(self, *, harness: str, **options: Any) -> None:
        super().__init__(**options)
        self._harness = harness
        self.obj = ModuleType(self.path.stem)

    def istestfunction(self, obj: object, name: str) -> bool:
        """Accept this module's functions, whatever the project's ``python_functions`` says."""
        return getattr(obj, "__module__", "") == __name__

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        folder = self.path.parent.parent
        try:
            cases = read_evals(self.path, folder, self._tell)
        except EvalsError as error:
            if hasattr(self.config, "workerinput"):
                raise self.CollectError(str(error)) from None
            self.config.stash[_PROBLEMS].append(str(error))
            return []
        if not self._harness:
            cases = self._without_triggers(cases)
        skill = (folder / SKILL_FILE).relative_to(self.config.rootpath).as_posix()
        for name, function, fixtures, chosen in _functions(cases, self._harness):
            marks = [
                pytest.mark.skill_task(skill=skill),
                pytest.mark.parametrize("case", [_parameter(case) for case in chosen]),
            ]
            setattr(self.obj, name, _marked(function, fixtures, marks))
        return super().collect()

    def _tell(self, said: str) -> None:
        """Warn, only once if several xdist workers collect the file."""
        if getattr(self.config, "workerinput", {}).get("workerid", "gw0") == "gw0":
            # Not self.warn, which takes the place of the functions made for the cases: ".:0".
            warnings.warn_explicit(
                pytest.PytestCollectionWarning(said.removeprefix(f"{self.path}: ")),
                category=None,
                filename=str(self.path),
                lineno=0,
            )

    def _without_triggers(self, cases: list[Case]) -> list[Case]:
        others = [case for case in cases if case.kind != "trigger"]
        if left := len(cases) - len(others):
            self._tell(
                f"{self.path}: {left} of {len(cases)} evals are skipped: whether a skill is loaded "
                "can be tested only with an agent that finds it by its description: set "
                f"skillopt_harness (codex, claude, ...), or --ignore={self.path}"
            )
        return others


def _functions(
    cases: Sequence[Case], harness: str
) -> Iterable[tuple[str, Callable[..., None], list[str], list[Case]]]:
    """Group the evals of a file by the fixtures that they need, besides ``rollout``."""
    graded: Callable[..., None] = _graded_work if harness else _graded_reply
    agent = ["skill_harness", "skill_workspace"] if harness else ["skill_agent"]
    kinds: dict[str, tuple[Callable[..., None], list[str]]] = {
        "trigger": (_trigger, ["skill_harness"]),
        "graded": (graded, ["request", *agent, "skill_judge"]),
        "scripted": (graded, ["request", *agent]),
    }
    for kind, (function, fixtures) in kinds.items():
        if chosen := [case for case in cases if case.kind == kind]:
            yield kind, function, fixtures, chosen


def _parameter(case: Case) -> Any:
    marks = [pytest.mark.skill_task(trigger=case.should_trigger)] if case.kind == "trigger" else []
    return pytest.param(case, id=case.slug, marks=marks)


def _marked(
    function: Callable[..., None], fixtures: Sequence[str], marks: Sequence[Any]
) -> Callable[..., None]:
    """Wrap a function that several files share, so that each has its own fixtures and marks.

    A fault of a model is a failure without a traceback, of which all frames are this package's.
    """

    @functools.wraps(function)
    def test(**given: Any) -> None:
        try:
            function(**given)
        except ModelError as error:  # still its context, so a rollout that ends by it is an error
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    names = ("case", "rollout", *fixtures)
    parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in names]
    test.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    for mark in marks:
        mark(test)
    return test


def _graded_reply(
    case: Case,
    rollout: Recorder,
    request: pytest.FixtureRequest,
    skill_agent: Agent,
    skill_judge: Any = None,
) -> None:
    """Grade the answer of a model to a request."""
    _grade(case, skill_agent(_prompt(case, request)), rollout, request.config, skill_judge)


def _graded_work(
    case: Case,
    rollout: Recorder,
    request: pytest.FixtureRequest,
    skill_harness: Any,
    skill_workspace: Path,
    skill_judge: Any = None,
) -> None:
    """Grade the work of a coding agent on a request."""
    answer = _work(case, skill_harness, skill_workspace, request)
    _grade(case, answer, rollout, request.config, skill_judge)


def _grade(
    case: Case, answer: str, rollout: Recorder, config: pytest.Config, skill_judge: Any
) -> None:
    """Fail unless enough of the eval's statements hold for an answer."""
    grades = [_checked(s.text, s.holds(answer)) for s in case.statements if not s.judged]
    judged = [s.text for s in case.statements if s.judged]
    if skill_judge is not None:
        found = skill_judge.statements(judged, answer, question=case.prompt, expected=case.expected)
        for text, (holds, evidence) in zip(judged, found, strict=True):
            grades.append({"text": text, "passed": holds, "evidence": evidence})
    rollout.record(GRADING, grades)
    share = sum(grade["passed"] for grade in grades) / len(grades)  # of the statements that hold
    rollout.score(share)
    if share >= Models.of(config).settings.evals_pass:
        return
    missed = [grade for grade in grades if not grade["passed"]]
    lines = [f"- {g['text']}" + (f" ({g['evidence']})" if g["evidence"] else "") for g in missed]
    said = f"{len(missed)} of {len(grades)} statements do not hold:"
    pytest.fail("\n".join([said, *lines]), pytrace=False)


def _checked(text: str, passed: bool) -> dict[str, Any]:
    return {"text": text, "passed": passed, "evidence": "" if passed else "checked by a script"}


def _trigger(case: Case, skill_harness: Any, rollout: Recorder) -> None:
    """Check that the agent loads the skill if, and only if, it should."""
    asked = bool(skill_harness.trigger(case.prompt))
    passed = asked == case.should_trigger
    text = "the skill is loaded if, and only if, it should be"
    rollout.record(GRADING, [{"text": text, "passed": passed, "evidence": ""}])
    if not passed:
        done = "loaded the skill and should not" if asked else "did not load the skill"
        pytest.fail(f"the agent {done}: {case.prompt}", pytrace=False)


def _work(case: Case, harness: Any, workspace: Path, request: pytest.FixtureRequest) -> str:
    folder = request.path.parent.parent
    for name in case.files:
        for file in _files_at(folder, name):
            target = workspace / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / file, target)
    reply = harness(case.prompt)
    diff = getattr(reply, "diff", "")
    return f"{reply}\n\nWhat it changed in the workspace:\n{diff}" if diff else str(reply)


def _files_at(folder: Path, name: str) -> list[str]:
    """List a file, or all files of a subfolder (hidden ones too), sorted, relative to ``folder``.

    Links that leave the folder are left out.
    """
    walked = os.walk(folder / name)
    paths = [Path(found, file) for found, _, files in walked for file in files] or [folder / name]
    inside = (path for path in paths if path.is_file() and is_within(path, folder))
    return sorted(path.relative_to(folder).as_posix() for path in inside)


def _prompt(case: Case, request: pytest.FixtureRequest) -> str:
    """Append the eval's files to its prompt, as a model without tools cannot open them."""
    parts = [case.prompt]
    folder = request.path.parent.parent
    for name in case.files:
        for path in _files_at(folder, name):
            file = folder / path
            try:
                text = file.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                pytest.skip(f"{name} is not a text: only an agent can read it (skillopt_harness)")
            if len(text) > _MOST_FILE:
                pytest.skip(f"{name} is too long for a prompt: only an agent can read it")
            parts.append(f"File {path}:\n{fence(text)}")
    return "\n\n".join(parts)
