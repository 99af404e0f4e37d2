"""Draws the picture of docs/gate.md: how often a recorded edit is accepted, by its net effect.

python benchmarks/gate_picture.py docs/gate.svg
"""

from __future__ import annotations

import argparse
import statistics
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path

from recorded import Pool, accepted, edits

SHOWN = {
    "sequential (default)": ("#1a5fb4", ""),
    "sequential, veto": ("#1a5fb4", "2 3"),
    "strict K=3": ("#c64600", "6 4"),
    "PACE: paired e-process": ("#77767b", "6 2"),
}
EDGES = (-16, -9, -6, -3, -1, 1, 3, 4.4, 6, 9, 16)
"""Net effects, in points, between which pairs of versions are drawn as one point."""
POINTS = (-15, 15)
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 640, 340, 60, 20, 20, 60


def x_of(points: float) -> float:
    share = (points - POINTS[0]) / (POINTS[-1] - POINTS[0])
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def y_of(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def draw(curves: dict[str, list[tuple[float, float]]]) -> str:
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
        "net effect of the edit, in points of the pass rate</text>"
        f'<text x="{LEFT + 8}" y="{TOP + 14}">share of edits accepted</text>'
    )
    for row, (rule, (colour, dash)) in enumerate(SHOWN.items()):
        line = " ".join(f"{x_of(points):.1f},{y_of(share):.1f}" for points, share in curves[rule])
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


def curve(pool: Pool, rule: str) -> list[tuple[float, float]]:
    """Net effect and share accepted, of the pairs between two edges together."""
    points = []
    for low, high in pairwise(EDGES):
        pairs = [(i, edit.net) for i, edit in enumerate(edits()) if low <= edit.net < high]
        share = statistics.fmean(accepted(pool.edit(rule, i)) for i, _ in pairs)
        points.append((statistics.fmean(net for _, net in pairs), share))
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--replicates", type=int, default=200)
    args = parser.parse_args()
    with ProcessPoolExecutor() as executor:
        pool = Pool(executor, args.replicates)
        curves = {rule: curve(pool, rule) for rule in SHOWN}
    for rule, points in curves.items():
        print(rule, *(f"{net:+.1f}: {share:.2f}" for net, share in points))
    args.file.write_text(draw(curves), encoding="utf-8")


if __name__ == "__main__":
    main()
