"""Workers on other machines: reached over a socket, with folders and networks of their own."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from socket_servers import SocketServers

from pytest_skillopt.rollouts.worker_loop import _LogCarrier

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.rollouts.conftest import Drive

SUPPORT = Path(__file__).parent.parent / "_support"
SUITE = """
    import os, pathlib, time

    def test_skill(skill, rollout):
        time.sleep(0.1)
        # The skill has come over the wire: there is none in this directory.
        assert not pathlib.Path("skills").exists()
        assert (skill.path / "SKILL.md").read_text() == skill.text
        assert (skill.path / "scripts" / "total.py").read_bytes() == b"print(1)"
        rollout.record("user", os.getcwd())

    def test_dies_once():
        mark = pathlib.Path("died")
        if not mark.exists():
            mark.touch()
            os._exit(1)
"""
JOBS = """
    from rollout_driver import *

    def job(executor, tasks):
        executor.add_skill(SKILL, {"scripts/total.py": b"print(1)"})
        content = skill_text(0)
        rollouts = take(executor, requests(tasks[:1], content, k=6), content)
        wanted = requests(tasks[1:], content)
        for _ in range(3):
            rollouts += take(executor, wanted, content)
        keep(rollouts)
"""


@pytest.fixture
def servers() -> Iterator[SocketServers]:
    started = SocketServers()
    yield started
    started.stop()


def _serve(servers: SocketServers, folder: Path, *prefix: str, **options: Any) -> str:
    """Serve in a new folder that has the suite, but no skill; the argument that reaches it."""
    folder.mkdir()
    for name in ("test_suite.py", "jobs.py"):
        shutil.copy(folder.parent / name, folder)
    return servers.start(folder, *prefix, pythonpath=str(SUPPORT), **options)


def _check(drive: Drive, specs: list[str], folders: list[Path]) -> None:
    driven = drive(SUITE, "--dist=load", *specs, job="jobs:job", jobs=JOBS)
    places = [r.transcript[0].content for r in driven.of("test_skill") if r.outcome == "passed"]
    assert {Path(place).name for place in places} == {folder.name for folder in folders}
    assert [r.outcome for r in driven.of("test_skill")] == ["passed"] * 6
    # On each machine the task dies once, and the worker that replaces the lost one runs it.
    deaths = [r.error for r in driven.of("test_dies_once") if r.outcome == "error"]
    assert 1 <= len(deaths) <= 2
    assert all(error is not None and error.kind == "worker" for error in deaths)
    assert driven.of("test_dies_once")[-1].outcome == "passed"


@pytest.mark.parametrize("left", [1, 0])
def test_a_machine_that_is_lost_before_it_has_collected_is_not_waited_for(
    drive: Drive, servers: SocketServers, pytester: pytest.Pytester, left: int
) -> None:
    pytester.makeconftest("from pytest_skillopt import internals\ninternals._RESTART_PAUSE = 0")
    suite = """
        import os, pathlib

        if pathlib.Path("lost").exists():
            os._exit(1)

        def test_it(): pass
    """
    pytester.makepyfile(test_suite=suite, jobs="")
    specs = [_serve(servers, pytester.path / str(n), again=False) for n in range(2)]
    for n in range(left, 2):
        (pytester.path / str(n) / "lost").touch()
    driven = drive(suite, "--dist=load", *specs, expect=1 - left)
    assert [r.outcome for r in driven.rollouts] == ["passed"] * left
    assert driven.output.count("cannot be started again") == 2 - left
    assert "INTERNALERROR" not in driven.output


@pytest.fixture
def namespaces() -> Iterator[list[tuple[str, str]]]:
    """Name and address of two network namespaces, each reached over a pair of virtual interfaces.

    None if the system makes none, as for users that are not root.
    """
    if not shutil.which("ip"):
        yield []
        return
    first = 64 + os.getpid() % 128  # of this process: another's tests may run at the same time
    made = [(f"skillopt-{uuid.uuid4().hex[:6]}", f"10.{first}.{n}") for n in (1, 2)]
    try:
        for name, net in made:
            device = name[-6:]
            for command in (
                f"netns add {name}",
                f"link add a{device} type veth peer name b{device} netns {name}",
                f"addr add {net}.1/24 dev a{device}",
                f"link set a{device} up",
                f"-n {name} addr add {net}.2/24 dev b{device}",
                f"-n {name} link set b{device} up",
            ):
                done = subprocess.run(["ip", *command.split()], capture_output=True)
                if done.returncode:
                    yield []
                    return
        yield [(name, f"{net}.2") for name, net in made]
    finally:
        for name, _ in made:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_two_socket_workers_in_folders_of_their_own(
    drive: Drive,
    servers: SocketServers,
    pytester: pytest.Pytester,
    namespaces: list[tuple[str, str]],
) -> None:
    """In networks of their own as well, if the system makes any."""
    pytester.makepyfile(test_suite=SUITE, jobs=JOBS)
    folders = [pytester.path / "first", pytester.path / "second"]
    entered: list[tuple[tuple[str, ...], dict[str, str]]] = [
        (("ip", "netns", "exec", name), {"address": address}) for name, address in namespaces
    ]
    specs = [
        _serve(servers, folder, *prefix, **place)
        for folder, (prefix, place) in zip(folders, entered or [((), {})] * 2, strict=True)
    ]
    _check(drive, specs, folders)


LOGGED = """
import logging, os
import pytest

@pytest.mark.skill_task
@pytest.mark.parametrize("n", range(3))
def test_log(skill, n):
    logging.getLogger("mine").info("task %d with %s", n, os.environ["MY_TOKEN"])
    logging.getLogger("mine").debug("a detail")
    if n == 2 and os.fork() == 0:
        logging.getLogger("mine").info("from a forked process")
        os._exit(0)
"""


@pytest.mark.parametrize(
    "levels", [{"file": "DEBUG"}, {"file": "INFO", "cli": "DEBUG"}], ids=["file", "both"]
)
def test_log_lines_of_workers_reach_the_log(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, levels: dict[str, str]
) -> None:
    monkeypatch.setenv("MY_TOKEN", "a-secret-of-this-test-0123456789")
    pytester.path.joinpath("SKILL.md").write_text("---\nname: log\n---\nLog.\n")
    pytester.makepyfile(test_log=LOGGED)
    options = ["--log-file=all.log", *(f"--log-{to}-level={at}" for to, at in levels.items())]
    arguments = ["--skillopt", "--skillopt-rollouts=1", "-p", "no:cacheprovider"]
    done = warm_sessions.run(*arguments, "-n1", *options, cwd=pytester.path)
    assert done.ret == 0
    said = {"cli": done.stdout.str(), "file": (pytester.path / "all.log").read_text()}
    for to, level in levels.items():
        for number in range(3):
            assert said[to].count(f"gw0: task {number} with [redacted MY_TOKEN]") == 1
        assert ("gw0: a detail" in said[to]) == (level == "DEBUG")
        assert "--skillopt begins with 3 tasks" in said[to], "the controller's lines are there, too"
    assert not any("from a forked process" in text or "a-secret" in text for text in said.values())


def test_log_lines_are_carried_only_if_somebody_reads_them(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("SKILL.md").write_text("---\nname: log\n---\nLog.\n")
    pytester.makepyfile(
        test_log="""
import logging
import pytest

@pytest.mark.skill_task
def test_log(skill):
    kinds = [type(handler).__name__ for handler in logging.getLogger().handlers]
    assert "_LogCarrier" not in kinds
"""
    )
    arguments = ("--skillopt", "--skillopt-rollouts=1", "-n1", "-p", "no:cacheprovider")
    assert warm_sessions.run(*arguments, cwd=pytester.path).ret == 0


def test_a_flood_of_log_lines_is_bounded() -> None:
    sent: list[tuple[Any, ...]] = []
    carrier = _LogCarrier(lambda *message: sent.append(message))
    carrier._left = 3
    for number in range(5):
        record = logging.LogRecord("x", logging.INFO, "f.py", 1, f"{number}" * 9_000, None, None)
        carrier.handle(record)
    texts = [message[-1] for message in sent]
    assert len(texts) == 3
    assert texts[-1] == "further lines are left out"
    assert len(texts[0]) < 4_100
    carrier._left = 9
    carrier.handle(logging.LogRecord("x", logging.INFO, "f.py", 1, "%d", ("no number",), None))
    assert len(sent) == 3, "an unreadable line disturbs no test"
