"""Cost of the rollout engine, in one table: ``python benchmarks/engine.py [--quick]``.

``--soak`` keeps 64 calls in flight for ten minutes, ``--large`` takes a suite of 10,000 tasks.
Every figure is measured now, on this machine. CPU seconds are those of the controller and all
workers; wall time suffers from whatever else the machine does, so a plain thread pool that makes
the same calls is measured beside it. Linux only (it reads ``/proc``).
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import gc
import itertools
import json
import math
import multiprocessing
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_skillopt.rollouts.executor import Executor
    from pytest_skillopt.tasks.task import SkillTask

HERE = Path(__file__).resolve().parent
SUPPORT = HERE.parent / "tests" / "_support"
COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
LATENCY = 0.2
TRIVIAL = """
    import pytest

    @pytest.mark.parametrize("i", range(20))
    def test_trivial(i):
        assert i >= 0
"""
TASKS = 40
CALLING = """
    import pytest

    @pytest.mark.skill_task(skill="skills/demo/SKILL.md")
    @pytest.mark.parametrize("i", range(40))
    def test_call(skill_agent, i):
        answer = skill_agent(f"Name the parts of order {i}.").split()
        expected = ["frame", "wheel", "chain", *map(str, range(i % 10))]
        assert answer == expected, f"order {i}"
"""
"""One call and one comparison; the server's answer satisfies one test in ten."""
SKILL = "---\nname: demo\ndescription: A demo.\n---\n" + "Name each part once, in order.\n" * 40
PLAIN = """
    import pytest

    @pytest.fixture
    def skill_agent():
        return lambda prompt: "frame wheel chain"
"""
MANY_TASKS = """
    import os
    import pytest

    @pytest.mark.skill_task(skill="skills/demo/SKILL.md")
    @pytest.mark.parametrize("i", range(int(os.environ["ENGINE_TASKS"])))
    def test_one_of_many(i):
        assert i % 10
"""
MEMORY = """
    from pathlib import Path

    def test_memory(skill, tmp_path, rollout):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        rollout.record("user", pages)
        Path("pages").write_text(str(pages))
"""


@dataclass(frozen=True)
class Row:
    quantity: str
    figure: str
    bound: str


# what is measured, in the controller of a session of its own


def rounds(executor: Executor, tasks: list[SkillTask]) -> None:
    """Job: rounds of 80 trivial rollouts; seconds of each after the first."""
    seconds = [_timed(executor, tasks, 4, stream=str(n)) for n in range(21)]
    _tell(seconds[1:])


def many(executor: Executor, tasks: list[SkillTask]) -> None:
    """Job: many rollouts; the controller's CPU time and a worker's memory as they go on."""
    marks = []
    total = int(os.environ["ENGINE_MANY"])
    chunk = 1_000
    for n in range(total // chunk):
        pages: list[int] = []
        _timed(executor, tasks, chunk, stream=str(n), pages=pages)
        marks.append([(n + 1) * chunk, time.process_time(), max(pages)])
    _tell(marks)


def soak(executor: Executor, tasks: list[SkillTask]) -> None:
    """Job: model calls for so many seconds; what all processes hold early on and at the end."""
    began = time.monotonic()
    streams = itertools.count()
    marks = []
    for part in (0.1, 1.0):
        while time.monotonic() < began + part * float(os.environ["ENGINE_SECONDS"]):
            _timed(executor, tasks, 16, stream=str(next(streams)))
        gc.collect()
        marks.append({"calls": next(streams) * 16 * len(tasks), **_held()})
    _tell(marks)


def _held() -> dict[str, int]:
    """Return what this process and its children hold between two rounds."""
    found = Counter[str]()
    for process in map(Path, (f"/proc/{pid}" for pid in _tree(os.getpid()))):
        found["threads"] += len(list((process / "task").iterdir()))
        found["descriptors"] += len(list((process / "fd").iterdir()))
        found["pages"] += int((process / "statm").read_text().split()[1])
    found["files"] = len(list(Path(tempfile.gettempdir()).rglob("*")))
    return found


def _timed(
    executor: Executor,
    tasks: list[SkillTask],
    k: int,
    *,
    stream: str,
    pages: list[int] | None = None,
) -> float:
    from rollout_driver import requests, skill_text, take

    wanted = requests(tasks, skill_text(0), stream=stream, k=k)
    started = time.perf_counter()
    rollouts = take(executor, wanted, skill_text(0))
    seconds = time.perf_counter() - started
    bad = [r for r in rollouts if r.outcome not in ("passed", "failed")]
    assert not bad, bad[0]
    if pages is not None:
        pages += [int(r.transcript[0].content) for r in rollouts]
    return seconds


def _tell(value: Any) -> None:
    Path("measured.json").write_text(json.dumps(value), encoding="utf-8")


def pytest_configure(config: Any) -> None:
    """Measure, as a plugin (``-p engine``), the sampler of the mode that this session is in."""
    if "ENGINE_TASKS" in os.environ and not hasattr(config, "workerinput"):
        _measure_large()
    if "ENGINE_CALLS" in os.environ and not hasattr(config, "workerinput"):
        from pytest_skillopt.rollouts.sampler import Sampler

        take = Sampler.take

        def measured(self: Sampler, requests: Any) -> Any:
            warm = 2 * self.at_once
            take(self, requests[:warm])
            cpu = cpu_of_tree(os.getpid())
            started = time.perf_counter()
            rollouts = take(self, requests)
            seconds = time.perf_counter() - started
            cpu = cpu_of_tree(os.getpid()) - cpu
            ended = [r.outcome for r in rollouts]
            assert ended.count("failed") == 9 * ended.count("passed"), Counter(ended)
            _tell(Taken(len(requests) - warm, warm, seconds, cpu).__dict__)
            return rollouts

        Sampler.take = measured  # type: ignore[method-assign]


def _measure_large() -> None:
    """Write down the seconds of the rollouts and of the report."""
    from pytest_skillopt import modes
    from pytest_skillopt.rollouts.sampler import Sampler

    seconds: dict[str, float] = {}

    def measured(owner: Any, name: str) -> None:
        function = getattr(owner, name)

        @functools.wraps(function)
        def call(*args: Any) -> Any:
            started = time.perf_counter()
            value = function(*args)
            seconds[name] = time.perf_counter() - started
            _tell(seconds)
            return value

        setattr(owner, name, call)

    measured(Sampler, "take")
    measured(modes, "write_reports")


@dataclass
class Taken:
    """Resources that rollouts took."""

    rollouts: int
    warm: int
    """Rollouts before them, which are not counted."""
    seconds: float
    cpu: float
    """Seconds, of all processes."""


def cpu_of_tree(pid: int) -> float:
    """CPU seconds of a process and of all that it has started."""
    ticks = 0
    for process in _tree(pid):
        with suppress(OSError):
            fields = (
                Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
            )
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _tree(pid: int) -> Iterator[str]:
    yield str(pid)
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield from _tree(int(child))


# running it


def session(tests: str, job: str, *args: str, **environment: str) -> Any:
    """Run a job in a session of its own; what it told."""
    with tempfile.TemporaryDirectory() as folder:
        project(Path(folder), tests)
        command = ["-p", "rollout_driver", f"--drive=engine:{job}", *args]
        run_pytest(Path(folder), command, environment)
        return json.loads((Path(folder) / "measured.json").read_text())


def project(folder: Path, tests: str) -> None:
    (folder / "test_suite.py").write_text(_dedented(tests))
    (folder / "pytest.ini").write_text("[pytest]\n")
    skill = folder / "skills" / "demo"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text(SKILL)


def _dedented(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines())


def run_pytest(
    folder: Path, args: list[str], environment: Mapping[str, str] = {}, *, status: int = 0
) -> float:
    env = _environment(environment)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *args],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != status:
        raise SystemExit(f"pytest {' '.join(args)} ended with {done.returncode}\n{done.stdout}")
    return time.perf_counter() - started


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    env = {**os.environ, **more, "PYTHONPATH": f"{SUPPORT}:{HERE}", "OPENAI_API_KEY": "none"}
    # As on a user's machine, modules are compiled once, not in each worker.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    env["PYTHONPYCACHEPREFIX"] = COMPILED.name
    return env


def measure_rounds(workers: list[int]) -> Iterator[Row]:
    for n in workers:
        seconds = session(TRIVIAL, "rounds", f"-n{n}")
        warm = 1000 * statistics.median(seconds)
        fresh = 1000 * statistics.median(_fresh_session(n) for _ in range(3))
        yield Row(
            f"a round of 80 trivial rollouts, -n {n}",
            f"{warm:.0f} ms (a fresh session a round: {fresh:.0f} ms, {fresh / warm:.0f} times)",
            "80 ms",
        )


def _fresh_session(n: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        project(Path(folder), TRIVIAL.replace("range(20)", "range(80)"))
        return run_pytest(Path(folder), [f"-n{n}"])


@dataclass(frozen=True)
class Shape:
    workers: int
    lanes: int

    @property
    def options(self) -> list[str]:
        return [f"-n{self.workers}", f"--skillopt-lanes={self.lanes}"]

    @property
    def in_flight(self) -> int:
        return self.workers * self.lanes

    def __str__(self) -> str:
        return f"-n {self.workers} x {self.lanes}"


def measure_calls(shapes: list[Shape], waves: int) -> Iterator[Row]:
    """Compare the engine with a thread pool, for each number of calls in flight."""
    with serving() as url:
        for in_flight, group in itertools.groupby(shapes, lambda shape: shape.in_flight):
            rollouts = max(waves, 480 // in_flight) * in_flight
            pool = _in_a_child(_thread_pool, url, in_flight, rollouts)
            yield _calls_row(f"a thread pool of {in_flight}", pool, in_flight, "")
            for shape in group:
                taken, _ = evaluate_suite(url, shape, rollouts)
                yield _calls_row(str(shape), taken, in_flight, "6 ms, 1.10")


def measure_starts(waves: int) -> Iterator[Row]:
    """Measure a worker until its first rollout and after its last, by the difference of two."""
    few = Shape(2, 1)
    many = Shape(8, 1)
    ours = []
    plain = []
    with serving() as url:
        for shape in (few, few, many):  # the first compiles all modules
            taken, total = evaluate_suite(url, shape, waves * TASKS)
            ours.append(total - taken.cpu * (1 + taken.warm / taken.rollouts))
            plain.append(_plain_session(shape))
    a_worker = (ours[2] - ours[1]) / (many.workers - few.workers)
    plainly = (plain[2] - plain[1]) / (many.workers - few.workers)
    yield Row(
        "CPU of a worker's start and end",
        f"{a_worker:.2f} s (a plain pytest-xdist worker {plainly:.2f} s: {a_worker / plainly:.2f})",
        "1.3",
    )


def evaluate_suite(url: str, shape: Shape, rollouts: int) -> tuple[Taken, float]:
    """Measure the suite of calls; what the rollouts took, and the CPU seconds of the session."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder, CALLING)
        k = math.ceil((rollouts + 2 * shape.in_flight) / TASKS)
        settings = {"rollouts": k, "target": f"openai:bench@{url}"}
        options = [f"--override-ini=skillopt_{key}={value}" for key, value in settings.items()]
        before = cpu_of_tree(os.getpid())
        run_pytest(
            folder,
            ["-p", "engine", "--skillopt", *shape.options, *options],
            {"ENGINE_CALLS": "1"},
            status=1,
        )
        total = cpu_of_tree(os.getpid()) - before
        return Taken(**json.loads((folder / "measured.json").read_text())), total


def _plain_session(shape: Shape) -> float:
    """CPU seconds of an ordinary session of the same tests, without this plugin."""
    with tempfile.TemporaryDirectory() as folder:
        project(Path(folder), CALLING)
        (Path(folder) / "conftest.py").write_text(_dedented(PLAIN))
        before = cpu_of_tree(os.getpid())
        run_pytest(Path(folder), ["-p", "no:skillopt", f"-n{shape.workers}"], status=1)
        return cpu_of_tree(os.getpid()) - before


def _calls_row(what: str, taken: Taken, in_flight: int, bound: str) -> Row:
    ideal = math.ceil(taken.rollouts / in_flight) * LATENCY
    return Row(
        f"{taken.rollouts} calls of {1000 * LATENCY:.0f} ms, {in_flight} in flight: {what}",
        f"{1000 * taken.cpu / taken.rollouts:.1f} ms of CPU each, "
        f"{taken.seconds / ideal:.2f} of the ideal {ideal:.2f} s",
        bound,
    )


def _in_a_child(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a new process, whose memory and imports are its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result()


def _thread_pool(url: str, in_flight: int, calls: int) -> Taken:
    """Measure the yardstick: the same calls by the same SDK in a pool of threads."""
    import openai

    client = openai.OpenAI(api_key="none", base_url=url, max_retries=0)
    system = {"role": "system", "content": SKILL}

    def call(i: int) -> bool:
        prompt = {"role": "user", "content": f"Name the parts of order {i}."}
        reply = client.chat.completions.create(model="simulated", messages=[system, prompt])  # type: ignore[list-item]
        answer = (reply.choices[0].message.content or "").split()
        return answer == ["frame", "wheel", "chain", *map(str, range(i % 10))]

    with ThreadPoolExecutor(in_flight) as pool:
        list(pool.map(call, range(2 * in_flight)))
        cpu = time.process_time()
        started = time.perf_counter()
        list(pool.map(call, range(calls)))
        seconds = time.perf_counter() - started
        return Taken(calls, 2 * in_flight, seconds, time.process_time() - cpu)


def measure_many(total: int) -> Iterator[Row]:
    marks = session(MEMORY, "many", "-n2", ENGINE_MANY=str(total))
    megabytes = os.sysconf("SC_PAGE_SIZE") / 2**20
    first = marks[0]
    middle = marks[len(marks) // 2]
    last = marks[-1]
    plain = _plain_worker_pages()
    yield Row(
        "memory of a worker over a plain one",
        f"{(first[2] - plain) * megabytes:.1f} MB (plain: {plain * megabytes:.1f} MB)",
        "5 MB",
    )
    per_worker = (last[0] - first[0]) / 2
    yield Row(
        f"its growth over {per_worker:,.0f} rollouts",
        f"{(last[2] - first[2]) * megabytes:.1f} MB",
        "5 MB over 30,000",
    )
    early = 1000 * (middle[1] - first[1]) / (middle[0] - first[0])
    late = 1000 * (last[1] - middle[1]) / (last[0] - middle[0])
    yield Row(
        f"the controller's CPU time a rollout, of {last[0]:,}",
        f"{early:.2f} ms in the first half, {late:.2f} ms in the second",
        "1 ms, linear",
    )


def _plain_worker_pages() -> int:
    with tempfile.TemporaryDirectory() as folder:
        project(Path(folder), MEMORY)
        run_pytest(Path(folder), ["-n1"])
        return int((Path(folder) / "pages").read_text())


def measure_interrupts(shapes: list[Shape]) -> Iterator[Row]:
    """Measure from the interrupt to the end of the controller, with calls never answered."""
    for shape in shapes:
        server = serving(latency=3_600.0)
        with server as url, tempfile.TemporaryDirectory() as folder:
            project(Path(folder), CALLING)
            target = f"--override-ini=skillopt_target=openai:bench@{url}"
            options = ["--skillopt", "--skillopt-rollouts=4", target, *shape.options]
            session = subprocess.Popen(
                [sys.executable, "-m", "pytest", *options],
                cwd=folder,
                env=_environment({}),
                stdout=subprocess.DEVNULL,
            )
            while server.asked.value < shape.in_flight:
                time.sleep(0.01)
            started = time.perf_counter()
            session.send_signal(signal.SIGINT)
            status = session.wait()
            seconds = time.perf_counter() - started
            assert status == 2, status
            what = f"an interrupt with {shape.in_flight} calls in flight: {shape}"
            yield Row(what, f"{seconds:.2f} s until the process has ended", "2 s")


def measure_soak(seconds: float) -> Iterator[Row]:
    """Compare what is held after a tenth of the time and at the end; look for leftovers."""
    with serving() as url, tempfile.TemporaryDirectory() as temporary:
        early, late = session(
            CALLING,
            "soak",
            "-n2",
            "--drive-lanes=32",
            "--drive-limits",
            f"--override-ini=skillopt_target=openai:bench@{url}",
            ENGINE_SECONDS=str(seconds),
            TMPDIR=temporary,
        )
        left = [path.name for path in Path(temporary).iterdir() if path.name[:10] != "pytest-of-"]
    what = f"{late['calls']:,} calls in {seconds:.0f} s, 64 in flight, "
    for name in ("threads", "descriptors", "files"):
        now = f"{late[name]} (after a tenth of the time {early[name]})"
        yield Row(what + name, now, "no more")
    grown = (late["pages"] - early["pages"]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    yield Row(what + "growth of memory", f"{grown:.1f} MB in 3 processes", "5 MB a process")
    yield Row(what + "left in the temporary folder", str(len(left)), "0")


def measure_large(tasks: int) -> Iterator[Row]:
    """Measure a large suite, and one with a tenth of its tasks."""
    few, many = (_large(n) for n in (tasks // 10, tasks))
    for name, (now, memory) in many.items():
        before, _ = few[name]
        peak = f", {memory:.0f} MB at most" if memory else ""
        figure = f"{now:.1f} s{peak} ({tasks // 10:,} tasks: {before:.1f} s)"
        yield Row(f"{tasks:,} tasks: {name}", figure, "10 times the smaller")


def _large(tasks: int) -> dict[str, tuple[float, float]]:
    """Seconds and, of whole sessions, the megabytes of their largest process."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        project(folder, MANY_TASKS)

        def run(*args: str) -> tuple[float, float]:
            started = time.perf_counter()
            process = subprocess.Popen(
                [sys.executable, "-m", "pytest", "-q", *args],
                cwd=folder,
                env=_environment({"ENGINE_TASKS": str(tasks)}),
                stdout=subprocess.DEVNULL,
            )
            _, _, used = os.wait4(process.pid, 0)
            return time.perf_counter() - started, used.ru_maxrss / 2**10

        run("--collect-only", "-p", "no:skillopt")  # compiles the tests
        found = {
            "collection by pytest alone": run("--collect-only", "-p", "no:skillopt"),
            "collection and plan": run("--collect-only", "--skillopt"),
            "a session with K = 3, -n 2": run(
                "-p", "engine", "--skillopt", "--skillopt-rollouts=3", "-n2"
            ),
        }
        parts = json.loads((folder / "measured.json").read_text())
        found["of it the rollouts"] = (parts["take"], 0.0)
        found["of it the report"] = (parts["write_reports"], 0.0)
        return found


# a server that answers after LATENCY


class serving:  # noqa: N801 -- a context manager
    """An OpenAI-compatible server in a process of its own, while open; gives its base URL."""

    def __init__(self, latency: float = LATENCY) -> None:
        self._latency = latency
        self.asked: Any = multiprocessing.Value("i", 0)
        """Requests that have come, other than those that see whether the model is there."""

    def __enter__(self) -> str:
        ours, theirs = multiprocessing.Pipe()
        about = theirs, self._latency, self.asked
        self._process = multiprocessing.Process(target=_serve, args=about, daemon=True)
        self._process.start()
        return f"http://127.0.0.1:{ours.recv()}/v1"

    def __exit__(self, *exception: object) -> None:
        self._process.kill()


def _serve(pipe: Any, latency: float, asked: Any) -> None:
    asyncio.run(_serve_forever(pipe.send, functools.partial(_answer_all, latency, asked)))


async def _serve_forever(tell_port: Callable[[int], None], answer: Callable[..., Any]) -> None:
    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=512)
    tell_port(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _answer_all(
    latency: float, asked: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    body = json.dumps(_completion("frame wheel chain")).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    while True:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        length = int(request.partition("content-length:")[2].split("\r\n")[0] or 0)
        if b"Reply with the word OK" not in await reader.readexactly(length):
            asked.value += 1
            await asyncio.sleep(latency)
        writer.write(head.encode() + b"\r\n" + body)


def _completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "simulated",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the rollout engine.")
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer of everything")
    parser.add_argument("--soak", action="store_true", help="only that, for ten minutes")
    parser.add_argument("--large", action="store_true", help="only a suite of 10,000 tasks")
    options = parser.parse_args()
    quick = options.quick
    shapes = [Shape(8, 1), Shape(2, 4), Shape(2, 32), Shape(4, 16), Shape(1, 64)]
    print(f"{'quantity':<62}{'measured':<76}at most")
    chosen = [measure_soak(20 if quick else 600)] if options.soak else []
    chosen += [measure_large(500 if quick else 10_000)] if options.large else []
    usual = (
        measure_calls(shapes[1:3] if quick else shapes, 4 if quick else 20),
        () if quick else measure_starts(2),
        measure_interrupts(shapes[2:3] if quick else [shapes[0], *shapes[2:]]),
        measure_rounds([2] if quick else [2, 4, 8, 16]),
        measure_many(3_000 if quick else 100_000),
    )
    for row in itertools.chain.from_iterable(chosen or usual):
        print(f"{row.quantity:<62}{row.figure:<76}{row.bound}", flush=True)


if __name__ == "__main__":
    main()
