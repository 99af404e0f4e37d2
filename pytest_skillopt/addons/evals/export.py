"""Write ``benchmark.json`` and ``grading.json`` of a run for skill-creator's viewer.

Layout, under ``evals/<skill>/`` in the run's directory (by path if two skills have one name)::

    benchmark.json
    eval-<id>/eval_metadata.json
    eval-<id>/<configuration>/eval_metadata.json
    eval-<id>/<configuration>/run-<n>/grading.json timing.json outputs/answer.md

A configuration is ``with_skill``, ``without_skill`` (compared with ``none``) or ``old_skill``. The
format is that of skill-creator's ``references/schemas.md``. Its viewer takes the first
configuration for the skill under test and reads the prompt from ``eval_metadata.json`` beside the
runs; its aggregation reads the one above.

A gate may sample an eval more often under one version, which would give that eval more weight in
this version's mean. So the same number of runs is written for all versions of an eval.
"""

from __future__ import annotations

import contextlib
import json
import re
import statistics
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pytest_skillopt.run.journal import entries_of
from pytest_skillopt.skill.document import NO_SKILL, SKILL_FILE
from pytest_skillopt.suite.rollouts import Rollout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_skillopt.run.result import Result, SkillResult

_ITEM = re.compile(r"evals/eval(?:s|_queries)\.json::\w+\[(?P<slug>.*)\]$")
_METRICS = ("pass_rate", "time_seconds", "tokens")
_CONFIGURATIONS = ("with_skill", "without_skill", "old_skill")
"""Configurations in the order of the viewer's columns."""


def write_benchmarks(run: Path, result: Result) -> list[Path]:
    """Write the files for each skill with evals into a run's directory, with its journal.

    Returns the paths of ``benchmark.json``; OSError if a file cannot be read or written.
    """
    found: dict[str, list[Rollout]] = defaultdict(list)
    for data in entries_of(run / "journal.jsonl", "rollout"):
        rollout = Rollout.from_json(data)
        if rollout.measured and _ITEM.search(rollout.request.task):
            found[rollout.request.skill].append(rollout)
    written: list[Path] = []
    for skill in result.skills:
        if rows := found.get(skill.path):
            name = skill.name or skill.path
            if [other.name for other in result.skills].count(skill.name) > 1:
                name = skill.path.removesuffix(f"/{SKILL_FILE}")
            folder = run / "evals" / re.sub(r"[^\w.-]+", "-", name).lstrip(".-")
            others = {path.parent.name.casefold() for path in written}
            while folder.name.casefold() in others:  # Two names may be written in the same way.
                folder = folder.with_name(f"{folder.name}-2")
            written.append(_write(folder, rows, skill, result))
    return written


def _write(folder: Path, rollouts: Sequence[Rollout], skill: SkillResult, result: Result) -> Path:
    tasks = sorted({rollout.request.task for rollout in rollouts})
    numbers = {task: number for number, task in enumerate(tasks, 1)}
    configurations = {skill.before: "old_skill", skill.after: "with_skill"}
    configurations[NO_SKILL.version] = "without_skill"  # and rejected candidates have none
    sides: dict[str, dict[str, list[Rollout]]] = defaultdict(lambda: defaultdict(list))
    for rollout in rollouts:
        if configuration := configurations.get(rollout.request.version):
            sides[configuration][rollout.request.task].append(rollout)
    taken = {task: min(len(side[task]) for side in sides.values()) for task in tasks if sides}
    left_out = sum(len(side[t]) - taken[t] for side in sides.values() for t in tasks)
    omitted = f"{left_out} runs are omitted: of an eval, all versions have the same number"
    runs: list[dict[str, Any]] = []
    for configuration, side in sides.items():
        for task in tasks:
            for count, rollout in enumerate(side[task][: taken[task]], 1):
                runs.append(_run(rollout, numbers[task], configuration, count))
                _write_run(folder / f"eval-{numbers[task]}", rollout, runs[-1])
    runs.sort(key=lambda run: (run["eval_id"], _CONFIGURATIONS.index(run["configuration"])))
    summary: dict[str, Any] = {}
    for name in _CONFIGURATIONS:
        if rows := [run["result"] for run in runs if run["configuration"] == name]:
            summary[name] = {key: _spread([row[key] for row in rows]) for key in _METRICS}
    before = summary.get("without_skill") or summary.get("old_skill")
    if before and "with_skill" in summary:
        summary["delta"] = {
            name: f"{summary['with_skill'][name]['mean'] - before[name]['mean']:+.2f}"
            for name in _METRICS
        }
    return _dump(
        folder / "benchmark.json",
        {
            "metadata": {
                "skill_name": skill.name or skill.path,
                "skill_path": skill.path,
                "executor_model": result.models.get("target", ""),
                "analyzer_model": result.models.get("judge", ""),
                "timestamp": result.started,
                "evals_run": list(numbers.values()),
                "runs_per_configuration": max(taken.values(), default=0),
            },
            "runs": runs,
            "run_summary": summary,
            "notes": [*filter(None, [result.reason]), *([omitted] if left_out else [])],
        },
    )


def _run(rollout: Rollout, number: int, configuration: str, run_number: int) -> dict[str, Any]:
    grades = _grades(rollout)
    passed = sum(bool(grade["passed"]) for grade in grades)
    tokens = rollout.usage.input_tokens + rollout.usage.output_tokens
    name = _ITEM.search(rollout.request.task)
    return {
        "eval_id": number,
        "eval_name": name["slug"] if name else rollout.request.task,
        "configuration": configuration,
        "run_number": run_number,
        "result": {
            "pass_rate": passed / len(grades),
            "passed": passed,
            "failed": len(grades) - passed,
            "total": len(grades),
            "time_seconds": round(rollout.duration, 3),
            "tokens": tokens,
            "tool_calls": sum(m.role == "tool" for m in rollout.transcript),
            "errors": 0,
        },
        "expectations": grades,
        "notes": [],
    }


def _grades(rollout: Rollout) -> list[dict[str, Any]]:
    """Return the grades; only the test's verdict if they were too long to record."""
    said = [turn.content for turn in rollout.transcript if turn.role == "grading"]
    with contextlib.suppress(ValueError):
        rows = json.loads(said[-1]) if said else []
        if found := [row for row in rows if isinstance(row, dict)]:
            return found
    return [{"text": "the eval passes", "passed": rollout.passed, "evidence": rollout.message}]


def _write_run(folder: Path, rollout: Rollout, run: dict[str, Any]) -> None:
    where = folder / run["configuration"] / f"run-{run['run_number']}"
    (where / "outputs").mkdir(parents=True, exist_ok=True)
    said = {m.role: m.content for m in rollout.transcript}
    (where / "outputs" / "answer.md").write_text(said.get("assistant", ""), encoding="utf-8")
    prompt = next((m.content for m in rollout.transcript if m.role == "user"), "")
    about = {"eval_id": run["eval_id"], "eval_name": run["eval_name"], "prompt": prompt}
    about["assertions"] = [str(grade["text"]) for grade in run["expectations"]]
    for place in (folder, where.parent):
        _dump(place / "eval_metadata.json", about)
    result = run["result"]
    seconds = result["time_seconds"]
    summary = {key: result[key] for key in ("passed", "failed", "total", "pass_rate")}
    timing = {"executor_duration_seconds": seconds, "total_duration_seconds": seconds}
    grading = {"expectations": run["expectations"], "summary": summary, "timing": timing}
    _dump(where / "grading.json", grading)
    spent = {"total_tokens": result["tokens"], "duration_ms": round(1000 * seconds)}
    _dump(where / "timing.json", spent | timing)


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {
        "mean": round(statistics.fmean(values), 4),
        "stddev": round(statistics.stdev(values), 4) if len(values) > 1 else 0.0,
        "min": min(values),
        "max": max(values),
    }


def _dump(path: Path, data: dict[str, Any]) -> Path:
    path.write_text(json.dumps(data, indent=2, ensure_ascii=False), encoding="utf-8")
    return path
