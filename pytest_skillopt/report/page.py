"""``report.html``: one self-contained file without scripts, safe with any text of a model."""

from __future__ import annotations

import os
import re
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from markupsafe import Markup, escape

from pytest_skillopt.report import figures
from pytest_skillopt.report.advice import advise, headline
from pytest_skillopt.report.markup import policy, short, style
from pytest_skillopt.report.rendering import common, environment, hunks, not_kept, settings
from pytest_skillopt.report.words import clip, one_line, rounded
from pytest_skillopt.untrusted import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import jinja2

    from pytest_skillopt.run.result import Result, RolloutSample, SkillResult, TaskRow

TRANSCRIPT_BUDGET = 1_200_000
"""Characters of HTML for all transcripts, so that a phone can open a report of 400 tasks."""
MOST_TURNS = 12
MOST_TURN = 2_000
MOST_DIFF_LINES = 600
MOST_EDITS = 100
_SCALES = {
    "fresh": ("Fresh", "train and val tasks", "all tasks"),
    "suite": ("Suite", "train and val tasks", "all tasks"),
    "val": ("Val", "the tasks that the gate is measured on", "tasks of the split val"),
    "test": ("Test", "tasks that no edit has seen", "tasks of the split test"),
}
_TITLES = {"same": "No change", "test": "Test split"}
_RATED = (
    ("failing", "Never passed", "no measured rollout passed"),
    ("flaky", "Sometimes passed", "both passed and failed under one version"),
    ("passing", "Always passed", "every measured rollout passed"),
    ("unmeasured", "Not measured", "skipped, or nothing but infrastructure errors"),
)


def render_html(result: Result) -> str:
    """Render the whole page."""
    css = style()
    given = {
        "skills": _show_skills(result),
        "target_tables": [figures.targets(result), figures.target_tasks(result)]
        if result.targets
        else [],
        "unpriced": figures.unpriced(result.usage),
        "command": shlex.join(result.command),
        "settings": settings(result),
        "css": Markup(css),
        "csp": policy(css),
    }
    return _environment().get_template("report.html.j2").render(common(result) | given)


@cache
def _environment() -> jinja2.Environment:
    # This gets every value that the template prints, before it is escaped.
    made = environment(lambda value: printable(value) if type(value) is str else value)
    made.filters |= {
        "short": short,
        "breakable": _breakable,
        "rounded": rounded,
        "rate": figures.pass_rate,
        "one_line": one_line,
        "clip": clip,
    }
    return made


def _breakable(text: str) -> Markup:
    """Allow line breaks only between the parts of a node id, and in a part wider than the line."""
    parts = re.split(r"(?<=/)|(?<=::)|(?=\[)", printable(text))
    return Markup("<wbr>").join(Markup("<bdi>{}</bdi>").format(part) for part in parts)


_Shown = dict[str, Any]
"""Values for the template, by name."""


def _show_skills(result: Result) -> list[_Shown]:
    """Prepare each skill of the run; they share the room for transcripts."""
    skills = [_show(result, skill, i) for i, skill in enumerate(result.skills)]
    room = TRANSCRIPT_BUDGET
    for task in (task for skill in skills for group in skill["groups"] for task in group["tasks"]):
        texts = [text for one in task["transcripts"] for _, text in one["turns"]]
        said = [one["message"] for one in task["transcripts"]]
        size = 60 * len(texts) + sum(len(escape(text)) for text in texts + said)
        if size > room:
            task |= {"transcripts": [], "left_out": True}
        else:
            room -= size
    return skills


def _show(result: Result, skill: SkillResult, i: int) -> _Shown:
    shown, left_out = hunks(skill, MOST_DIFF_LINES)
    rows = figures.shown_rows(skill, result.mode)
    compared = any(row.after is not None for row in rows)
    edits = not_kept(skill)
    has_curve = any(s.after is not None or s.train is not None for s in skill.steps)
    is_gated = any(s.verdict != "none" for s in skill.steps)
    return {
        "skill": skill,
        "anchor": f"skill-{i}",
        "advice": advise(result, skill),
        "hunks": shown,
        "lines_left_out": left_out,
        "scales": tuple(_scales(result, skill)),
        "precision": list(figures.precision(skill, result.mode)),
        "curve": has_curve,
        "gated": is_gated,
        "uninformative": figures.uninformative(skill),
        "groups": tuple(_groups(result, rows, compared)),
        "compared": compared,
        "lines": figures.candidate_lines(skill),
        "edits": tuple(edits[:MOST_EDITS]),
        "edits_left_out": max(len(edits) - MOST_EDITS, 0),
    }


def _scales(result: Result, skill: SkillResult) -> Iterator[_Shown]:
    first, second = figures.sides(result.mode)
    for key, comparison in figures.comparisons(skill).items():
        name, trained, meaning = _SCALES[key]
        before, after = comparison.before, comparison.after
        none = skill.none if comparison is skill.suite else None
        sides = [("no skill", "none", none)] if none else []
        sides += [(first if after else "now", "old", before)]
        sides += [(second, "new", after)] if after else []
        if comparison is skill.suite and not skill.from_search:
            trained += ", fresh samples"
        yield {
            "name": name,
            "meaning": trained if result.mode == "train" else meaning,
            "sides": [{"side": side, "kind": kind, "rate": rate} for side, kind, rate in sides],
            "points": figures.points(before.rate, after.rate) if after else "",
            "before": before,
        }


def _groups(result: Result, rows: Sequence[TaskRow], compared: bool) -> Iterator[_Shown]:
    sides = figures.sides(result.mode)
    changes = figures.CHANGES | {"test": "tasks that no edit has seen"}
    groups = [(key, _TITLES.get(key, key.capitalize()), said) for key, said in changes.items()]
    for key, title, meaning in groups if compared else _RATED:
        chosen = sorted(
            (row for row in rows if _group(row, compared) == key),
            key=lambda row: (figures.pass_rate(row.before) or 0.0, figures.in_order(row.id)),
        )
        if chosen:
            shown = [_task(row, sides) for row in chosen]
            yield {"key": key, "title": title, "meaning": meaning, "tasks": shown}


def _group(row: TaskRow, compared: bool) -> str:
    if compared:
        return "test" if row.split == "test" else row.change
    arm = row.before
    if not arm.n:
        return "unmeasured"
    return "passing" if arm.passed == arm.n else "flaky" if arm.passed else "failing"


def _task(row: TaskRow, sides: tuple[str, str]) -> _Shown:
    arms = [(sides[0] if row.after else "", row.before), (sides[1], row.after)]
    changed = [row.change] if row.split == "test" and row.change != "same" else []
    return {
        "row": row,
        "marks": changed + figures.marks(row),
        "transcripts": [_transcript(side, arm.sample) for side, arm in arms if arm and arm.sample],
        "left_out": False,
    }


def _transcript(side: str, sample: RolloutSample) -> _Shown:
    turns = [(turn.role, short(turn.content, MOST_TURN)) for turn in sample.transcript]
    if len(turns) > MOST_TURNS:
        first = MOST_TURNS // 3
        gap = ("...", f"{len(turns) - MOST_TURNS} turns left out")
        turns = [*turns[:first], gap, *turns[len(turns) - MOST_TURNS + first :]]
    said = short(sample.message)
    return {"side": side, "outcome": sample.outcome, "message": said, "turns": turns}


def summary_link(result: Result, report: Path, page: Path) -> str:
    """Make the HTML link to ``report`` for ``page``, which pytest-html writes."""
    way = os.path.relpath(report.absolute(), page.absolute().parent).replace(os.sep, "/")
    return str(
        Markup('<p>skillopt: {answer}. <a href="{url}">The report of run {run}</a></p>').format(
            answer=headline(result).answer, url=quote(way), run=printable(result.run)
        )
    )
