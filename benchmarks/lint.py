"""How well the lint tells bad edits from harmless ones: ``python benchmarks/lint.py``.

Two sets: ``planted`` is what the tests pin; ``held out`` was written after the rules, and no rule
was changed for it. A third holds answers of tasks in many forms, for the filter of leaks. Prints
what was missed and what was refused by mistake, and the time that the lint takes.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pytest_skillopt.skill.document import Document
from pytest_skillopt.skill.edits import Edit, apply
from pytest_skillopt.skill.leaks import LeakIndex
from pytest_skillopt.skill.lint import Finding, lint, refused
from pytest_skillopt.suite.tasks import SkillTask

DATA = Path(__file__).parent.parent / "tests" / "skill" / "data"
SKILL = (
    "---\nname: read-invoices\ndescription: Extracts data from invoices.\n---\n\n"
    "# Invoices\n\nAnswer with one JSON object.\n"
)


def load(name: str) -> list[dict[str, str]]:
    entries: list[dict[str, str]] = json.loads((DATA / f"{name}.json").read_text("utf-8"))
    return entries


def judge(entry: dict[str, Any]) -> list[Finding]:
    """The refusals of an entry: a text that is appended, or a pair of documents."""
    before = Document.from_text(entry.get("before", SKILL))
    if "after" in entry:
        after = Document.from_text(entry["after"])
    else:
        after = apply(before, (Edit("append", content=entry["text"]),)).document
    return refused(lint(before, after))


def show(title: str, bad: str, harmless: str) -> None:
    missed = [entry for entry in load(bad) if not judge(entry)]
    wrong = [(entry, judge(entry)) for entry in load(harmless) if judge(entry)]
    bad_count, harmless_count = len(load(bad)), len(load(harmless))
    print(
        f"{title}: {bad_count - len(missed)} of {bad_count} bad edits refused, "
        f"{harmless_count - len(wrong)} of {harmless_count} harmless ones pass"
    )
    for entry in missed:
        print(f"  missed ({entry['rule']}): {entry.get('text', entry.get('after'))!r}")
    for entry, findings in wrong:
        rules = ", ".join(sorted({finding.rule for finding in findings}))
        print(f"  refused by mistake ({rules}): {entry['text']!r}")


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
        f"leaks: {len(data['leaks']) - len(missed)} of {len(data['leaks'])} found, "
        f"{len(data['harmless']) - len(wrong)} of {len(data['harmless'])} harmless ones pass"
    )
    for text in missed:
        print(f"  missed: {text!r}")
    for text, found in wrong:
        print(f"  taken for a leak ({found[0].excerpt}): {text!r}")


def main() -> None:
    show("planted", "bad_edits", "harmless_edits")
    show("held out", "heldout_bad_edits", "heldout_harmless_edits")
    show_leaks()
    text = "\n\n".join(entry["text"] for entry in load("harmless_edits")) + "\n"
    before = Document.from_text(SKILL)
    for size in (1_000, 10_000, 100_000):
        after = Document.from_text(SKILL + (text * (size // len(text) + 1))[:size])
        start = time.perf_counter()
        lint(before, after)
        print(f"lint of {size:,} added characters: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
