"""Inline SVG of the HTML report. Colours come from classes, text from the report's own figures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from markupsafe import Markup

from pytest_skillopt.report import words
from pytest_skillopt.report.text import clip, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_skillopt.run.result import Rate, StepRow

_LEFT, _RIGHT, _TOP, _BOTTOM = 46, 14, 14, 30
"""Margins of the plot in user units."""


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


@dataclass(frozen=True, slots=True)
class _Scale:
    """From steps and pass rates to user units."""

    width: int
    height: int
    steps: int
    low: float
    high: float

    def x(self, i: float) -> float:
        room = self.width - _LEFT - _RIGHT
        return _LEFT + room * (i + 0.5) / max(self.steps, 1)

    def y(self, rate: float) -> float:
        room = self.height - _TOP - _BOTTOM
        return _TOP + room * (self.high - rate) / (self.high - self.low)


def curve(steps: Sequence[StepRow], *, name: str, width: int, height: int) -> Markup:
    """The val pass rate over the steps: the current skill as a line, candidates as marks.

    Args:
        steps: at least one of them with a measured candidate.
        name: makes ids unique in the page.
        width: user units; one unit is one CSS pixel where the figure is shown unscaled.
        height: likewise.
    """
    measured = [r for step in steps for r in (step.before, step.after) if r is not None]
    low = max(math.floor((min(measured) - 0.03) * 10) / 10, 0.0)
    high = min(math.ceil((max(measured) + 0.03) * 10) / 10, 1.0)
    scale = _Scale(width, height, len(steps), low, max(high, low + 0.1))
    return Markup(
        '<svg class="curve" viewBox="0 0 {w} {h}" role="img" '
        'aria-labelledby="{name}-title {name}-desc">'
        '<title id="{name}-title">Pass rate on the val tasks over the steps</title>'
        '<desc id="{name}-desc">{desc}</desc>{axes}{line}{marks}</svg>'
    ).format(
        w=width,
        h=height,
        name=name,
        desc=describe(steps),
        axes=_axes(scale, steps),
        line=_line(scale, steps),
        marks=_marks(scale, steps),
    )


def describe(steps: Sequence[StepRow]) -> str:
    """What the curve shows, in words."""
    accepted = [step for step in steps if step.verdict == "accepted"]
    candidates = words.plural(len(accepted), "candidate")
    text = f"{words.plural(len(steps), 'step')}, {candidates} accepted"
    if not accepted:
        return text + "."
    moves = "; ".join(
        f"step {step.step} from {words.percent(step.before)} to {words.percent(step.after)}"
        for step in accepted[:12]
    )
    return f"{text}: {moves}."


def _axes(scale: _Scale, steps: Sequence[StepRow]) -> Markup:
    drawn = Markup()
    stride = 2 if scale.high - scale.low > 0.55 else 1
    for tenth in range(round(scale.low * 10), round(scale.high * 10) + 1, stride):
        drawn += Markup(
            '<line class="grid" x1="{x1}" y1="{y:.1f}" x2="{x2}" y2="{y:.1f}"/>'
            '<text class="tick" x="{tx}" y="{ty:.1f}" text-anchor="end">{label} %</text>'
        ).format(
            x1=_LEFT,
            x2=scale.width - _RIGHT,
            y=scale.y(tenth / 10),
            tx=_LEFT - 8,
            ty=scale.y(tenth / 10) + 4,
            label=tenth * 10,
        )
    every = math.ceil(len(steps) * 26 / (scale.width - _LEFT - _RIGHT))
    for i, step in enumerate(steps):
        if i % every == 0:
            drawn += Markup(
                '<text class="tick" x="{x:.1f}" y="{y}" text-anchor="middle">{step}</text>'
            ).format(x=scale.x(i), y=scale.height - 10, step=step.step)
    return drawn


def _line(scale: _Scale, steps: Sequence[StepRow]) -> Markup:
    """The current skill: level during a step, up or down where a candidate was accepted.

    A step without a comparison leaves it where it was; each comparison measures it afresh.
    """
    points: list[tuple[float, float]] = []
    now: float | None = None
    for i, step in enumerate(steps):
        now = now if step.before is None else step.before
        if now is None:
            continue
        points += [(scale.x(i - 0.5), scale.y(now)), (scale.x(i), scale.y(now))]
        if step.verdict == "accepted" and step.after is not None:
            now = step.after
        points += [(scale.x(i), scale.y(now)), (scale.x(i + 0.5), scale.y(now))]
    drawn = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return Markup('<polyline class="current" points="{points}"/>').format(points=drawn)


def _marks(scale: _Scale, steps: Sequence[StepRow]) -> Markup:
    drawn = Markup()
    for i, step in enumerate(steps):
        if step.after is None:
            continue
        hint = f"step {step.step}, {step.verdict}: {words.move(step.before, step.after)}"
        reason = clip(one_line(step.reason), 200)
        group = '<g transform="translate({x:.1f} {y:.1f})">{mark}<title>{hint}</title></g>'
        drawn += Markup(group).format(
            x=scale.x(i),
            y=scale.y(step.after),
            mark=mark(step.verdict),
            hint=f"{hint}; {reason}" if reason else hint,
        )
    return drawn


def mark(verdict: str) -> Markup:
    """The sign of a verdict, centred on the origin: told apart by shape, not by colour alone."""
    if verdict == "accepted":
        return Markup('<circle class="accepted" r="5.5"/>')
    if verdict == "unmeasured":
        return Markup('<path class="unmeasured" d="M0 -6 L6 0 L0 6 L-6 0 Z"/>')
    return Markup('<path class="rejected" d="M-4.5 -4.5 L4.5 4.5 M-4.5 4.5 L4.5 -4.5"/>')
