"""How the tests start sessions of pytest in processes of their own."""

from __future__ import annotations

import os

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
