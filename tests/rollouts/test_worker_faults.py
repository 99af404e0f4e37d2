"""A run and its rollouts when tests and workers misbehave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import warm_sessions
from patience import PATIENCE, is_alive, wait_until
from sessions import WITHOUT_TIME_OUTS

if TYPE_CHECKING:
    from tests.rollouts.conftest import Drive

WORKERS = ("-n", "2")
LANES = ("-n", "1", "--drive-lanes=3")


def test_lanes_give_back_all_that_ran_when_their_worker_dies(drive: Drive) -> None:
    driven = drive(
        """
        import os, pathlib, time

        def wait_for(name):
            while not pathlib.Path(name).exists():
                time.sleep(0.005)

        def test_deadly():
            wait_for("beside")
            if not pathlib.Path("died").exists():
                pathlib.Path("died").touch()
                os._exit(1)

        def test_beside():
            pathlib.Path("beside").touch()
            wait_for("died")
        """,
        *LANES,
        job="rollout_driver:retrying",
    )
    assert [r.outcome for r in driven.rollouts] == ["passed"] * 2


def test_a_worker_that_describes_its_tasks_otherwise_ends_the_session(drive: Drive) -> None:
    conftest = """
        from pytest_skillopt.tasks.task import SkillTask

        def pytest_configure(config):
            if hasattr(config, "workerinput"):
                SkillTask.to_json = lambda task: {"id": task.id, "of_another_version": 1}
    """
    driven = drive("def test_t(): ...", *WORKERS, conftest=conftest, expect=3)
    assert "of_another_version" in driven.output


def test_workers_that_cannot_start_end_the_session(drive: Drive, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import os\nif 'PYTEST_XDIST_WORKER' in os.environ: os._exit(1)")
    driven = drive("def test_it(): pass", "-n1", expect=1)
    assert "workers in a row died before they had collected" in driven.output


def test_no_worker_left(drive: Drive) -> None:
    driven = drive(
        "import os\ndef test_deadly(): os._exit(1)",
        "-n1",
        "--max-worker-restart=0",
        job="rollout_driver:retrying",
        expect=1,
    )
    assert "no worker is left" in driven.output
    assert "INTERNALERROR" not in driven.output


HANGING = """
    import os, pathlib, subprocess, time

    def test_hangs():
        child = subprocess.Popen(["sleep", "1000"])
        pathlib.Path("child.new").write_text(str(child.pid))
        os.rename("child.new", "child")
        time.sleep(1000)

    def test_fine():
        pass
"""
SOON = """
    import pathlib, signal, threading, time
    from types import SimpleNamespace
    from pytest_skillopt.rollouts import interrupts

    began = pathlib.Path("child")

    def monotonic():
        return time.monotonic() + 600 * began.exists()

    def setitimer(which, seconds, again=0):
        if not seconds or began.exists():
            signal.setitimer(which, seconds, again)
        else:
            threading.Thread(target=ring, args=(which, again), daemon=True).start()

    def ring(which, again):
        while not began.exists():
            time.sleep(0.005)
        signal.setitimer(which, 0.001, again)

    interrupts.time = SimpleNamespace(**{**vars(time), "monotonic": monotonic})
    interrupts.signal = SimpleNamespace(**{**vars(signal), "setitimer": setitimer})
"""
"""A ``conftest.py`` with which the time-out is over once the hanging test has started its child."""


CATCHING = HANGING.replace(
    "        time.sleep(1000)",
    """
        try:
            time.sleep(1000)
        except BaseException:
            pass
        assert False, "caught"
    """,
)
SERIAL = ("-p", "no:xdist")


@pytest.mark.parametrize(
    ("suite", "args"),
    [(HANGING, ("-n1",)), (HANGING, LANES), (HANGING, SERIAL), (CATCHING, SERIAL)],
    ids=["worker", "lanes", "serial", "serial-catching"],
)
def test_a_hanging_rollout_is_ended_with_what_it_started(
    drive: Drive, suite: str, args: tuple[str, ...]
) -> None:
    job = {"job": "jobs:job", "jobs": _ONE_AFTER_OTHER, "conftest": SOON}
    driven = drive(suite, *args, "--drive-timeout=600", **job)
    error = driven.one("test_hangs").error
    assert error is not None
    assert error.kind == "timeout"
    assert error.message.startswith("took longer than skillopt_timeout=600 s")
    assert driven.one("test_fine").outcome == "passed"
    assert not is_alive(int((driven.path / "child").read_text()))


_ONE_AFTER_OTHER = """
    from rollout_driver import *

    def job(executor, tasks):
        rollouts = []
        for task in tasks:
            rollouts += take(executor, requests([task], skill_text(0)), skill_text(0))
        keep(rollouts)
"""


@pytest.mark.parametrize(
    ("method", "seconds", "said"),
    [
        ("thread", 0.1, "Timeout (>0.1s) from pytest-timeout."),
        ("signal", 1000, "took longer than skillopt_timeout=1 s"),
    ],
)
def test_pytest_timeout_ends_a_rollout_not_the_session(
    drive: Drive, method: str, seconds: float, said: str
) -> None:
    conftest = f"""
        import os, signal
        from collections import namedtuple
        import pytest

        Settings = namedtuple("Settings", "timeout method")

        class Hooks:
            @pytest.hookspec(firstresult=True)
            def pytest_timeout_set_timer(self, item, settings): pass

        class Timeout:
            @pytest.hookimpl(trylast=True)
            def pytest_timeout_set_timer(self, item, settings):
                def late(signum, frame):
                    pytest.fail(f"Timeout (>{{settings.timeout}}s) from pytest-timeout.")

                if settings.method == "thread":
                    os._exit(1)
                signal.signal(signal.SIGALRM, late)
                signal.setitimer(signal.ITIMER_REAL, settings.timeout)
                return True

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_protocol(self, item):
                settings = Settings({seconds}, {method!r})
                item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)
                return (yield)

        def pytest_addhooks(pluginmanager):
            pluginmanager.add_hookspecs(Hooks)

        def pytest_configure(config):
            config.pluginmanager.register(Timeout(), "timeout")
    """
    suite = "import time\n\ndef test_hangs(): time.sleep(1000)\n"
    driven = drive(suite, *SERIAL, "--drive-timeout=1", conftest=conftest)
    error = driven.one("test_hangs").error
    assert error is not None
    assert (error.kind, error.message[: len(said)]) == ("timeout", said)


def test_a_rollout_that_hangs_in_compiled_code_ends_too(drive: Drive) -> None:
    driven = drive(
        """
        import re

        def test_hangs():
            re.match("(a+)+$", "a" * 60 + "b")
        """,
        "-n1",
        "--drive-timeout=1",
    )
    assert driven.one("test_hangs").outcome == "error"


def test_a_thread_left_behind_does_not_keep_the_session(drive: Drive) -> None:
    driven = drive(
        """
        import threading, time

        def test_leaves_thread():
            threading.Thread(target=time.sleep, args=(1000,)).start()
        """,
        "-n1",
    )
    assert driven.rollouts[0].outcome == "passed"


def test_what_the_job_raises_is_raised_in_the_main_thread(drive: Drive) -> None:
    driven = drive(
        "def test_it(): pass",
        "-n1",
        job="jobs:job",
        expect=4,
        jobs="""
        import pytest

        def job(executor, tasks):
            raise pytest.UsageError("no such split: valu")
        """,
    )
    assert "ERROR: no such split: valu" in driven.output


@pytest.mark.parametrize("args", [("-n1",), LANES, ("-p", "no:xdist")], ids=str)
def test_a_wider_fixture_that_cannot_be_torn_down_is_told(
    drive: Drive, args: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "a-secret-of-this-test-0123456789")
    driven = drive(
        """
        import os
        import pytest

        @pytest.fixture(scope="session")
        def server(skill):
            yield
            raise OSError("port \\udce9 in use by " + os.environ["MY_TOKEN"])

        def test_it(server):
            pass
        """,
        *args,
        job="rollout_driver:two_versions",
    )
    assert {r.outcome for r in driven.rollouts} == {"passed"}
    # Each lane has such a fixture; one that runs a single version tears it down after its rollouts.
    assert args == LANES or any("in use" in r.output for r in driven.rollouts)
    assert "teardown of a wider-scoped fixture failed: OSError: port" in driven.output
    assert "in use by [redacted MY_TOKEN]" in driven.output


def test_without_workers_such_a_fixture_is_told_by_the_plugin_itself(
    pytester: pytest.Pytester,
) -> None:
    pytester.path.joinpath("SKILL.md").write_text("---\nname: demo\n---\nBe polite.\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.fixture(scope="session")
        def server():
            yield
            raise OSError("port in use")

        @pytest.mark.skill_task
        def test_it(server, skill): pass
        """
    )
    options = ("--skillopt", "--skillopt-rollouts=1", "-p", "no:cacheprovider")
    done = warm_sessions.run(*options, cwd=pytester.path)
    done.stdout.fnmatch_lines(["*teardown of a wider-scoped fixture failed: OSError: port in use"])


def test_an_error_of_the_system_while_tasks_are_described_is_shown(
    pytester: pytest.Pytester,
) -> None:
    pytester.path.joinpath("SKILL.md").write_text("---\nname: demo\n---\nBe polite.\n")
    pytester.makeconftest("def pytest_skillopt_task(item): open('no-such-file')")
    pytester.makepyfile("import pytest\n\n@pytest.mark.skill_task\ndef test_it(skill): pass")
    done = warm_sessions.run("--skillopt", "-n1", "-p", "no:cacheprovider", cwd=pytester.path)
    assert done.ret != 0
    assert "No such file or directory: 'no-such-file'" in done.stdout.str()


WAITING = """
    import pathlib, subprocess

    def test_waits():
        pathlib.Path("started").touch()
        assert subprocess.run(["sleep", "1000"]).returncode == 0
"""
SWALLOWING = """
    import pathlib, time

    def test_swallows_an_interrupt():
        while True:
            try:
                pathlib.Path("started").touch()
                time.sleep(1000)
            except BaseException:
                pass
"""
SAVING = """
    from pytest_skillopt.rollouts.executor import ExecutorClosed
    from rollout_driver import *

    def job(executor, tasks):
        try:
            once(executor, tasks)
        except ExecutorClosed as closed:
            Path("saved").write_text(str(closed))
            raise
"""


@pytest.mark.parametrize(
    ("suite", "args", "signum", "all_at_once"),
    [
        (WAITING, WORKERS, signal.SIGTERM, False),
        (WAITING, WORKERS, signal.SIGINT, True),
        (WAITING, LANES, signal.SIGINT, True),
        (SWALLOWING, WORKERS, signal.SIGINT, False),
        (SWALLOWING, LANES, signal.SIGINT, False),
    ],
    ids=["waiting", "waiting-terminal", "waiting-terminal-lanes", "swallowing", "swallowing-lanes"],
)
def test_an_interrupt_waits_for_no_rollout_and_lets_the_job_save(
    pytester: pytest.Pytester,
    drive: Drive,
    suite: str,
    args: tuple[str, ...],
    signum: signal.Signals,
    all_at_once: bool,
) -> None:
    """``all_at_once``: workers and what they have started are interrupted as well, as they are
    by a terminal; what a test makes of that is not a rollout."""
    del drive  # sets the environment of the process
    pytester.makepyfile(test_suite=suite, jobs=SAVING)
    pytester.makeconftest(WITHOUT_TIME_OUTS)
    command = ("-p", "rollout_driver", "--drive=jobs:job", *args)
    process: subprocess.Popen[str] | warm_sessions.Session
    if all_at_once:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=pytester.path,
            text=True,
            start_new_session=True,
        )
    else:
        process = warm_sessions.start(*command, cwd=pytester.path)
    wait_until((pytester.path / "started").exists)
    (os.killpg if all_at_once else os.kill)(process.pid, signum)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert (pytester.path / "saved").read_text() == "the session was interrupted"
    assert "INTERNALERROR" not in output


@pytest.mark.parametrize("args", [("-n1",), LANES], ids=str)
def test_a_worker_that_is_interrupted_alone_is_replaced(
    drive: Drive, args: tuple[str, ...]
) -> None:
    """As by a test that sends its process a signal: the session is not told and goes on."""
    driven = drive(
        """
        import os, pathlib, signal

        def test_interrupts():
            if not pathlib.Path("interrupted").exists():
                pathlib.Path("interrupted").touch()
                os.kill(os.getpid(), signal.SIGINT)
        """,
        *args,
        job="rollout_driver:retrying",
        conftest="from pytest_skillopt.rollouts import worker_loop\nworker_loop._ALONE = 0.01",
    )
    assert driven.one("test_interrupts").outcome == "passed"


def test_an_interrupt_that_reaches_a_lane_late_leaves_nothing_behind(
    pytester: pytest.Pytester, drive: Drive
) -> None:
    """The worker has been told to stop before the terminal's interrupt is handled there."""
    del drive  # sets the environment of the process
    pytester.makepyfile(
        test_suite="""
        import os, pathlib, signal, subprocess, time
        from pytest_skillopt.rollouts import worker_loop

        def test_waits(request):
            nowhere = subprocess.DEVNULL
            child = subprocess.Popen(["sleep", "1000"], stdout=nowhere, stderr=nowhere)
            pathlib.Path("pid.new").write_text(str(child.pid))
            os.rename("pid.new", "pid")
            while not worker_loop.link(request.config).ended:
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
            child.wait()
        """,
        jobs=SAVING,
    )
    pytester.makeconftest(WITHOUT_TIME_OUTS)
    command = ("-p", "rollout_driver", "--drive=jobs:job", *LANES)
    process = warm_sessions.start(*command, cwd=pytester.path, quiet=True)
    wait_until((pytester.path / "pid").exists)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == pytest.ExitCode.INTERRUPTED
    assert not is_alive(int((pytester.path / "pid").read_text()))


def test_a_killed_controller_leaves_no_worker_behind(
    pytester: pytest.Pytester, drive: Drive
) -> None:
    del drive  # sets the environment of the process
    pytester.makepyfile(
        test_suite="""
        import os, pathlib, subprocess, time

        def test_waits():
            child = subprocess.Popen(["sleep", "1000"])
            pathlib.Path("pids.new").write_text(f"{os.getpid()} {child.pid}")
            os.rename("pids.new", "pids")
            time.sleep(1000)
        """
    )
    command = ("-p", "rollout_driver", "-n1", "--drive=rollout_driver:once")
    process = warm_sessions.start(*command, cwd=pytester.path, quiet=True)
    wait_until((pytester.path / "pids").exists)
    process.kill()
    process.wait()
    pids = [int(pid) for pid in (pytester.path / "pids").read_text().split()]
    wait_until(lambda: not any(map(is_alive, pids)), "a worker still runs")


def test_a_worker_asks_the_controller(drive: Drive) -> None:
    driven = drive(
        """
        import threading
        import pytest
        from pytest_skillopt.model.types import CapReached, ModelFault
        from pytest_skillopt.rollouts import worker_loop

        def test_answer(request):
            link = worker_loop.link(request.config)
            answers = {}
            def ask(n):
                answers[n] = link.ask("add", n, 1)
            threads = [threading.Thread(target=ask, args=(n,)) for n in range(20)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            assert answers == {n: n + 1 for n in range(20)}

        def test_model_error(request):
            with pytest.raises(CapReached, match="a CapReached of the controller"):
                worker_loop.link(request.config).ask("fail", "CapReached")

        def test_patched_json(request, monkeypatch):
            monkeypatch.setattr("json.dumps", lambda *values, **options: "{}")
            monkeypatch.setattr("json.loads", lambda *values, **options: {})
            link = worker_loop.link(request.config)
            assert link.ask("add", 1, 1) == 2
            with pytest.raises(CapReached):
                link.ask("fail", "CapReached")

        def test_unknown_service(request):
            with pytest.raises(ModelFault, match="KeyError"):
                worker_loop.link(request.config).ask("nothing")

        def test_cap(request):
            worker_loop.link(request.config).ask("fail", "CapReached")
        """,
        "-n1",
    )
    outcomes = {r.request.task.partition("::")[2]: r.outcome for r in driven.rollouts}
    assert outcomes.pop("test_cap") == "error"
    assert set(outcomes.values()) == {"passed"}, driven.rollouts
    cap = driven.one("test_cap").error
    assert cap is not None
    assert cap.kind == "cap"
