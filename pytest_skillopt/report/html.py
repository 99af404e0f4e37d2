"""``report.html``: one self-contained file without scripts, safe to open whatever a model wrote."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

import jinja2
from markupsafe import Markup, escape

from pytest_skillopt.report import svg, words
from pytest_skillopt.report.advice import Advice, advise, full_stop, headline
from pytest_skillopt.run.result import Hunk
from pytest_skillopt.untrusted import bound, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_skillopt.run.result import (
        Arm,
        EditRow,
        Rate,
        Result,
        RolloutSample,
        SkillResult,
        TaskRow,
    )

TRANSCRIPT_BUDGET = 1_200_000
"""Characters of HTML for all transcripts together, so that 400 tasks open on a phone."""
MOST_TURNS = 12
MOST_TURN = 2_000
MOST_TEXT = 1_200
MOST_DIFF_LINES = 600
MOST_EDITS = 100
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


def render_html(result: Result) -> str:
    """The whole page."""
    css = _css()
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            result=result,
            advice=headline(result),
            skills=show_skills(result),
            used=words.total(result.usage),
            calls=words.calls(result.usage),
            cost=words.cost(result.usage),
            unpriced=words.unpriced(result.usage),
            command=words.command(result.command),
            settings=words.settings(result),
            dear=words.dearest(result),
            css=Markup(css),
            csp=_policy(css),
            marks={
                verdict: svg.mark(verdict) for verdict in ("accepted", "rejected", "unmeasured")
            },
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


@dataclass(frozen=True, slots=True)
class ShownRate:
    """A pass rate with its bar."""

    side: str
    """What the version is called."""
    kind: Literal["old", "new"]
    rate: Rate
    bar: Markup


@dataclass(frozen=True, slots=True)
class Scale:
    """What was measured on one set of tasks."""

    name: str
    meaning: str
    sides: tuple[ShownRate, ...]
    points: str


@dataclass(frozen=True, slots=True)
class Transcript:
    """One kept rollout, bounded."""

    side: str
    outcome: str
    message: str
    turns: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ShownTask:
    row: TaskRow
    marks: tuple[str, ...]
    transcripts: tuple[Transcript, ...]
    left_out: bool
    """There are transcripts, and the report has no room for them."""


@dataclass(frozen=True, slots=True)
class Group:
    """Tasks that went alike."""

    key: str
    title: str
    meaning: str
    tasks: tuple[ShownTask, ...]


@dataclass(frozen=True, slots=True)
class ShownHunk:
    lines: tuple[tuple[str, str], ...]
    """Kind (``add``, ``remove``, ``place`` or ``keep``) and text."""
    edits: tuple[EditRow, ...] = ()
    """Those that made it, each with its own reason and tasks."""


@dataclass(frozen=True, slots=True)
class ShownSkill:
    """A skill with everything the template needs worked out."""

    skill: SkillResult
    anchor: str
    advice: Advice
    hunks: tuple[ShownHunk, ...]
    lines_left_out: int
    scales: tuple[Scale, ...]
    precision: tuple[str, ...]
    curves: tuple[Markup, ...]
    groups: tuple[Group, ...]
    compared: bool
    sides: tuple[str, str]
    """What the versions are called."""
    edits: tuple[EditRow, ...]
    edits_left_out: int


def show_skills(result: Result) -> list[ShownSkill]:
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


def _show(result: Result, skill: SkillResult, i: int, budget: _Budget) -> ShownSkill:
    hunks, left_out = _hunks(skill)
    compared = any(row.after is not None for row in skill.tasks)
    edits = words.not_kept(skill)
    curves: tuple[Markup, ...] = ()
    if any(step.after is not None for step in skill.steps):
        curves = (
            svg.curve(skill.steps, name=f"curve-{i}-wide", width=900, height=300),
            svg.curve(skill.steps, name=f"curve-{i}-narrow", width=350, height=240),
        )
    return ShownSkill(
        skill=skill,
        anchor=f"skill-{i}",
        advice=advise(result, skill),
        hunks=hunks,
        lines_left_out=left_out,
        scales=tuple(_scales(result, skill)),
        precision=tuple(words.precision(skill)) if result.mode != "aa" else (),
        curves=curves,
        groups=tuple(_groups(result, skill, compared, budget)),
        compared=compared,
        sides=words.sides(result.mode),
        edits=tuple(edits[:MOST_EDITS]),
        edits_left_out=max(len(edits) - MOST_EDITS, 0),
    )


def _hunks(skill: SkillResult) -> tuple[tuple[ShownHunk, ...], int]:
    shown, room, total = [], MOST_DIFF_LINES, 0
    for hunk in skill.hunks or ([Hunk(diff=skill.patch)] if skill.patch else []):
        rows = list(_diff_rows(hunk.diff))
        total += len(rows)
        if room > 0:
            shown.append(ShownHunk(tuple(rows[:room]), tuple(words.edits_of(hunk))))
        room -= len(rows)
    return tuple(shown), max(total - MOST_DIFF_LINES, 0)


def _diff_rows(diff: str) -> Iterator[tuple[str, str]]:
    kinds = {"+": "add", "-": "remove", "@": "place"}
    for row in diff.removesuffix("\n").split("\n"):
        if not row.startswith(("--- ", "+++ ")):
            yield kinds.get(row[:1], "keep"), row.removesuffix("\r")


def _scales(result: Result, skill: SkillResult) -> Iterator[Scale]:
    first, second = words.sides(result.mode)
    for key, comparison in words.comparisons(skill).items():
        name, trained, meaning = _SCALES[key]
        before, after = comparison.before, comparison.after
        sides = [ShownRate(first if after else "now", "old", before, svg.rate_bar(before))]
        moved = ""
        if after is not None:
            sides.append(ShownRate(second, "new", after, svg.rate_bar(after)))
            moved = words.points(before.rate, after.rate)
        if key == "suite" and not skill.from_search:
            trained += ", fresh samples"
        yield Scale(name, trained if result.mode == "train" else meaning, tuple(sides), moved)


def _groups(result: Result, skill: SkillResult, compared: bool, budget: _Budget) -> Iterator[Group]:
    sides = words.sides(result.mode)
    for key, title, meaning in _GROUPS if compared else _RATED:
        chosen = sorted(
            (row for row in skill.tasks if (_change(row) if compared else _level(row)) == key),
            key=lambda row: (words.pass_rate(row.before) or 0.0, words.in_order(row.id)),
        )
        if chosen:
            yield Group(key, title, meaning, tuple(_task(row, sides, budget) for row in chosen))


def _change(row: TaskRow) -> str:
    return "test" if row.split == "test" else row.change


def _level(row: TaskRow) -> str:
    arm = row.before
    if not arm.n:
        return "unmeasured"
    return "passing" if arm.passed == arm.n else "flaky" if arm.passed else "failing"


def _task(row: TaskRow, sides: tuple[str, str], budget: _Budget) -> ShownTask:
    transcripts = tuple(_transcripts(row, sides))
    size = sum(len(escape(text)) + 60 for t in transcripts for _, text in t.turns)
    size += sum(len(escape(t.message)) for t in transcripts)
    kept = budget.take(size)
    return ShownTask(
        row=row,
        marks=tuple(
            ([row.change] if row.split == "test" and row.change != "same" else [])
            + words.marks(row)
        ),
        transcripts=transcripts if kept else (),
        left_out=bool(transcripts) and not kept,
    )


def _transcripts(row: TaskRow, sides: tuple[str, str]) -> Iterator[Transcript]:
    arms: list[tuple[str, Arm | None]] = [(sides[0], row.before), (sides[1], row.after)]
    for side, arm in arms:
        if arm is not None and arm.sample is not None:
            yield _transcript(side if row.after is not None else "", arm.sample)


def _transcript(side: str, sample: RolloutSample) -> Transcript:
    turns = [(turn.role, bound(turn.content, MOST_TURN * 3 // 4, MOST_TURN // 4))
             for turn in sample.transcript]  # fmt: skip
    if len(turns) > MOST_TURNS:
        first = MOST_TURNS // 3
        gap = ("...", f"{len(turns) - MOST_TURNS} turns left out")
        turns = [*turns[:first], gap, *turns[len(turns) - MOST_TURNS + first :]]
    return Transcript(side, sample.outcome, short(sample.message), tuple(turns))
