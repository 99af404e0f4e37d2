"""Costs of a run in a coding agent beyond the agent itself: Codex on loopback, instant model.

    python benchmarks/harness.py [--runs 20] [--flat 200]

Needs git and the ``dev`` extra, which brings Codex. Prints, each with its bar: CPU of a run with
``skill_harness`` over that of a bare one; 8 runs at once against 8 bare ones; the time of a kept
run; how the memory grows over many runs of a stub; and what is left of a training that was killed.
The exit code is 1 where a bar is broken. On a machine that does other things, too, the times of 8
at once and of a kept run say little.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "_support"))

from harness_project import SKILL
from model_server import ModelServer

from pytest_skillopt.model.cache import DiskCache, Replies
from pytest_skillopt.model.config import ModelConfig
from pytest_skillopt.model.limits import Meter
from pytest_skillopt.plugins.agents.harness import HarnessAgent
from pytest_skillopt.plugins.agents.known import KNOWN, Harness, bundled_path
from pytest_skillopt.plugins.agents.proxy import Proxy
from pytest_skillopt.plugins.agents.run import Runner
from pytest_skillopt.plugins.agents.sandbox import Sandbox, sandbox_kind
from pytest_skillopt.rollouts.context import Recorder, Skill
from pytest_skillopt.rollouts.rollout import RolloutRequest
from pytest_skillopt.skill.version import Version

FOLDERS = "pytest_skillopt.rollouts.folders"
PROMPT = "Greet Ada for the front desk."
STUB = """\
import json, os, urllib.request
body = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
url = os.environ["BASE_URL"] + "/v1/chat/completions"
urllib.request.urlopen(urllib.request.Request(url, body)).read()
print(json.dumps({"text": "done"}))
"""


def read_stub(event: dict[str, Any], trace: Any) -> None:
    trace.say(event["text"])
    trace.done = True


def cpu() -> float:
    """CPU seconds of this process and of all children that have ended."""
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


class Bench:
    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.folder = folder
        self.server = server
        config = ModelConfig("target", "openai", "fake-model", server.url())
        self.proxy = Proxy(config, Meter())
        project = folder / "project"
        self.runner = Runner(Sandbox(sandbox_kind("auto"), project), project, {})
        home = folder / "skill" / "house-greeting"
        home.mkdir(parents=True)
        (home / "SKILL.md").write_text(SKILL)
        document = Version.from_bytes(SKILL.encode())
        self.skill = Skill(
            document.main.text, document.main.body, home, document.main.name, document.digest
        )
        self.codex = KNOWN["codex"]
        self.executable = bundled_path(self.codex.bundled)
        self.number = 0

    def workspace(self) -> Path:
        self.number += 1
        return self.folder / f"work-{self.number}"

    def bare(self) -> None:
        """Codex as a user would start it by hand, the skill in its place."""
        work = self.workspace()
        place = work / self.codex.skills / "house-greeting"
        place.mkdir(parents=True)
        (place / "SKILL.md").write_text(SKILL)
        home = work.with_name(work.name + "-home")
        values = {"executable": self.executable, "prompt": PROMPT, "model": "fake-model"}
        values |= {"home": str(home), "workspace": str(work), "key": "none"}
        values |= {"url": self.server.url().removesuffix("/v1")}
        for name, text in self.codex.files.items():
            (home / name).parent.mkdir(parents=True)
            (home / name).write_text(self.codex.fill(text, values))
        env = {name: self.codex.fill(text, values) for name, text in self.codex.env.items()}
        env = {"PATH": os.environ["PATH"], "HOME": str(home), **env}
        argv = [self.codex.fill(word, values) for word in self.codex.argv.split()]
        subprocess.run(argv, cwd=work, env=env, stdin=subprocess.DEVNULL, capture_output=True)
        assert (work / "greeting.txt").read_text() == "Ahoy Ada\n"

    def agent(self, harness: Harness, executable: str, replies: Replies | None) -> HarnessAgent:
        found = replace(harness, executable=executable, version="0")
        return HarnessAgent(
            harness=found,
            workspace=self.workspace(),
            skill=self.skill,
            recorder=Recorder(RolloutRequest("task", "", "", "", "", "plain", 0)),
            provider=self.proxy,
            runner=self.runner,
            replies=replies,
            temporary=self.folder,
            limit=0,
        )

    def ours(self, replies: Replies | None = None) -> None:
        reply = self.agent(self.codex, self.executable, replies)(PROMPT)
        assert reply.files == {"greeting.txt": "added"}

    def stub(self) -> None:
        script = {"agent.py": STUB}
        env = {"BASE_URL": "{url}"}
        argv = "{executable} -I -S {home}/agent.py"
        harness = Harness("stub", argv, read_stub, "", env=env, files=script)
        assert self.agent(harness, sys.executable, None)("x") == "done"


def each(bench: Bench, work: Any, times: int) -> float:
    """Milliseconds of CPU: what a process has used is known once it and its guard have ended."""
    before = cpu()
    for _ in range(times):
        work()
    bench.runner.close()
    return 1000 * (cpu() - before) / times


def median(work: Any, times: int) -> float:
    """Milliseconds."""
    spans: list[float] = []
    for _ in range(times):
        before = time.perf_counter()
        work()
        spans.append(1000 * (time.perf_counter() - before))
    return statistics.median(spans)


def killed(folder: Path) -> int:
    """Folders and processes that are left of the example's training, killed in the middle."""
    scratch = folder / "scratch"
    project = folder / "example"
    scratch.mkdir()
    ignored = shutil.ignore_patterns(".skillopt")
    shutil.copytree(Path(__file__).parents[1] / "example_project", project, ignore=ignored)
    command = [sys.executable, "-m", "pytest", "agent_tests", "--skillopt-train"]
    session = subprocess.Popen(
        [*command, "--skillopt-lanes=4"],
        cwd=project,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.DEVNULL,
    )

    def left() -> int:
        own = 0
        for process in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                own += str(scratch).encode() in process.read_bytes()
        return own + len(list(scratch.glob("skillopt-home-*")))

    while len(list(scratch.glob("skillopt-home-*/out"))) < 2 and session.poll() is None:
        time.sleep(0.05)
    session.kill()
    session.wait()
    until = time.monotonic() + 30
    while left() and time.monotonic() < until:
        time.sleep(0.05)
    # A folder that had no guard yet is removed by the next process that makes one.
    subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {FOLDERS} as f; f.TemporaryFolder('skillopt-home-').remove()",
        ],
        env={**os.environ, "TMPDIR": str(scratch)},
        check=True,
    )
    return left()


def tell(what: str, figure: float, most: float, unit: str) -> bool:
    """Print a figure with its bar; whether it keeps it."""
    print(f"{what}: {figure:.4g}{unit} (at most {most:g}{unit})", flush=True)
    return figure <= most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--flat", type=int, default=200)
    given = parser.parse_args()
    kept_bars: list[bool] = []
    with tempfile.TemporaryDirectory() as name, ModelServer() as server:
        bench = Bench(Path(name), server)
        bench.ours()  # imports, connections
        bench.runner.close()
        bare = each(bench, bench.bare, given.runs)
        more = each(bench, bench.ours, given.runs) - bare
        kept_bars.append(tell(f"CPU over that of a bare run, {bare:.0f} ms", more, 50, " ms"))
        walls = []
        for work in (bench.bare, bench.ours):
            before = time.perf_counter()
            with ThreadPoolExecutor(8) as pool:
                for done in [pool.submit(work) for _ in range(8)]:
                    done.result()
            walls.append(time.perf_counter() - before)
        kept_bars.append(tell("8 at once over 8 bare ones", walls[1] / walls[0], 1.2, ""))
        replies = Replies("rw", DiskCache(Path(name) / "cache"))
        bench.ours(replies)
        calls = server.calls
        kept = median(lambda: bench.ours(replies), given.runs)
        assert server.calls == calls
        replies.close()
        kept_bars.append(tell("a kept run", kept, 20, " ms"))
        bench.stub()
        bench.stub()
        before = resident()
        for _ in range(given.flat):
            bench.stub()
        kept_bars.append(tell(f"memory over {given.flat} runs", resident() - before, 5, " MB"))
        bench.proxy.close()
        bench.runner.close()
        kept_bars.append(tell("left of a training that was killed", killed(Path(name)), 0, ""))
    sys.exit(not all(kept_bars))


def resident() -> float:
    """Megabytes that this process has in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * resource.getpagesize() / 1e6


if __name__ == "__main__":
    main()
