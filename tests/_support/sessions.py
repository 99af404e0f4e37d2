"""Sessions of pytest in processes of their own, as the tests start them."""

from __future__ import annotations

import contextlib
import io
import os
import time

import pytest

from pytest_skillopt.cli import main

WITHOUT_OTHERS = "-p no:hypothesispytest -p no:anyio"
"""Options. Other plugins that happen to be installed are most of the time that a start takes."""

WITHOUT_TIME_OUTS = """
def pytest_configure():
    from execnet.gateway_base import WorkerGateway
    from xdist.workermanage import NodeManager

    NodeManager.EXIT_TIMEOUT = None
    WorkerGateway._terminate_execution = wait

def wait(gateway):
    gateway._execpool.trigger_shutdown()
    gateway._execpool.waitall()
"""
"""A ``conftest.py`` with which xdist never loses its patience with a worker that does not end."""


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment without what this session, or its machine, has set for pytest and models."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "OPENAI_"))}
    return {**kept, "PYTEST_ADDOPTS": WITHOUT_OTHERS, **changes}


def call(*arguments: object) -> pytest.RunResult:
    """Run ``pytest-skillopt`` with these arguments in this process."""
    began = time.monotonic()
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()) as err,
    ):
        status = main(list(map(str, arguments)))
    said = out.getvalue().splitlines()
    complained = err.getvalue().splitlines()
    return pytest.RunResult(status, said, complained, time.monotonic() - began)
