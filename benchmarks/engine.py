"""How much the rollout engine costs, in one table: ``python benchmarks/engine.py [--quick]``.

Every figure is measured now, on this machine; what the machine's load distorts is given as a ratio
of two figures of the same run. Linux only (it reads ``/proc``).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_skillopt.suite.executor import Executor
    from pytest_skillopt.suite.tasks import SkillTask

HERE = Path(__file__).resolve().parent
SUPPORT = HERE.parent / "tests" / "_support"
LATENCY = 0.2
TRIVIAL = """
    import pytest

    @pytest.mark.parametrize("i", range(20))
    def test_trivial(i):
        assert i >= 0
"""
CALLING = """
    def test_call(skill_agent):
        assert skill_agent("hello") == "hello"
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


def calls(executor: Executor, tasks: list[SkillTask]) -> None:
    """Job: 400 rollouts of one model call, after one that opens each connection."""
    _timed(executor, tasks, 2 * executor.capacity, stream="warm-up")
    _tell([_timed(executor, tasks, 400, stream="measured"), executor.capacity])


def many(executor: Executor, tasks: list[SkillTask]) -> None:
    """Job: many rollouts; the controller's CPU time and a worker's memory as they go on."""
    marks = []
    total, chunk = int(os.environ["ENGINE_MANY"]), 1_000
    for n in range(total // chunk):
        pages: list[int] = []
        _timed(executor, tasks, chunk, stream=str(n), pages=pages)
        marks.append([(n + 1) * chunk, time.process_time(), max(pages)])
    _tell(marks)


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
    bad = [r for r in rollouts if r.outcome != "passed"]
    assert not bad, bad[0]
    if pages is not None:
        pages += [int(r.transcript[0].content) for r in rollouts]
    return seconds


def _tell(value: Any) -> None:
    Path("measured.json").write_text(json.dumps(value))


# running it


def session(tests: str, job: str, *args: str, **environment: str) -> tuple[Any, float]:
    """Run a job in a session of its own; what it told, and the session's seconds in all."""
    with tempfile.TemporaryDirectory() as folder:
        project(Path(folder), tests)
        command = ["-p", "rollout_driver", f"--drive=engine:{job}", *args]
        seconds = run_pytest(Path(folder), command, **environment)
        return json.loads((Path(folder) / "measured.json").read_text()), seconds


def project(folder: Path, tests: str) -> None:
    (folder / "test_suite.py").write_text("\n".join(line[4:] for line in tests.splitlines()))
    (folder / "pytest.ini").write_text("[pytest]\n")
    skill = folder / "skills" / "demo"
    skill.mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: demo\ndescription: A demo.\n---\n")


def run_pytest(folder: Path, args: list[str], **environment: str) -> float:
    env = {**os.environ, **environment, "PYTHONPATH": f"{SUPPORT}:{HERE}"}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *args],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"pytest {' '.join(args)} ended with {done.returncode}\n{done.stdout}")
    return time.perf_counter() - started


def measure_rounds(workers: list[int]) -> Iterator[Row]:
    for n in workers:
        seconds, _ = session(TRIVIAL, "rounds", f"-n{n}")
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


def measure_calls(shapes: list[tuple[int, int, str]]) -> Iterator[Row]:
    with serving() as url:
        for workers, lanes, bound in shapes:
            options = {"skillopt_target": "openai:bench", "skillopt_base_url": url}
            args = [arg for name, value in options.items() for arg in ("-o", f"{name}={value}")]
            (seconds, parallel), total = session(
                CALLING,
                "calls",
                f"-n{workers}",
                f"--drive-lanes={lanes}",
                "--drive-limits",
                *args,
                OPENAI_API_KEY="none",
            )
            ideal = math.ceil(400 / parallel) * LATENCY
            shape = f"-n {workers}" + (f" --skillopt-lanes={lanes}" if lanes > 1 else "")
            yield Row(
                f"400 rollouts of a call of {1000 * LATENCY:.0f} ms, {shape}",
                f"{seconds / ideal:.2f} of the ideal {ideal:.2f} s "
                f"(start-up and end: {total - seconds:.1f} s)",
                bound,
            )


def measure_many(total: int) -> Iterator[Row]:
    marks, _ = session(MEMORY, "many", "-n2", ENGINE_MANY=str(total))
    megabytes = os.sysconf("SC_PAGE_SIZE") / 2**20
    first, middle, last = marks[0], marks[len(marks) // 2], marks[-1]
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


# a server that answers after LATENCY


class serving:  # noqa: N801 -- a context manager
    """An OpenAI-compatible server in a process of its own, while open; gives its base URL."""

    def __enter__(self) -> str:
        ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        return f"http://127.0.0.1:{ours.recv()}/v1"

    def __exit__(self, *exception: object) -> None:
        self._process.kill()


def _serve(pipe: Any) -> None:
    asyncio.run(_serve_forever(pipe.send))


async def _serve_forever(tell_port: Callable[[int], None]) -> None:
    server = await asyncio.start_server(_answer_all, "127.0.0.1", 0, backlog=512)
    tell_port(server.sockets[0].getsockname()[1])
    await server.serve_forever()


async def _answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    body = json.dumps(_completion("hello")).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    while True:
        try:
            request = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        length = int(request.partition("content-length:")[2].split("\r\n")[0] or 0)
        await reader.readexactly(length)
        await asyncio.sleep(LATENCY)
        writer.write(head.encode() + b"\r\n" + body)


def _completion(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the rollout engine.")
    parser.add_argument("--quick", action="store_true", help="fewer workers and rollouts")
    quick = parser.parse_args().quick
    shapes = [(8, 1, "1.05"), (16, 1, "1.08"), (2, 32, "1.10")]
    print(f"{'quantity':<62}{'measured':<76}at most")
    for row in itertools.chain(
        measure_rounds([2] if quick else [2, 4, 8, 16]),
        measure_calls(shapes[:1] if quick else shapes),
        measure_many(10_000 if quick else 100_000),
    ):
        print(f"{row.quantity:<62}{row.figure:<76}{row.bound}", flush=True)


if __name__ == "__main__":
    main()
