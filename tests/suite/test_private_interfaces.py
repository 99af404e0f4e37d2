"""Where pytest or xdist are not as expected, the session ends at its start and says so."""

from __future__ import annotations

import runpy
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_skillopt.suite.internals import items
from pytest_skillopt.suite.internals.sessions import probe
from pytest_skillopt.suite.internals.xdist import probe_xdist
from pytest_skillopt.suite.versions import SkillVersions


def test_the_installed_pytest_is_as_expected(request: pytest.FixtureRequest) -> None:
    probe(request.session)


def test_a_pytest_that_is_not(pytestconfig: pytest.Config) -> None:
    session: Any = SimpleNamespace(config=pytestconfig, items=[])
    expected = rf"with pytest {pytest.__version__}, pluggy .*Session\._setupstate\.stack"
    with pytest.raises(pytest.UsageError, match=expected):
        probe(session)


def test_an_xdist_that_is_not() -> None:
    node = SimpleNamespace(workerinput={}, shutdown=print, gateway=None)
    with pytest.raises(pytest.UsageError, match=r"pytest-xdist .*WorkerController\.notify_inproc"):
        probe_xdist(node)


def test_a_private_module_that_has_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "_pytest.stash", None)
    with pytest.raises(pytest.UsageError, match=r"with pytest .*_pytest\.stash"):
        runpy.run_path(items.__file__)


def test_directories_of_versions_do_not_pile_up() -> None:
    versions = SkillVersions()
    versions.add_skill("skills/demo/SKILL.md", {"notes.md": b"n", "SKILL.md": b"old"})
    made = []
    for number in range(40):
        versions.add_version("skills/demo/SKILL.md", str(number), str(number).encode())
        made.append(versions.directory("skills/demo/SKILL.md", str(number)))
        assert made[-1].name == "demo"
        assert (made[-1] / "SKILL.md").read_bytes() == str(number).encode()
        assert (made[-1] / "notes.md").read_bytes() == b"n"
    assert sum(directory.exists() for directory in made) == 16
    again = versions.directory("skills/demo/SKILL.md", "0")
    assert (again / "SKILL.md").read_bytes() == b"0"
    versions.close()
    assert not any(directory.exists() for directory in [*made, again])
