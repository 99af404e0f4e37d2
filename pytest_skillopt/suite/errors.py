"""Which exceptions are infrastructure, and which the test's own affair.

``classify_error`` is the built-in implementation of the hook ``pytest_skillopt_classify_error``.
"""

from __future__ import annotations

import linecache

import pytest

from pytest_skillopt.model import faults
from pytest_skillopt.model.types import ModelError
from pytest_skillopt.suite.rollouts import InfraError

_REPLY_ATTRIBUTES = frozenset({"choices", "output_text", "output", "usage"})

_BUSY = frozenset({429, 503, 529})
"""HTTP statuses by which a server says that it cannot serve now; 529 is Anthropic's."""


class RolloutTimeout(BaseException):
    """Interrupts a rollout that took longer than ``skillopt_timeout``.

    Not an ``Exception``, so that a test's own handlers let it through.
    """


class OwnFault(ModelError):
    """A fixture of ours, or the model behind it, broke while a test used it.

    Whatever the cause, the test has not judged an answer.
    """


def is_unanswered(exception: BaseException) -> bool:
    """No answer was there to judge: a model could not give one, or the test's time was over.

    pytest-timeout has no exception of its own, it ends a test as a failure with these words.
    """
    if isinstance(exception, pytest.fail.Exception):
        words = str(exception.msg)
        return words.startswith("Timeout (>") and words.endswith("from pytest-timeout.")
    return isinstance(exception, ModelError | RolloutTimeout)


def classify(config: pytest.Config, exception: BaseException) -> InfraError | None:
    """Ask the hook; what this package raises itself is not for users to judge."""
    if is_unanswered(exception):
        return classify_error(exception)
    error: InfraError | None = config.hook.pytest_skillopt_classify_error(
        config=config, exception=exception
    )
    return error


def classify_error(exception: BaseException) -> InfraError | None:
    """Judge an exception that escaped from a test; None where it may be a wrong answer.

    Errors are: whatever a model or a fixture of ours raises; the exceptions of the openai SDK and
    what it lets escape (a broken body); time-outs, connection errors and rate limits of anything
    the test talks to, through whatever client; and the use of a reply that the SDK passed on
    although it is none (HTML with status 200 is a string, an error in the body ``choices=None``).
    """
    if isinstance(exception, OwnFault):
        return InfraError("internal", str(exception))
    fault = faults.classify(exception)
    if fault is not None:
        return InfraError(fault.kind, fault.message, fault.fatal)
    if is_unanswered(exception):
        return InfraError("timeout", str(exception))
    if isinstance(exception, TimeoutError):
        return InfraError("timeout", _words(exception))
    if isinstance(exception, ConnectionError):
        return InfraError("provider", _words(exception))
    if isinstance(exception, Exception) and _http_status(exception) in _BUSY:
        return InfraError("provider", _words(exception))
    if _is_use_of_no_reply(exception):
        return InfraError("provider", f"the provider sent no reply ({_words(exception)})")
    return None


def _http_status(exception: Exception) -> int:
    """Of the refusal that a client of any library has met; 0 where it is none.

    ``status_code`` is what the SDKs of the providers call it, ``response.status_code`` requests and
    httpx, ``code`` urllib and Google's.
    """
    response = getattr(exception, "response", None)
    for owner, name in ((exception, "status_code"), (response, "status_code"), (exception, "code")):
        status = getattr(owner, name, None)
        if isinstance(status, int):
            return status
    return 0


def _is_use_of_no_reply(exception: BaseException) -> bool:
    if isinstance(exception, AttributeError):
        return isinstance(exception.obj, str) and exception.name in _REPLY_ATTRIBUTES
    if isinstance(exception, TypeError) and "'NoneType' object" in str(exception):
        return ".choices" in _raising_line(exception)
    return False


def _raising_line(exception: BaseException) -> str:
    traceback = exception.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None:
        return ""
    frame = traceback.tb_frame
    return linecache.getline(frame.f_code.co_filename, traceback.tb_lineno, frame.f_globals)


def _words(exception: BaseException) -> str:
    return f"{type(exception).__name__}: {exception}"
