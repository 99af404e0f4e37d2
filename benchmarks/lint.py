"""Count what the lint and the filter of leaks let through: ``python benchmarks/lint.py``.

The two are measured apart. The lint reads ordinary lines of SKILL.md files (build, release, data,
support), of which it should refuse none, and hostile ones: it can decide those that name an outside
address, hide something or hold a secret, it shows commands to the reader, and has nothing to say
of sentences. The filter reads answers of tasks in many forms. Exits with 1 where more than 1 in 60
ordinary lines is refused.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pytest_skillopt.plugins.leaks.task_words import LeakIndex
from pytest_skillopt.skill.edits import Edit, apply
from pytest_skillopt.skill.lint import Finding, Linter, refused, warned
from pytest_skillopt.skill.version import Version
from pytest_skillopt.tasks.task import SkillTask

DATA = Path(__file__).parent.parent / "tests" / "data"
SKILL = (
    "---\nname: house-rules\ndescription: Says how work is done here.\n---\n\n"
    "# House rules\n\nBe brief.\n"
)
MOST_REFUSED = 1 / 60


def judge(text: str) -> list[Finding]:
    """Return the findings of a text that is appended."""
    before = Version.from_text(SKILL)
    return Linter().check(before, apply(before, Edit("append", content=text)))


def show_lint(lines: dict[str, list[str]]) -> bool:
    """Whether few enough ordinary lines are refused."""
    found = {kind: [(text, judge(text)) for text in texts] for kind, texts in lines.items()}
    counts = {kind: sum(bool(refused(f)) for _, f in rows) for kind, rows in found.items()}
    ordinary = found["ordinary"]
    hostile = found["hostile"]
    shown = sum(bool(warned(f)) and not refused(f) for _, f in hostile)
    noted = sum(bool(warned(f)) and not refused(f) for _, f in ordinary)
    print(
        f"lint, ordinary lines: {counts['ordinary']} of {len(ordinary)} refused, "
        f"{noted} shown to the reader for a command or URL"
    )
    print(
        f"lint, hostile lines: {counts['hostile']} of {len(hostile)} refused, {shown} shown to "
        f"the reader, {len(hostile) - counts['hostile'] - shown} pass (sentences)"
    )
    for text, findings in ordinary:
        if refused(findings):
            print(f"  refused by mistake ({findings[0].rule}): {text!r}")
    for text, findings in hostile:
        if not findings:
            print(f"  passes: {text!r}")
    return counts["ordinary"] <= MOST_REFUSED * len(ordinary)


def show_leaks() -> None:
    data = json.loads((DATA / "leaks.json").read_text("utf-8"))
    filler = [{"split": "train", "text": f"Total {n}0", "expected": "paid"} for n in range(20)]
    index = LeakIndex(
        SkillTask(
            f"t{number}", "", "SKILL.md", "", split=entry["split"], text=json.dumps(entry, indent=1)
        )
        for number, entry in enumerate([*data["tasks"], *filler])
    )
    missed = [text for text in data["leaks"] if not index.check(text)]
    wrong = [(text, found) for text in data["harmless"] if (found := index.check(text))]
    print(
        f"leak filter: {len(data['leaks']) - len(missed)} of {len(data['leaks'])} answers found, "
        f"{len(wrong)} of {len(data['harmless'])} harmless lines taken for one"
    )
    for text in missed:
        print(f"  missed: {text!r}")
    for text, found in wrong:
        print(f"  taken for a leak ({found[0].excerpt}): {text!r}")


def show_time(text: str) -> None:
    before = Version.from_text(SKILL)
    for size in (1_000, 10_000, 100_000):
        after = Version.from_text(SKILL + (text * (size // len(text) + 1))[:size])
        start = time.perf_counter()
        Linter().check(before, after)
        print(f"lint of {size:,} added characters: {time.perf_counter() - start:.2f} s")


def main() -> None:
    lines: dict[str, list[str]] = json.loads((DATA / "lines.json").read_text("utf-8"))
    good = show_lint(lines)
    show_leaks()
    show_time("\n\n".join(lines["ordinary"]) + "\n")
    sys.exit(not good)


if __name__ == "__main__":
    main()
