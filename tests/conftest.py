"""Fixtures of the whole test suite."""

from __future__ import annotations

import compileall
import gc
import importlib
import os
import pkgutil
import re
import signal
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import toy_world
import warm_sessions
from browser import Browser, find_browser
from chat_server import ChatServer
from execnet import gateway_io
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from model_maker import ModelMaker
from sessions import WITHOUT_OTHERS, clean_environment
from xdist.scheduler import WorkStealingScheduling

import pytest_skillopt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from xdist.remote import Producer

# The same examples in every run: what is checked before a change lands must not be a lottery.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")
# Nor on the modules imported by then, which Hypothesis would all parse for constants to try.
vars(providers)["_get_local_constants"] = lambda: providers._local_constants

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A command that a shell runs in the background ignores interrupts, and so would its processes.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Sessions within this process forget the modules that they are the first to import.
for found in pkgutil.walk_packages(pytest_skillopt.__path__, "pytest_skillopt."):
    importlib.import_module(found.name)


_IMPORT_ALL = """
from importlib import import_module
from pkgutil import walk_packages

import pytest_skillopt

for module in walk_packages(pytest_skillopt.__path__, "pytest_skillopt."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
"""


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package, and have one session keep what pytest makes of the modules of plugins.

    If Python may keep nothing, each process of each session that tests start would do both anew.
    """
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(pytest_skillopt.__file__).parent, quiet=2)
        environment = clean_environment()
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryDirectory() as empty:
            (Path(empty) / "conftest.py").write_text(_IMPORT_ALL, encoding="utf-8")
            command = [sys.executable, "-m", "pytest", "-q", "-n1", "-p", "no:cacheprovider"]
            subprocess.run(command, cwd=empty, env=environment, capture_output=True, check=False)
    if hasattr(os, "fork"):
        # execnet has no hook for how a worker is started; mypy allows no other class in its place.
        gateway_io.Popen2IOMaster = warm_sessions.Worker  # type: ignore[misc]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(
    config: pytest.Config, log: Producer
) -> WorkStealingScheduling | None:
    """Give each worker whole files, whose fixtures it makes once, and no long tests at the end."""
    return WorkStealingScheduling(config, log) if config.getoption("dist") == "load" else None


def pytest_unconfigure() -> None:
    warm_sessions.stop()


_OF_THE_MACHINE = re.compile(
    r"(?:GIT|GITHUB|GITLAB|CI|OPENAI|ANTHROPIC)_|(?:CI|BUILD_NUMBER|GH_TOKEN|COLUMNS|LINES)$"
    r"|(?:NO|FORCE)_COLOR$|PY_COLORS$|XDG_(?:CONFIG|DATA|CACHE|STATE)_HOME$"
    r"|(?i:(?:https?|all|no)_proxy)$"
)
"""Environment variables that say where the tests run: a CI, a terminal, a network, keys."""


@pytest.fixture(scope="session", autouse=True)
def any_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep from the tests how the machine is set up, and let git know who commits."""
    config = tmp_path_factory.mktemp("git") / "config"
    config.write_text(
        "[user]\nname = Ada\nemail = ada@example.org\n[init]\ndefaultBranch = main\n"
        "[advice]\ndetachedHead = false\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        for name in filter(_OF_THE_MACHINE.match, list(os.environ)):
            patch.delenv(name)
        patch.setenv("GIT_CONFIG_GLOBAL", str(config))
        patch.setenv("GIT_CONFIG_NOSYSTEM", "1")
        yield


@pytest.fixture(scope="session", autouse=True)
def lean_sessions(any_machine: None) -> Iterator[None]:
    """Have the sessions that tests start load no plugins but pytest's, xdist's and ours.

    One call is made first: what the SDK's HTTP client imports on the way would be forgotten after a
    session within this process, and be there twice, with exceptions that are not each other's.
    """
    server = ChatServer()
    server.start()
    maker = ModelMaker(server.url)
    maker().complete([{"role": "user", "content": "Hello."}], sample="warm")
    maker.close()
    server.stop()
    gc.freeze()  # Objects loaded by now stay: no collection has to examine them again.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHERS)
        patch.setattr(metadata, "distributions", metadata.distributions)
        warm_sessions.know_plugins()
        warm_sessions.know_fixtures()
        yield


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Pytest's own, which forgets the options of its surroundings, with those of our tests."""
    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHERS)
    return pytester


@pytest.fixture
def api_key(monkeypatch: pytest.MonkeyPatch) -> str:
    """A key in the environment, and no address of another server there."""
    key = "sk-test-0123456789"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return key


@pytest.fixture
def no_umask() -> Iterator[None]:
    """Take away no permission from files and folders that name none."""
    usual = os.umask(0)
    yield
    os.umask(usual)


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    """An OpenAI-compatible server on loopback; see ``tests/_support/chat_server.py``.

    ``chat_server.url`` is its base URL; ``chat_server.reply`` a function of the request's body;
    ``chat_server.script("text", chat_server.answer.error(429, retry_after="1"))`` comes first;
    ``chat_server.calls``, ``.bodies`` and ``.requests`` tell what arrived.
    """

    server = ChatServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def make_model(chat_server: ChatServer) -> Iterator[ModelMaker]:
    """Makes models against ``chat_server`` with the real SDK: ``make_model(model="m", ...)``."""

    maker = ModelMaker(chat_server.url)
    yield maker
    maker.close()


@pytest.fixture
def toy() -> ModuleType:
    """The toy world in which the learning is tested; see ``tests/_support/toy_world.py``."""
    return toy_world


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A headless Chromium; see ``tests/_support/browser.py``."""
    browser = Browser(find_browser(), tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()
