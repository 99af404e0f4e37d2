"""Command ``export``: lay out a training as SkillOpt and skillrl lay out theirs.

Both have ``history.json``, ``best_skill.md``, ``skills/skill_vNNNN.md`` and a folder for each step
under ``steps/``; SkillOpt also ``config.json`` and ``summary.json``, skillrl ``current_skill.md``
and ``runtime_state.json``. For SkillOpt guidance and reminders stand between its own markers. A
file, or a key, whose content is not known here is left out.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_skillopt.cli import add_run_arguments, tell
from pytest_skillopt.errors import UsageError, UserError
from pytest_skillopt.run.past import home_of, pick_run
from pytest_skillopt.run.project import version_of_run
from pytest_skillopt.skill.find import slug, unnamed
from pytest_skillopt.skill.text import with_markers_of_skillopt

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from pytest_skillopt.run.result import EditRow, Result, SkillResult
    from pytest_skillopt.skill.version import Version

_APPLIED = ("accepted", "rejected", "dropped")
_ACTIONS = {"accepted": "accept_new_best", "none": "skip_no_patches"}
"""Names of verdicts; any other is ``reject``."""


def add_export(commands: argparse._SubParsersAction[Any]) -> None:
    """Declare the command."""
    text = "write a training's history, steps and skills as another tool does"
    parser = commands.add_parser("export", help=text)
    add_run_arguments(parser)
    parser.add_argument("--format", required=True, choices=("skillopt", "skillrl"))
    text = "new folder (default: FORMAT-RUN); several skills get a folder each"
    parser.add_argument("--output", type=Path, metavar="DIR", help=text)
    parser.set_defaults(handle=_export)


def _export(args: argparse.Namespace) -> int:
    home = home_of(args)
    run, result = pick_run(home, args.run)
    if result.mode != "train":
        raise UserError(f"run {run.id} is not a training, so it has no steps to export")
    top = args.output or Path(f"{args.format}-{run.id}")
    try:
        top.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"{top}: {error.strerror}; choose another --output") from None
    version = partial(version_of_run, home, run.id)
    for skill in result.skills:
        several = len(result.skills) > 1
        folder = top / slug(skill.name or unnamed(Path(skill.path))) if several else top
        text = partial(_text, version, args.format)
        _write_skill(folder, text, result, skill, args.format)
    tell(f"{args.format}: {top}")
    return 0


def _text(version: Callable[[str], Version], form: str, name: str) -> bytes:
    main = version(name).main
    if form != "skillopt":
        return main.data
    return with_markers_of_skillopt(main.text).encode()


def _write_skill(
    folder: Path, text: Callable[[str], bytes], result: Result, skill: SkillResult, form: str
) -> None:
    """Write the tree of one skill; ``text`` reads a version of it, or raises UserError."""
    best_text = text(skill.after)
    history: list[dict[str, Any]] = []
    current = skill.before
    best = 0
    _put(folder / "skills" / "skill_v0000.md", text(current))
    for row in skill.steps:
        edits = [edit for edit in skill.edits if edit.step == row.step]
        score = row.before
        if row.verdict == "accepted" and row.candidate:
            current = row.candidate
            best = row.step
            score = row.after
        ranked = [edit for edit in edits if edit.status in _APPLIED]
        record = {
            "step": row.step,
            "epoch": row.epoch,
            "action": _ACTIONS.get(row.verdict, "reject"),
            "rollout_hard": row.train,
            "rollout_n": row.tasks,
            "n_edits_merged": len(edits),
            "n_edits_ranked": len(ranked),
            "candidate_hash": row.candidate,
            "selection_hard": row.after,
            "current_score": score,
            "best_step": best,
        }
        history.append({key: value for key, value in record.items() if value not in (None, "")})
        step = folder / "steps" / f"step_{row.step:04d}"
        _put_json(step / "step_record.json", history[-1])
        _put_json(step / "ranked_edits.json", _patch(edits))
        if row.candidate:
            _put(step / "candidate_skill.md", text(row.candidate))
        _put(folder / "skills" / f"skill_v{row.step:04d}.md", text(current))
    _put_json(folder / "history.json", history)
    _put(folder / "best_skill.md", best_text)
    if form == "skillrl":
        _put(folder / "current_skill.md", best_text)
        state = {"last_completed_step": len(history), "best_step": best}
        _put_json(folder / "runtime_state.json", state)
        return
    _put_json(folder / "config.json", result.settings)
    before = after = None
    if skill.test:
        before = skill.test.before.rate
        after = skill.test.after.rate if skill.test.after else None
    actions = [row["action"] for row in history]
    summary = {
        "best_step": best,
        "total_steps": len(history),
        "total_accepts": actions.count("accept_new_best"),
        "total_rejects": actions.count("reject"),
        "total_skips": actions.count("skip_no_patches"),
        "baseline_test_hard": before,
        "test_hard": after,
        "total_wall_time_s": round(result.seconds, 1),
    }
    _put_json(folder / "summary.json", summary)


def _patch(edits: Sequence[EditRow]) -> dict[str, Any]:
    rows = [
        {"op": e.op, "target": e.target, "content": e.content, "support_count": e.support}
        for e in edits
    ]
    return {"reasoning": "; ".join(dict.fromkeys(e.reason for e in edits)), "edits": rows}


def _put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _put_json(path: Path, data: Any) -> None:
    _put(path, json.dumps(data, indent=2, ensure_ascii=False).encode("utf-8", "backslashreplace"))
