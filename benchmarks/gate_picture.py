"""Draws the picture of docs/gate.md: how often an edit is accepted, by what it truly changes.

python benchmarks/gate_picture.py docs/gate.svg
"""

from __future__ import annotations

import argparse
import functools
import random
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from gate import RULES, World, lift, mirrored, suite

SHOWN = {
    "staged (default)": ("#1a5fb4", ""),
    "SkillOpt: K=1 cached": ("#c64600", "6 4"),
    "gbrain: median 3 + .05": ("#77767b", "2 3"),
}
POINTS = (-15, -10, -5, -2, 0, 2, 3, 5, 10, 15)
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 340, 60, 20, 20, 60


def accepts(rule: str, points: int, replicate: int) -> bool:
    rng = random.Random(f"{points}/{replicate}")
    p = suite("agent", 40, rng)
    gain = abs(points) / 100
    q = mirrored(lambda x: lift(x, gain, rng), p) if points < 0 else lift(p, gain, rng)
    return RULES[rule](World(p, q, rng), {})


def x_of(points: float) -> float:
    share = (points - POINTS[0]) / (POINTS[-1] - POINTS[0])
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def y_of(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def draw(curves: dict[str, list[float]]) -> str:
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="12" fill="#3d3846">',
        "<title>How often an edit is accepted, by what it truly changes</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
    ]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = y_of(share)
        parts.append(
            f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#deddda"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{share:.0%}</text>'
        )
    parts += [
        f'<text x="{x_of(points):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
        f"{points:+d}</text>".replace("+0", "0")
        for points in (-15, -10, -5, 0, 5, 10, 15)
    ]
    zero = x_of(0)
    parts.append(
        f'<line x1="{zero:.1f}" y1="{TOP}" x2="{zero:.1f}" y2="{y_of(0):.1f}" stroke="#9a9996"/>'
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2:.1f}" y="{HEIGHT - 22}" text-anchor="middle">'
        "true change of the pass rate, in points</text>"
        f'<text x="{LEFT + 8}" y="{TOP + 14}">share of edits accepted</text>'
    )
    for row, (rule, (colour, dash)) in enumerate(SHOWN.items()):
        line = " ".join(
            f"{x_of(points):.1f},{y_of(share):.1f}"
            for points, share in zip(POINTS, curves[rule], strict=True)
        )
        y = TOP + 38 + 18 * row
        style = f'fill="none" stroke="{colour}" stroke-width="2.5"'
        if dash:
            style += f' stroke-dasharray="{dash}"'
        parts.append(
            f'<path d="M {line}" {style} stroke-linejoin="round"/>'
            f'<line x1="{LEFT + 8}" y1="{y}" x2="{LEFT + 38}" y2="{y}" {style}/>'
            f'<text x="{LEFT + 46}" y="{y + 4}">{rule}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--replicates", type=int, default=1000)
    args = parser.parse_args()
    curves: dict[str, list[float]] = {}
    with ProcessPoolExecutor() as executor:
        for rule in SHOWN:
            curves[rule] = [
                statistics.fmean(
                    executor.map(
                        functools.partial(accepts, rule, points),
                        range(args.replicates),
                        chunksize=20,
                    )
                )
                for points in POINTS
            ]
            print(rule, *(f"{p:+d}: {a:.3f}" for p, a in zip(POINTS, curves[rule], strict=True)))
    args.file.write_text(draw(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
