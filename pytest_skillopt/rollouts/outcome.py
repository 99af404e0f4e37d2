"""Classify the end of a rollout: passed, failed, skipped, or an infrastructure error.

An assertion in any phase is a failure, never an error. A model that could not answer, or a broken
fixture of this package, is an error, never a failure. Any other exception is a failure in the test
body and a set-up error outside of it.
"""

from __future__ import annotations

import dis
import inspect
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.model import faults
from pytest_skillopt.model.types import ModelError
from pytest_skillopt.rollouts.outages import outage
from pytest_skillopt.rollouts.rollout import InfraError, Rollout
from pytest_skillopt.tasks.surroundings import Surroundings
from pytest_skillopt.untrusted import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from pytest_skillopt.rollouts.context import Recorder
    from pytest_skillopt.rollouts.rollout import RolloutRequest


class RolloutTimeout(BaseException):
    """Interrupt of a rollout after ``skillopt_timeout``; tests do not catch a BaseException."""


def is_unanswered(exception: BaseException) -> bool:
    """Tell whether there was no answer to judge: a model fault, or a time-out of the test.

    pytest-timeout has no exception type: it fails a test with this message.
    """
    if isinstance(exception, pytest.fail.Exception):
        words = str(exception.msg)
        return words.startswith("Timeout (>") and words.endswith("from pytest-timeout.")
    return isinstance(exception, ModelError | RolloutTimeout)


def classify(config: pytest.Config, exception: BaseException) -> InfraError | None:
    """Classify an exception by the hook, except those that this package raises itself."""
    if is_unanswered(exception):
        return classify_error(exception)
    ask = config.hook.pytest_skillopt_classify_error
    return ask(config=config, exception=exception) or classify_error(exception)


def classify_error(exception: BaseException) -> InfraError | None:
    """Classify an exception that escaped from a test; None if it may be a wrong answer.

    Errors are: any exception of a model or a fixture of this package; exceptions that the openai
    SDK raises or lets escape; time-outs, connection errors and refusals for overload of any client;
    shortages of the machine.
    """
    if is_unanswered(exception) and not isinstance(exception, ModelError):
        return InfraError("timeout", str(exception))
    fault = exception if isinstance(exception, ModelError) else faults.classify(exception)
    if fault is not None:
        return InfraError(fault.kind, str(fault), fault.fatal, fault.refused)
    # A time-out of a service is not the task's own: it may come at once, so it has another kind.
    if kind := outage(exception):
        return InfraError(kind, _type_and_message(exception))
    if _uses_no_reply(exception):
        why = _type_and_message(exception)
        return InfraError("provider", f"the provider sent no reply ({why})")
    return None


def _type_and_message(exception: BaseException) -> str:
    try:
        message = str(exception)
    except Exception:  # __str__ is the test's own code, and may raise anything
        message = "<exception str() failed>"  # as tracebacks and pytest say
    return f"{type(exception).__name__}: {message}"


def _uses_no_reply(exception: BaseException) -> bool:
    """Tell whether a test used an invalid reply that the openai SDK had passed on.

    HTML with status 200 is a string there, and an error in the body has ``choices=None``.
    """
    if isinstance(exception, AttributeError):
        fields = {"choices", "output_text", "output", "usage"}
        return isinstance(exception.obj, str) and exception.name in fields
    if isinstance(exception, TypeError) and "NoneType" in str(exception):
        return _attribute_used(exception.__traceback__) == "choices"
    return False


def _attribute_used(trace: TracebackType | None) -> str:
    """Return the attribute on whose value the operation failed that raised an exception, or "".

    The code is asked, since a TypeError does not hold its operands: of ``a.b[0].c[0]`` it is c.
    """
    if trace is None:
        return ""
    while trace.tb_next is not None:
        trace = trace.tb_next
    *before, failed = (
        each
        for each in dis.get_instructions(trace.tb_frame.f_code)
        if each.offset <= trace.tb_lasti
    )
    loads = [each for each in before if each.opname == "LOAD_ATTR"]
    used = [each for each in loads if _is_in(each, failed)]
    if not failed.opname.startswith("CALL"):
        used = [each for each in used if _begin(each) == _begin(failed)] or used
    used = used or [each for each in loads if each is before[-1]]  # a, b = value
    return str(used[-1].argval) if used else ""


def _begin(instruction: dis.Instruction) -> tuple[int, int]:
    place = instruction.positions
    return (place.lineno or 0, place.col_offset or 0) if place else (0, 0)


def _is_in(inner: dis.Instruction, outer: dis.Instruction) -> bool:
    """Tell whether the expression of an instruction is a part of that of another."""
    one = inner.positions
    other = outer.positions
    end, last = ((p.end_lineno or 0, p.end_col_offset or 0) if p else (0, 0) for p in (one, other))
    return _begin(outer) <= _begin(inner) and end <= last


_MESSAGE_LIMIT = 4_000
OUTPUT_LIMIT = 16_000
"""Length in characters to which a rollout's output is shortened."""


@dataclass(slots=True)
class Phase:
    """One of pytest's reports on the rollout, with its exception."""

    report: pytest.TestReport
    excinfo: pytest.ExceptionInfo[BaseException] | None
    line: int = 0
    """Line of the test's own function at which the exception left it; 0 if it did not."""
    is_xfail: bool = False
    """Whether the test has the marker ``xfail``."""
    subtest: str | None = None
    """Name and parameters of a subtest; None for the test itself."""

    @property
    def exception(self) -> BaseException | None:
        return None if self.excinfo is None else self.excinfo.value

    @property
    def expected_to_fail(self) -> bool:
        return hasattr(self.report, "wasxfail")

    @property
    def failed(self) -> bool:
        """Whether it failed by itself: a marker ``xfail`` on a body that runs changes nothing.

        Else a version that helps would turn a skipped task into a passed or, if the marker is
        strict, a failed one. A call of ``pytest.xfail`` skips, as does a set-up that fails as
        expected.
        """
        if self.report.when == "call" and self.is_xfail and self.exception is None:
            return False  # a strict marker fails a body that passes
        if self.report.when == "call" and self.expected_to_fail and self.exception is not None:
            return not isinstance(self.exception, pytest.xfail.Exception)
        return self.report.failed


def conclude(
    request: RolloutRequest,
    config: pytest.Config,
    phases: Sequence[Phase],
    recorder: Recorder,
) -> Rollout:
    """Return the rollout's end, given its phases in order and what it recorded."""
    error = _infrastructure_error(config, phases)
    if error is not None:
        return Rollout(request, "error", error=error)
    failed = [phase for phase in phases if phase.failed]
    asserted = [p for p in failed if is_assertion(p.exception) or p.report.when == "call"]
    if asserted:
        location = _location(config, asserted[0])
        return Rollout(
            request,
            "failed",
            message=_message(asserted),
            location=location,
            line=asserted[0].line,
            fault_of_test=all(_is_fault_of_test(p.exception, recorder) for p in asserted),
        )
    if failed:
        kind = str(failed[0].report.when)
        return Rollout.of_error(request, kind, _without_body(config, failed[0]))
    if recorder.refusals:
        message = shorten("\n".join(recorder.refusals), _MESSAGE_LIMIT)
        return Rollout(request, "failed", message=message)
    main = [phase for phase in phases if phase.subtest is None]
    for phase in main:
        if phase.report.skipped:
            return Rollout(request, "skipped", message=_reason(phase))
    if not any(phase.report.when == "call" for phase in main):
        return Rollout.of_error(request, "internal", "pytest did not run the body of the test")
    return Rollout(request, "passed")


def _without_body(config: pytest.Config, phase: Phase) -> str:
    """Describe the failure of a set-up or teardown, and its place."""
    where = "set-up" if phase.report.when == "setup" else "teardown"
    file, line, _ = phase.report.location
    place = f"{file}:{(line or 0) + 1}"
    if not isinstance(phase.exception, pytest.FixtureLookupError):
        place = _location(config, phase) or place
    return f"{where} failed: {_line(phase)} ({place})"


def captured_output(phases: Sequence[Phase]) -> str:
    main = [phase for phase in phases if phase.subtest is None]
    # Each report also has the sections of the phases before it.
    kept = [*(phase for phase in phases if phase.subtest is not None), *main[-1:]]
    sections = [section for phase in kept for section in phase.report.sections]
    parts = [f"{title}:\n{shorten(text, OUTPUT_LIMIT)}" for title, text in sections if text.strip()]
    return shorten("\n".join(parts), OUTPUT_LIMIT)


def causes(exception: BaseException) -> Iterator[BaseException]:
    """Yield an exception, its causes, contexts and group members, each once."""
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


def is_assertion(exception: BaseException | None) -> bool:
    """Tell whether an exception is a test's verdict that an answer is wrong."""
    if isinstance(exception, BaseExceptionGroup):
        return any(is_assertion(inner) for inner in exception.exceptions)
    return isinstance(exception, AssertionError | pytest.fail.Exception)


def _is_fault_of_test(exception: BaseException | None, recorder: Recorder) -> bool:
    """Return whether no reply of a model can have caused an exception, so that no skill mends it.

    A reply without the expected form causes a ``ValueError``, a ``LookupError``, or an operation on
    the None that a search in it has returned.
    """
    if exception is None or isinstance(exception, BaseExceptionGroup):
        return False
    if is_assertion(exception) or isinstance(exception, ValueError | LookupError | SyntaxError):
        return False
    if isinstance(exception, AttributeError):
        return exception.obj is not None
    if isinstance(exception, TypeError | OSError | ArithmeticError):
        return not recorder.transcript and not recorder.used.tokens
    return isinstance(exception, Exception)


def _infrastructure_error(config: pytest.Config, phases: Sequence[Phase]) -> InfraError | None:
    for phase in phases:
        if phase.exception is None or phase.report.passed:
            continue
        may_be = phase.failed and not is_assertion(phase.exception)
        for exception in causes(phase.exception):
            if may_be or is_unanswered(exception):
                error = classify(config, exception)
                if error is not None:
                    return error
    return None


def _message(phases: Sequence[Phase]) -> str:
    lines = (_text(p) if p.subtest is None else f"{p.subtest}: {_text(p)}" for p in phases)
    return shorten("\n".join(lines), _MESSAGE_LIMIT)


def _text(phase: Phase) -> str:
    if phase.excinfo is None:  # a hook of the project made a pass a failure
        return str(phase.report.longrepr or "")
    text = phase.excinfo.exconly(tryshort=True).replace("AssertionError: assert", "assert", 1)
    if isinstance(phase.exception, BaseExceptionGroup):
        leaves = [e for e in causes(phase.exception) if not isinstance(e, BaseExceptionGroup)]
        text = "\n".join([text, *map(_type_and_message, leaves)])
    return text


def _line(phase: Phase) -> str:
    exception = phase.exception
    if exception is None:
        return str(phase.report.longrepr)
    if isinstance(exception, pytest.FixtureLookupError):
        return f"{exception.argname}: {exception.msg or 'no such fixture'}"
    return _type_and_message(exception)


def _reason(phase: Phase) -> str:
    if phase.expected_to_fail:
        return f"expected to fail: {getattr(phase.report, 'wasxfail', '')}"
    longrepr = phase.report.longrepr
    said = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr or "")
    return said.removeprefix("Skipped: ")


def line_in_test(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException] | None) -> int:
    """Return the line of the test's own function that an exception left; 0 if it left none."""
    function = getattr(item, "function", None)
    if excinfo is None or function is None:
        return 0
    code = getattr(inspect.unwrap(function), "__code__", None)
    return next((line for frame, line in walk_tb(excinfo.tb) if frame.f_code is code), 0)


def _location(config: pytest.Config, phase: Phase) -> str:
    """Return ``path:line`` of the innermost line of the project, else of the innermost line."""
    if phase.excinfo is None:
        return ""
    innermost = ""
    name_of = Surroundings.of(config).name_of
    for frame in reversed(phase.excinfo.traceback):
        if not frame.ishidden(phase.excinfo):
            if name := name_of(Path(frame.path)):
                return f"{name}:{frame.lineno + 1}"
            innermost = innermost or f"{frame.path}:{frame.lineno + 1}"
    return innermost
