"""Whatever happens to a training, it ends with the verdicts of an undisturbed one, or says why not.

Here the whole plugin is driven, in processes that are killed for good; ``tests/rollouts`` has the
faults of the rollout engine by itself, ``tests/model`` those of a single call.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import tempfile
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import warm_sessions
from chat_server import asked_in
from example_copy import answer_at_once, copy_example
from fault_project import (
    NAMES,
    QUICK,
    RULES,
    SKILL,
    FaultProject,
    is_optimizer,
    outcome,
    play,
    wait_for,
)
from patience import PATIENCE, wait_until
from run_files import latest_result
from sessions import clean_environment
from skill_project import run_git
from socket_servers import SocketServers

from pytest_skillopt.model.client import MOST_ANSWERED, Client
from pytest_skillopt.rollouts import sampler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from chat_server import Answer, Body, ChatServer

WORKERS = ("-n", "2")


@pytest.fixture
def project(pytester: pytest.Pytester, chat_server: ChatServer, api_key: str) -> FaultProject:
    return FaultProject(pytester.path, chat_server, pytester)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, Any]], int, bytes]:
    """Result, calls and written skill of the training if nothing happens to it."""
    from chat_server import ChatServer

    server = ChatServer()
    server.start()
    project = FaultProject(tmp_path_factory.mktemp("undisturbed"), server)
    project.run("-p", "no:xdist")
    server.stop()
    found = outcome(project.result)
    assert found[0]["status"] == "accepted"
    assert found[0]["written"]
    written = project.skill.read_bytes()
    assert written != SKILL
    return found, server.calls, written


@pytest.fixture(scope="module")
def undisturbed(baseline: tuple[list[dict[str, Any]], int, bytes]) -> list[dict[str, Any]]:
    """Result of the training if nothing happens to it."""
    return baseline[0]


@contextlib.contextmanager
def beside(act: Callable[[], object]) -> Iterator[None]:
    """Have something happen in another thread meanwhile; an error of it is raised in the end."""
    with ThreadPoolExecutor(1) as pool:
        acting = pool.submit(act)
        yield
        acting.result()


# The controller


def test_a_run_killed_again_and_again_pays_for_nothing_twice(
    project: FaultProject, baseline: tuple[list[dict[str, Any]], int, bytes]
) -> None:
    """Without workers: ``tests/test_training.py``."""
    undisturbed, calls, _ = baseline
    chance = random.Random(2)
    resume: tuple[str, ...] = ()
    done = 0
    for moment in sorted(chance.sample(range(1, calls - 5), 2)):
        # Calls in flight at a kill are asked for again. The run may go on for a few calls.
        project.server.hold(after=moment + done + 3)
        process = project.start(*WORKERS, *resume)
        assert wait_for(functools.partial(_has_served, project, moment + done), process)
        time.sleep(chance.uniform(0, 0.02))
        process.kill()
        process.communicate()
        project.server.release()
        done += 1
        resume = ("--skillopt-resume=latest",)
        assert project.skill.read_bytes() == SKILL
    project.run(*WORKERS, *resume)
    assert outcome(project.result) == undisturbed
    _check_paid_once(project, lost=2 * done)


def test_a_continued_run_divides_a_cap_as_the_first_would_have(project: FaultProject) -> None:
    """Its check of the models is answered by the cache, and what it has cost counts again."""
    project.server.probe = "OK " * 80
    cap = ("-p", "no:xdist", "--skillopt-cache=rw", "--skillopt-max-tokens=9000")
    project.run(*cap)
    (undisturbed,) = project.journal("final")
    (verdict,) = project.journal("verdict")
    path = project.run_directory / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: len(lines) // 2]))
    (project.run_directory / "result.json").unlink()
    project.skill.write_bytes(SKILL)
    project.run(*cap, "--skillopt-resume=latest")
    (continued,) = project.journal("final")
    assert continued["data"] == undisturbed["data"]
    assert project.journal("verdict")[0]["data"] == verdict["data"]


def test_records_with_wrong_fields_are_measured_again(
    project: FaultProject, baseline: tuple[list[dict[str, Any]], int, bytes]
) -> None:
    """Their checksums are right: somebody, or another version of the package, wrote them."""
    project.run("-p", "no:xdist")
    wrong: dict[str, Any] = {
        "plan": {"tasks": 1},
        "width": {"rollouts": "4"},
        "idle": {"passed": 3},
        "round": {"samples": None},
        "rollout": {"score": math.nan},
        "reply": {"usage": {"coins": 1}},
        "final": {"prior": "1"},
        "writing": {"version": None},
    }
    path = project.run_directory / "journal.jsonl"
    numbers = rewrite(path, wrong)
    assert wrong.keys() <= {"idle"}
    (project.run_directory / "result.json").unlink()
    project.skill.write_bytes(SKILL)
    said = " ".join(project.run("-p", "no:xdist", "--skillopt-resume=latest").split())
    for number in numbers:
        assert f"{path}: line {number} was corrupt and is measured again" in said
    assert outcome(project.result) == baseline[0]


def rewrite(journal: Path, changes: dict[str, Any]) -> list[int]:
    """Change the data of the first record of each kind, with the right checksum; return lines."""
    lines = []
    numbers = []
    for number, line in enumerate(journal.read_bytes().splitlines(keepends=True), 1):
        entry = json.loads(line)
        if change := changes.pop(entry["kind"], None):
            entry["data"] |= change
            del entry["crc"]
            text = json.dumps(entry).encode()[:-1]
            line = text + b',"crc":"%08x"}\n' % zlib.crc32(text)
            numbers.append(number)
        lines.append(line)
    journal.write_bytes(b"".join(lines))
    return numbers


def test_a_written_skill_whose_start_is_lost_is_not_continued(project: FaultProject) -> None:
    """The run was killed after it had written the skill, and before its result."""
    project.run("-p", "no:xdist")
    (project.run_directory / "result.json").unlink()
    start = project.run_directory / "skills" / f"{sha256(SKILL).hexdigest()}.md"
    resume = ("-p", "no:xdist", "--skillopt-resume=latest")
    for content, said in ((b"Another.", "does not have this SHA-256"), (None, "No such file")):
        start.unlink() if content is None else start.write_bytes(content)
        refused = project.run(*resume, expect=4)
        assert f"{start}: " in refused
        assert said in refused
    rewrite(project.run_directory / "journal.jsonl", {"run": {"skills": {}}})
    assert "the skill has changed since" in project.run(*resume, expect=4)


def test_a_run_is_not_continued_with_samples_of_an_older_helper(project: FaultProject) -> None:
    """Changed files that no test uses, and tests of other folders, do not matter."""
    helper = project.path / "helper.py"
    helper.write_text("def check(name): pass\n")
    project.write_tests("__import__('sys').modules['helper'].check(name)")
    tests = project.path / "test_greeting.py"
    tests.write_text("import helper\n" + tests.read_text())
    project.server.hold(after=15)
    process = project.start("-p", "no:xdist")
    assert wait_for(functools.partial(_has_served, project, 12), process)
    process.kill()
    process.communicate()
    project.server.release()
    begun = project.journal("rollout")
    assert begun

    helper.write_text("def check(name): return None\n")
    refused = project.run("-p", "no:xdist", "--skillopt-resume=latest", expect=4)
    assert "the tasks, or files that they use, have changed since; without" in refused
    assert project.journal("rollout") == begun

    helper.write_text("def check(name): pass\n")
    (project.path / "unused.py").write_text("X = 1\n")
    (project.path / "more").mkdir()
    (project.path / "more" / "conftest.py").write_text("X = 1\n")
    asked = project.server.calls
    project.run("-p", "no:xdist", "--skillopt-resume=latest")
    keys = [entry["key"] for entry in project.journal("rollout")]
    assert len(keys) == len(set(keys)) > len(begun)
    paid = len(keys) - len(begun) + len(project.journal("reply"))
    assert project.server.calls - asked <= paid


def test_a_continued_run_goes_on_without_what_was_lost(project: FaultProject) -> None:
    """Else it would decide otherwise from there on, and what was paid for since be of no use."""
    # The first rollout of a guest is that of an agent that does nothing.
    project.write_tests(
        "with open(name, 'a') as file: count = file.tell(); file.write('.')\n"
        "    if count == 1 and name[0] in 'ACE': raise ConnectionError('no database')"
    )
    lost = Counter[str]()

    def lose_two_calls(body: Body) -> str | Answer:
        asked = json.dumps(body["messages"])
        for name in ("Cleo", "Eve"):
            if is_optimizer(body) and f"Greet {name}." in asked and lost[name] < MOST_ANSWERED:
                lost[name] += 1
                return project.server.answer.dropped()
        return play(body)

    project.server.reply = lose_two_calls
    serial = ("-p", "no:xdist", "-oskillopt_max_attempts=1")
    project.run(*serial)
    whole = outcome(project.result)
    calls = project.server.calls
    assert [len(project.journal(kind)) for kind in ("lost", "unanswered")] == [3, 2]
    for name in project.names:
        (project.path / name).unlink()
    lost.clear()
    project.clear()
    project.server.hold(after=calls - 5)
    process = project.start(*serial)
    assert wait_for(functools.partial(_has_served, project, calls - 5), process)
    process.kill()
    process.communicate()
    project.server.release()
    assert project.journal("final")
    project.run(*serial, "--skillopt-resume=latest")
    assert outcome(project.result) == whole
    _check_paid_once(project, lost=1)


def test_a_run_is_continued_as_wide_as_it_was_begun(project: FaultProject) -> None:
    project.server.hold(after=30)
    process = project.start("-n1", "--skillopt-lanes=8")
    assert wait_for(functools.partial(_has_served, project, 20), process)
    process.kill()
    process.communicate()
    project.server.release()
    project.run("-n1", "--skillopt-resume=latest")
    continued = outcome(project.result)
    assert [entry["data"] for entry in project.journal("width")] == [{"rollouts": 8}]
    project.clear()
    project.skill.write_bytes(SKILL)
    project.run("-n1", "--skillopt-lanes=8")
    assert outcome(project.result) == continued


def _has_served(project: FaultProject, calls: int) -> bool:
    return project.server.calls >= calls


def _check_paid_once(project: FaultProject, *, lost: int) -> None:
    """No finished rollout was run again; at most ``lost`` were in flight at the kills."""
    keys = Counter(entry["key"] for entry in project.journal("rollout"))
    assert set(keys.values()) == {1}
    assert keys.total() <= project.target_calls <= keys.total() + lost
    replies = Counter(entry["key"] for entry in project.journal("reply"))
    assert set(replies.values()) == {1}


def test_a_reply_that_another_training_waits_for_is_paid_anew_only_if_that_one_is_killed(
    project: FaultProject, baseline: tuple[list[dict[str, Any]], int, bytes]
) -> None:
    undisturbed, calls_of_one, _ = baseline
    first, second = _two_that_wait_for_one_reply(project, project)
    first.kill()
    project.server.release()
    ended = [process.communicate(timeout=PATIENCE)[0] for process in (first, second)]
    assert second.returncode == 0, ended
    assert first.returncode == -signal.SIGKILL, ended
    assert project.server.calls == calls_of_one + 1
    run = project.path / ".skillopt/runs" / ended[1].split("pytest-skillopt show ")[1].split()[0]
    (found,) = outcome(json.loads((run / "result.json").read_text()))
    for name in ("status", "suite", "test", "tasks", "edits"):
        assert found[name] == undisturbed[0][name]


def _two_that_wait_for_one_reply(
    one: FaultProject, other: FaultProject, *arguments: str
) -> list[warm_sessions.Session]:
    """Two trainings, of which the second waits for the call that the first one is making.

    This is one of the first look: later the optimizer is asked beside the samples.
    """
    arguments = ("-p", "no:xdist", "--skillopt-cache=rw", *arguments)
    one.server.hold(after=1)
    first = one.start(*arguments)
    assert wait_for(functools.partial(_has_served, one, 2), first)
    log = other.path / "second.log"
    second = other.start(*arguments, f"--log-file={log}", "--log-file-level=INFO")
    waits = "pays for the same reply"
    assert wait_for(lambda: log.exists() and waits in log.read_text(), second)
    assert one.server.calls == 2
    return [first, second]


def test_two_clones_with_one_directory_pay_for_no_reply_twice(
    project: FaultProject, baseline: tuple[list[dict[str, Any]], int, bytes], tmp_path: Path
) -> None:
    _, calls_of_one, written = baseline
    shared = tmp_path / "shared"
    (tmp_path / "clone").mkdir()
    clone = FaultProject(tmp_path / "clone", project.server)
    first, second = _two_that_wait_for_one_reply(project, clone, f"-oskillopt_dir={shared}")
    project.server.release()
    ended = [process.communicate(timeout=PATIENCE)[0] for process in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), ended
    assert project.server.calls == calls_of_one
    assert (project.skill.read_bytes(), clone.skill.read_bytes()) == (written, written)
    with closing(sqlite3.connect(shared / "cache" / "cache.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


COPIED = """
import shutil, sys
from pathlib import Path

HERE = Path(__file__).parent
MOMENTS = HERE.with_name("moments")

def copy(event, arguments):
    if event != "os.rename" or HERE not in Path(arguments[1]).parents:
        return
    if any(b'"writing"' in path.read_bytes() for path in HERE.glob(".skillopt/runs/*/journal*")):
        shutil.copytree(HERE, MOMENTS / str(len(list(MOMENTS.glob("*")))))

if not MOMENTS.exists() and HERE.parent != MOMENTS:
    sys.addaudithook(copy)
"""
"""Copies the project as a kill would leave it before each file that is renamed in the end."""


def test_a_run_killed_at_any_moment_of_its_end_ends_as_it_would_have(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    (project.path / "conftest.py").write_text(COPIED)
    for command in (("init", "--quiet"), ("add", "SKILL.md"), ("commit", "--quiet", "-m", "Start")):
        run_git(project.path, *command)
    project.run("-p", "no:xdist", env={})
    paid = project.server.calls
    moments = sorted(project.path.with_name("moments").iterdir(), key=lambda path: int(path.name))
    whole, *ended = map(_delivered, (project.path, *map(_resumed, moments)))
    assert whole["outcome"] == undisturbed
    assert {".skillopt/proposal/result.json", "SKILL.md"} < whole["files"]
    for moment, found in enumerate(ended):
        assert found == whole, f"killed before rename {moment} of {len(ended)}"
    assert len(ended) > 8
    assert project.server.calls == paid


def _resumed(path: Path) -> Path:
    """Continue the training in a folder; return it."""
    environment = clean_environment(OPENAI_API_KEY="sk-test-0123456789")
    command = ("--skillopt-train", *QUICK, "-p", "no:xdist", "--skillopt-resume=latest")
    session = warm_sessions.start(*command, cwd=path, env=environment)
    output, _ = session.communicate(PATIENCE)
    assert session.returncode == 0, output
    return path


def _delivered(path: Path) -> dict[str, Any]:
    """Return what a run has found, and the files that it leaves, as far as they do not differ."""
    (run,) = (path / ".skillopt" / "runs").iterdir()
    result = json.loads((run / "result.json").read_text())
    (receipt,) = path.glob(".skillopt/adopted/*.json")
    files = [path / "SKILL.md", *run.glob("[!.]*"), *path.glob(".skillopt/proposal/**/*.*")]
    fixed = (file for file in files if file.name in ("SKILL.md", "skill.patch"))
    return {
        "files": {os.path.relpath(file, path) for file in files},
        "texts": [file.read_bytes() for file in fixed],
        "pinned": json.loads(receipt.read_text())["skills"],
        "resume": result["resume"],
        "outcome": outcome(result),
    }


SIGTERM_AGAIN = """
import os, signal

def pytest_skillopt_report():
    if "AGAIN" in os.environ:
        os.kill(os.getpid(), signal.SIGTERM)

def pytest_sessionfinish(session):
    if not hasattr(session.config, "workerinput"):
        pytest_skillopt_report()
"""
"""A CI that ends a job sends SIGTERM after SIGINT, while the report is written and printed."""


@pytest.mark.parametrize(
    ("arguments", "signum"),
    [(("-p", "no:xdist"), signal.SIGINT), (WORKERS, signal.SIGTERM)],
    ids=["serial", "workers"],
)
def test_an_interrupt_ends_with_2_and_the_run_can_be_continued(
    project: FaultProject,
    undisturbed: list[dict[str, Any]],
    arguments: tuple[str, ...],
    signum: int,
) -> None:
    (project.path / "conftest.py").write_text(SIGTERM_AGAIN)
    project.server.hold(after=20)
    process = project.start(*arguments, env={"AGAIN": "1"})
    assert wait_for(functools.partial(_has_served, project, 21), process)
    process.send_signal(signum)
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "INTERNALERROR" not in output
    last = output.rstrip("\n").rpartition("\n")[2]
    assert last == project.result["resume"], output
    assert f"--skillopt-resume={project.run_directory.name}" in last
    assert project.result["status"] == "interrupted"
    asked = project.server.calls + len(project.server.probes)
    counted = sum(row["calls"] for row in project.result["usage"])
    assert asked <= counted <= asked + len(arguments), "those in flight count, too"
    assert project.skill.read_bytes() == SKILL
    project.server.release()
    project.run(*arguments, f"--skillopt-resume={project.run_directory.name}")
    assert outcome(project.result) == undisturbed
    _check_paid_once(project, lost=len(arguments))


CATCHING = """if name == "Ben" and not os.path.exists("interrupted"):
        open("interrupted", "w").close()
        try:
            signal.raise_signal({signum})
            time.sleep(600)
        except BaseException:
            pass
        assert False, "interrupted"
"""
IN_A_LOOP = """if name == "Ben" and not os.path.exists("interrupted"):
        open("interrupted", "w").close()
        async def wait():
            try:
                asyncio.get_running_loop().call_soon(signal.raise_signal, {signum})
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                assert False, "interrupted"
        asyncio.run(wait())
"""


@pytest.mark.parametrize(
    ("test", "signum"),
    [(CATCHING, signal.SIGTERM), (IN_A_LOOP, signal.SIGINT)],
    ids=["catching", "loop"],
)
def test_an_interrupt_that_a_test_catches_ends_the_session_and_is_no_answer(
    project: FaultProject, undisturbed: list[dict[str, Any]], test: str, signum: int
) -> None:
    project.write_tests("import asyncio, signal\n    " + test.format(signum=int(signum)))
    serial = ("-p", "no:xdist")
    output = project.run(*serial, expect=pytest.ExitCode.INTERRUPTED, env={})
    assert output.rstrip("\n").rpartition("\n")[2] == project.result["resume"]
    project.run(*serial, f"--skillopt-resume={project.run_directory.name}")
    assert outcome(project.result) == undisturbed


CHILD_FIRST = """if name == "Ben" and not os.path.exists("interrupted"):
        import signal, subprocess, types
        from pytest_skillopt.rollouts import interrupts
        open("interrupted", "w").close()
        child = subprocess.Popen(["sleep", "600"])
        child.terminate()
        late = types.SimpleNamespace(**vars(time))
        late.sleep = lambda seconds: signal.raise_signal(signal.SIGTERM)
        interrupts.time = late
        assert child.wait() == 0, "ended"
"""


def test_a_tree_of_processes_that_is_ended_from_its_leaves_leaves_no_answer(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    """The session is ended in the moment after a process of a test."""
    project.write_tests(CHILD_FIRST)
    serial = ("-p", "no:xdist")
    project.run(*serial, expect=pytest.ExitCode.INTERRUPTED, env={})
    assert not any("ended" in entry["data"]["message"] for entry in project.journal("rollout"))
    project.run(*serial, f"--skillopt-resume={project.run_directory.name}")
    assert outcome(project.result) == undisturbed


def test_an_interrupt_while_the_test_split_is_measured_writes_nothing_until_it_is_continued(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    running: list[warm_sessions.Session] = []

    def interrupt(body: Body) -> str:
        if NAMES[5] in asked_in(body):  # a test task: asked after the verdict only
            running[0].send_signal(signal.SIGINT)
        return play(body)

    project.server.reply = interrupt
    running.append(project.start("-p", "no:xdist"))
    output, _ = running[0].communicate(timeout=PATIENCE)
    assert running[0].returncode == pytest.ExitCode.INTERRUPTED, output
    assert project.result["status"] == "interrupted"
    assert "ready to merge" not in output
    assert output.rstrip("\n").rpartition("\n")[2] == project.result["resume"]
    assert project.skill.read_bytes() == SKILL
    project.server.reply = play
    project.run("-p", "no:xdist", f"--skillopt-resume={project.run_directory.name}")
    assert outcome(project.result) == undisturbed
    assert project.skill.read_bytes() != SKILL


def test_a_reference_that_is_added_during_the_run_leaves_the_skill_unwritten(
    project: FaultProject,
) -> None:
    """The new version never ran with it."""
    added = project.path / "references" / "whisper.md"

    def add(body: dict[str, Any]) -> str:
        added.parent.mkdir(exist_ok=True)
        added.write_text(RULES["whisper"])
        return play(body)

    project.server.reply = add
    output = project.run("-p", "no:xdist")
    assert project.skill.read_bytes() == SKILL
    assert project.result["skills"][0]["status"] == "accepted"
    assert "whisper.md was added during the run" in " ".join(output.split())


def test_an_interrupt_while_the_optimizer_thinks_keeps_what_is_known(project: FaultProject) -> None:
    thinking = threading.Event()
    go_on = threading.Event()

    def answer(body: Body) -> str:
        if is_optimizer(body):
            thinking.set()
            go_on.wait()
        return play(body)

    project.server.reply = answer
    process = project.start(*WORKERS)
    try:
        assert wait_for(thinking.is_set, process)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=PATIENCE)
    finally:
        go_on.set()
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    assert "INTERNALERROR" not in output
    assert "1 optimizer call under way" in output, "nobody is left to wonder what it waits for"
    assert project.result["status"] == "interrupted"
    assert f"--skillopt-resume={project.run_directory.name}" in output
    assert (project.run_directory / "report.html").exists()


# Workers

REGISTERED = """
import os, pathlib

def pytest_sessionstart(session):
    if hasattr(session.config, "workerinput"):
        (pathlib.Path(__file__).parent / f"worker-{os.getpid()}").touch()
"""


def test_the_last_question_of_a_worker_that_is_killed_keeps_nobody_waiting(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    """It is answered when the worker has been given up, and only one call may be in flight."""
    (project.path / "conftest.py").write_text(
        f"""
import os, pytest, signal, threading
from pathlib import Path
from pytest_skillopt.model.limits import CallEstimate, Meter
from pytest_skillopt.model.roles import Models

PID = Path(__file__).with_name("pid")
ask, forget, given_up = Meter.ask, Meter.forget, threading.Event()

@pytest.fixture(autouse=True)
def asking(request):
    if not PID.exists():
        PID.write_text(str(os.getpid()))
        Models.of(request.config).throttle.ask("the last", CallEstimate("{project.server.url}"))

def ask_late(meter, call, wish):
    if call.endswith("the last"):
        os.kill(int(PID.read_text()), signal.SIGKILL)
        given_up.wait()
    return ask(meter, call, wish)

def give_up(meter, prefix):
    forget(meter, prefix)
    given_up.set()

Meter.ask, Meter.forget = ask_late, give_up
"""
    )
    project.run("-n1", "-oskillopt_max_in_flight=1", env={})
    assert (project.path / "pid").exists()
    assert outcome(project.result) == undisturbed


def test_time_outs_of_a_service_of_the_tests_own_put_no_task_away(project: FaultProject) -> None:
    project.write_tests(
        "if name == 'Ada' and not os.path.exists('xxxxx'):\n"
        "        said = next(n for n in range(1, 6) if not os.path.exists('x' * n))\n"
        "        open('x' * said, 'w').close()\n"
        "        raise TimeoutError('the service did not answer')"
    )
    project.evaluate("-p", "no:xdist", "--skillopt-rollouts=3", "-oskillopt_max_attempts=6")
    (ada,) = (row for row in project.result["skills"][0]["tasks"] if "[Ada]" in row["id"])
    assert (project.path / "xxxxx").exists(), "it has not met five of them"
    assert (ada["before"]["n"], ada["before"]["errors"]) == (3, 0)


def test_workers_killed_in_the_middle_of_rollouts_are_replaced(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    (project.path / "conftest.py").write_text(REGISTERED)
    project.server.hold(after=10)

    def kill() -> None:
        for moment, victims, on in ((10, 1, 40), (40, 2, math.inf)):
            wait_until(functools.partial(_has_served, project, moment + 1))
            wait_until(lambda: len(project.workers) == 2)
            for worker in project.workers[:victims]:
                worker.unlink()
                os.kill(int(worker.name.partition("-")[2]), signal.SIGKILL)
            project.server.hold(after=on)

    with beside(kill):
        project.run(*WORKERS)
    assert outcome(project.result) == undisturbed
    assert {entry["data"]["error"]["kind"] for entry in project.journal("error")} == {"worker"}
    assert project.result["errors"] == 0


def test_a_task_that_kills_its_worker_every_time_is_an_error_of_that_task(
    project: FaultProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "MOST_ERRORS", 2)
    deadly = f"test_greeting.py::test_greeting[{NAMES[1]}]"
    project.write_tests(f"if name == {NAMES[1]!r}: os._exit(3)")
    output = project.run(*WORKERS, "-oskillopt_max_attempts=2", expect=1)
    (skill,) = project.result["skills"]
    assert project.result["status"] == skill["status"] == "unmeasured"
    assert deadly in skill["reason"]
    assert deadly in " ".join(output.split())
    assert project.skill.read_bytes() == SKILL
    assert {entry["data"]["request"]["task"] for entry in project.journal("error")} == {deadly}
    assert deadly not in {e["data"]["request"]["task"] for e in project.journal("rollout")}


def test_a_deadly_task_is_quarantined_and_left_out_if_that_is_allowed(
    project: FaultProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "MOST_ERRORS", 2)
    deadly = f"test_greeting.py::test_greeting[{NAMES[1]}]"
    project.write_tests(f"if name == {NAMES[1]!r}: os._exit(3)")
    output = " ".join(project.run(*WORKERS, "-oskillopt_max_error_rate=0.25").split())
    result = project.result
    assert result["status"] == "accepted"
    assert f"left out: {deadly}" in result["reason"]
    assert f"SKILL.md was decided without {deadly}: nothing but" in output
    assert f"{deadly} is not run again under version" in output
    deaths = [entry["data"]["request"] for entry in project.journal("error")]
    assert {request["task"] for request in deaths} == {deadly}
    assert len(deaths) <= 2 * (2 + 1), "two, and one that ran meanwhile, under two versions"
    first = min(entry["n"] for entry in project.journal("verdict"))
    early = [entry for entry in project.journal("error") if entry["n"] < first]
    assert len(early) >= 2, "it is noticed before the first decision"
    (skill,) = result["skills"]
    row = next(row for row in skill["tasks"] if row["id"] == deadly)
    assert row["before"]["n"] == row["after"]["n"] == 0
    assert row["before"]["errors"]


# The server

FAULTS = {"429": 3, "500": 2, "dropped": 1, "empty": 1, "html": 1}
"""Number of each fault in fifty requests."""


class Faulty:
    """Answers as ``play`` does, but for the stated share of the requests, in a random order."""

    def __init__(self, answer: type[Answer], seed: int) -> None:
        self._answers = {
            "429": answer.error(429, "slow down", retry_after="0"),
            "500": answer.error(500, "overloaded"),
            "dropped": answer.dropped(),
            "empty": answer.empty(),
            "html": answer.html(),
        }
        self._kinds = [kind for kind, share in FAULTS.items() for _ in range(share)]
        self._kinds += [""] * (50 - len(self._kinds))
        self._chance = random.Random(seed)
        self._coming: list[str] = []
        self._lock = threading.Lock()
        self.met: Counter[str] = Counter()
        self._unpaid = ("", "429", "500")
        self._spoilt: set[str] = set()

    def __call__(self, body: Body) -> str | Answer:
        with self._lock:
            if not self._coming:
                self._coming = self._chance.sample(self._kinds, len(self._kinds))
            kind = self._coming.pop()
            if kind not in self._unpaid:
                # A second such fault of one request would rightly end it: spare it that.
                asked = json.dumps(body)
                kind = "" if asked in self._spoilt else kind
                self._spoilt.add(asked)
            self.met[kind] += 1
        return self._answers[kind] if kind else play(body)


def test_faults_of_the_server_are_no_failures(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    faulty = Faulty(project.server.answer, seed=1)
    project.server.reply = faulty
    project.run(*WORKERS, "--skillopt-lanes=2")
    assert all(faulty.met[kind] >= share for kind, share in FAULTS.items()), faulty.met
    assert outcome(project.result) == undisturbed
    assert project.journal("error") == []


def test_a_server_that_is_down_for_a_while_is_waited_for(
    project: FaultProject, undisturbed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    reached = threading.Event()
    down = threading.Event()
    up = threading.Event()
    tries = threading.Semaphore(0)
    wait = Client._wait

    def count(client: Client, seconds: float) -> None:
        tries.release()
        wait(client, seconds)

    monkeypatch.setattr(Client, "_wait", count)

    def answer(body: Body) -> str | Answer:
        if project.target_calls < 20 or up.is_set():
            return play(body)
        reached.set()
        down.wait()
        return play(body)  # Nobody receives it: the connection has ended with the server.

    def go_down() -> None:
        assert reached.wait(PATIENCE)
        project.server.stop()
        down.set()
        for _ in range(3):  # The connection that was lost, and two that were refused.
            assert tries.acquire(timeout=PATIENCE)
        up.set()
        project.server.start()

    project.server.reply = answer
    with beside(go_down):
        project.run("-p", "no:xdist")
    assert outcome(project.result) == undisturbed
    assert project.journal("error") == []


@pytest.mark.parametrize("asked", [1, 15])
def test_a_run_whose_optimizer_is_gone_for_good_is_continued_with_another(
    project: FaultProject, undisturbed: list[dict[str, Any]], asked: int
) -> None:
    """At first, and when edits of it are kept already."""
    replies = itertools.count()

    def answer(body: Body) -> str | Answer:
        if not is_optimizer(body):
            return play({**body, "model": "thinker"}) if body["model"] == "other" else play(body)
        return play(body) if next(replies) <= asked else project.server.answer.error(401, "gone")

    project.server.reply = answer
    said = " ".join(project.run("-p", "no:xdist", expect=1).split())
    assert "HTTP 401: gone" in said
    assert "another skillopt_optimizer can continue the run" in said
    assert ("a candidate was found, but the final comparison" in said.lower()) == (asked > 1)
    paid = project.journal("rollout")
    resume = ("-p", "no:xdist", "--skillopt-resume=latest")
    project.run(*resume, expect=1)
    assert project.journal("rollout") == paid
    project.run(*resume, "-oskillopt_optimizer=openai:other")
    assert outcome(project.result) == undisturbed
    assert project.result["models"]["optimizer"] == "openai:other"
    bodies = project.server.bodies
    assert sum(b["model"] == "worker" for b in bodies) == len(project.journal("rollout"))
    keys = Counter(entry["key"] for entry in project.journal("reply"))
    assert set(keys.values()) == {1}


# The disk


def test_a_full_disk_stops_the_run_and_loses_nothing(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    resume: tuple[str, ...] = ()
    for size in (5_000, 40_000):
        output = project.run(*resume, expect=1, largest_file=size)
        assert "The journal could not be written" in output
        assert project.skill.read_bytes() == SKILL
        resume = (f"--skillopt-resume={project.run_directory.name}",)
        assert resume[0] in output
    paid = project.target_calls
    project.run(*resume)
    assert outcome(project.result) == undisturbed
    _check_paid_once(project, lost=2)
    assert project.target_calls > paid


def test_a_run_that_is_removed_is_not_offered_to_be_continued(project: FaultProject) -> None:
    project.server.hold(after=20)
    process = project.start("-p", "no:xdist")
    assert wait_for(functools.partial(_has_served, project, 20), process)
    shutil.rmtree(project.path / ".skillopt")
    project.server.release()
    output, _ = process.communicate(timeout=PATIENCE)
    assert "A file of the run could not be read or written" in output
    assert "--skillopt-resume" not in output


FEW_FILES = """if name == "Ben":
        import resource
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, used + 1))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
def test_a_run_that_can_open_no_more_files_ends_with_a_sentence_and_is_continued(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    serial = ("-p", "no:xdist")
    project.write_tests(f'if "FEW" in os.environ and {FEW_FILES[3:]}')
    output = project.run(*serial, expect=1, env={"FEW": "1"})
    assert "Too many open files" in output
    project.run(*serial, "--skillopt-resume=latest", env={})
    assert outcome(project.result) == undisturbed


FULL_AT_THE_END = """
import os
from pytest_skillopt.report import files

def replace_file(path, data, usual=files.replace_file):
    if os.path.exists("full"):
        raise OSError(28, "No space left on device")
    usual(path, data)

files.replace_file = replace_file
"""


def test_a_disk_that_is_full_at_the_end_loses_no_report(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    (project.path / "conftest.py").write_text(FULL_AT_THE_END)
    full = project.path / "full"
    full.touch()
    serial = ("-p", "no:xdist")
    output = project.run(*serial, env={})
    assert "the report could not be written" in output
    resume = f"--skillopt-resume={project.run_directory.name}"
    assert output.rstrip("\n").endswith(resume)
    paid = project.server.calls
    full.unlink()
    project.run(*serial, resume, env={})
    assert project.server.calls == paid
    assert outcome(project.result) == undisturbed


def test_a_limit_on_files_asks_for_no_paid_reply(project: FaultProject) -> None:
    words = " ".join(project.run("--skillopt-cache=rw", expect=4, largest_file=5_000).split())
    place = project.path / ".skillopt" / "cache"
    assert f"{place}: the cache cannot be used (disk I/O error). Free space" in words
    assert "(ulimit -f)" in words
    assert "emove" not in words
    assert "elete" not in words


def _break_cache(directory: Path) -> None:
    """Overwrite the database between two transactions of the process that has it open.

    In the middle of one, SQLite would end it with what it has in memory, and read on from there.
    The files keep their lengths: they are mapped, and a shorter one would end the process.
    """
    with (
        ExitStack() as files,
        closing(sqlite3.connect(directory / "cache.db", isolation_level=None)) as database,
    ):
        database.execute("BEGIN IMMEDIATE")
        # Kept open until all are written: closing one ends the lock.
        opened = [files.enter_context(file.open("r+b")) for file in directory.glob("cache.db*")]
        for file in opened:
            file.write(b"\xff" * os.fstat(file.fileno()).st_size)
            file.flush()


def test_a_cache_that_breaks_stops_the_run_and_is_named(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    arguments = ("-p", "no:xdist")
    project.server.hold(after=20)
    process = project.start(*arguments, "--skillopt-cache=rw")
    assert wait_for(functools.partial(_has_served, project, 21), process)
    _break_cache(project.path / ".skillopt" / "cache")
    project.server.release()
    output, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, output
    assert "the cache cannot be used" in " ".join(output.split())
    assert project.skill.read_bytes() == SKILL
    again = project.run(*arguments, "--skillopt-cache=rw", "--skillopt-resume=latest", expect=4)
    assert "Move that directory elsewhere" in " ".join(again.split())
    (project.path / ".skillopt" / "cache").rename(project.path / "broken")
    project.run(*arguments, "--skillopt-cache=rw", "--skillopt-resume=latest")
    assert outcome(project.result) == undisturbed


STUMBLES = """
import itertools
from pytest_skillopt.rollouts.folders import SkillVersions
from pytest_skillopt.rollouts.runner import RolloutRunner

def stumbling(original, error):
    calls = itertools.count(1)

    def stumble(*arguments, **options):
        if next(calls) in (2, 20):
            raise error
        return original(*arguments, **options)

    return stumble

def pytest_configure(config):
    if hasattr(config, "workerinput"):
        full = OSError(28, "No space left on device")
        SkillVersions._materialise = stumbling(SkillVersions._materialise, full)
        bug = RuntimeError("what nobody has thought of")
        RolloutRunner._run = stumbling(RolloutRunner._run, bug)
"""
"""The second and the twentieth call raise an error."""


def test_a_rollout_that_a_worker_cannot_run_is_tried_again(
    project: FaultProject, undisturbed: list[dict[str, Any]]
) -> None:
    (project.path / "conftest.py").write_text(STUMBLES)
    project.run(*WORKERS)
    assert outcome(project.result) == undisturbed
    errors = [entry["data"]["error"] for entry in project.journal("error")]
    assert {error["kind"] for error in errors} == {"internal"}
    for words in ("No space left on device", "what nobody has thought of"):
        assert any(words in error["message"] for error in errors)


# Tests that misbehave


@pytest.mark.parametrize("workers", [(), WORKERS])
def test_a_process_that_a_test_forks_does_not_go_on_with_the_session(
    project: FaultProject,
    baseline: tuple[list[dict[str, Any]], int, bytes],
    workers: tuple[str, ...],
) -> None:
    """It would overwrite the journal of its parent, and pay for all calls that are due."""
    undisturbed, calls, _ = baseline
    # Once only: each child that goes on would fork in each of its tests.
    project.write_tests(
        "if not os.path.exists('forked'):\n"
        "        os.mkdir('forked')\n"
        "        if os.fork() == 0: raise ValueError('in the child')"
    )
    project.run(*workers, env={})
    assert outcome(project.result) == undisturbed
    assert project.server.calls == calls


# Workers

OFFLINE = (*QUICK, "--skillopt-rollouts=1", "-k", "test_amounts")


def test_the_result_is_the_same_in_lanes_on_other_machines(
    tmp_path: Path, socket_servers: SocketServers
) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    specs = [socket_servers.start(copy_example(folder)) for folder in folders]
    found = _train_invoices(tmp_path / "here", "--dist=load", *specs, "--skillopt-lanes=2")
    assert found == _train_invoices(tmp_path / "serial", "-n", "0")
    assert not any((folder / ".skillopt").exists() for folder in folders)


@pytest.fixture
def socket_servers() -> Iterator[SocketServers]:
    started = SocketServers()
    yield started
    started.stop()


def _train_invoices(folder: Path, *arguments: str) -> dict[str, Any]:
    """Result of the example's training with the offline model, on the tasks of one file."""
    answer_at_once(copy_example(folder))
    command = ("--skillopt-train", *OFFLINE, *arguments)
    session = warm_sessions.start(*command, cwd=folder, env=clean_environment())
    output, _ = session.communicate(PATIENCE)
    assert session.returncode == 0, output
    result = latest_result(folder)
    assert len(result["skills"][0]["tasks"]) == 12
    # The number of samples differs: the more workers, the more samples fill up their last rounds.
    parts = {part: result[part] for part in ("status", "reason", "errors", "models")}
    return {**parts, "skills": outcome(result)}


# Files that a run leaves behind


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files in /proc")
def test_nothing_is_left_of_64_calls_in_flight(
    project: FaultProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = ("-n2", "--skillopt-lanes=32")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    full = threading.Event()

    def answer(body: Body) -> str:
        if project.server.peak >= 64:
            full.set()
        assert full.wait(PATIENCE)
        return play(body)

    warm_sessions.ready()
    project.server.reply = answer
    threads = threading.active_count()
    files = len(os.listdir("/proc/self/fd"))
    evaluated = project.evaluate("--skillopt-rollouts=16", *arguments)
    assert "96 rollouts" in evaluated
    project.run("-n2", "--skillopt-lanes=4", "--skillopt-max-rollouts=60")

    def left() -> list[str]:
        """The server's own threads and sockets end a little later."""
        more = [t.name for t in threading.enumerate()][threads:]
        opened = max(0, len(os.listdir("/proc/self/fd")) - files)
        return [*more, *["a file"] * opened]

    wait_until(lambda: not left(), "threads or files are left")
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith("pytest-of-")] == []


def test_the_log_says_who_waits_for_what_and_why_something_is_tried_again(
    pytester: pytest.Pytester, chat_server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "sk-test-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setattr("pytest_skillopt.model.client.FIRST_DELAY", 0.001)
    chat_server.script(chat_server.answer.error(503, f"busy, says the keeper of {key}"))
    (pytester.path / "SKILL.md").write_text("---\nname: a\ndescription: A.\n---\nSay ok.\n")
    pytester.makepyfile(
        """
        import pytest

        seen = []

        @pytest.mark.skill_task
        def test_one(skill_agent):
            assert skill_agent("Hi")
            seen.append(1)
            if len(seen) == 1:
                raise ConnectionError("the database is down")
        """
    )
    options = (f"-oskillopt_base_url={chat_server.url}", "--skillopt-target=openai:worker")
    run = ("--skillopt", "--skillopt-rollouts=1", "--skillopt-cache=off", *options)
    done = pytester.runpytest_inprocess(*run, "-p", "no:xdist", "--log-cli-level=DEBUG")
    assert done.ret == 0, done.stdout.str()
    for line in (
        "*INFO *skillopt.session:*--skillopt begins with 1 tasks",
        "*DEBUG *skillopt.rollouts.sampler:*waits for 1 of 1 rollouts",
        "*INFO *skillopt.model.client:*openai:worker for target, *test_one, try 1 failed: *503*",
        "*INFO *skillopt.rollouts.sampler:*test_one is run again after attempt 1: *is down*",
    ):
        done.stdout.fnmatch_lines([line])
    assert key not in done.stdout.str() + done.stderr.str()
    quiet = pytester.runpytest_inprocess(*run, "-p", "no:xdist").stdout.str()
    assert "skillopt.rollouts" not in quiet
    over = pytester.runpytest_inprocess(*run, "-n1", "--log-cli-level=DEBUG").stdout
    over.fnmatch_lines(["*INFO *skillopt.rollouts.workers:*worker gw0 is up, 1 of 1"])
    over.fnmatch_lines(["*DEBUG *skillopt.rollouts.workers:*worker gw0 waits for an answer to *"])


def test_what_killed_runs_have_left_is_removed(
    project: FaultProject, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In ``.skillopt``, and among the temporary files of the system; what is new stays."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = project.path / ".skillopt"
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-qm", "Start")):
        run_git(project.path, *command)
    files = (home / "runs" / "r" / ".result.json.x.tmp", home / ".writing.json.x.tmp")
    folders = (home / ".proposal-x", tmp_path / "skillopt-skills-x")
    new = home / "runs" / "r" / ".report.html.x.tmp"
    for scrap in (*files, new, *(folder / "a file" for folder in folders)):
        scrap.parent.mkdir(parents=True, exist_ok=True)
        scrap.write_text("half")
    for scrap in (*files, *folders):
        os.utime(scrap, (1, 1))
    project.run("-p", "no:xdist")
    assert latest_result(project.path)["status"] == "accepted"
    assert (home / "proposal" / "result.json").exists()
    assert [scrap for scrap in (*files, *folders) if scrap.exists()] == []
    assert new.exists()
