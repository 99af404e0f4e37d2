"""LiveMathematicianBench: multiple-choice questions about theorems of recent papers.

Scored by the label of the choice. The choices are shuffled, always alike for one task.
"""

import random
import re
from pathlib import Path
from typing import Any

import pytest
from published import answer_in, data_of, tasks


def name(file: Path, row: Any) -> str:
    """Name a row as the manifest does: ``202602:22`` is number 22 of qa_202602_final.json."""
    return f"{file.stem.split('_')[1]}:{row['no']}"


@pytest.mark.parametrize("case", tasks(data_of("livemathematicianbench"), "**/qa_*.json", name))
def test_livemathematicianbench(case: Any, skill_agent: Any) -> None:
    asked = case["mcq"]
    right = case["mcq"]["correct_choice"]
    texts = {choice["label"]: choice["text"] for choice in asked["choices"]}
    texts.setdefault(right["label"], right.get("text", ""))
    order = random.Random(case["id"]).sample(sorted(texts), len(texts))
    wanted = "ABCDEFGHIJ"[order.index(right["label"])]
    choices = "\n".join(
        f"{new}. {texts[old]}" for new, old in zip("ABCDEFGHIJ", order, strict=False)
    )
    prompt = f"{asked['question']}\n\n{choices}\n\nEnd with the label as <answer>...</answer>."
    answer = answer_in(skill_agent(prompt))
    label = re.match(r"\W*([A-J])\b", answer.upper())
    assert (label[1] if label else None) == wanted, f"label: expected {wanted}, got {answer!r}"
