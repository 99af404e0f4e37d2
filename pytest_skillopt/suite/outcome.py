"""From the reports of a rollout to its outcome: a pass, a failure, no sample, or an error.

One rule: an assertion, in whichever phase, is a failure and never an error; a model that could not
answer is an error and never a failure; anything else that goes wrong is a failure while the test
body runs and an error of the set-up otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.suite.context import shorten
from pytest_skillopt.suite.errors import classify, is_unanswered
from pytest_skillopt.suite.internals.items import crash_location
from pytest_skillopt.suite.rollouts import InfraError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from pytest_skillopt.suite.rollouts import Outcome

_MESSAGE_LIMIT = 4_000
_OUTPUT_LIMIT = 16_000
_ERROR_LIMIT = 2_000


@dataclass(frozen=True, slots=True)
class Phase:
    """A report pytest made of the rollout, and the exception it was made from."""

    report: pytest.TestReport
    excinfo: pytest.ExceptionInfo[BaseException] | None
    main: bool = True
    """False for the report of a subtest."""
    subtest: str = ""
    """How a subtest is called, with its parameters."""

    @property
    def exception(self) -> BaseException | None:
        return None if self.excinfo is None else self.excinfo.value

    @property
    def expected_to_fail(self) -> bool:
        return hasattr(self.report, "wasxfail")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a rollout ended, as far as pytest's reports tell."""

    outcome: Outcome
    message: str = ""
    location: str = ""
    error: InfraError | None = None

    @classmethod
    def of_error(cls, kind: str, message: str, *, fatal: bool = False) -> Ending:
        return cls("error", error=InfraError(kind, shorten(message, _ERROR_LIMIT), fatal))


def conclude(config: pytest.Config, phases: Sequence[Phase], refusals: Sequence[str]) -> Ending:
    """Say how a rollout ended.

    Args:
        phases: in the order in which they ended.
        refusals: what the test tried to record and could not.
    """
    error = _infrastructure_error(config, phases)
    if error is not None:
        return Ending("error", error=error)
    failed = [phase for phase in phases if phase.report.failed]
    asserted = [phase for phase in failed if _is_failure(phase)]
    if asserted:
        return Ending("failed", _message(asserted), _location(config, asserted[0]))
    if failed:
        phase = failed[0]
        where = "set-up" if phase.report.when == "setup" else "teardown"
        return Ending.of_error("setup", f"{where} failed: {_line(phase)}")
    if refusals:
        return Ending("failed", shorten("\n".join(refusals), _MESSAGE_LIMIT))
    main = [phase for phase in phases if phase.main]
    if any(phase.report.skipped for phase in main):
        return Ending("skipped", next(_reason(p) for p in main if p.report.skipped))
    if not any(phase.report.when == "call" for phase in main):
        return Ending.of_error("internal", "pytest did not run the body of the test")
    return Ending("passed")


def captured_output(phases: Sequence[Phase]) -> str:
    """What the rollout printed and logged, by phase, bounded."""
    subtests = [section for phase in phases if not phase.main for section in phase.report.sections]
    main = [phase for phase in phases if phase.main]
    # pytest gives every report the sections of the phases before it, too.
    sections = [*subtests, *(main[-1].report.sections if main else ())]
    parts = [
        f"{title}:\n{shorten(text, _OUTPUT_LIMIT)}" for title, text in sections if text.strip()
    ]
    return shorten("\n".join(parts), _OUTPUT_LIMIT)


def causes(exception: BaseException) -> Iterator[BaseException]:
    """The exception, then whatever it was raised from, during, or groups; each once."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [exception]
    while waiting:
        current = waiting.pop(0)
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        waiting += (current.__cause__, current.__context__)
        if isinstance(current, BaseExceptionGroup):
            waiting += current.exceptions


def is_assertion(exception: BaseException) -> bool:
    """Whether the test says by this exception that an answer is wrong."""
    if isinstance(exception, BaseExceptionGroup):
        return any(is_assertion(inner) for inner in exception.exceptions)
    return isinstance(exception, AssertionError | pytest.fail.Exception)


def _infrastructure_error(config: pytest.Config, phases: Sequence[Phase]) -> InfraError | None:
    for phase in phases:
        if phase.exception is None or phase.report.passed:
            continue
        for exception in causes(phase.exception):
            if is_unanswered(exception) or _may_be_infrastructure(phase):
                error = classify(config, exception)
                if error is not None:
                    return error
    return None


def _may_be_infrastructure(phase: Phase) -> bool:
    if phase.exception is None or phase.expected_to_fail or not phase.report.failed:
        return False
    return not is_assertion(phase.exception)


def _is_failure(phase: Phase) -> bool:
    if phase.report.when == "call":
        return True
    return phase.exception is not None and is_assertion(phase.exception)


def _message(phases: Sequence[Phase]) -> str:
    lines = []
    for phase in phases:
        title = "" if phase.main else f"{phase.subtest}: "
        lines.append(title + _text(phase))
    return shorten("\n".join(lines), _MESSAGE_LIMIT)


def _text(phase: Phase) -> str:
    if phase.excinfo is None:
        return str(phase.report.longrepr or "")
    text = phase.excinfo.exconly(tryshort=True).replace("AssertionError: assert", "assert", 1)
    if isinstance(phase.exception, BaseExceptionGroup):
        leaves = [e for e in causes(phase.exception) if not isinstance(e, BaseExceptionGroup)]
        text = "\n".join([text, *(f"{type(e).__name__}: {e}" for e in leaves)])
    return text


def _line(phase: Phase) -> str:
    exception = phase.exception
    if exception is None:
        return str(phase.report.longrepr)
    if isinstance(exception, pytest.FixtureLookupError):
        return f"{exception.argname}: {exception.msg or 'no such fixture'}"
    return f"{type(exception).__name__}: {exception}"


def _reason(phase: Phase) -> str:
    if phase.expected_to_fail:
        return f"expected to fail: {getattr(phase.report, 'wasxfail', '')}"
    longrepr = phase.report.longrepr
    return str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr or "")


def _location(config: pytest.Config, phase: Phase) -> str:
    """``path:line`` of the innermost frame that lies in the project, else of the innermost."""
    crash = crash_location(phase.report)
    frames = [] if phase.excinfo is None else list(phase.excinfo.traceback)
    for frame in reversed(frames):
        path = _relative(config.rootpath, str(frame.path))
        if path is not None and not frame.ishidden(phase.excinfo):
            return f"{path}:{frame.lineno + 1}"
    return f"{crash[0]}:{crash[1]}" if crash else ""


def _relative(root: Path, path: str) -> str | None:
    prefix = f"{root}/"
    inside = path.startswith(prefix) and "site-packages" not in path
    return path.removeprefix(prefix) if inside else None
