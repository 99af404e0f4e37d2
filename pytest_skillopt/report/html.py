"""``report.html``: one self-contained file without scripts, safe to open whatever a model wrote."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup, escape

from pytest_skillopt.report import words
from pytest_skillopt.report.advice import advise, full_stop, headline
from pytest_skillopt.report.text import clip, one_line
from pytest_skillopt.run.result import Hunk
from pytest_skillopt.untrusted import bound, printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_skillopt.run.result import (
        Arm,
        Rate,
        Result,
        RolloutSample,
        SkillResult,
        StepRow,
        TaskRow,
    )

TRANSCRIPT_BUDGET = 1_200_000
"""Characters of HTML for all transcripts together, so that 400 tasks open on a phone."""
MOST_TURNS = 12
MOST_TURN = 2_000
MOST_TEXT = 1_200
MOST_DIFF_LINES = 600
MOST_EDITS = 100
MOST_PARTS = 60
_SCALES = {
    "suite": ("Suite", "train and val tasks", "all tasks"),
    "val": ("Val", "the tasks that the gate is measured on", "tasks of the split val"),
    "test": ("Test", "tasks that no edit has seen", "tasks of the split test"),
}
_GROUPS = (
    ("broken", "Broken", "pass less often than before"),
    ("undecided", "Undecided", "moved, but it may be chance"),
    ("fixed", "Fixed", "pass more often than before"),
    ("same", "No change", "about alike under both"),
    ("test", "Test split", "tasks that no edit has seen"),
)
_RATED = (
    ("failing", "Never passed", "no measured rollout passed"),
    ("flaky", "Sometimes passed", "both passed and failed under one version"),
    ("passing", "Always passed", "every measured rollout passed"),
    ("unmeasured", "Not measured", "skipped, or nothing but infrastructure errors"),
)

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 14, 30
"""Margins of the plot in user units."""


def render_html(result: Result) -> str:
    """The whole page."""
    css = _css()
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            advice=headline(result),
            skills=_show_skills(result),
            used=words.total(result.usage),
            calls=words.calls(result.usage),
            cost=words.cost(result.usage),
            unpriced=words.unpriced(result.usage),
            command=words.command(result.command),
            settings=words.settings(result),
            dear=words.dearest(result),
            css=Markup(css),
            csp=_policy(css),
            marks={verdict: mark(verdict) for verdict in ("accepted", "rejected", "unmeasured")},
        )
    )


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("pytest_skillopt.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Every value that the template prints passes here before it is escaped.
        finalize=_clean,
    )
    environment.filters |= {
        "percent": words.percent,
        "interval": words.interval,
        "number": words.number,
        "scanned": words.scanned,
        "money": words.money,
        "duration": words.duration,
        "version": words.version,
        "sentence": full_stop,
        "short": short,
        "tied": _tie,
        "breakable": _breakable,
        "moment": words.moment,
        "rate": words.pass_rate,
    }
    environment.globals |= {"plural": words.plural, "points": words.points, "move": words.move}
    return environment


def _clean(value: Any) -> Any:
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _breakable(text: str) -> Markup:
    """A node id that is broken between its parts rather than inside of a word."""
    parts = re.split(r"(?<=/)|(?<=::)|(?=\[)|(?<=_)", printable(text))
    return Markup("<wbr>").join(parts)


def _tie(text: str) -> str:
    """Keep a figure and its unit on one line."""
    return re.sub(r"(?<=\d) (?=%|points\b)", "\u00a0", text)


@cache
def _css() -> str:
    loader = jinja2.PackageLoader("pytest_skillopt.report")
    return loader.get_source(jinja2.Environment(), "report.css")[0]


def _policy(css: str) -> str:
    """A policy under which nothing is fetched or run, and no style applies but ours."""
    digest = base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


_Shown = dict[str, Any]
"""What the template reads, by name."""


def _show_skills(result: Result) -> list[_Shown]:
    """Each skill of the run; the room for transcripts is shared between them."""
    budget = _Budget(TRANSCRIPT_BUDGET)
    return [_show(result, skill, i, budget) for i, skill in enumerate(result.skills)]


def short(text: str, most: int = MOST_TEXT) -> str:
    """The beginning and the end of a text that is longer than ``most`` characters."""
    return bound(text, most * 3 // 4, most // 4)


@dataclass(slots=True)
class _Budget:
    left: int

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True


def _show(result: Result, skill: SkillResult, i: int, budget: _Budget) -> _Shown:
    hunks, left_out = _hunks(skill)
    compared = any(row.after is not None for row in skill.tasks)
    edits = words.not_kept(skill)
    curves: tuple[Markup, ...] = ()
    if any(s.after is not None or s.train is not None for s in skill.steps):
        curves = (
            _curve(skill.steps, f"curve-{i}-wide", 900, 300),
            _curve(skill.steps, f"curve-{i}-narrow", 350, 240),
        )
    return {
        "skill": skill,
        "anchor": f"skill-{i}",
        "advice": advise(result, skill),
        "hunks": hunks,
        "lines_left_out": left_out,
        "scales": tuple(_scales(result, skill)),
        "precision": tuple(words.precision(skill)) if result.mode != "aa" else (),
        "curves": curves,
        "parts": _parts(skill.tasks),
        "mute": [row.id for row in skill.tasks if _tells_nothing(row)],
        "groups": tuple(_groups(result, skill, compared, budget)),
        "compared": compared,
        "sides": words.sides(result.mode),
        "edits": tuple(edits[:MOST_EDITS]),
        "edits_left_out": max(len(edits) - MOST_EDITS, 0),
    }


def _parts(rows: Sequence[TaskRow]) -> list[_Shown]:
    """Pass rates by file and class, where there are several."""
    parts: dict[str, list[TaskRow]] = {}
    for row in rows:
        parts.setdefault(row.id.split("[")[0].rpartition("::")[0], []).append(row)
    return [
        {
            "name": name,
            "tasks": len(group),
            "before": _mean(row.before for row in group),
            "after": _mean(row.after for row in group if row.after),
        }
        for name, group in sorted(parts.items())
        if len(parts) > 1
    ][:MOST_PARTS]


def _mean(arms: Iterable[Arm]) -> float | None:
    rates = [rate for arm in arms if (rate := words.pass_rate(arm)) is not None]
    return sum(rates) / len(rates) if rates else None


def _tells_nothing(row: TaskRow) -> bool:
    """Whether a task always passed, or never, under every version that was measured."""
    arms = [arm for arm in (row.before, row.after) if arm and arm.n]
    shares = {arm.passed / arm.n for arm in arms}
    return shares in ({0.0}, {1.0})


def _hunks(skill: SkillResult) -> tuple[list[_Shown], int]:
    shown: list[_Shown] = []
    room, total = MOST_DIFF_LINES, 0
    for hunk in skill.hunks or ([Hunk(diff=skill.patch)] if skill.patch else []):
        rows = list(_diff_rows(hunk.diff))
        total += len(rows)
        if room > 0:
            shown.append({"lines": rows[:room], "edits": words.edits_of(hunk)})
        room -= len(rows)
    return shown, max(total - MOST_DIFF_LINES, 0)


def _diff_rows(diff: str) -> Iterator[tuple[str, str]]:
    kinds = {"+": "add", "-": "remove", "@": "place"}
    for row in diff.removesuffix("\n").split("\n"):
        if not row.startswith(("--- ", "+++ ")):
            yield kinds.get(row[:1], "keep"), row.removesuffix("\r")


def _scales(result: Result, skill: SkillResult) -> Iterator[_Shown]:
    first, second = words.sides(result.mode)
    for key, comparison in words.comparisons(skill).items():
        name, trained, meaning = _SCALES[key]
        before, after = comparison.before, comparison.after
        sides = [(first if after else "now", "old", before)]
        sides += [(second, "new", after)] if after else []
        moved = words.points(before.rate, after.rate) if after else ""
        if key == "suite" and not skill.from_search:
            trained += ", fresh samples"
        yield {
            "name": name,
            "meaning": trained if result.mode == "train" else meaning,
            "sides": [
                {"side": side, "kind": kind, "rate": rate, "bar": rate_bar(rate)}
                for side, kind, rate in sides
            ],
            "points": moved,
        }


def _groups(
    result: Result, skill: SkillResult, compared: bool, budget: _Budget
) -> Iterator[_Shown]:
    sides = words.sides(result.mode)
    for key, title, meaning in _GROUPS if compared else _RATED:
        chosen = sorted(
            (row for row in skill.tasks if (_change(row) if compared else _level(row)) == key),
            key=lambda row: (words.pass_rate(row.before) or 0.0, words.in_order(row.id)),
        )
        if chosen:
            shown = [_task(row, sides, budget) for row in chosen]
            yield {"key": key, "title": title, "meaning": meaning, "tasks": shown}


def _change(row: TaskRow) -> str:
    return "test" if row.split == "test" else row.change


def _level(row: TaskRow) -> str:
    arm = row.before
    if not arm.n:
        return "unmeasured"
    return "passing" if arm.passed == arm.n else "flaky" if arm.passed else "failing"


def _task(row: TaskRow, sides: tuple[str, str], budget: _Budget) -> _Shown:
    arms = [(sides[0] if row.after else "", row.before), (sides[1], row.after)]
    shown = [_transcript(side, arm.sample) for side, arm in arms if arm and arm.sample]
    size = sum(len(escape(text)) + 60 for one in shown for _, text in one["turns"])
    kept = budget.take(size + sum(len(escape(one["message"])) for one in shown))
    changed = [row.change] if row.split == "test" and row.change != "same" else []
    return {
        "row": row,
        "marks": changed + words.marks(row),
        "transcripts": shown if kept else [],
        "left_out": bool(shown) and not kept,
    }


def _transcript(side: str, sample: RolloutSample) -> _Shown:
    turns = [(turn.role, short(turn.content, MOST_TURN)) for turn in sample.transcript]
    if len(turns) > MOST_TURNS:
        first = MOST_TURNS // 3
        gap = ("...", f"{len(turns) - MOST_TURNS} turns left out")
        turns = [*turns[:first], gap, *turns[len(turns) - MOST_TURNS + first :]]
    message = short(sample.message)
    return {"side": side, "outcome": sample.outcome, "message": message, "turns": turns}


def rate_bar(rate: Rate) -> Markup:
    """A pass rate on a scale from 0 to 100 % with its interval; stretches to any width."""
    low, high, at = (f"{100 * x:.2f}" for x in (rate.low, rate.high, rate.rate))
    width = f"{max(100 * (rate.high - rate.low), 0.4):.2f}"
    return Markup(
        '<svg class="bar" viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="track" x="0" y="4" width="100" height="2"/>'
        '<rect class="interval" x="{low}" y="2" width="{width}" height="6"/>'
        '<line class="point" x1="{at}" y1="0" x2="{at}" y2="10"/></svg>'
    ).format(low=low, high=high, width=width, at=at)


def _curve(steps: Sequence[StepRow], name: str, width: int, height: int) -> Markup:
    """Pass rates over the steps: of the train tasks as a line, of candidates on val as marks."""

    def x(i: int) -> str:
        return f"{_LEFT + (width - _LEFT - _RIGHT) * (i + 0.5) / len(steps):.1f}"

    def y(rate: float) -> str:
        return f"{_TOP + (height - _TOP - _BOTTOM) * (1 - rate):.1f}"

    drawn = Markup()
    for rate in (0.0, 0.25, 0.5, 0.75, 1.0):
        drawn += Markup(
            '<line class="grid" x1="{0}" y1="{2}" x2="{1}" y2="{2}"/>'
            '<text class="tick" x="{3}" y="{2}" dy="4" text-anchor="end">{4:.0f} %</text>'
        ).format(_LEFT, width - _RIGHT, y(rate), _LEFT - 8, 100 * rate)
    every = math.ceil(len(steps) * 26 / (width - _LEFT - _RIGHT))
    for i, step in enumerate(steps[::every]):
        label = '<text class="tick" x="{}" y="{}" text-anchor="middle">{}</text>'
        drawn += Markup(label).format(x(i * every), height - 10, step.step)
    line = " ".join(f"{x(i)},{y(s.train)}" for i, s in enumerate(steps) if s.train is not None)
    drawn += Markup('<polyline class="current" points="{}"/>').format(line)
    told = [f"step {s.step} {words.percent(s.train)}" for s in steps if s.train is not None]
    for i, step in enumerate(steps):
        if step.after is not None:
            moved = f"step {step.step}, {step.verdict}: {words.move(step.before, step.after)}"
            hint = f"{moved}; {clip(one_line(step.reason), 200)}" if step.reason else moved
            group = '<g transform="translate({} {})">{}<title>{}</title></g>'
            drawn += Markup(group).format(x(i), y(step.after), mark(step.verdict), hint)
            told.append(moved)
    return Markup(
        '<svg class="curve" viewBox="0 0 {w} {h}" role="img" aria-labelledby="{n}-t {n}-d">'
        '<title id="{n}-t">Pass rates over the steps</title><desc id="{n}-d">{told}</desc>'
        "{drawn}</svg>"
    ).format(w=width, h=height, n=name, told="; ".join(told[:40]), drawn=drawn)


def mark(verdict: str) -> Markup:
    """The sign of a verdict, centred on the origin: told apart by shape, not by colour alone."""
    if verdict == "accepted":
        return Markup('<circle class="accepted" r="5.5"/>')
    if verdict == "unmeasured":
        return Markup('<path class="unmeasured" d="M0 -6 L6 0 L0 6 L-6 0 Z"/>')
    return Markup('<path class="rejected" d="M-4.5 -4.5 L4.5 4.5 M-4.5 4.5 L4.5 -4.5"/>')
