"""Fixtures of the whole test suite."""

from __future__ import annotations

import compileall
import gc
import importlib.util
import pkgutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import pytest_skillopt

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from chat_server import ChatServer
    from model_maker import ModelMaker

_SUPPORT = Path(__file__).parent / "_support"
# The example's simulated models are part of it, and are tested here.
sys.path.append(str(Path(__file__).parents[1] / "example_project"))


def _load_support(name: str) -> ModuleType:
    """Import a module of ``tests/_support`` by its file: importlib mode puts no test folder on
    ``sys.path``."""
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, _SUPPORT / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


# The same examples in every run: what is checked before a change lands must not be a lottery.
settings.register_profile(
    "steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("steady")

_load_support("patience")
_load_support("sessions")
_load_support("example_copy")
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # What a shell runs in the background ignores interrupts, and so would all that the tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Sessions within this process forget the modules that they are the first to import.
for found in pkgutil.walk_packages(pytest_skillopt.__path__, "pytest_skillopt."):
    importlib.import_module(found.name)

_load_support("chat_server")
_load_support("model_maker")
_load_support("model_server")
_load_support("harness_project")
_load_support("fault_project")
_load_support("socket_servers")
_load_support("toy_world")
_load_support("journals")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package, and have one session keep what pytest makes of pytest-xdist's modules.

    Where Python may keep nothing, each process of each session that tests start would do both anew.
    """
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        from sessions import clean_environment

        compileall.compile_dir(Path(pytest_skillopt.__file__).parent, quiet=2)
        environment = clean_environment()
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        with tempfile.TemporaryDirectory() as empty:
            command = [sys.executable, "-m", "pytest", "-q", "-n1", "-p", "no:cacheprovider"]
            subprocess.run(command, cwd=empty, env=environment, capture_output=True, check=False)


@pytest.fixture(scope="session", autouse=True)
def lean_sessions() -> Iterator[None]:
    """Have the sessions that tests start load no plugins but pytest's, xdist's and ours.

    One call is made first: what the SDK's HTTP client imports on the way would be forgotten after a
    session within this process, and be there twice, with exceptions that are not each other's.
    """
    from chat_server import ChatServer
    from model_maker import ModelMaker
    from sessions import WITHOUT_OTHERS

    server = ChatServer()
    server.start()
    maker = ModelMaker(server.url)
    maker().complete([{"role": "user", "content": "Hello."}], sample="warm")
    maker.close()
    server.stop()
    gc.freeze()  # What is loaded by now stays: no collection need look at it again.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHERS)
        yield


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Pytest's own, which forgets the options of its surroundings, with those of our tests."""
    from sessions import WITHOUT_OTHERS

    monkeypatch.setenv("PYTEST_ADDOPTS", WITHOUT_OTHERS)
    return pytester


@pytest.fixture
def chat_server() -> Iterator[ChatServer]:
    """An OpenAI-compatible server on loopback; see ``tests/_support/chat_server.py``.

    ``chat_server.url`` is its base URL; ``chat_server.reply`` a function of the request's body;
    ``chat_server.script("text", chat_server.answer.error(429, retry_after="1"))`` comes first;
    ``chat_server.calls``, ``.bodies`` and ``.requests`` tell what arrived.
    """
    from chat_server import ChatServer

    server = ChatServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture
def make_model(chat_server: ChatServer) -> Iterator[ModelMaker]:
    """Makes models against ``chat_server`` with the real SDK: ``make_model(model="m", ...)``."""
    from model_maker import ModelMaker

    maker = ModelMaker(chat_server.url)
    yield maker
    maker.close()


@pytest.fixture
def toy() -> ModuleType:
    """The toy world in which the learning is tested; see ``tests/_support/toy_world.py``."""
    return _load_support("toy_world")
