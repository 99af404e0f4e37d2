"""Words for figures, the same on every terminal and in every report; harmless text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_skillopt.untrusted import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_skillopt.tasks.task import LeftOut


def one_line(text: str) -> str:
    """Turn untrusted text into one printable line."""
    return " ".join(printable(text).split())


def clip(text: str, width: int) -> str:
    """Cut to at most ``width`` characters; three dots show the cut."""
    return text if len(text) <= width else text[: max(width - 3, 0)] + "..."


def full_stop(text: str) -> str:
    """Make a reason a sentence; a path at its beginning stays as it is."""
    text = text.strip()
    if not text:
        return ""
    if text.split()[0].rstrip(",;:").isalpha():
        text = text[0].upper() + text[1:]
    return text if text[-1] in ".!?" else f"{text}."


UNKNOWN = "-"


def percent(rate: float | None) -> str:
    """Write a rate in [0, 1] as ``56.7 %``; ``-`` if there is none."""
    return UNKNOWN if rate is None else f"{100 * rate:.1f} %"


def rounded(rate: float) -> str:
    """Write a rate in [0, 1] to whole percent: ``57 %``."""
    return f"{100 * rate:.0f} %"


def move(before: float | None, after: float | None) -> str:
    """Write two rates as ``52.0 -> 63.0 %``, or the known one."""
    if before is None or after is None:
        known = after if before is None else before
        return percent(known)
    return f"{100 * before:.1f} -> {percent(after)}"


def effect(points: float | None, chance: float | None) -> str:
    """Write what is known of an edit: ``+12 points, 97 % sure to help``; empty if nothing is.

    Args:
        points: expected change of the pass rate, in [-1, 1].
        chance: probability that it helps, in [0, 1].
    """
    if points is None or chance is None:
        return ""
    return f"{points_of(points)}, {probability(chance)} sure to help"


def probability(estimate: float) -> str:
    """Write an estimated probability, in [0, 1], to whole percent, but never as certain."""
    if estimate >= 0.995:
        return "more than 99 %"
    return rounded(estimate) if estimate > 0.005 else "less than 1 %"


def points_between(before: float, after: float, digits: int = 1) -> str:
    """Write the difference of two rates in percentage points, signed: ``+31.4``.

    It is that of the rates as they are written, with so many digits after the point.
    """
    old, new = (round(100 * rate, digits) for rate in (before, after))
    difference = round(new - old, digits)
    return f"{difference:+.{digits}f}" if difference else f"{0:.{digits}f}"


def points_of(change: float) -> str:
    """Write a change of a rate, in [-1, 1], as ``+12 points``."""
    return in_points(f"{round(100 * change):+}")


def in_points(figure: str) -> str:
    """Write a figure with its unit, percentage points: ``+12 points``, ``1 point``."""
    return f"{figure} point" if figure.strip("+-") == "1" else f"{figure} points"


def split_tasks(splits: Sequence[str]) -> str:
    """Count tasks by their splits: ``45 tasks (23 train, 11 val, 11 test)``."""
    named = {"train": "train", "val": "val", "test": "test", "both": "both train and val"}
    counts = {name: splits.count(split) for split, name in named.items()}
    listed = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    return plural(len(splits), "task") + (f" ({listed})" if listed else "")


def p_value_of_search(e_value: float) -> str:
    """Say what a search has won by its bets, at least 0.25: its inverse is a p-value."""
    if e_value < 2:
        return "the p-value of the search's own samples was above 0.5"
    bound = max(1 / e_value, 0.0001)
    return f"the p-value of the search's own samples was at most {bound:.2g}"


def plural(n: int, noun: str) -> str:
    """Count a noun: ``1 task``, ``2 tasks``, ``no tasks``."""
    return f"{number(n) if n else 'no'} {noun if n == 1 else noun + 's'}"


def number(n: int) -> str:
    """Write a number with commas between the thousands."""
    return f"{n:,}"


def money(cost: float | None) -> str:
    """Write US dollars: cents from ten cents on, else two significant digits; ``-`` if unknown."""
    if cost is None:
        return UNKNOWN
    if cost == 0 or cost >= 0.1:
        return f"${cost:,.2f}"
    return f"${cost:.2g}" if cost >= 0.0001 else "below $0.0001"


def duration(seconds: float) -> str:
    """Write wall time in at most two units: ``48 s``, ``3 min 12 s``, ``2 h 05 min``."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def named(names: Iterable[str], most: int = 3) -> str:
    """List the first names, and the number of further ones."""
    each = list(dict.fromkeys(names))
    shown = ", ".join(each[:most])
    return shown if len(each) <= most else f"{shown} and {number(len(each) - most)} more"


def passes_with_nothing(tasks: Sequence[str]) -> str:
    """Name tasks that pass with an agent that does nothing, and advise; empty if there are none."""
    if not tasks:
        return ""
    names = named(map(one_line, tasks))
    return (
        f"with an agent that does nothing {names} {'passes' if len(tasks) == 1 else 'pass'}: "
        "assert what only good work brings about; a test that guards what must not break is marked "
        "must_pass=True"
    )


def left_out(tests: LeftOut, *, is_idle: bool) -> Iterator[str]:
    """Say which tasks are always skipped, and if there is no task at all, what to do about it."""
    if is_idle and tests.unmarked:
        yield f"{plural(tests.unmarked, 'test')} without the marker skill_task: left out"
    for reason, count in tests.skipped.items():
        yield f"{plural(count, 'task')} always skipped: {reason}"
    if is_idle and not tests.skipped:
        yield (
            "no task was found, so that nothing was done: mark the tests of the skill with "
            "@pytest.mark.skill_task (docs/getting-started.md), or collect evals.json with "
            "--skillopt-evals, and look at -k, -m and the paths"
        )
