"""Add-on: a failed call of a test's own client is an infrastructure error, not a wrong answer.

These are rate limits and overloads by any HTTP client, and the use of an invalid reply that the
openai SDK passed on (HTML with status 200 is a string, an error in the body has ``choices=None``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_skillopt.addon import AddOn

if TYPE_CHECKING:
    from pytest_skillopt import InfraError

ADDON = AddOn()
_REPLY_ATTRIBUTES = frozenset({"choices", "output_text", "output", "usage"})

_BUSY = frozenset({429, 503, 529})
"""HTTP statuses of an overloaded server; 529 is Anthropic's."""


@pytest.hookimpl(trylast=True)
def pytest_skillopt_classify_error(exception: BaseException) -> InfraError | None:
    """Classify what neither the project nor the core knows."""
    from pytest_skillopt.model import faults
    from pytest_skillopt.suite.rollouts import InfraError

    if faults.classify(exception) is not None:
        return None  # The core knows which faults of the SDK are fatal.
    said = f"{type(exception).__name__}: {exception}"
    if _http_status(exception) in _BUSY:
        return InfraError("provider", said)
    if _is_use_of_no_reply(exception):
        return InfraError("provider", f"the provider sent no reply ({said})")
    return None


def _http_status(exception: BaseException) -> int:
    """Return the HTTP status of a client's exception, 0 if it has none.

    It is ``status_code`` in the SDKs of providers, ``response.status_code`` in requests and httpx,
    ``code`` in urllib and Google's SDK.
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
        import traceback

        innermost = traceback.extract_tb(exception.__traceback__, -1)
        return any(".choices" in (frame.line or "") for frame in innermost)
    return False
